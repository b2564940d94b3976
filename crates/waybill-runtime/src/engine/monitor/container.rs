//! What a monitor knows about its container once it is made.

use std::{fs::File, os::fd::OwnedFd, time::SystemTime};

use rustix::process::Pid;

use crate::{
    IdMap,
    engine::{Exit, State, cgroup::Cgroup, environment::Block, settings::Settings},
    procfs::ProcessStat,
};

/// A container whose first process exists, or existed.
pub(super) struct Container {
    /// The first process, as the machine counts.
    pub(super) pid: Pid,
    /// The first process, unmistakably; also the way into its namespaces.
    pub(super) init: OwnedFd,
    pub(super) settings: Settings,
    /// The ids that its users have on the machine, if those are not the machine's.
    pub(super) map: Option<IdMap>,
    /// What it runs, for messages.
    pub(super) program: Vec<u8>,
    /// The baseline of exec sessions.
    pub(super) environment: Block,
    pub(super) cgroup: Cgroup,
    /// What the cgroups of sessions are made in.
    pub(super) sessions: OwnedFd,
    /// Into the older hierarchies.
    pub(super) entrances: Vec<File>,
    /// Whether it shares the machine's PID namespace.
    pub(super) machine_pids: bool,
    /// Whether its root could move processes between cgroups.
    pub(super) privileged: bool,
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
        self.phase.state(self.pid)
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    /// Whether the first process is dead or dying, also when we were not told yet. It lets go of its namespaces a
    /// while before its parent and its pidfd tell.
    pub(super) fn is_dying(&self) -> bool {
        // Not reaped, or we would know, so its number is still its own.
        let stat = ProcessStat::read(self.pid.as_raw_nonzero().get());
        stat.is_none_or(ProcessStat::is_exiting)
    }
}

impl Phase {
    /// What the runtime is told. It removes what it believes to have ended, so what is ending has not.
    fn state(&self, pid: Pid) -> State {
        let started_at = match self {
            Self::Created | Self::Starting { .. } => None,
            Self::Running { started_at } => Some(*started_at),
            Self::Ending { exit, .. } => exit.started_at,
            Self::Ended(exit) => return State::Exited(exit.clone()),
        };
        let pid = pid.as_raw_nonzero().get();
        started_at.map_or(State::Created, |started_at| State::Running { pid, started_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ExitCause;

    #[test]
    fn a_container_has_ended_when_all_of_it_has() {
        let exit = |started_at| Exit {
            code: 0,
            cause: ExitCause::Own,
            started_at,
            finished_at: SystemTime::UNIX_EPOCH,
        };
        let state = |phase: Phase| phase.state(Pid::INIT);
        let ending = |started_at| Phase::Ending { exit: exit(started_at), events: None };
        assert_eq!(state(ending(None)), State::Created);
        let started_at = SystemTime::UNIX_EPOCH;
        assert_eq!(state(ending(Some(started_at))), State::Running { pid: 1, started_at });
        assert_eq!(state(Phase::Ended(exit(None))), State::Exited(exit(None)));
    }
}
