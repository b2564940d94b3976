//! How processes end: the container's first one, and with it the container; those of exec sessions.

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, WaitOptions, WaitStatus},
};

use super::{Monitor, container::Phase, session::Stage};
use crate::engine::{Exit, ExitCause, clock, message::FromMonitor, record};

/// How long the end of a container waits for processes that outlive the first one although they were killed.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

impl Monitor {
    pub(super) fn reap(&mut self) -> io::Result<()> {
        rustix::io::read(&self.signals, &mut [0; 4096]).ok();
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.child_ended(pid, status),
                Ok(None) | Err(Errno::CHILD) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn child_ended(&mut self, pid: Pid, status: WaitStatus) {
        if let Some(creation) = &mut self.creation {
            creation.ended.insert(pid, status);
            if pid == creation.creator {
                self.advance_creation();
                if self.creation.is_some() {
                    self.creator_died();
                }
            }
            return;
        }
        if self.container.as_ref().is_some_and(|container| container.pid == pid) {
            self.init_ended(status);
        } else if self.sessions.iter().any(|session| session.pid == pid) {
            self.session_ended(pid, status);
        }
    }

    pub(super) fn init_ended(&mut self, status: WaitStatus) {
        // Whether the program could be executed is known by now.
        self.finish_start();
        let Some(container) = &mut self.container else { return };
        let code = code_of(status);
        let out_of_memory = code != 0 && container.cgroup.ran_out_of_memory();
        let exit = Exit {
            code,
            cause: if out_of_memory { ExitCause::OutOfMemory } else { ExitCause::Own },
            started_at: match container.phase {
                Phase::Running { started_at } => Some(started_at),
                _ => None,
            },
            finished_at: clock::now(),
        };
        // What shares a PID namespace with others does not die with the first process.
        let _ = container.cgroup.kill();
        let events = container.cgroup.open_events().ok();
        container.phase = Phase::Ending { exit, events };
        self.ending_since = Some(Instant::now());
    }

    /// Ends the container when no process of it is left, or none would go away.
    pub(super) fn advance_ending(&mut self) {
        let Some(container) = &mut self.container else { return };
        let Phase::Ending { exit, .. } = &container.phase else { return };
        let patient = self.ending_since.is_some_and(|since| since.elapsed() < PATIENCE);
        if patient && container.cgroup.is_populated().unwrap_or(false) {
            return;
        }
        let exit = exit.clone();
        container.phase = Phase::Ended(exit.clone());
        self.ending_since = None;
        self.streams.finish();
        // Sessions were killed; their processes are reaped before the container's end is told.
        let _ = self.reap();
        let _ = record::save(Path::new(record::EXIT), &exit);
        self.tell_all(&FromMonitor::Exited(exit));
    }

    /// Reads the event, so that the next one is noticed. What ends is looked at after every round.
    pub(super) fn note_ending(&mut self) {
        if let Some(Phase::Ending { events: Some(events), .. }) =
            self.container.as_ref().map(|container| &container.phase)
        {
            let _ = rustix::io::pread(events, &mut [0; 256], 0);
        }
    }

    pub(super) fn advance_session(&mut self, pid: Pid) {
        let Some(session) = self.sessions.iter_mut().find(|session| session.pid == pid) else {
            return;
        };
        let Some(container) = &self.container else { return };
        if let Some((asked_by, reply, fds)) = session.progress(container) {
            self.reply(asked_by, reply, fds);
        }
    }

    fn session_ended(&mut self, pid: Pid, status: WaitStatus) {
        // The start is answered first, always.
        self.advance_session(pid);
        let Some(session) = self.sessions.iter_mut().find(|session| session.pid == pid) else {
            return;
        };
        if let Some(exit) = session.end(code_of(status), false) {
            let session = session.id.clone();
            self.tell_all(&FromMonitor::SessionExited { session, exit });
        }
        self.sweep_session(pid);
    }

    /// Removes a session's cgroup once its last process is gone, and forgets the session.
    pub(super) fn sweep_session(&mut self, pid: Pid) {
        self.sessions.retain(|session| {
            session.pid != pid
                || !matches!(session.stage, Stage::Ended)
                || !session.cgroup.remove_if_empty().unwrap_or(true)
        });
    }
}

fn code_of(status: WaitStatus) -> i32 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 255,
    }
}
