//! What the runtime asks of a monitor, and what it is answered.

use std::{io, os::fd::OwnedFd};

use rustix::event::PollFlags;

use super::{
    Monitor,
    connection::Connection,
    container::{Container, Phase},
    session::Session,
};
use crate::engine::{
    clock,
    message::{Asked, Failure, FromMonitor, Numbered, PROTOCOL, Reply, Request, SessionRequest},
    sys,
    wire::Frame,
};

impl Monitor {
    pub(super) fn accept(&mut self) {
        let Ok((socket, _)) = self.listener.accept() else { return };
        let Ok(mut connection) = Connection::new(socket.into()) else { return };
        let Some(container) = &self.container else { return };
        let sessions = self.sessions.iter().map(|session| session.id.clone()).collect();
        let hello = FromMonitor::Hello { version: PROTOCOL, state: container.state(), sessions };
        if connection.send(&hello, Vec::new()).is_ok() {
            self.connections.push((self.next_connection, connection));
            self.next_connection += 1;
        }
    }

    pub(super) fn serve_connection(&mut self, id: u64, flags: PollFlags) {
        let connection =
            |monitor: &mut Self| monitor.connections.iter().position(|(other, _)| *other == id);
        if flags.contains(PollFlags::OUT) {
            let Some(at) = connection(self) else { return };
            if self.connections.get_mut(at).is_some_and(|(_, one)| one.flush().is_err()) {
                self.connections.remove(at);
                return;
            }
        }
        if !flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            return;
        }
        while let Some(at) = connection(self) {
            match self.connections.get_mut(at).map(|(_, one)| one.next()) {
                Some(Ok(Some(frame))) => self.request(id, &frame),
                Some(Ok(None)) | None => return,
                Some(Err(_)) => drop(self.connections.remove(at)),
            }
        }
    }

    fn request(&mut self, connection: u64, frame: &Frame) {
        let Ok(Numbered { version, number, until, request }) = frame.parse() else {
            return self.refuse_unknown(connection, frame);
        };
        let asked_by = (connection, number);
        if version > PROTOCOL {
            return self.refuse_unknown(connection, frame);
        }
        if until.is_some_and(|until| clock::after_boot() > until) {
            let late = "it was asked too long ago: its monitor was stopped or very slow";
            return self.reply(
                asked_by,
                Reply::Failed(Failure::Refused(late.to_owned())),
                Vec::new(),
            );
        }
        let result = match request {
            Request::Create(request) => {
                self.create(asked_by, request, frame.block()).map(|()| None)
            }
            Request::Start => self.start(asked_by).map(|()| None),
            Request::Signal { signal } => {
                self.signal(signal).map(|()| Some((Reply::Done, Vec::new())))
            }
            Request::Exec(request) => self.exec(asked_by, request, frame.block()).map(|()| None),
            Request::Attach { stdin } => self.attach(stdin).map(Some),
            Request::ReopenLog => self.reopen_log().map(|()| Some((Reply::Done, Vec::new()))),
        };
        match result {
            Ok(None) => {}
            Ok(Some((reply, fds))) => self.reply(asked_by, reply, fds),
            Err(failure) => self.reply(asked_by, Reply::Failed(failure), Vec::new()),
        }
    }

    /// Tells a newer runtime that it asked for what is not known here, so that it need not wait.
    fn refuse_unknown(&mut self, connection: u64, frame: &Frame) {
        let Ok(Asked { number }) = frame.parse() else { return };
        let reason = "its monitor is older than the runtime and does not know this request";
        let reply = Reply::Failed(Failure::Refused(reason.to_owned()));
        self.reply((connection, number), reply, Vec::new());
    }

    pub(super) fn reply(
        &mut self,
        (connection, number): (u64, u64),
        reply: Reply,
        fds: Vec<OwnedFd>,
    ) {
        let message = FromMonitor::Reply { number, reply };
        let Some(at) = self.connections.iter().position(|(id, _)| *id == connection) else {
            return;
        };
        if self.connections.get_mut(at).is_some_and(|(_, one)| one.send(&message, fds).is_err()) {
            self.connections.remove(at);
        }
    }

    pub(super) fn tell_all(&mut self, message: &FromMonitor) {
        self.connections.retain_mut(|(_, connection)| connection.send(message, Vec::new()).is_ok());
    }

    fn signal(&mut self, signal: i32) -> Result<(), Failure> {
        let container = self.made()?;
        match container.phase {
            // The process was not reaped, so its number is still its own.
            Phase::Created | Phase::Starting { .. } | Phase::Running { .. } => {
                sys::kill(container.pid, signal).map_err(|error| {
                    Failure::Refused(format!("cannot send signal {signal}: {error}"))
                })
            }
            Phase::Ending { .. } | Phase::Ended(_) => Ok(()),
        }
    }

    fn exec(
        &mut self,
        asked_by: (u64, u64),
        request: SessionRequest,
        block: &[u8],
    ) -> Result<(), Failure> {
        let container = self.made()?;
        if !container.is_running() {
            return Err(Failure::NotRunning);
        }
        let session = Session::start(container, request, block, asked_by)?;
        self.sessions.push(session);
        Ok(())
    }

    fn attach(&mut self, stdin: bool) -> Result<(Reply, Vec<OwnedFd>), Failure> {
        let container = self.made()?;
        if matches!(container.phase, Phase::Ending { .. } | Phase::Ended(_)) {
            return Err(Failure::NotRunning);
        }
        if stdin && self.streams.stdin.is_none() {
            return Err(Failure::Refused("the container has no standard input".to_owned()));
        }
        let failed = |error: io::Error| Failure::Refused(format!("cannot attach: {error}"));
        let mut fds = self.streams.attach(stdin).map_err(failed)?;
        let terminal = self.streams.tty;
        if let Some(master) = self.streams.stdout.as_ref().filter(|_| terminal) {
            fds.push(master.try_clone().map_err(failed)?);
        }
        Ok((Reply::Attached { terminal }, fds))
    }

    fn reopen_log(&mut self) -> Result<(), Failure> {
        let Some(log) = &mut self.streams.log else { return Ok(()) };
        log.reopen().map_err(|error| Failure::Refused(format!("cannot open the log: {error}")))
    }

    pub(super) fn made(&mut self) -> Result<&mut Container, Failure> {
        self.container.as_mut().ok_or_else(|| Failure::Refused("there is no container".to_owned()))
    }
}
