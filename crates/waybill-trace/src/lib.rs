//! Who ran what: the audit log, the runtime's sessions and the kernel's cgroups, joined.
//!
//! The API server records who asked, under an audit ID. The runtime keeps that ID with each exec session,
//! and each session's processes in a cgroup that they cannot leave. So the user behind a process is found
//! whatever the process did to its environment. No value of a variable is read or shown here, only names.

mod audit;
mod join;
mod process;
mod runtime;
mod time;

pub use self::{
    audit::{AuditLog, AuditLogError, Caller, Request},
    join::{End, Filter, Trace, join},
    process::{LiveProcess, Processes, session_of},
    runtime::{Container, Runtime, RuntimeError, Session},
};
