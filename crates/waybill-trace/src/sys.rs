//! What the kernel offers and no safe library does: programs and maps of eBPF, memory that is shared with them, and
//! the connector that tells of processes.
//!
//! All `unsafe` of this crate stands here.
#![allow(unsafe_code, reason = "system calls that have no safe wrapper")]

pub(crate) mod bpf;
pub(crate) mod ring;

use std::{io, os::fd::OwnedFd};

use tokio::io::{Interest, unix::AsyncFd};

/// Waits for a descriptor to become readable, on the runtime of tokio that this is called in.
pub(crate) fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor is open for as long as it lives, and its number does not change.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    watched.map_err(Into::into)
}
