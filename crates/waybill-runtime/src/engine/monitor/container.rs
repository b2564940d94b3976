//! What a monitor knows about its container once it is made.

use std::{fs::File, os::fd::OwnedFd, time::SystemTime};

use rustix::process::Pid;

use crate::engine::{Exit, State, cgroup::Cgroup, environment::Block, settings::Settings};

/// A container whose first process exists, or existed.
pub(super) struct Container {
    /// The first process, as the machine counts.
    pub(super) pid: Pid,
    /// The first process, unmistakably; also the way into its namespaces.
    pub(super) init: OwnedFd,
    pub(super) settings: Settings,
    /// What it runs, for messages.
    pub(super) program: Vec<u8>,
    /// The baseline of exec sessions.
    pub(super) environment: Block,
    pub(super) cgroup: Cgroup,
    /// In the unified hierarchy.
    pub(super) cgroup_directory: OwnedFd,
    /// Into the older hierarchies.
    pub(super) entrances: Vec<File>,
    /// Whether it shares the machine's PID namespace.
    pub(super) machine_pids: bool,
    /// The monitor's own PID namespace, to come back to.
    pub(super) own_pids: OwnedFd,
    /// Reports why the program could not be executed; ends when it was.
    pub(super) status: Option<OwnedFd>,
    pub(super) phase: Phase,
}

/// How far it has come.
pub(super) enum Phase {
    Created,
    /// Told to start; `number` of the request and its connection wait for the outcome.
    Starting {
        asked_by: (u64, u64),
    },
    Running {
        started_at: SystemTime,
    },
    /// The first process ended; others of the container may not have yet.
    Ending {
        exit: Exit,
        events: Option<File>,
    },
    Ended(Exit),
}

impl Container {
    pub(super) fn state(&self) -> State {
        match &self.phase {
            Phase::Created | Phase::Starting { .. } => State::Created,
            Phase::Running { started_at } => {
                State::Running { pid: self.pid.as_raw_nonzero().get(), started_at: *started_at }
            }
            Phase::Ending { exit, .. } | Phase::Ended(exit) => State::Exited(exit.clone()),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }
}
