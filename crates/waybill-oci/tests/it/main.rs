//! The wrapper with Debian's real runc and crun, as root.

#![cfg(test)]

mod containerd;
mod create;
mod exec;
mod hostile;
mod lab;
mod refusals;
mod terminal;
