//! The monitor: one small process for each container, its parent and the keeper of its streams, log, environment
//! and exit status. It serves the runtime and survives it.
//!
//! One thread, one loop: everything that may take time is a descriptor to wait for.

mod child;
mod connection;
mod container;
mod creator;
mod log;
mod session;
mod streams;
mod view;

use std::{
    collections::HashMap,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    io::Errno,
    process::{Gid, Pid, PidfdFlags, Uid, WaitOptions, WaitStatus},
};

use self::{
    child::Fault,
    connection::Connection,
    container::{Container, Phase},
    creator::Outcome,
    log::Log,
    session::{Session, Stage},
    streams::{Ready, Streams, pipe},
};
use super::{
    Exit, ExitCause,
    cgroup::{Cgroup, Hierarchies},
    clock,
    environment::Block,
    message::{CreateRequest, Failure, FromMonitor, Numbered, Reply, Request, SessionRequest},
    record,
    sys::{self, Fork},
    wire::{self, Frame, Read, Reader},
};

/// How long the end of a container waits for processes that outlive the first one although they were killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs in a process forked for it; returns when the container has ended and everybody knows.
pub(super) fn run(first: OwnedFd, directory: &Path) -> io::Result<()> {
    rustix::process::chdir(directory)?;
    rustix::process::umask(Mode::from_raw_mode(0o077));
    sys::ignore_signal(libc::SIGPIPE);
    // Memory holds the environment: no debugger and no core dump.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut monitor = Monitor {
        signals: sys::child_signals()?,
        listener: UnixListener::bind(record::MONITOR_SOCKET)?,
        connections: vec![(0, Connection::new(first)?)],
        next_connection: 1,
        creation: None,
        container: None,
        streams: Streams::default(),
        sessions: Vec::new(),
        ending_since: None,
        failed: false,
    };
    monitor.listener.set_nonblocking(true)?;
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
}

/// A container that is being made.
struct Creation {
    asked_by: (u64, u64),
    creator: Pid,
    outcome: OwnedFd,
    reader: Reader,
    request: Box<CreateRequest>,
    cgroup: Cgroup,
    environment: Block,
    status: OwnedFd,
    console: Option<UnixListener>,
    /// Children that ended before we knew who they were.
    ended: HashMap<Pid, WaitStatus>,
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
        let timeout = self.ending_since.map(|since| {
            let left = PATIENCE.saturating_sub(since.elapsed());
            Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(0), tv_nsec: 1_000_000 }
        });
        match poll(&mut fds, timeout.as_ref()) {
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

    fn accept(&mut self) {
        let Ok((socket, _)) = self.listener.accept() else { return };
        let Ok(mut connection) = Connection::new(socket.into()) else { return };
        let Some(container) = &self.container else { return };
        let sessions = self.sessions.iter().map(|session| session.id.clone()).collect();
        let hello = FromMonitor::Hello { state: container.state(), sessions };
        if connection.send(&hello, Vec::new()).is_ok() {
            self.connections.push((self.next_connection, connection));
            self.next_connection += 1;
        }
    }

    fn serve_connection(&mut self, id: u64, flags: PollFlags) {
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
        let Ok(Numbered { number, request }) = frame.parse() else { return };
        let asked_by = (connection, number);
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

    fn reply(&mut self, (connection, number): (u64, u64), reply: Reply, fds: Vec<OwnedFd>) {
        let message = FromMonitor::Reply { number, reply };
        let Some(at) = self.connections.iter().position(|(id, _)| *id == connection) else {
            return;
        };
        if self.connections.get_mut(at).is_some_and(|(_, one)| one.send(&message, fds).is_err()) {
            self.connections.remove(at);
        }
    }

    fn tell_all(&mut self, message: &FromMonitor) {
        self.connections.retain_mut(|(_, connection)| connection.send(message, Vec::new()).is_ok());
    }

    fn create(
        &mut self,
        asked_by: (u64, u64),
        request: Box<CreateRequest>,
        environment: &[u8],
    ) -> Result<(), Failure> {
        if self.container.is_some() || self.creation.is_some() {
            return Err(Failure::Refused("this monitor has a container already".to_owned()));
        }
        let environment = Block::from(environment.to_vec());
        let creation = self
            .begin_creation(asked_by, request, environment)
            .map_err(|error| Failure::Create(error.to_string()))?;
        self.creation = Some(creation);
        Ok(())
    }

    fn begin_creation(
        &mut self,
        asked_by: (u64, u64),
        request: Box<CreateRequest>,
        environment: Block,
    ) -> io::Result<Creation> {
        let cgroup = Cgroup::new(&Hierarchies::detect()?, &request.cgroup)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        cgroup.create()?;
        let directory = cgroup.open()?;
        let stdio = &request.stdio;
        self.streams = Streams::new(stdio);
        self.streams.log = stdio.log.as_deref().map(Log::open).transpose()?;
        let console = stdio.tty.then(|| UnixListener::bind(creator::CONSOLE_SOCKET)).transpose()?;
        let container_stdio = if stdio.tty { None } else { Some(self.pipes(&request)?) };
        let (outcome, creator_outcome) = UnixStream::pair()?;
        let (status, init_status) = UnixStream::pair()?;
        outcome.set_nonblocking(true)?;
        status.set_nonblocking(true)?;
        let plan = creator::Plan {
            settings: request.settings.clone(),
            cgroup: cgroup.clone(),
            resources: request.resources.clone(),
            cgroup_view: request.cgroup_view.clone(),
            environment: Block::from(environment.to_vec()),
            stdio: container_stdio,
            outcome: creator_outcome.into(),
            status: init_status.into(),
        };
        let creator = match sys::fork_into(directory.as_fd())? {
            Fork::Child => creator::run(plan),
            Fork::Parent(pid) => pid,
        };
        Ok(Creation {
            asked_by,
            creator,
            outcome: outcome.into(),
            reader: Reader::default(),
            request,
            cgroup,
            environment,
            status: status.into(),
            console,
            ended: HashMap::new(),
        })
    }

    /// Makes the container's pipes; keeps our ends and returns its own.
    fn pipes(&mut self, request: &CreateRequest) -> io::Result<[OwnedFd; 3]> {
        let stdin = if request.stdio.stdin {
            let (read, write) = pipe()?;
            self.streams.stdin = Some(write);
            read
        } else {
            rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?
        };
        let ((our_stdout, stdout), (our_stderr, stderr)) = (pipe()?, pipe()?);
        let settings = &request.settings;
        let (uid, gid) = (Uid::from_raw(settings.uid), Gid::from_raw(settings.gid));
        for fd in [&stdin, &stdout, &stderr].into_iter().skip(usize::from(!request.stdio.stdin)) {
            rustix::fs::fchown(fd, Some(uid), Some(gid))?;
        }
        for fd in self.streams.stdin.iter().chain([&our_stdout, &our_stderr]) {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        (self.streams.stdout, self.streams.stderr) = (Some(our_stdout), Some(our_stderr));
        Ok([stdin, stdout, stderr])
    }

    fn advance_creation(&mut self) {
        let Some(creation) = &mut self.creation else { return };
        let outcome = match creation.reader.read(creation.outcome.as_fd()) {
            Ok(Read::Later) => return,
            Ok(Read::Frame(frame)) => frame.parse().map_err(|error| error.to_string()),
            Ok(Read::End) | Err(_) => Err("its creator died".to_owned()),
        };
        let Some(creation) = self.creation.take() else { return };
        let asked_by = creation.asked_by;
        let result = match outcome {
            Ok(Outcome::Created { pid, warnings }) => self
                .finish_creation(creation, pid)
                .map(|ended| (warnings, ended))
                .map_err(|error| error.to_string()),
            Ok(Outcome::Failed { reason }) | Err(reason) => Err(reason),
        };
        match result {
            Ok((warnings, ended)) => {
                self.reply(asked_by, Reply::Created { warnings }, Vec::new());
                if let Some(status) = ended {
                    self.init_ended(status);
                }
            }
            Err(reason) => {
                self.reply(asked_by, Reply::Failed(Failure::Create(reason)), Vec::new());
                self.failed = true;
            }
        }
    }

    fn finish_creation(&mut self, creation: Creation, pid: i32) -> io::Result<Option<WaitStatus>> {
        let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process was made"))?;
        let init = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        if let Some(console) = &creation.console {
            self.receive_terminal(console)?;
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let own_pids = rustix::fs::open("/proc/self/ns/pid", flags, Mode::empty())?;
        self.container = Some(Container {
            pid,
            init,
            settings: creation.request.settings,
            program: creation.request.program,
            environment: creation.environment,
            cgroup_directory: creation.cgroup.open()?,
            entrances: creation.cgroup.entrances()?,
            cgroup: creation.cgroup,
            machine_pids: creation.request.machine_pids,
            own_pids,
            status: Some(creation.status),
            phase: Phase::Created,
        });
        Ok(creation.ended.get(&pid).copied())
    }

    /// The terminal lies ready: libcontainer sent it before it reported.
    fn receive_terminal(&mut self, console: &UnixListener) -> io::Result<()> {
        let (socket, _) = console.accept()?;
        let master = wire::receive_descriptor(socket.as_fd())?;
        rustix::io::ioctl_fionbio(&master, true)?;
        self.streams.stdin = Some(master.try_clone()?);
        self.streams.stdout = Some(master);
        let _ = std::fs::remove_file(creator::CONSOLE_SOCKET);
        Ok(())
    }

    fn start(&mut self, asked_by: (u64, u64)) -> Result<(), Failure> {
        let container = self.made()?;
        if !matches!(container.phase, Phase::Created) {
            return Err(Failure::Refused("the container was started already".to_owned()));
        }
        // The end of the connection is the signal; what is written does not matter.
        UnixStream::connect(creator::START_SOCKET)
            .map_err(|error| Failure::Refused(format!("cannot start the container: {error}")))?;
        container.phase = Phase::Starting { asked_by };
        Ok(())
    }

    fn advance_start(&mut self) {
        let Some(container) = &mut self.container else { return };
        let Phase::Starting { asked_by } = container.phase else { return };
        let Some(status) = &container.status else { return };
        let fault = match Reader::default().read(status.as_fd()) {
            Ok(Read::Later) => return,
            Ok(Read::Frame(frame)) => frame.parse().ok().map(Fault::from_message),
            Ok(Read::End) | Err(_) => None,
        };
        container.status = None;
        let reply = match fault {
            None => {
                let started_at = clock::now();
                container.phase = Phase::Running { started_at };
                Reply::Started { pid: container.pid.as_raw_nonzero().get(), started_at }
            }
            // Its process has ended or is about to.
            Some(fault) => {
                container.phase = Phase::Created;
                let message = fault.describe(&container.program, &container.settings.cwd);
                Reply::Failed(Failure::Exec { code: fault.code(), message })
            }
        };
        self.reply(asked_by, reply, Vec::new());
        // From now on the monitor mostly waits.
        sys::forget_program_pages();
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
            return Err(Failure::Refused("the container is not running".to_owned()));
        }
        let session = Session::start(container, request, block, asked_by)?;
        self.sessions.push(session);
        Ok(())
    }

    fn attach(&mut self, stdin: bool) -> Result<(Reply, Vec<OwnedFd>), Failure> {
        let container = self.made()?;
        if matches!(container.phase, Phase::Ending { .. } | Phase::Ended(_)) {
            return Err(Failure::Refused("the container is not running".to_owned()));
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

    fn made(&mut self) -> Result<&mut Container, Failure> {
        self.container.as_mut().ok_or_else(|| Failure::Refused("there is no container".to_owned()))
    }

    fn reap(&mut self) -> io::Result<()> {
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

    fn creator_died(&mut self) {
        if let Some(creation) = self.creation.take() {
            let reason = "its creator died; the machine may be out of memory".to_owned();
            self.reply(creation.asked_by, Reply::Failed(Failure::Create(reason)), Vec::new());
            self.failed = true;
        }
    }

    fn init_ended(&mut self, status: WaitStatus) {
        // Whether the program could be executed is known by now.
        self.advance_start();
        let Some(container) = &mut self.container else { return };
        let code = code_of(status);
        let out_of_memory = code != 0 && container.cgroup.oom_kills() > 0;
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
    fn advance_ending(&mut self) {
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
    fn note_ending(&mut self) {
        if let Some(Phase::Ending { events: Some(events), .. }) =
            self.container.as_ref().map(|container| &container.phase)
        {
            let _ = rustix::io::pread(events, &mut [0; 256], 0);
        }
    }

    fn advance_session(&mut self, pid: Pid) {
        let Some(session) = self.sessions.iter_mut().find(|session| session.pid == pid) else {
            return;
        };
        if let Some((asked_by, reply, fds)) = session.progress() {
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
    fn sweep_session(&mut self, pid: Pid) {
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
