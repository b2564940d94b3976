//! The process that forks monitors and sandboxes, and the runtime's handle to it.
//!
//! It is our own program, started anew from a read-only mount: it has one thread and little memory, so that what it
//! forks is small, and no container can reach the program through it.

use std::{
    env,
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            net::{UnixListener, UnixStream},
            process::CommandExt,
        },
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::WaitOptions,
};

use super::{
    message::{SandboxPlan, SpawnerReply, SpawnerRequest},
    monitor, sandbox,
    sys::{self, Fork},
    wire::{Outgoing, Read, Reader},
};

/// What a spawner is called among processes; it is also how the program knows that it is one.
const NAME: &str = "waybill-spawner";

/// A handle to the spawner process, which ends when the handle is dropped. Monitors and their containers do not.
#[derive(Debug)]
pub struct Spawner {
    socket: Mutex<UnixStream>,
    process: Mutex<Child>,
}

impl Spawner {
    /// Starts this program again as a spawner. Its `main` begins with [`Spawner::serve_if_asked`].
    pub fn start() -> io::Result<Self> {
        Self::start_program(&env::current_exe()?)
    }

    /// Starts another program as a spawner, whose `main` begins with [`Spawner::serve_if_asked`].
    pub fn start_program(program: &Path) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let program = sys::open_program_read_only(program)?;
        let process = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
            .arg0(NAME)
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()?;
        Ok(Self { socket: Mutex::new(ours), process: Mutex::new(process) })
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
        match self.ask(&request, vec![theirs.into()])? {
            SpawnerReply::Failed { reason } => Err(io::Error::other(reason)),
            SpawnerReply::Done | SpawnerReply::Sandbox { .. } => Ok(ours),
        }
    }

    /// Makes a sandbox; the process that holds its PID namespace, if it has one.
    pub(super) fn sandbox(&self, plan: SandboxPlan) -> io::Result<Option<i32>> {
        match self.ask(&SpawnerRequest::Sandbox(plan), Vec::new())? {
            SpawnerReply::Failed { reason } => Err(io::Error::other(reason)),
            SpawnerReply::Done => Ok(None),
            SpawnerReply::Sandbox { holder } => Ok(holder),
        }
    }

    /// Has the spawner, and what it forks to make sandboxes, keep a descriptor open until its end.
    pub(super) fn keep(&self, descriptor: OwnedFd) -> io::Result<()> {
        match self.ask(&SpawnerRequest::Keep, vec![descriptor])? {
            SpawnerReply::Failed { reason } => Err(io::Error::other(reason)),
            SpawnerReply::Done | SpawnerReply::Sandbox { .. } => Ok(()),
        }
    }

    fn ask(&self, request: &SpawnerRequest, fds: Vec<OwnedFd>) -> io::Result<SpawnerReply> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        Outgoing::new(request, &[], fds)?.send(socket.as_fd())?;
        match Reader::default().read(socket.as_fd())? {
            Read::Frame(frame) => frame.parse(),
            Read::Later | Read::End => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        let socket = self.socket.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = socket.shutdown(std::net::Shutdown::Both);
        let _ = self.process.get_mut().unwrap_or_else(PoisonError::into_inner).wait();
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
    let mut reader = Reader::default();
    let mut kept = Vec::new();
    loop {
        rest(socket);
        let Ok(Read::Frame(mut frame)) = reader.read(socket.as_fd()) else { break };
        let reply = match frame.parse() {
            Ok(SpawnerRequest::Monitor { directory }) => match frame.fds.pop() {
                Some(connection) => fork_monitor(connection, &directory),
                None => Err(io::ErrorKind::InvalidInput.into()),
            },
            Ok(SpawnerRequest::Sandbox(plan)) => fork_sandbox(&plan),
            Ok(SpawnerRequest::Keep) => {
                kept.append(&mut frame.fds);
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
            let _ = rustix::process::setsid();
            let forked = monitor::listen(directory).and_then(|socket| Ok((sys::fork()?, socket)));
            if let Ok((Fork::Child, socket)) = forked {
                let result =
                    detach(&connection, &socket).and_then(|()| monitor::run(connection, socket));
                sys::exit_now(i32::from(result.is_err()));
            }
            sys::exit_now(i32::from(forked.is_err()))
        }
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
    rustix::thread::set_name(c"waybill-monitor")?;
    Ok(())
}

fn fork_sandbox(plan: &SandboxPlan) -> io::Result<SpawnerReply> {
    let (ours, theirs) = UnixStream::pair()?;
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
            let reply = match sandbox::make(plan) {
                Ok(holder) => SpawnerReply::Sandbox { holder },
                Err(reason) => SpawnerReply::Failed { reason },
            };
            let sent = Outgoing::new(&reply, &[], Vec::new())
                .and_then(|mut message| message.send(theirs.as_fd()));
            sys::exit_now(i32::from(sent.is_err()))
        }
    }
}
