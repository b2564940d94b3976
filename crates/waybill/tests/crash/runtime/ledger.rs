//! What workers were told about containers, so that it can be compared with what there is.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::time::sleep;
use tonic::Status;
use waybill_proto::{
    cri::{Container, ContainerState, ContainerStatus},
    runtime::Session,
};

use super::{
    client::{Client, Script},
    monitors::Monitors,
    spawners::Spawners,
};
use crate::PATIENCE;

/// What a process gets that somebody kills.
const KILLED: i32 = 137;

/// Shared by all workers of a round.
#[derive(Clone)]
pub(crate) struct Ledger {
    monitors: Monitors,
    spawners: Spawners,
    entries: Arc<Mutex<BTreeMap<String, Entry>>>,
    killing: Arc<AtomicBool>,
}

/// One container, by the name that it was asked for with.
#[derive(Clone, Debug)]
struct Entry {
    script: Script,
    /// How it ends.
    code: i32,
    /// Once its creation was acknowledged.
    id: Option<String>,
    /// Whether its creation was refused, so that it must not be there.
    refused: bool,
    start: Step,
    /// What was told of its end, which must not change any more.
    end: Option<End>,
    /// How many commands in it were told to have ended with which code.
    sessions: BTreeMap<i32, usize>,
    removal: Step,
}

/// How a container ended: code, reason and time.
type End = (i32, String, i64);

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Not,
    Asked,
    Acknowledged,
}

impl Ledger {
    pub(crate) fn new(monitors: &Monitors, spawners: &Spawners) -> Self {
        Self {
            monitors: monitors.clone(),
            spawners: spawners.clone(),
            entries: Arc::default(),
            killing: Arc::new(AtomicBool::new(false)),
        }
    }

    /// From now on the runtime may be gone.
    pub(crate) fn expect_kill(&self) {
        self.killing.store(true, Ordering::SeqCst);
    }

    /// Whether the runtime lives: an error that no killed spawner or monitor explains is then a fault.
    pub(crate) fn excuse(&self, id: &str, status: &Status) -> Excuse {
        if self.killing.load(Ordering::SeqCst) {
            return Excuse::Runtime;
        }
        if self.spawners.explain(status) {
            return Excuse::Spawner;
        }
        let explained = self.monitors.was_killed(id) || self.monitors.explain(status.message());
        assert!(explained, "container {id:?}: {status:?}");
        Excuse::Monitor
    }

    /// A code that a command of the container may end with instead of its own.
    pub(crate) fn check_session(&self, name: &str, id: &str, code: i32, own: i32, script: Script) {
        // A command dies with its container, and with the monitor that is its parent.
        let may_be_killed = script == Script::Short || self.monitors.was_killed(id);
        assert!(code == own || (code == KILLED && may_be_killed), "{id}: {code} instead of {own}");
        self.change(name, |entry| *entry.sessions.entry(code).or_default() += 1);
    }

    pub(crate) fn ask_creation(&self, name: &str, script: Script, code: i32) {
        let entry = Entry {
            script,
            code,
            id: None,
            refused: false,
            start: Step::Not,
            end: None,
            sessions: BTreeMap::new(),
            removal: Step::Not,
        };
        self.entries().insert(name.to_owned(), entry);
    }

    pub(crate) fn created(&self, name: &str, id: &str) {
        self.change(name, |entry| entry.id = Some(id.to_owned()));
    }

    pub(crate) fn refused(&self, name: &str) {
        self.change(name, |entry| entry.refused = true);
    }

    pub(crate) fn ask_start(&self, name: &str) {
        self.change(name, |entry| entry.start = Step::Asked);
    }

    pub(crate) fn started(&self, name: &str) {
        self.change(name, |entry| entry.start = Step::Acknowledged);
    }

    pub(crate) fn ended(&self, name: &str, status: &ContainerStatus) {
        self.change(name, |entry| entry.end = Some(end_of(status)));
    }

    pub(crate) fn ask_removal(&self, name: &str) {
        self.change(name, |entry| entry.removal = Step::Asked);
    }

    pub(crate) fn removed(&self, name: &str) {
        self.change(name, |entry| entry.removal = Step::Acknowledged);
    }

    /// Compares with what the runtime has, and leads every container to its end.
    pub(crate) async fn settle(&self, client: &Client) {
        let found: BTreeMap<String, Container> = client
            .list()
            .await
            .into_iter()
            .map(|it| (it.metadata.clone().unwrap_or_default().name, it))
            .filter(|(name, _)| !name.starts_with(super::ELDER))
            .collect();
        let entries = self.entries().clone();
        let sessions = client.sessions().await;
        for name in found.keys() {
            assert!(entries.contains_key(name), "{name} was never asked for");
        }
        for (name, entry) in entries {
            let there = found.get(&name);
            match (&entry.id, entry.removal, there) {
                (_, Step::Acknowledged, Some(_)) => panic!("{name} is there again: {entry:?}"),
                (None, _, Some(_)) if entry.refused => panic!("{name} was refused and is there"),
                (Some(_), Step::Not, None) => panic!("{name} is lost: {entry:?}"),
                (Some(id), _, Some(there)) => assert_eq!(*id, there.id, "{name}"),
                _ => {}
            }
            for (code, told) in &entry.sessions {
                let id = entry.id.as_deref().unwrap_or_default();
                let with_code = |it: &&Session| it.container_id == id && it.exit_code == *code;
                let known = sessions.iter().filter(with_code).filter(|it| it.finished_at > 0);
                let known = known.count();
                assert!(known >= *told, "{name}: {known} of {told} sessions with {code} are known");
            }
            if let Some(there) = there {
                self.lead_to_the_end(client, &entry, &there.id).await;
            }
        }
    }

    async fn lead_to_the_end(&self, client: &Client, entry: &Entry, id: &str) {
        let status = client.status(id).await.expect("a listed container has a status");
        match status.state() {
            ContainerState::ContainerCreated => {
                assert_ne!(entry.start, Step::Acknowledged, "{entry:?} {status:?}");
                client.start(id).await.unwrap_or_else(|it| panic!("{entry:?} {it:?}"));
            }
            ContainerState::ContainerRunning | ContainerState::ContainerExited => {
                assert_ne!(entry.start, Step::Not, "{entry:?} {status:?}");
            }
            ContainerState::ContainerUnknown => panic!("{entry:?} {status:?}"),
        }
        if entry.script == Script::Steady && status.state() != ContainerState::ContainerExited {
            // One that was told before the kill may end right now.
            let _ = client.exec_when_ready(id, 0).await;
            client.stop(id).await.unwrap_or_else(|it| panic!("{entry:?} {it:?}"));
        }
        let status = ended(client, id).await.expect("a listed container has a status");
        self.check_end(entry.code, &status);
        if let Some(told) = &entry.end {
            assert_eq!(*told, end_of(&status), "its end has changed: {entry:?}");
        }
    }

    /// A container has its own code, unless its monitor was killed and that is said.
    pub(crate) fn check_end(&self, code: i32, status: &ContainerStatus) {
        let own = status.exit_code == code && status.reason == "Error";
        let lost = self.monitors.was_killed(&status.id)
            && (status.reason == "MonitorLost" || status.message.contains("monitor"));
        assert!(own || lost, "{code} expected: {status:?}");
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Entry)) {
        change(self.entries().get_mut(name).expect("it was asked for"));
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().expect("no worker has panicked")
    }
}

/// Whose death explains an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excuse {
    Runtime,
    Monitor,
    Spawner,
}

fn end_of(status: &ContainerStatus) -> End {
    (status.exit_code, status.reason.clone(), status.finished_at)
}

/// Waits for the end of a container.
pub(crate) async fn ended(client: &Client, id: &str) -> Result<ContainerStatus, Status> {
    let end = Instant::now() + PATIENCE;
    loop {
        let status = client.status(id).await?;
        if status.state() == ContainerState::ContainerExited {
            return Ok(status);
        }
        assert!(Instant::now() < end, "it does not end: {status:?}");
        sleep(Duration::from_millis(5)).await;
    }
}
