//! Exec, attach and port-forward streams: codecs without IO, and thin adapters.

pub mod long_target;
