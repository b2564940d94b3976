//! The engine as the rest of the runtime sees it.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use oci_spec::runtime::LinuxResources;
use tokio::{net::TcpStream, sync::broadcast};

use super::{
    Attachment, ContainerRequest, EngineError, ExecRequest, Exit, Kind, Namespaces, ProcessIo,
    SandboxRequest, SessionFilter, SessionRecord, Spawner, State, Stats,
};

type Result<T> = std::result::Result<T, EngineError>;

/// Starts and watches the processes of sandboxes, containers and exec sessions.
#[derive(Debug)]
pub struct Engine {
    exits: broadcast::Sender<(String, Exit)>,
}

/// A running exec session: its streams, and the process behind them.
#[derive(Debug)]
pub struct Session {
    /// The caller's ends; taken apart from `process` so that each can go its own way.
    pub io: ProcessIo,
    /// To wait for and to kill.
    pub process: SessionProcess,
}

/// The process of an exec session. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SessionProcess {
    id: String,
    pid: i32,
}

impl Engine {
    /// Takes over what lives in `run_dir`: connects to the monitors of containers that are still there, and reads how
    /// the others ended.
    pub async fn new(spawner: Spawner, run_dir: PathBuf) -> Result<Arc<Self>> {
        let _ = (spawner, run_dir);
        Ok(Arc::new(Self { exits: broadcast::channel(1024).0 }))
    }

    /// Makes the namespaces of a sandbox and pins them. An id that exists is an error.
    pub async fn create_sandbox(&self, id: &str, request: &SandboxRequest) -> Result<Namespaces> {
        let _ = request;
        Err(EngineError::NotFound { kind: Kind::Sandbox, id: id.to_owned() })
    }

    /// Unpins the namespaces, ends their holder, removes the cgroups made for the sandbox. Idempotent.
    pub async fn remove_sandbox(&self, id: &str) -> Result<()> {
        Err(EngineError::NotFound { kind: Kind::Sandbox, id: id.to_owned() })
    }

    /// Makes a container whose first process waits for [`Engine::start`].
    pub async fn create(&self, id: &str, request: ContainerRequest) -> Result<()> {
        let _ = request;
        Err(EngineError::NotFound { kind: Kind::Container, id: id.to_owned() })
    }

    /// Lets the first process run its program; an error says why the program could not be started.
    pub async fn start(&self, id: &str) -> Result<State> {
        self.state(id)
    }

    /// How far the container has come. Never waits.
    pub fn state(&self, id: &str) -> Result<State> {
        Err(EngineError::NotFound { kind: Kind::Container, id: id.to_owned() })
    }

    /// Ids of all containers.
    pub fn containers(&self) -> Vec<String> {
        Vec::new()
    }

    /// Sends a signal to the first process; a container that has ended is left alone.
    pub async fn signal(&self, id: &str, signal: i32) -> Result<()> {
        let _ = signal;
        Err(EngineError::NotFound { kind: Kind::Container, id: id.to_owned() })
    }

    /// Kills every process of the container's cgroup, exec sessions included.
    pub async fn kill_all(&self, id: &str) -> Result<()> {
        Err(EngineError::NotFound { kind: Kind::Container, id: id.to_owned() })
    }

    /// Waits until the container has ended. Cancel-safe, any number of waiters.
    pub async fn wait(&self, id: &str) -> Result<Exit> {
        Err(EngineError::NotFound { kind: Kind::Container, id: id.to_owned() })
    }

    /// Removes what is left of a container that has ended or was never started. Idempotent.
    pub async fn delete(&self, id: &str) -> Result<()> {
        Err(EngineError::NotFound { kind: Kind::Container, id: id.to_owned() })
    }

    /// Changes limits of a container that has not ended.
    pub async fn update(&self, id: &str, resources: &LinuxResources) -> Result<()> {
        let _ = resources;
        Err(EngineError::NotFound { kind: Kind::Container, id: id.to_owned() })
    }

    /// Opens the log file anew, after somebody moved the old one away.
    pub async fn reopen_log(&self, id: &str) -> Result<()> {
        Err(EngineError::NotFound { kind: Kind::Container, id: id.to_owned() })
    }

    /// Runs a program in the container, in a cgroup of its own. [`EngineError::Exec`] says why a program was not started.
    pub async fn exec(&self, id: &str, request: ExecRequest) -> Result<Session> {
        let _ = request;
        Err(EngineError::NotFound { kind: Kind::Container, id: id.to_owned() })
    }

    /// Connects to a running container's streams.
    pub async fn attach(&self, id: &str, stdin: bool) -> Result<Attachment> {
        let _ = stdin;
        Err(EngineError::NotFound { kind: Kind::Container, id: id.to_owned() })
    }

    /// What the container used up to now.
    pub async fn stats(&self, id: &str) -> Result<Stats> {
        Err(EngineError::NotFound { kind: Kind::Container, id: id.to_owned() })
    }

    /// Connects to a port on the sandbox's loopback device, IPv4 first.
    pub async fn dial(&self, sandbox: &str, port: u16) -> Result<TcpStream> {
        let _ = SocketAddr::from(([127, 0, 0, 1], port));
        Err(EngineError::NotFound { kind: Kind::Sandbox, id: sandbox.to_owned() })
    }

    /// Every exit of a container from now on, those of lost monitors included.
    pub fn exits(&self) -> broadcast::Receiver<(String, Exit)> {
        self.exits.subscribe()
    }

    /// Records of exec sessions, oldest first. Ended ones are kept for a while.
    pub fn sessions(&self, filter: &SessionFilter) -> Vec<SessionRecord> {
        let _ = filter;
        Vec::new()
    }
}

impl Session {
    /// See [`SessionProcess::wait`].
    pub async fn wait(&self) -> Result<Exit> {
        self.process.wait().await
    }

    /// See [`SessionProcess::kill`].
    pub async fn kill(&self) -> Result<()> {
        self.process.kill().await
    }
}

impl SessionProcess {
    /// The session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The first process, as the machine counts.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until the first process has ended. Cancel-safe, any number of waiters.
    pub async fn wait(&self) -> Result<Exit> {
        Err(EngineError::NotFound { kind: Kind::Session, id: self.id.clone() })
    }

    /// Kills every process of the session, also those that outlived the first one. Idempotent.
    pub async fn kill(&self) -> Result<()> {
        Err(EngineError::NotFound { kind: Kind::Session, id: self.id.clone() })
    }
}
