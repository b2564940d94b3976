//! Who ran what: the audit log, the runtime's sessions and the kernel's cgroups, joined.
//!
//! The API server records who asked, under an audit ID. The runtime keeps that ID with each session, and the
//! processes of each exec session in a cgroup that they cannot leave. So the user behind a process is found
//! whatever the process did to its environment. No value of a variable is read or shown here, only names.

mod audit;
mod container;
mod debug;
mod join;
mod process;
mod runtime;
mod time;
mod typed;

pub use self::{
    audit::{Asked, AuditLog, AuditLogError, Caller, Request},
    container::{ContainerLife, OwnProcesses, process_started},
    debug::{is_debug_container, join_debug},
    join::{End, Filter, Trace, TraceKind, join, sort},
    process::{LiveProcess, Processes, command, session_of},
    runtime::{Attached, Container, Runtime, RuntimeError, Session},
    typed::{OwnProcess, PossibleStarter, trace_own_process},
};
