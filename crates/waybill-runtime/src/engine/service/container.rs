//! One container as the runtime holds it, and the watch over its monitor.

use std::{
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::{sync::watch, task::JoinHandle, time::timeout};
use waybill_core::chain::Chain;

use super::{Engine, Patience, Result, blocking, state_channel};
use crate::engine::{
    ContainerCgroups, EngineError, ExecFault, Exit, ExitCause, SessionRecord, State,
    cgroup::Cgroup,
    client::{Client, Heard},
    clock,
    message::{Failure, FromMonitor, PROTOCOL, Reply, Request},
    record::{self, CgroupsFile},
    wire::Reader,
};
use crate::versioned::Unreadable;

/// How long a container whose monitor is gone may take to die.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) directory: PathBuf,
    pub(super) cgroup: Cgroup,
    /// Cgroups above its own that were made for it, topmost first.
    pub(super) made: Vec<PathBuf>,
    patience: Patience,
    /// `None` when the monitor is gone.
    client: Mutex<Option<Arc<Client>>>,
    state: watch::Sender<State>,
}

impl Entry {
    pub(super) fn new(
        id: &str,
        directory: PathBuf,
        cgroup: Cgroup,
        made: Vec<PathBuf>,
        patience: Patience,
        state: State,
    ) -> Self {
        Self {
            id: id.to_owned(),
            directory,
            cgroup,
            made,
            patience,
            client: Mutex::default(),
            state: state_channel(state),
        }
    }

    /// `None` once it has ended. One of an older runtime has no cgroups that could be told by their IDs.
    pub(super) fn cgroups(&self) -> Option<ContainerCgroups> {
        let pid = match self.state() {
            State::Created => 0,
            State::Running { pid, .. } => pid,
            State::Silent => 0,
            State::Exited(_) | State::Unknown { .. } => return None,
        };
        let file = record::load::<CgroupsFile>(&self.directory.join(record::CGROUPS));
        let file = file.ok().flatten();
        let ids = file.as_ref().map(CgroupsFile::ids);
        Some(ContainerCgroups {
            container: self.id.clone(),
            pid,
            cgroup_id: ids.map_or(0, |ids| ids.container),
            processes_id: ids.map_or(0, |ids| ids.processes),
            privileged: file.is_some_and(|file| file.privileged),
        })
    }

    pub(super) fn connect(&self, client: Arc<Client>) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
    }

    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    pub(super) fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Sets what is known of a container that was there before this runtime.
    pub(super) fn recall(&self, state: State) {
        self.state.send_replace(state);
    }

    /// Unless it has ended meanwhile.
    pub(super) fn set_running(&self, running: State) {
        self.state.send_if_modified(|state| {
            let created = matches!(state, State::Created);
            if created {
                *state = running;
            }
            created
        });
    }

    /// Asks the monitor, which has its time to answer.
    pub(super) async fn ask(
        &self,
        request: Request,
        block: &[u8],
    ) -> Result<(Reply, Vec<OwnedFd>)> {
        let limit = self.patience.with(&request);
        match self.told(limit).await? {
            State::Created | State::Running { .. } | State::Silent => {}
            State::Exited(_) => return Err(self.wrong_state("exited", "it must not have ended")),
            State::Unknown { reason } => return Err(super::unknown(&self.id, &reason)),
        }
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answer = match client {
            Some(client) => {
                let answer = client.ask(request, clock::after_boot_in(limit), block);
                timeout(limit, answer).await.map_err(|_| self.silent(limit))?
            }
            None => None,
        };
        match answer {
            Some((Reply::Failed(failure), _)) => Err(self.failed(failure)),
            Some(answer) => Ok(answer),
            None => Err(self.silence().await),
        }
    }

    /// Waits until the monitor has said its first word.
    async fn told(&self, limit: Duration) -> Result<State> {
        let mut state = self.watch();
        let told = state.wait_for(|state| *state != State::Silent);
        match timeout(limit, told).await {
            Ok(told) => Ok(told.map_or(State::Silent, |state| state.clone())),
            Err(_) => Err(self.silent(limit)),
        }
    }

    /// Why a monitor does not answer: its container has ended, which we may hear of a little later, or it was killed.
    async fn silence(&self) -> EngineError {
        let mut state = self.watch();
        let ended = state.wait_for(|state| matches!(state, State::Exited(_)));
        match timeout(PATIENCE, ended).await {
            Ok(Ok(state)) if !is_lost(&state) => {
                self.wrong_state("exited", "it must not have ended")
            }
            _ => EngineError::MonitorLost { id: self.id.clone() },
        }
    }

    pub(super) fn silent(&self, limit: Duration) -> EngineError {
        EngineError::MonitorSilent { id: self.id.clone(), seconds: limit.as_secs() }
    }

    pub(super) fn wrong_state(&self, state: &'static str, needs: &'static str) -> EngineError {
        EngineError::WrongState { id: self.id.clone(), state, needs }
    }

    fn failed(&self, failure: Failure) -> EngineError {
        match failure {
            Failure::Refused(reason) => EngineError::Refused { id: self.id.clone(), reason },
            Failure::NotRunning => self.wrong_state("not running", "it must be"),
            Failure::Create(reason) => EngineError::Create { id: self.id.clone(), reason },
            Failure::Exec { code, message } => EngineError::Exec(ExecFault { code, message }),
        }
    }

    /// An answer that belongs to another question: the monitor is of another version, or broken.
    pub(super) fn unexpected(&self, _: Reply) -> EngineError {
        EngineError::Refused {
            id: self.id.clone(),
            reason: "its monitor answers what was not asked".to_owned(),
        }
    }

    /// Notes that what the monitor says cannot be understood, so that the container is left alone from now on.
    pub(super) fn mystify(&self, heard: &Heard) {
        let reason = match heard {
            Heard::Newer { version } => {
                format!("its monitor speaks version {version}, and this runtime {PROTOCOL}")
            }
            _ => "its monitor says what is no message".to_owned(),
        };
        self.forgo(reason);
    }

    /// Notes that the container cannot be understood.
    pub(super) fn forgo(&self, reason: String) {
        tracing::error!(
            container = self.id,
            reason,
            "a container is not understood and left as it is"
        );
        self.recall(State::Unknown { reason });
    }

    /// Notes the end, once; whether this was it.
    fn end(&self, exit: &Exit) -> bool {
        self.state.send_if_modified(|state| {
            let first = !matches!(state, State::Exited(_));
            if first {
                *state = State::Exited(exit.clone());
            }
            first
        })
    }
}

impl Engine {
    /// Follows what a monitor tells until it is gone and its end is noted. Holds the engine only while there is
    /// something to do.
    pub(super) fn follow(
        &self,
        entry: Arc<Entry>,
        client: Arc<Client>,
        mut reader: Reader,
    ) -> JoinHandle<()> {
        let (engine, gone) = (self.me.clone(), self.gone.clone());
        self.followers.spawn(async move {
            let end = loop {
                let heard = tokio::select! {
                    heard = client.receive(&mut reader) => heard,
                    () = gone.cancelled() => return,
                };
                let Heard::Message(message) = heard else { break heard };
                let Some(engine) = engine.upgrade() else { return };
                engine.hear(&entry, message);
            };
            client.close();
            match end {
                Heard::Garbage | Heard::Newer { .. } => entry.mystify(&end),
                Heard::Gone | Heard::Message(_) => mourn(&engine, &entry).await,
            }
        })
    }

    fn hear(&self, entry: &Arc<Entry>, message: FromMonitor) {
        match message {
            FromMonitor::Started { pid, started_at } => {
                entry.set_running(State::Running { pid, started_at });
            }
            FromMonitor::Exited(exit) => self.container_ended(entry, &exit),
            FromMonitor::SessionExited { session, exit } => {
                self.sessions.end(&session, &exit);
                self.sessions.forget_old(|session| self.lingers(session));
            }
            FromMonitor::Hello { .. } | FromMonitor::Reply { .. } => {}
        }
    }

    /// Whether a process of the session lives: its monitor removes the cgroup with the last one.
    fn lingers(&self, session: &SessionRecord) -> bool {
        let entry = self.entries().get(&session.container).map(Arc::clone);
        entry.is_some_and(|entry| entry.cgroup.session(&session.id).exists())
    }

    pub(super) fn container_ended(&self, entry: &Entry, exit: &Exit) {
        if entry.end(exit) {
            // Sessions that are not known to have ended were killed, with the container or with its monitor.
            self.sessions.lose(
                &entry.id,
                match exit.cause {
                    ExitCause::MonitorLost => ExitCause::MonitorLost,
                    ExitCause::Own | ExitCause::OutOfMemory => ExitCause::Own,
                },
            );
            // Nobody listens: fine.
            let _ = self.exits.send((entry.id.clone(), exit.clone()));
        }
    }
}

fn is_lost(state: &State) -> bool {
    matches!(state, State::Exited(Exit { cause: ExitCause::MonitorLost, .. }))
}

/// The monitor is gone: because all is told, or because it was killed.
pub(super) async fn mourn(engine: &Weak<Engine>, entry: &Arc<Entry>) {
    if matches!(entry.state(), State::Exited(_)) {
        return;
    }
    let lost = Arc::clone(entry);
    match blocking(move || Ok(exit_of(&lost))).await {
        Ok(Ok(exit)) => {
            if let Some(engine) = engine.upgrade() {
                engine.container_ended(entry, &exit);
            }
        }
        Ok(Err(unreadable)) => {
            let file = entry.directory.join(record::EXIT);
            entry.forgo(format!("{}: {}", file.display(), Chain(&unreadable)));
        }
        Err(error) => {
            let error = Chain(&error);
            tracing::error!(container = entry.id, %error, "the end of a container is not known");
        }
    }
}

/// How a container without a monitor ended: as the monitor wrote, else by our hand now.
fn exit_of(entry: &Entry) -> std::result::Result<Exit, Unreadable> {
    let file = entry.directory.join(record::EXIT);
    if let Some(exit) = record::load(&file)? {
        return Ok(exit);
    }
    let _ = entry.cgroup.kill();
    let _ = entry.cgroup.wait_until_empty(PATIENCE);
    let exit = Exit {
        code: 128 + libc::SIGKILL,
        cause: ExitCause::MonitorLost,
        started_at: match entry.state() {
            State::Running { started_at, .. } => Some(started_at),
            State::Created | State::Exited(_) | State::Silent | State::Unknown { .. } => None,
        },
        finished_at: clock::now(),
    };
    let _ = record::save(&file, &exit);
    Ok(exit)
}
