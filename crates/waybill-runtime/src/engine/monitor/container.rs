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

    /// Whether the first process is dead or dying, also when we were not told yet. It lets go of its namespaces a
    /// while before its parent and its pidfd tell.
    pub(super) fn is_dying(&self) -> bool {
        // Not reaped, or we would know, so its number is still its own.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero()));
        stat.map_or(true, |stat| is_exiting(&stat))
    }
}

/// From `/proc/<pid>/stat`: the kernel marks a process as the first thing when it exits.
fn is_exiting(stat: &str) -> bool {
    const PF_EXITING: u64 = 0x4;
    // A name in brackets may hold anything; the flags are the seventh field after it.
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' '));
    let flags = fields.and_then(|mut fields| fields.nth(6)?.parse::<u64>().ok());
    flags.is_none_or(|flags| flags & PF_EXITING != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_exits_is_known_by_its_flags() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(!is_exiting(&stat));
        assert!(!is_exiting("7 (a) b) S 1 7 7 0 -1 4194560 0"));
        assert!(is_exiting("7 (a) b) R 1 7 7 0 -1 4194564 0"));
        assert!(is_exiting(""));
    }
}
