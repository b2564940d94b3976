//! Sandboxes, containers and exec sessions as processes, namespaces and cgroups.
//!
//! The engine knows nothing of CRI or of images: it is given an OCI spec and a root file system. Each
//! container has a monitor process that is its parent, holds its stdio and keeps its environment in
//! memory, so that the runtime can be killed and started again while containers run, log and exit.

mod attach_sessions;
mod cgroup;
mod client;
mod clock;
mod counters;
mod environment;
mod error;
mod message;
mod monitor;
mod record;
mod request;
mod sandbox;
mod seccomp;
mod service;
mod sessions;
mod settings;
mod spawner;
mod turn;
mod user_namespace;
mod users;
mod volume;
mod wire;

use std::{collections::BTreeMap, os::fd::OwnedFd, path::PathBuf, time::SystemTime};

use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};
use waybill_core::{
    env::{name::EnvName, value::EnvValue},
    id::AuditId,
};

use crate::{IdMap, sys};

pub(crate) use self::clock::seconds;
pub(crate) use self::volume::EMULATED_IN_PROC;
pub use self::{
    attach_sessions::{AttachRecord, AttachRequest, AttachSession},
    counters::{
        Counters, CpuCounters, HugePages, IoCounters, MemoryCounters, PressureCounters,
        ProcessCounters, Stall,
    },
    error::{EngineError, ExecFault, Kind},
    seccomp::SeccompFault,
    service::{Engine, Patience, Session, SessionProcess},
    spawner::Spawner,
};

/// Whose namespace a sandbox's containers live in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceMode {
    /// One for the whole sandbox.
    Pod,
    /// One for each container; for process ids only.
    Container,
    /// The machine's own.
    Node,
}

/// What a sandbox shall be.
#[derive(Clone, Debug)]
pub struct SandboxRequest {
    /// Set in the sandbox's own UTS namespace; without one the machine's is shared.
    pub hostname: Option<String>,
    /// `Pod` means a namespace with nothing but a loopback device.
    pub network: NamespaceMode,
    /// `Pod` needs a process that holds the namespace and reaps orphans.
    pub pid: NamespaceMode,
    /// System V IPC and POSIX queues.
    pub ipc: NamespaceMode,
    /// A user namespace with these ids, which the others belong to; without one, users are the machine's. Then all of the
    /// others are the sandbox's own.
    pub user: Option<IdMap>,
    /// Kernel settings of the sandbox's namespaces, by dotted name.
    pub sysctls: BTreeMap<String, String>,
    /// The cgroup below which the sandbox's containers stand.
    pub cgroup_parent: PathBuf,
}

/// The namespaces that containers of a sandbox join; `None` where they share the machine's.
#[derive(Clone, Debug, Default)]
pub struct Namespaces {
    /// Pinned file of the network namespace.
    pub network: Option<PathBuf>,
    /// Pinned file of the IPC namespace.
    pub ipc: Option<PathBuf>,
    /// Pinned file of the UTS namespace.
    pub uts: Option<PathBuf>,
    /// The process namespace of a holder process.
    pub pid: Option<PathBuf>,
    /// Pinned file of the user namespace.
    pub user: Option<PathBuf>,
}

/// What a container shall be.
#[derive(Debug)]
pub struct ContainerRequest {
    /// Everything but the environment, which never leaves memory, as `process.args` does not. `process.env`
    /// is empty.
    pub spec: Spec,
    /// The environment, each name once, in order.
    pub env: Vec<(EnvName, EnvValue)>,
    /// How it reads and writes.
    pub stdio: Stdio,
    /// What errors call the program, if not by its path: that may hold a secret.
    pub program_name: Option<String>,
    /// Which system calls it is denied.
    pub seccomp: SeccompProfile,
}

/// Which system calls the processes of a container are denied, first processes and sessions alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SeccompProfile {
    /// Our own, of the shape that other runtimes have (docs/adr/0042).
    #[default]
    RuntimeDefault,
    /// A file of this machine, with a profile in JSON.
    Localhost(PathBuf),
    /// No filter.
    Unconfined,
}

/// A container's stdio.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Stdio {
    /// Whether standard input stays open for those who attach.
    pub stdin: bool,
    /// Whether it ends with the first client that attached.
    pub stdin_once: bool,
    /// Whether it is a terminal.
    pub tty: bool,
    /// The log file in CRI's format; without one the output is only for those who attach.
    pub log: Option<PathBuf>,
}

/// How far a container has come.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum State {
    /// Made, its process waiting for the start.
    Created,
    /// Started.
    Running {
        /// The first process, as the machine counts.
        pid: i32,
        /// When it was started.
        started_at: SystemTime,
    },
    /// Ended.
    Exited(Exit),
    /// It was made by the runtime before this one and has not ended, as far as anybody can tell; its monitor has not said
    /// a word yet. Monitors do not send this.
    #[serde(skip)]
    Silent,
    /// Its record or its monitor cannot be understood. It is left as it is, whatever is asked. Monitors do not send this.
    #[serde(skip)]
    Unknown {
        /// What cannot be understood, and why.
        reason: String,
    },
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Exit {
    /// The exit code; 128 and the signal's number when a signal ended it.
    pub code: i32,
    /// Why, where the code alone misleads.
    pub cause: ExitCause,
    /// When it was started, if it was.
    pub started_at: Option<SystemTime>,
    /// When it ended.
    pub finished_at: SystemTime,
}

/// Why a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum ExitCause {
    /// By itself, or by a signal somebody sent.
    Own,
    /// The kernel ran out of the memory that its cgroup may use.
    OutOfMemory,
    /// Its monitor died, so the container was killed and its true code is not known.
    MonitorLost,
}

/// What an exec session shall run.
#[derive(Debug)]
pub struct ExecRequest {
    /// Names the session and its cgroup.
    pub session: String,
    /// Program and arguments.
    pub argv: Vec<Vec<u8>>,
    /// Put over the container's environment, in order; the last of a name wins (EXEC-04, EXEC-06).
    pub env: Vec<(EnvName, EnvValue)>,
    /// What the runtime itself adds, over all others (EXEC-05).
    pub runtime_env: Vec<(EnvName, EnvValue)>,
    /// Streams to open. With a terminal, standard error is part of standard output.
    pub tty: bool,
    /// Whether the caller writes standard input; otherwise it is empty.
    pub stdin: bool,
    /// Whether the caller reads standard output; otherwise it is dropped.
    pub stdout: bool,
    /// Whether the caller reads standard error; otherwise it is dropped.
    pub stderr: bool,
}

/// The caller's ends of a process's streams.
#[derive(Debug)]
pub enum ProcessIo {
    /// One pipe for each stream that was asked for.
    Pipes {
        /// Written by the caller.
        stdin: Option<OwnedFd>,
        /// Read by the caller.
        stdout: Option<OwnedFd>,
        /// Read by the caller.
        stderr: Option<OwnedFd>,
    },
    /// The master of a terminal; resized with `TIOCSWINSZ`.
    Terminal(OwnedFd),
}

/// The streams of a container, for one of possibly many who attached, and the record of it.
#[derive(Debug)]
pub struct Attachment {
    /// Always pipes, also when the container has a terminal, because others read the same output.
    pub io: ProcessIo,
    /// The container's terminal, if it has one: for `TIOCSWINSZ` only, its bytes come through `io`.
    pub terminal: Option<OwnedFd>,
    /// Held as long as the streams are.
    pub session: AttachSession,
}

/// What a container used up to now.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// When the numbers were read.
    pub read_at: SystemTime,
    /// Processor time of all its processes, in nanoseconds.
    pub cpu_usage_ns: u64,
    /// Its memory.
    pub memory: MemoryStats,
    /// Processes and threads that exist now.
    pub pids: u64,
    /// How many there may be.
    pub pids_limit: Option<u64>,
    /// How long its processes waited, where the kernel counts that.
    pub pressure: Vec<PressureCounters>,
}

/// A container's memory, in bytes where nothing else is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Everything charged to its cgroup, page cache included.
    pub usage: u64,
    /// `usage` without the page cache that has not been used lately; what eviction looks at.
    pub working_set: u64,
    /// Anonymous memory.
    pub rss: u64,
    /// How much it may use.
    pub limit: Option<u64>,
    /// Swapped out, where the kernel counts that.
    pub swap_usage: Option<u64>,
    /// How much may be swapped out.
    pub swap_limit: Option<u64>,
    /// Page faults.
    pub page_faults: u64,
    /// Page faults that had to read.
    pub major_page_faults: u64,
}

/// What is remembered about an exec session: who ran what is joined from this, so it outlives the session
/// for a while. It holds no value except the audit ID, which is no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// The session.
    pub id: String,
    /// Its container.
    pub container: String,
    /// The first process, as the machine counts.
    pub pid: i32,
    /// When it was started.
    pub started_at: SystemTime,
    /// The kernel's ID of its cgroup, which is in the unified hierarchy: the number of its directory's inode. 0 while the
    /// session is being started, and for one that an older runtime's monitor started.
    pub cgroup_id: u64,
    /// When that cgroup was made, in nanoseconds after boot: no older process began in it.
    pub made_at: u64,
    /// Whether root in the container could move processes into that cgroup and out of it, so that it proves less.
    pub privileged: bool,
    /// How the first process ended, once it did.
    pub exit: Option<Exit>,
    /// Names of the variables that were put over the container's environment, each once, in order.
    pub injected: Vec<EnvName>,
    /// The audit ID of the API request that asked for the session, if the API server passed one on.
    pub audit_id: Option<AuditId>,
}

/// The cgroups of a container in the unified hierarchy, by the kernel's IDs, which are the numbers of their directories' inodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerCgroups {
    /// The container.
    pub container: String,
    /// Its first process, as the machine counts; 0 if it was not started.
    pub pid: i32,
    /// What carries its limits; it holds no process. 0 for a container of an older runtime.
    pub cgroup_id: u64,
    /// The leaf of the container's own processes, below that. 0 for a container of an older runtime.
    pub processes_id: u64,
    /// Whether root in it could move processes between cgroups.
    pub privileged: bool,
}

/// Which session records are asked for; all of them by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only those of this container.
    pub container: Option<String>,
    /// Only those whose first process has not ended.
    pub running: bool,
    /// Only those that began or ended then or later.
    pub changed_since: Option<SystemTime>,
}

impl SessionFilter {
    /// Whether a session of this container is wanted, which began and ended at these times.
    fn takes(&self, container: &str, began: SystemTime, ended: Option<SystemTime>) -> bool {
        let is_new = |since: SystemTime| began >= since || ended.is_some_and(|at| at >= since);
        self.container.as_ref().is_none_or(|id| *id == container)
            && (!self.running || ended.is_none())
            && self.changed_since.is_none_or(is_new)
    }
}
