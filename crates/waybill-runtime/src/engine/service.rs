//! The engine as the rest of the runtime sees it.

mod container;
mod dial;
mod exec;
mod lifecycle;
mod recover;
mod sandbox;
mod silent;

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use oci_spec::runtime::LinuxResources;
use tokio::{
    net::TcpStream,
    sync::{broadcast, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::container::Entry;
pub use self::{
    exec::{Session, SessionProcess},
    silent::Patience,
};
use super::{
    AttachRecord, AttachRequest, Attachment, ContainerCgroups, ContainerRequest, Counters,
    EngineError, ExecRequest, Exit, Kind, Namespaces, ProcessIo, SandboxRequest, SessionFilter,
    SessionRecord, Spawner, State, Stats,
    attach_sessions::AttachSessions,
    cgroup::{DeviceGuard, Hierarchies},
    clock,
    message::{Reply, Request},
    seccomp::Filters,
    sessions::Sessions,
};
use crate::blocking::{on_a_thread, on_a_thread_or_here};

type Result<T> = std::result::Result<T, EngineError>;

/// Exits that a slow listener may be behind.
const EXITS: usize = 4096;

/// Starts and watches the processes of sandboxes, containers and exec sessions.
#[derive(Debug)]
pub struct Engine {
    me: Weak<Self>,
    run_dir: PathBuf,
    spawner: Arc<Spawner>,
    patience: Patience,
    hierarchies: Hierarchies,
    device_guard: DeviceGuard,
    filters: Filters,
    entries: Mutex<HashMap<String, Arc<Entry>>>,
    /// Containers whose records cannot be understood, and why. They are nobody's to touch.
    unknown: Mutex<BTreeMap<String, String>>,
    sessions: Sessions,
    attach_sessions: Arc<AttachSessions>,
    exits: broadcast::Sender<(String, Exit)>,
    /// Cancelled when the engine is dropped: connections to monitors end with it.
    gone: CancellationToken,
    /// What listens to monitors until then.
    followers: TaskTracker,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

impl Engine {
    /// Takes over what lives in `run_dir`: connects to the monitors of containers that are still there, and reads how
    /// the others ended. If `run_dir` is not on a tmpfs, one is mounted there.
    pub async fn new(spawner: Spawner, run_dir: PathBuf) -> Result<Arc<Self>> {
        Self::with_patience(spawner, run_dir, Patience::default()).await
    }

    /// As [`Engine::new`], with so much patience for monitors.
    pub async fn with_patience(
        spawner: Spawner,
        run_dir: PathBuf,
        patience: Patience,
    ) -> Result<Arc<Self>> {
        Self::open(spawner, run_dir, None, patience).await
    }

    /// As [`Engine::new`], with the directory `history` on a disk, which remembers sessions when the machine is started anew.
    pub async fn with_history(
        spawner: Spawner,
        run_dir: PathBuf,
        history: PathBuf,
    ) -> Result<Arc<Self>> {
        Self::open(spawner, run_dir, Some(history), Patience::default()).await
    }

    async fn open(
        spawner: Spawner,
        run_dir: PathBuf,
        history: Option<PathBuf>,
        patience: Patience,
    ) -> Result<Arc<Self>> {
        let below = |name: &str| history.as_ref().map(|history| history.join(name));
        let [sessions, attach_sessions] = ["sessions", recover::ATTACH_SESSIONS].map(below);
        for directory in [&sessions, &attach_sessions].into_iter().flatten() {
            lifecycle::make_directory(directory).map_err(io_error("make", directory))?;
        }
        let spawner = Arc::new(spawner);
        let ours = Arc::clone(&spawner);
        let (run_dir, hierarchies) = blocking(move || {
            let prepared = recover::prepare(&run_dir)?;
            recover::take_over(&prepared.0, &ours)?;
            Ok(prepared)
        })
        .await?;
        let engine = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            sessions: Sessions::new(run_dir.join("sessions"), sessions),
            attach_sessions: AttachSessions::new(
                run_dir.join(recover::ATTACH_SESSIONS),
                attach_sessions,
            ),
            run_dir,
            spawner,
            patience,
            device_guard: DeviceGuard::of(&hierarchies),
            filters: Filters::default(),
            hierarchies,
            entries: Mutex::default(),
            unknown: Mutex::default(),
            exits: broadcast::channel(EXITS).0,
            gone: CancellationToken::new(),
            followers: TaskTracker::new(),
        });
        engine.recover().await?;
        Ok(engine)
    }

    /// Whether this machine keeps containers from devices that they were not given.
    pub fn guards_devices(&self) -> bool {
        self.device_guard != DeviceGuard::Nothing
    }

    /// Whether sandboxes and containers can be made: makes sure that there is a process to fork them, and says why if
    /// there cannot be one.
    pub async fn check(&self) -> Result<()> {
        let spawner = Arc::clone(&self.spawner);
        blocking(move || spawner.check().map_err(lifecycle::spawner_error)).await
    }

    /// Whether a pod can have a network of its own: makes one and lets go of it.
    pub async fn check_network(&self) -> Result<()> {
        let spawner = Arc::clone(&self.spawner);
        making(move || spawner.try_network().map_err(lifecycle::spawner_error)).await
    }

    /// Whether a pod can have users of its own: makes a user namespace, maps the ids of `directory`, and lets go of both.
    pub async fn check_user_namespaces(&self, directory: PathBuf) -> Result<()> {
        let spawner = Arc::clone(&self.spawner);
        let attempt = move || spawner.try_user_namespace(&directory);
        making(move || attempt().map_err(lifecycle::spawner_error)).await
    }

    /// Makes the namespaces of a sandbox and pins them. An id that exists is an error.
    pub async fn create_sandbox(&self, id: &str, request: &SandboxRequest) -> Result<Namespaces> {
        self.make_sandbox(id, request).await
    }

    /// Unpins the namespaces, ends their holder, removes the cgroups made for the sandbox. Idempotent; cgroups
    /// that containers still stand in go with a second call, after the last container.
    pub async fn remove_sandbox(&self, id: &str) -> Result<()> {
        self.unmake_sandbox(id).await
    }

    /// Removes what is left of sandboxes that were removed before their last container was.
    pub async fn finish_sandbox_removals(&self) -> Result<()> {
        self.finish_removals().await
    }

    /// Makes a container whose first process waits for [`Engine::start`].
    pub async fn create(&self, id: &str, request: ContainerRequest) -> Result<()> {
        self.make_container(id, request).await
    }

    /// Ends a creation that is under way, so that [`Engine::create`] fails soon. A container that was made loses its processes.
    pub async fn end_creation(&self, id: &str) {
        if let Ok(entry) = self.entry(id) {
            self.end_unmade(&entry).await;
        }
    }

    /// Lets the first process run its program; an error says why the program could not be started.
    pub async fn start(&self, id: &str) -> Result<State> {
        let entry = self.entry(id)?;
        let (reply, _) = entry.ask(Request::Start, &[]).await?;
        match reply {
            Reply::Started { pid, started_at } => {
                let running = State::Running { pid, started_at };
                entry.set_running(running.clone());
                Ok(running)
            }
            other => Err(entry.unexpected(other)),
        }
    }

    /// How far the container has come. Never waits.
    pub fn state(&self, id: &str) -> Result<State> {
        if let Some(entry) = self.entries().get(id) {
            return Ok(entry.state());
        }
        match self.unknown().get(id).cloned() {
            Some(reason) => Ok(State::Unknown { reason }),
            None => Err(not_found(Kind::Container, id)),
        }
    }

    /// Ids of all containers, also of those that are not understood.
    pub fn containers(&self) -> Vec<String> {
        let mut ids: Vec<_> = self.entries().keys().cloned().collect();
        ids.extend(self.unknown().keys().cloned());
        ids
    }

    /// Whether a sandbox that exists is understood; an error says why not.
    pub fn check_sandbox(&self, id: &str) -> Result<()> {
        self.sandbox_file(id).map(drop)
    }

    /// Sends a signal to the first process; a container that has ended is left alone.
    pub async fn signal(&self, id: &str, signal: i32) -> Result<()> {
        let entry = self.entry(id)?;
        if matches!(entry.state(), State::Exited(_)) {
            return Ok(());
        }
        match entry.ask(Request::Signal { signal }, &[]).await {
            Ok((Reply::Done, _)) => Ok(()),
            Ok((other, _)) => Err(entry.unexpected(other)),
            // It ended while we asked.
            Err(_) if matches!(entry.state(), State::Exited(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Kills every process of the container's cgroup, exec sessions included.
    pub async fn kill_all(&self, id: &str) -> Result<()> {
        let cgroup = self.entry(id)?.cgroup.clone();
        blocking(move || cgroup.kill().map_err(io_error("kill", &cgroup.path()))).await
    }

    /// Waits until the container has ended. Cancel-safe, any number of waiters.
    pub async fn wait(&self, id: &str) -> Result<Exit> {
        let entry = self.entry(id)?;
        let mut state = entry.watch();
        loop {
            match &*state.borrow_and_update() {
                State::Exited(exit) => return Ok(exit.clone()),
                State::Unknown { reason } => return Err(unknown(id, reason)),
                State::Created | State::Running { .. } | State::Silent => {}
            }
            if state.changed().await.is_err() {
                return Err(not_found(Kind::Container, id));
            }
        }
    }

    /// Waits for the end of a container that was killed. If its monitor does not tell of it, that is ended too.
    pub async fn wait_killed(&self, id: &str) -> Result<Exit> {
        self.wait_for_killed(id).await
    }

    /// Removes what is left of a container that has ended or was never started. Idempotent.
    pub async fn delete(&self, id: &str) -> Result<()> {
        self.unmake_container(id).await
    }

    /// Changes limits of a container that has not ended.
    pub async fn update(&self, id: &str, resources: &LinuxResources) -> Result<()> {
        self.change_limits(id, resources.clone()).await
    }

    /// Opens the log file anew, after somebody moved the old one away.
    pub async fn reopen_log(&self, id: &str) -> Result<()> {
        let entry = self.entry(id)?;
        match entry.ask(Request::ReopenLog, &[]).await? {
            (Reply::Done, _) => Ok(()),
            (other, _) => Err(entry.unexpected(other)),
        }
    }

    /// Runs a program in the container, in a cgroup of its own. [`EngineError::Exec`] says why a program was not started.
    pub async fn exec(&self, id: &str, request: ExecRequest) -> Result<Session> {
        self.start_session(id, request).await
    }

    /// Connects to a container's streams, from now on. That is recorded first, and does not happen if it
    /// cannot be.
    pub async fn attach(&self, id: &str, request: &AttachRequest) -> Result<Attachment> {
        let entry = self.entry(id)?;
        let session = self.attach_sessions.begin(id, request);
        let session = session.map_err(io_error("record an attach session in", &self.run_dir))?;
        match self.join_streams(&entry, request.stdin).await {
            Ok((io, terminal)) => Ok(Attachment { io, terminal, session }),
            Err(error) => {
                self.attach_sessions.cancel(&session);
                Err(error)
            }
        }
    }

    async fn join_streams(
        &self,
        entry: &Entry,
        stdin: bool,
    ) -> Result<(ProcessIo, Option<OwnedFd>)> {
        let (reply, fds) = entry.ask(Request::Attach { stdin }, &[]).await?;
        let Reply::Attached { terminal } = reply else { return Err(entry.unexpected(reply)) };
        let mut fds = fds.into_iter();
        let stdin = if stdin { fds.next() } else { None };
        let stdout = fds.next();
        let (stderr, terminal) = if terminal { (None, fds.next()) } else { (fds.next(), None) };
        Ok((ProcessIo::Pipes { stdin, stdout, stderr }, terminal))
    }

    /// What the container used up to now.
    pub async fn stats(&self, id: &str) -> Result<Stats> {
        let cgroup = self.entry(id)?.cgroup.clone();
        blocking(move || {
            let (cpu_usage_ns, memory, pids, pids_limit) =
                cgroup.usage().map_err(io_error("read counters of", &cgroup.path()))?;
            let (read_at, pressure) = (clock::now(), cgroup.pressure());
            Ok(Stats { read_at, cpu_usage_ns, memory, pids, pids_limit, pressure })
        })
        .await
    }

    /// Everything that the kernel counts for a container, for those who watch machines.
    pub async fn counters(&self, id: &str) -> Result<Counters> {
        let cgroup = self.entry(id)?.cgroup.clone();
        blocking(move || cgroup.counters().map_err(io_error("read counters of", &cgroup.path())))
            .await
    }

    /// Connects to a port on the loopback device of a sandbox, IPv4 first.
    pub async fn dial(&self, sandbox: &str, port: u16) -> Result<TcpStream> {
        self.dial_sandbox(sandbox, port).await
    }

    /// Every exit of a container from now on, those of lost monitors included.
    pub fn exits(&self) -> broadcast::Receiver<(String, Exit)> {
        self.exits.subscribe()
    }

    /// Records of exec sessions, oldest first. Ended ones are kept for a while.
    pub fn sessions(&self, filter: &SessionFilter) -> Vec<SessionRecord> {
        self.sessions.list(filter)
    }

    /// The cgroups of every container that has not ended, as its monitor made them.
    pub fn container_cgroups(&self) -> Vec<ContainerCgroups> {
        let entries: Vec<_> = self.entries().values().map(Arc::clone).collect();
        entries.iter().filter_map(|entry| entry.cgroups()).collect()
    }

    /// Records of attach sessions, oldest first. Ended ones are kept for a while.
    pub fn attach_sessions(&self, filter: &SessionFilter) -> Vec<AttachRecord> {
        self.attach_sessions.list(filter)
    }

    /// A container that may be touched.
    fn entry(&self, id: &str) -> Result<Arc<Entry>> {
        let Some(entry) = self.entries().get(id).cloned() else {
            let reason = self.unknown().get(id).cloned();
            return Err(
                reason.map_or_else(|| not_found(Kind::Container, id), |it| unknown(id, &it))
            );
        };
        match entry.state() {
            State::Unknown { reason } => Err(unknown(id, &reason)),
            State::Created | State::Running { .. } | State::Exited(_) | State::Silent => Ok(entry),
        }
    }

    fn unknown(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_found(kind: Kind, id: &str) -> EngineError {
    EngineError::NotFound { kind, id: id.to_owned() }
}

fn unknown(id: &str, reason: &str) -> EngineError {
    EngineError::Unknown { kind: Kind::Container, id: id.to_owned(), reason: reason.to_owned() }
}

fn io_error<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl Fn(std::io::Error) -> EngineError + 'a {
    move |source| EngineError::Io { action, path: path.to_owned(), source }
}

/// Runs what may keep a thread busy for a while, and ends or tells something.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    on_a_thread_or_here(work).await?
}

/// Runs what may keep a thread busy for a while and makes something, or refuses.
async fn making<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    on_a_thread(work).await?
}

/// A sender of states that starts with one.
fn state_channel(state: State) -> watch::Sender<State> {
    watch::channel(state).0
}
