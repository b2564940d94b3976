//! What the runtime knows: its sessions, and which pod a container belongs to.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};
use waybill_proto::{
    cri::{ListContainersRequest, runtime_service_client::RuntimeServiceClient},
    runtime::{self, ListSessionsRequest, SessionKind, sessions_client::SessionsClient},
};

/// The runtime answers from memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// One exec or attach session, as the runtime recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The runtime's own name for it.
    pub id: String,
    /// `None` for exec; for attach, whether the client could write.
    pub attached: Option<Attached>,
    /// The container's id.
    pub container: String,
    /// Its first process, as the machine counts.
    pub pid: i32,
    /// When it began.
    pub started: Timestamp,
    /// When it ended, and how.
    pub ended: Option<(Timestamp, i32)>,
    /// The names of the variables that it was given.
    pub variables: Vec<String>,
    /// The request that it was started for; probes and hooks have none.
    pub audit_id: Option<String>,
    /// The kernel's ID of its cgroup; 0 for attach, while it is being started, and for sessions of older runtimes.
    pub cgroup_id: u64,
    /// When that cgroup was made, in nanoseconds after boot.
    pub made_at: u64,
    /// Whether root in its container could move processes into that cgroup and out of it, so that it proves less.
    pub privileged: bool,
}

/// The cgroups of a container, by the kernel's IDs; 0 for a container of an older runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerCgroups {
    /// The container's id.
    pub container: String,
    /// Its first process, as the machine counts; 0 if it was not started.
    pub pid: i32,
    /// What carries its limits and holds no process.
    pub cgroup_id: u64,
    /// The leaf of its own processes.
    pub processes_id: u64,
}

/// What a client that attached could do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Write to the container's own process.
    pub stdin: bool,
}

/// The container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// Its own name in the pod.
    pub name: String,
}

/// The runtime of this machine.
#[derive(Clone, Debug)]
pub struct Runtime {
    channel: Channel,
    socket: PathBuf,
}

/// Why the runtime did not tell.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// Nothing answers there.
    #[error("cannot reach the runtime at {}", socket.display())]
    Connect {
        /// Where.
        socket: PathBuf,
        /// What the connection said.
        #[source]
        source: tonic::transport::Error,
    },
    /// It is a runtime that does not record sessions, or it failed.
    #[error("the runtime at {} does not tell its sessions", socket.display())]
    Asked {
        /// Where.
        socket: PathBuf,
        /// What it answered.
        #[source]
        source: Status,
    },
}

impl Runtime {
    /// Connects to the runtime's socket.
    pub async fn connect(socket: &Path) -> Result<Self, RuntimeError> {
        let failed = |source| RuntimeError::Connect { socket: socket.to_owned(), source };
        let endpoint =
            Endpoint::from_shared(format!("unix://{}", socket.display())).map_err(failed)?;
        let endpoint = endpoint.connect_timeout(PATIENCE).timeout(PATIENCE);
        let channel = endpoint.connect().await.map_err(failed)?;
        Ok(Self { channel, socket: socket.to_owned() })
    }

    /// Sessions that run and those that ended a short while ago, and the cgroups of all containers.
    pub async fn sessions(&self) -> Result<(Vec<Session>, Vec<ContainerCgroups>), RuntimeError> {
        self.sessions_since(None).await
    }

    /// Only sessions that began or ended at some time or later, and the cgroups of all containers.
    pub async fn sessions_since(
        &self,
        since: Option<Timestamp>,
    ) -> Result<(Vec<Session>, Vec<ContainerCgroups>), RuntimeError> {
        let mut client = SessionsClient::new(self.channel.clone());
        let changed_since = since.map_or(0, |since| since.as_nanosecond());
        let changed_since = i64::try_from(changed_since).unwrap_or(0);
        let request = ListSessionsRequest { changed_since, ..ListSessionsRequest::default() };
        let answer = client.list_sessions(request).await;
        let answer = answer.map_err(|source| self.asked(source))?.into_inner();
        let sessions = answer.sessions.into_iter().map(session).collect();
        Ok((sessions, answer.containers.into_iter().map(cgroups).collect()))
    }

    /// Every container, by its id.
    pub async fn containers(&self) -> Result<HashMap<String, Container>, RuntimeError> {
        let mut client = RuntimeServiceClient::new(self.channel.clone());
        let answer = client.list_containers(ListContainersRequest::default()).await;
        let answer = answer.map_err(|source| self.asked(source))?.into_inner();
        let named = answer.containers.into_iter().map(|container| {
            let named = Container::of(&container.labels);
            (container.id, named)
        });
        Ok(named.collect())
    }

    pub(crate) fn client(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone())
    }

    pub(crate) fn asked(&self, source: Status) -> RuntimeError {
        RuntimeError::Asked { socket: self.socket.clone(), source }
    }
}

impl Container {
    /// As kubelets label containers.
    pub(crate) fn of(labels: &BTreeMap<String, String>) -> Self {
        let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
        Self {
            namespace: label("io.kubernetes.pod.namespace"),
            pod: label("io.kubernetes.pod.name"),
            name: label("io.kubernetes.container.name"),
        }
    }
}

fn session(session: runtime::Session) -> Session {
    let attached = match session.kind() {
        SessionKind::Exec => None,
        SessionKind::Attach => Some(Attached { stdin: session.stdin }),
    };
    let ended = (session.finished_at != 0).then(|| (time(session.finished_at), session.exit_code));
    Session {
        id: session.id,
        attached,
        container: session.container_id,
        pid: session.pid,
        started: time(session.started_at),
        ended,
        variables: session.env_names,
        audit_id: Some(session.audit_id).filter(|id| !id.is_empty()),
        cgroup_id: session.cgroup_id,
        made_at: session.cgroup_made_at,
        privileged: session.privileged,
    }
}

fn cgroups(cgroups: runtime::ContainerCgroups) -> ContainerCgroups {
    ContainerCgroups {
        container: cgroups.container_id,
        pid: cgroups.pid,
        cgroup_id: cgroups.cgroup_id,
        processes_id: cgroups.processes_cgroup_id,
    }
}

pub(crate) fn time(nanoseconds: i64) -> Timestamp {
    Timestamp::from_nanosecond(nanoseconds.into()).unwrap_or_default()
}
