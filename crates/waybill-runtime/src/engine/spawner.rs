//! The process that forks monitors and sandboxes, and the runtime's handle to it.
//!
//! It is our own program, started anew from a read-only mount: it has one thread and little memory, so that what it
//! forks is small, and no container can reach the program through it.

use std::{
    env,
    fs::{self, File},
    io,
    ops::DerefMut,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            net::{UnixListener, UnixStream},
            process::CommandExt,
        },
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open},
};

use super::{
    message::{PROTOCOL, SandboxPlan, SpawnerReply, SpawnerRequest},
    monitor, record, sandbox,
    sys::{self, Fork},
    turn::Turn,
    user_namespace,
    wire::{Outgoing, Read, Reader},
};

/// What a spawner is called among processes; it is also how the program knows that it is one.
const NAME: &str = "waybill-spawner";

/// What monitors have for the OOM killer: less than any container, whose least is -997 by Kubernetes' rules, and not the -1000
/// that is never killed, so that a monitor that went mad can be.
const MONITOR_SCORE: i32 = -998;

/// How long a spawner may take to answer; one that takes longer is replaced.
const PATIENCE: Duration = Duration::from_secs(60);

/// For how many that hang somebody waits who comes later.
const QUEUE: u32 = 2;

/// How long one that was told to end, or was killed, may take for that.
const END: Duration = Duration::from_secs(10);

/// A handle to the spawner process, which ends when the handle is dropped. Monitors and their containers do not.
///
/// A spawner that died is replaced when it is needed next, or when somebody asks whether it is there; one that does not answer,
/// by whoever waited for it.
#[derive(Debug)]
pub struct Spawner {
    origin: Origin,
    current: Turn<Process>,
}

/// What every process that serves is made with.
#[derive(Debug)]
struct Origin {
    /// On a read-only mount. Kept, so that a spawner that is started later is the same program, whatever was installed since.
    program: OwnedFd,
    /// Held open by each of them, and by what they fork to make sandboxes, until its end.
    lock: OnceLock<OwnedFd>,
    /// How long each may take to answer.
    patience: Duration,
}

/// One process that serves as a spawner.
#[derive(Debug)]
struct Process {
    socket: UnixStream,
    child: Child,
}

impl Spawner {
    /// Starts this program again as a spawner. Its `main` begins with [`Spawner::serve_if_asked`].
    pub fn start() -> io::Result<Self> {
        Self::start_program(&env::current_exe()?)
    }

    /// Starts another program as a spawner, whose `main` begins with [`Spawner::serve_if_asked`].
    pub fn start_program(program: &Path) -> io::Result<Self> {
        Self::start_with_patience(program, PATIENCE)
    }

    /// As [`Spawner::start_program`], for a spawner that is replaced when it has not answered for so long.
    pub fn start_with_patience(program: &Path, patience: Duration) -> io::Result<Self> {
        let program = sys::open_program_read_only(program)?;
        let origin = Origin { program, lock: OnceLock::new(), patience };
        let current = Turn::new(Process::start(&origin)?);
        Ok(Self { origin, current })
    }

    /// If this process was started as a spawner, serves as one until the runtime is gone, and ends. Otherwise
    /// does nothing. Call it first thing in `main`, before any thread exists.
    pub fn serve_if_asked() {
        if env::args_os().next().is_some_and(|name| name == NAME) {
            serve(&sys::take_stdin());
            sys::exit_now(0)
        }
    }

    /// Forks a monitor that works in `directory`; the connection to it.
    pub(super) fn monitor(&self, directory: &Path) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let request = SpawnerRequest::Monitor { directory: directory.to_owned() };
        match self.ask(&request, Some(theirs))? {
            SpawnerReply::Failed { reason } => Err(io::Error::other(reason)),
            SpawnerReply::Done | SpawnerReply::Sandbox { .. } | SpawnerReply::Serving { .. } => {
                Ok(ours)
            }
        }
    }

    /// Makes a sandbox; the process that holds its PID namespace, if it has one.
    pub(super) fn sandbox(&self, plan: SandboxPlan) -> io::Result<Option<i32>> {
        match self.ask(&SpawnerRequest::Sandbox(plan), None)? {
            SpawnerReply::Failed { reason } => Err(io::Error::other(reason)),
            SpawnerReply::Done | SpawnerReply::Serving { .. } => Ok(None),
            SpawnerReply::Sandbox { holder } => Ok(holder),
        }
    }

    /// Whether a network can be made for a pod; an error says what is in the way.
    pub(super) fn try_network(&self) -> io::Result<()> {
        self.attempt(&SpawnerRequest::TryNetwork)
    }

    /// Whether a user namespace can be made for a pod, with images and volumes that lie where `directory` does.
    pub(super) fn try_user_namespace(&self, directory: &Path) -> io::Result<()> {
        self.attempt(&SpawnerRequest::TryUserNamespace { directory: directory.to_owned() })
    }

    fn attempt(&self, request: &SpawnerRequest) -> io::Result<()> {
        match self.ask(request, None)? {
            SpawnerReply::Failed { reason } => Err(io::Error::other(reason)),
            SpawnerReply::Done | SpawnerReply::Sandbox { .. } | SpawnerReply::Serving { .. } => {
                Ok(())
            }
        }
    }

    /// Has the spawner hold a lock for as long as it lives, and any that replaces it.
    pub(super) fn hold(&self, lock: OwnedFd) -> io::Result<()> {
        let mut current = self.take_turn()?;
        if self.origin.lock.set(lock).is_err() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        current.hold_lock(&self.origin).or_else(|_| current.replace(&self.origin))
    }

    /// Makes sure that there is a spawner; why there is none if one that died cannot be replaced.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.current.take(Duration::ZERO) {
            Some(mut current) => current.revive(&self.origin),
            // It is at work for somebody, who will notice.
            None => Ok(()),
        }
    }

    /// Waits for those who came before, but not for ever: each of them may take as long as a spawner that hangs is waited for.
    fn take_turn(&self) -> io::Result<impl DerefMut<Target = Process>> {
        let busy = || io::Error::new(io::ErrorKind::TimedOut, "others use it");
        self.current.take(QUEUE * self.origin.patience).ok_or_else(busy)
    }

    /// A request that a dying spawner may have begun to carry out is not repeated: its caller has to clear up first.
    fn ask(&self, request: &SpawnerRequest, fd: Option<UnixStream>) -> io::Result<SpawnerReply> {
        let mut current = self.take_turn()?;
        current.revive(&self.origin)?;
        let fds = || -> io::Result<Vec<OwnedFd>> {
            fd.iter().map(|fd| Ok(fd.try_clone()?.into())).collect()
        };
        let mut sent = current.send(request, fds()?);
        if sent.is_err() {
            // It died unnoticed, and nobody read the request.
            current.replace(&self.origin)?;
            sent = current.send(request, fds()?);
        }
        drop(fd);
        let answer = sent.and_then(|()| current.receive());
        if answer.is_err() {
            let _ = current.replace(&self.origin);
        }
        answer
    }
}

impl Process {
    /// Starts one and waits for its first answer.
    fn start(origin: &Origin) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new(format!("/proc/self/fd/{}", origin.program.as_raw_fd()))
            .arg0(NAME)
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()?;
        let mut process = Self { socket: ours, child };
        process.socket.set_read_timeout(Some(origin.patience))?;
        process.socket.set_write_timeout(Some(origin.patience))?;
        let answer = process.greet().and_then(|()| process.hold_lock(origin));
        answer.inspect_err(|_| process.end()).map(|()| process)
    }

    fn greet(&self) -> io::Result<()> {
        self.send(&SpawnerRequest::Ping, Vec::new())?;
        match self.receive()? {
            SpawnerReply::Serving { version: PROTOCOL } => Ok(()),
            _ => {
                let reason = "the spawner is a program of another version";
                Err(io::Error::new(io::ErrorKind::InvalidData, reason))
            }
        }
    }

    fn hold_lock(&self, origin: &Origin) -> io::Result<()> {
        let Some(lock) = origin.lock.get() else { return Ok(()) };
        self.send(&SpawnerRequest::Hold, vec![lock.try_clone()?])?;
        self.receive().map(drop)
    }

    /// Replaces it if it has ended.
    fn revive(&mut self, origin: &Origin) -> io::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(_) => self.replace(origin),
        }
    }

    fn replace(&mut self, origin: &Origin) -> io::Result<()> {
        self.end();
        let status = self.child.try_wait().ok().flatten();
        tracing::error!(?status, "the spawner process died and is started again");
        *self = Self::start(origin)?;
        Ok(())
    }

    /// Ends it, and waits until it has: what it was doing for somebody stops with it. One that hangs in the kernel will do
    /// nothing any more when it comes back from there.
    fn end(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let _ = self.child.kill();
        if !self.ends_within(END) {
            tracing::error!(
                pid = self.child.id(),
                "a spawner process that was killed does not die"
            );
        }
    }

    fn ends_within(&mut self, limit: Duration) -> bool {
        let Ok(held) = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()) else {
            return true;
        };
        let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut fds = [PollFd::new(&held, PollFlags::IN)];
        while poll(&mut fds, Some(&limit)) == Err(Errno::INTR) {}
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    fn send(&self, request: &SpawnerRequest, fds: Vec<OwnedFd>) -> io::Result<()> {
        Outgoing::new(request, &[], fds)?.send(self.socket.as_fd()).map(drop)
    }

    fn receive(&self) -> io::Result<SpawnerReply> {
        match Reader::default().read(self.socket.as_fd())? {
            Read::Frame(frame) => frame.parse(),
            Read::Later | Read::End => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        let Some(current) = self.current.get_mut() else { return };
        let _ = current.socket.shutdown(std::net::Shutdown::Both);
        if !current.ends_within(END.min(self.origin.patience)) {
            current.end();
        }
    }
}

/// Waits for a request; when none came for a second, with little memory.
fn rest(socket: &OwnedFd) {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    if poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })) == Ok(0) {
        let _ = sys::poll_with_little_memory(&mut fds);
    }
}

fn serve(socket: &OwnedFd) {
    sys::clear_environment();
    sys::ignore_signal(libc::SIGINT);
    let _ = rustix::thread::set_name(c"waybill-spawner");
    // Forks are dearer without, and right all the same.
    let _ = sys::share_what_the_loader_wrote();
    let mut reader = Reader::default();
    let mut held = Vec::new();
    loop {
        rest(socket);
        let Ok(Read::Frame(mut frame)) = reader.read(socket.as_fd()) else { break };
        let reply = match frame.parse() {
            Ok(SpawnerRequest::Monitor { directory }) => match frame.fds.pop() {
                Some(connection) => fork_monitor(connection, &directory),
                None => Err(io::ErrorKind::InvalidInput.into()),
            },
            Ok(SpawnerRequest::Sandbox(plan)) => in_a_child(|| match sandbox::make(&plan) {
                Ok(holder) => SpawnerReply::Sandbox { holder },
                Err(reason) => SpawnerReply::Failed { reason },
            }),
            Ok(SpawnerRequest::TryNetwork) => in_a_child(|| match sandbox::try_network() {
                Ok(()) => SpawnerReply::Done,
                Err(reason) => SpawnerReply::Failed { reason },
            }),
            Ok(SpawnerRequest::TryUserNamespace { directory }) => {
                in_a_child(|| match user_namespace::try_out(&directory) {
                    Ok(()) => SpawnerReply::Done,
                    Err(reason) => SpawnerReply::Failed { reason },
                })
            }
            Ok(SpawnerRequest::Ping) => Ok(SpawnerReply::Serving { version: PROTOCOL }),
            Ok(SpawnerRequest::Hold) => {
                held.append(&mut frame.fds);
                Ok(SpawnerReply::Done)
            }
            Err(error) => Err(error),
        };
        let reply =
            reply.unwrap_or_else(|error| SpawnerReply::Failed { reason: error.to_string() });
        if Outgoing::new(&reply, &[], Vec::new())
            .and_then(|mut out| out.send(socket.as_fd()))
            .is_err()
        {
            break;
        }
    }
}

/// A monitor is nobody's child but the machine's, so that it outlives us. Its socket is there when this returns: a
/// runtime that is started again must find it, however late the monitor gets to work.
fn fork_monitor(connection: OwnedFd, directory: &Path) -> io::Result<SpawnerReply> {
    let spawner = rustix::process::getpid();
    match sys::fork()? {
        Fork::Parent(pid) => {
            drop(connection);
            let status = rustix::process::waitpid(Some(pid), WaitOptions::empty())?;
            match status.and_then(|(_, status)| status.exit_status()) {
                Some(0) => Ok(SpawnerReply::Done),
                _ => Err(io::Error::other("a monitor could not be started in its directory")),
            }
        }
        Fork::Child => {
            end_with(spawner);
            let _ = rustix::process::setsid();
            let forked = monitor::listen(directory).and_then(|socket| Ok((sys::fork()?, socket)));
            if let Ok((Fork::Child, socket)) = forked {
                let result = detach(&connection, &socket).and_then(|()| {
                    let score = protect_from_oom_killer();
                    monitor::run(connection, socket, score)
                });
                sys::exit_now(i32::from(result.is_err()));
            }
            sys::exit_now(i32::from(forked.is_err()))
        }
    }
}

/// Has a child of the spawner die with it. What it was making is cleared up by the runtime, so it must not go on.
fn end_with(spawner: Pid) {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if rustix::process::getppid() != Some(spawner) {
        sys::exit_now(1);
    }
}

/// Lets go of everything of the runtime's that could keep somebody waiting.
fn detach(connection: &OwnedFd, socket: &UnixListener) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(null);
    sys::close_all_but(&[connection.as_fd(), socket.as_fd()])?;
    rustix::thread::set_name(record::MONITOR_NAME)?;
    Ok(())
}

/// Makes the kernel choose others when memory is short: a container dies with its monitor. Returns the score that this process
/// had, which its children get back. Without CAP_SYS_RESOURCE it cannot be lowered, and stays.
fn protect_from_oom_killer() -> i32 {
    const SCORE: &str = "/proc/self/oom_score_adj";
    let before = fs::read_to_string(SCORE).ok().and_then(|score| score.trim().parse().ok());
    let _ = fs::write(SCORE, MONITOR_SCORE.to_string());
    before.unwrap_or(0)
}

/// Has a child do what changes namespaces, and tell what came of it.
fn in_a_child(work: impl FnOnce() -> SpawnerReply) -> io::Result<SpawnerReply> {
    let (ours, theirs) = UnixStream::pair()?;
    let spawner = rustix::process::getpid();
    match sys::fork()? {
        Fork::Parent(pid) => {
            drop(theirs);
            let reply = match Reader::default().read(ours.as_fd()) {
                Ok(Read::Frame(frame)) => frame.parse(),
                _ => Err(io::Error::other("the process that makes sandboxes died")),
            };
            rustix::process::waitpid(Some(pid), WaitOptions::empty())?;
            reply
        }
        Fork::Child => {
            end_with(spawner);
            let sent = Outgoing::new(&work(), &[], Vec::new())
                .and_then(|mut message| message.send(theirs.as_fd()));
            sys::exit_now(i32::from(sent.is_err()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_answer_is_no_spawner() {
        let error = Spawner::start_program(Path::new("/bin/true")).unwrap_err();
        // Without root, no mount can be made for it.
        let expected = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        let skipped = error.kind() == io::ErrorKind::PermissionDenied;
        assert!(skipped || expected.contains(&error.kind()), "{error:?}");
    }
}
