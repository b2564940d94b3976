//! What the kernel offers and no safe library does: programs and maps of eBPF, memory that is shared with them, and
//! the connector that tells of processes.
//!
//! All `unsafe` of this crate stands here.
#![allow(unsafe_code, reason = "system calls that have no safe wrapper")]

pub(crate) mod bpf;
pub(crate) mod ring;
