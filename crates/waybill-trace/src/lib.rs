//! Who ran what: the audit log, the runtime's sessions and the kernel's cgroups, joined.
//!
//! The API server records who asked, under an audit ID. The runtime keeps that ID with each exec session,
//! and each session's processes in a cgroup that it knows by the kernel's ID. So the user behind a process is found
//! whatever the process did to its environment, and nobody is named for one that was moved. No value of a variable is read or shown here, only names.

mod audit;
mod collector;
mod container;
pub mod csv;
mod debug;
mod denied;
pub mod ecs;
mod hide;
mod join;
pub mod journal;
mod kernel;
mod local;
mod membership;
mod page;
mod process;
mod record;
mod remote;
mod runtime;
mod stock;
mod sys;
mod time;
mod typed;

pub use self::{
    audit::{Asked, AuditLog, AuditLogError, Caller, Refusal, Request},
    collector::{
        Collector, CollectorConfig, CollectorError, Recording, Retention, is_recorded, recording,
    },
    container::{ContainerLife, process_started},
    debug::{is_debug_container, join_debug},
    denied::{Denied, denied},
    hide::{HIDDEN, hide_secrets},
    join::{End, Filter, MovedProcess, Processes, Trace, TraceKind, join, sort},
    kernel::{Btf, BtfError, Ebpf, EbpfError, ExecEvent, ExitEvent, KernelEvent, ParentProcess},
    local::{LiveSource, LocalRecord, View},
    membership::{Membership, MoveReason, Moved, judge},
    page::{PageAddress, PageAddressError, PageServer, SavedTrace, SavedTraceError},
    process::{LiveProcess, ProcessFacts, read_processes},
    record::{
        Change, Coverage, EventSource, Gap, GapReason, ProcessQuery, ProcessState, RecordedProcess,
        RecordedSession, SessionList, SessionQuery, TraceSource, TraceSourceError, Whose,
        companions,
    },
    remote::{Heard, ReceivedRecord, RecordServer, RecordServerConfig, WireError},
    runtime::{Attached, Container, ContainerCgroups, Runtime, RuntimeError, Session},
    stock::{Standing, StockTrace, join_stock},
    typed::{OwnProcess, PossibleStarter, trace_own_process},
};
