//! A CRI v1 container runtime that gives exec sessions variables and a cgroup of their own.
//!
//! Four parts, each knowing only what stands below it:
//!
//! - `cri` answers the protocol: it keeps the records of sandboxes and containers and turns
//!   requests into OCI specs;
//! - `streaming` serves exec, attach and port-forward streams to whoever holds a token;
//! - `engine` starts and watches processes; it alone enters namespaces and cgroups;
//! - `image` keeps images and mounts root file systems.

mod blocking;
mod capability;
pub mod cri;
pub mod engine;
mod id_map;
pub mod image;
mod procfs;
pub mod streaming;
mod sys;
mod versioned;

pub use self::{
    blocking::NotDone,
    id_map::{IdMap, IdMapError},
    sys::{end_by_signal, give_memory_back},
};
