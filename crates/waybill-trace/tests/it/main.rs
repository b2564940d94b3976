//! The public face of the crate: events of this machine's kernel, which need root and say SKIPPED without, and the page in a real browser.

#![cfg(test)]

mod cgroup;
mod ebpf;
mod page;
