//! The monitor: one small process for each container, its parent and the keeper of its streams, log, environment
//! and exit status. It serves the runtime and survives it.
//!
//! One thread, one loop: everything that may take time is a descriptor to wait for.

mod apparmor;
mod child;
mod connection;
mod container;
mod creation;
mod creator;
mod ending;
mod log;
mod movable;
mod privileges;
mod proc;
mod requests;
mod session;
mod streams;
mod users;
mod view;
mod volumes;

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::Mode,
    io::Errno,
    process::Pid,
};

use self::{
    connection::Connection,
    container::{Container, Phase},
    creation::Creation,
    ending::PATIENCE,
    session::{Session, Stage},
    streams::{Ready, Streams},
};
use super::{record, sys};

/// How long nothing happens before the monitor makes itself small.
const REST: Duration = Duration::from_secs(1);

/// Enters the container's run directory and opens the socket by which a runtime finds the monitor.
pub(super) fn listen(directory: &Path) -> io::Result<UnixListener> {
    rustix::process::chdir(directory)?;
    rustix::process::umask(Mode::from_raw_mode(0o077));
    let listener = UnixListener::bind(record::MONITOR_SOCKET)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Runs in a process forked for it; returns when the container has ended and everybody knows. `oom_score` is for containers
/// that ask for none.
pub(super) fn run(first: OwnedFd, listener: UnixListener, oom_score: i32) -> io::Result<()> {
    sys::ignore_signal(libc::SIGPIPE);
    // Memory holds the environment: no debugger and no core dump.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut monitor = Monitor {
        signals: sys::child_signals()?,
        listener,
        connections: vec![(0, Connection::new(first)?)],
        next_connection: 1,
        creation: None,
        container: None,
        streams: Streams::default(),
        sessions: Vec::new(),
        ending_since: None,
        failed: false,
        oom_score,
    };
    monitor.serve()
}

struct Monitor {
    signals: OwnedFd,
    listener: UnixListener,
    connections: Vec<(u64, Connection)>,
    next_connection: u64,
    creation: Option<Creation>,
    container: Option<Container>,
    streams: Streams,
    sessions: Vec<Session>,
    ending_since: Option<Instant>,
    /// Whether the container could not be made.
    failed: bool,
    /// What a container gets for the OOM killer that asks for nothing; our own is lower.
    oom_score: i32,
}

/// What a descriptor of the loop stands for.
#[derive(Clone, Copy, Debug)]
enum Token {
    Signals,
    Listener,
    Connection(u64),
    Creation,
    Start,
    Ending,
    Streams(Ready),
    Session(Pid),
    SessionCgroup(Pid),
}

impl Monitor {
    fn serve(&mut self) -> io::Result<()> {
        while !self.is_done() {
            for (token, flags) in self.wait()? {
                self.handle(token, flags)?;
            }
            self.streams.sweep();
            self.advance_ending();
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        match &self.container {
            Some(container) => {
                matches!(container.phase, Phase::Ended(_))
                    && !self.streams.is_busy()
                    && self
                        .connections
                        .iter()
                        .all(|(_, one)| !one.interest().contains(PollFlags::OUT))
            }
            // Nobody can ask for a container any more, or making it failed and that was said.
            None => self.creation.is_none() && (self.failed || self.connections.is_empty()),
        }
    }

    fn wait(&self) -> io::Result<Vec<(Token, PollFlags)>> {
        let interests = self.interests();
        let mut fds: Vec<PollFd<'_>> =
            interests.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let left = self.ending_since.map_or(REST, |since| PATIENCE.saturating_sub(since.elapsed()));
        let timeout =
            Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(0), tv_nsec: 1_000_000 };
        let ready = match poll(&mut fds, Some(&timeout)) {
            Ok(0) if self.ending_since.is_none() => sys::poll_with_little_memory(&mut fds),
            ready => ready,
        };
        match ready {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        Ok(interests
            .iter()
            .zip(&fds)
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|((token, ..), fd)| (*token, fd.revents()))
            .collect())
    }

    fn interests(&self) -> Vec<(Token, BorrowedFd<'_>, PollFlags)> {
        let mut interests = vec![(Token::Signals, self.signals.as_fd(), PollFlags::IN)];
        // A runtime that was started again while the container is being made waits.
        if self.container.is_some() {
            interests.push((Token::Listener, self.listener.as_fd(), PollFlags::IN));
        }
        for (id, connection) in &self.connections {
            interests.push((Token::Connection(*id), connection.as_fd(), connection.interest()));
        }
        if let Some(creation) = &self.creation {
            interests.push((Token::Creation, creation.outcome.as_fd(), PollFlags::IN));
        }
        if let Some(container) = &self.container {
            match (&container.phase, &container.status) {
                (Phase::Starting { .. }, Some(status)) => {
                    interests.push((Token::Start, status.as_fd(), PollFlags::IN));
                }
                (Phase::Ending { events: Some(events), .. }, _) => {
                    interests.push((Token::Ending, events.as_fd(), PollFlags::PRI));
                }
                _ => {}
            }
        }
        for (ready, fd, flags) in self.streams.interests() {
            interests.push((Token::Streams(ready), fd, flags));
        }
        for session in &self.sessions {
            match &session.stage {
                Stage::Starting(starting) => {
                    interests.push((Token::Session(session.pid), starting.as_fd(), PollFlags::IN));
                }
                Stage::Running => {}
                // Its process ended and others of it live on.
                Stage::Ended => interests.push((
                    Token::SessionCgroup(session.pid),
                    session.cgroup.events().as_fd(),
                    PollFlags::PRI,
                )),
            }
        }
        interests
    }

    fn handle(&mut self, token: Token, flags: PollFlags) -> io::Result<()> {
        match token {
            Token::Signals => self.reap()?,
            Token::Listener => self.accept(),
            Token::Connection(id) => self.serve_connection(id, flags),
            Token::Creation => self.advance_creation(),
            Token::Start => self.advance_start(),
            Token::Ending => self.note_ending(),
            Token::Streams(ready) => self.streams.handle(ready, flags),
            Token::Session(pid) => self.advance_session(pid),
            Token::SessionCgroup(pid) => self.sweep_session(pid),
        }
        Ok(())
    }
}
