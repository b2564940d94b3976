//! Processes and ports of this machine, in place of containers.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::File,
    io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, process::ExitStatusExt},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use tokio::{
    net::TcpStream,
    sync::{oneshot, watch},
};

use super::super::{Backend, Running};
use crate::engine::{AttachRequest, EngineError, ExecFault, ExecRequest, ProcessIo};

#[derive(Clone)]
pub(super) struct Machine(Arc<Inner>);

struct Inner {
    started: AtomicUsize,
    /// Exit codes, in the order of the ends.
    ended: watch::Sender<Vec<i32>>,
    running: Arc<Mutex<HashSet<u32>>>,
    /// The process's ends of the pipes to it, kept open for tests that look into them.
    stdins: Mutex<Vec<OwnedFd>>,
}

impl Default for Machine {
    fn default() -> Self {
        Self(Arc::new(Inner {
            started: AtomicUsize::new(0),
            ended: watch::Sender::default(),
            running: Arc::default(),
            stdins: Mutex::default(),
        }))
    }
}

impl Machine {
    pub(super) fn started(&self) -> usize {
        self.0.started.load(Ordering::SeqCst)
    }

    /// The exit code of the only process, once it has ended.
    pub(super) async fn ended(&self) -> i32 {
        let mut ended = self.0.ended.subscribe();
        ended.wait_for(|codes| !codes.is_empty()).await.unwrap()[0]
    }

    pub(super) fn last_stdin(&self) -> OwnedFd {
        self.0.stdins.lock().unwrap().pop().unwrap()
    }

    fn spawn(&self, request: &ExecRequest) -> io::Result<(ProcessIo, Child)> {
        let mut argv = request.argv.iter().map(|part| OsStr::from_bytes(part));
        let mut command = Command::new(argv.next().unwrap());
        command.args(argv);
        if request.tty {
            return spawn_on_terminal(&command);
        }
        let wanted = |wanted| if wanted { Stdio::piped() } else { Stdio::null() };
        command.stdout(wanted(request.stdout)).stderr(wanted(request.stderr));
        let stdin = if request.stdin {
            let (read, write) = io::pipe()?;
            self.0.stdins.lock().unwrap().push(read.try_clone()?.into());
            command.stdin(read);
            Some(write.into())
        } else {
            command.stdin(Stdio::null());
            None
        };
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        Ok((ProcessIo::Pipes { stdin, stdout, stderr }, child))
    }

    fn run(&self, request: &ExecRequest) -> Result<Running, EngineError> {
        self.0.started.fetch_add(1, Ordering::SeqCst);
        let fault = |error: io::Error| ExecFault { code: 127, message: error.to_string() };
        let (io, mut child) = self.spawn(request).map_err(fault)?;
        let (tell, told) = oneshot::channel();
        let (ended, running) = (self.0.ended.clone(), Arc::clone(&self.0.running));
        running.lock().unwrap().insert(child.id());
        thread::spawn(move || {
            let status = child.wait().unwrap();
            running.lock().unwrap().remove(&child.id());
            let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap();
            ended.send_modify(|codes| codes.push(code));
            let _ = tell.send(code);
        });
        let exit = Box::pin(async move { Ok(told.await.unwrap()) });
        Ok(Running { io, terminal: None, exit, ends_with_output: false })
    }
}

/// A test leaves no process behind.
impl Drop for Inner {
    fn drop(&mut self) {
        for pid in self.running.lock().unwrap().drain() {
            let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn spawn_on_terminal(command: &Command) -> io::Result<(ProcessIo, Child)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let path = PathBuf::from(OsStr::from_bytes(ptsname(&master, Vec::new())?.as_bytes()));
    let slave = File::options().read(true).write(true).open(path)?;
    // Makes it the controlling terminal, which std cannot do without unsafe code.
    let child = Command::new("setsid")
        .args(["--ctty", "--wait"])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(slave.try_clone()?)
        .stdout(slave.try_clone()?)
        .stderr(slave)
        .spawn()?;
    Ok((ProcessIo::Terminal(master), child))
}

impl Backend for Machine {
    async fn exec(&self, container: &str, request: ExecRequest) -> Result<Running, EngineError> {
        assert_eq!(container, "c1");
        self.run(&request)
    }

    async fn attach(
        &self,
        container: &str,
        request: AttachRequest,
    ) -> Result<Running, EngineError> {
        assert_eq!(container, "c1");
        let streams =
            super::Streams { stdin: request.stdin, stdout: true, stderr: true, tty: false };
        let request = super::request("echo attached; echo to stderr >&2; cat", streams);
        self.run(&request)
    }

    async fn dial(&self, sandbox: &str, port: u16) -> Result<TcpStream, EngineError> {
        assert_eq!(sandbox, "p1");
        TcpStream::connect(("127.0.0.1", port)).await.map_err(|source| EngineError::Io {
            action: "connect to",
            path: "the port".into(),
            source,
        })
    }
}
