//! Events of this machine's kernel. They need root and say SKIPPED without.

#![cfg(test)]

mod cgroup;
mod ebpf;
