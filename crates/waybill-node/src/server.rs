//! The node's own API: exec, attach, port-forward, logs, and what monitors ask.
