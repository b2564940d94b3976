//! Exec, attach and port-forward streams: codecs without IO, and thin adapters.
