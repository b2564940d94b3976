//! What the agent follows for as long as it runs: the pods of its node, the namespaces, gate's keys, and the time.

use std::{
    collections::BTreeSet,
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::time::{MissedTickBehavior, interval, sleep};
use waybill_api::stock::{Mode, PodFacts};
use waybill_core::{chain::Chain, id::PodUid};

use super::{
    directory::RunDirectory,
    keys,
    pods::{KnownPod, Pods},
    records::{LOOK, Records, RecordsServer},
    register, seal,
    values::HeldValues,
};

/// The label of a namespace that says what becomes of an exec without a session.
const MODE_LABEL: &str = "waybill.dev/exec";

/// How often gate's keys are looked for. A gate publishes a key ten seconds before it signs with it.
const KEYS: Duration = Duration::from_secs(5);

/// How often what is old is removed.
const SWEEP: Duration = Duration::from_secs(60);

/// How long a key for sealing is handed out.
const SEAL: Duration = Duration::from_secs(12 * 3600);

/// Before a key that could not be published is published again.
const PUBLISH_AGAIN: Duration = Duration::from_secs(5);

/// What following needs.
pub(super) struct Follower {
    pub(super) client: Client,
    pub(super) node: String,
    pub(super) directory: RunDirectory,
    pub(super) pods: Arc<Pods>,
    pub(super) values: Arc<HeldValues>,
    pub(super) records: Arc<Records>,
    /// What tells gates of them.
    pub(super) server: Option<Arc<RecordsServer>>,
    pub(super) clock: fn() -> SystemTime,
}

impl Follower {
    /// Tells the wrapper of every pod of the node, for ever.
    pub(super) async fn pods(&self) {
        let api: Api<Pod> = Api::all(self.client.clone());
        let config = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node));
        let mut events = pin!(watcher(api, config).default_backoff());
        let mut living = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => living.clear(),
                Ok(Event::InitApply(pod)) => {
                    living.extend(pod.metadata.uid.clone());
                    self.take(&pod);
                }
                Ok(Event::InitDone) => self.forget_all_but(&living),
                Ok(Event::Apply(pod)) => self.take(&pod),
                Ok(Event::Delete(pod)) => self.forget(pod.metadata.uid.as_deref()),
                Err(error) => tracing::warn!(error = %Chain(&error), "pods cannot be followed"),
            }
        }
    }

    fn take(&self, pod: &Pod) {
        for end in ended_debug_containers(pod) {
            self.records.end_debug(end.uid, end.container, end.at, end.code);
        }
        if let Some(pod) = KnownPod::of(pod) {
            let uid = pod.uid.clone();
            if let Some(facts) = self.pods.insert(pod) {
                self.tell(&uid, &facts);
            }
        }
    }

    fn tell(&self, uid: &str, facts: &PodFacts) {
        let Ok(uid) = PodUid::parse(uid) else { return };
        let path = self.directory.layout().pod(&uid);
        if let Err(error) = self.directory.write_json(&path, facts) {
            tracing::error!(%error, pod = facts.name, "the wrapper cannot be told of a pod");
        }
    }

    fn forget(&self, uid: Option<&str>) {
        let Some(uid) = uid.and_then(|uid| PodUid::parse(uid).ok()) else { return };
        self.pods.remove(uid.as_str());
        self.values.forget(uid.as_str());
        self.records.end_pod(uid.as_str(), (self.clock)());
        let _ = std::fs::remove_file(self.directory.layout().pod(&uid));
    }

    /// Also files of an agent that ran before.
    fn forget_all_but(&self, living: &BTreeSet<String>) {
        self.records.end_all_but(living, (self.clock)());
        let known: Vec<_> = living.iter().cloned().collect();
        self.pods.retain(&known).iter().for_each(|uid| self.forget(Some(uid)));
        let files = std::fs::read_dir(self.directory.layout().pods());
        for file in files.into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let uid = name.strip_suffix(".json").unwrap_or_default();
            if !living.contains(uid) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }

    /// Follows what namespaces ask for, for ever.
    pub(super) async fn namespaces(&self) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
        let mut living = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => living.clear(),
                Ok(Event::InitApply(namespace)) => {
                    living.extend(namespace.metadata.name.clone());
                    self.hear(&namespace);
                }
                Ok(Event::InitDone) => self.tell_all(&self.pods.listed(&living)),
                Ok(Event::Apply(namespace)) => self.hear(&namespace),
                // Its pods are gone before it is.
                Ok(Event::Delete(_)) => {}
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "namespaces cannot be followed");
                }
            }
        }
    }

    fn hear(&self, namespace: &Namespace) {
        let name = namespace.metadata.name.clone().unwrap_or_default();
        self.tell_all(&self.pods.set_mode(&name, mode(namespace)));
    }

    fn tell_all(&self, pods: &[(String, PodFacts)]) {
        pods.iter().for_each(|(uid, facts)| self.tell(uid, facts));
    }

    /// Follows gate's keys, for ever.
    pub(super) async fn keys(&self) {
        let (mut written, mut told) = (None, false);
        let mut ticks = interval(KEYS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = (self.clock)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            match keys::fetch(&self.client, now.as_secs()).await {
                Ok(set) if written.as_ref() == Some(&set) => told = false,
                Ok(set) => {
                    told = false;
                    match self.directory.write_json(&self.directory.layout().keys(), &set) {
                        Ok(()) => written = Some(set),
                        Err(error) => {
                            tracing::error!(%error, "the wrapper cannot be told of gate's keys");
                        }
                    }
                }
                Err(error) if !told => {
                    tracing::warn!(error, "gate's keys cannot be read; those that are here stay");
                    told = true;
                }
                Err(_) => {}
            }
        }
    }

    /// Makes a key for sealing, tells the cluster of it, and does so again in time, for ever.
    pub(super) async fn seals(&self) {
        loop {
            match seal::renew(&self.directory) {
                Ok(key) => {
                    while let Err(error) = self.publish(&key).await {
                        tracing::warn!(error, "the key for sealing is not published");
                        sleep(PUBLISH_AGAIN).await;
                    }
                    sleep(SEAL).await;
                }
                Err(error) => {
                    tracing::error!(error = %Chain(&error), "there is no key for sealing");
                    sleep(SWEEP).await;
                }
            }
        }
    }

    /// Tells the cluster of the key, and of where records are.
    async fn publish(&self, key: &seal::NodeKey) -> Result<(), String> {
        let endpoint = self.server.as_ref().map(|server| server.renew()).transpose();
        let endpoint = endpoint.map_err(|error| Chain(&error).to_string())?;
        let node = register::read(&self.client, &self.node).await;
        let node = node.map_err(|error| Chain(&error).to_string())?;
        let uid = node.metadata.uid.unwrap_or_default();
        let published =
            seal::publish(&self.client, (&self.node, &uid), key, endpoint.as_ref()).await;
        published.map_err(|error| Chain(&error).to_string())
    }

    /// Removes what is old, for ever.
    pub(super) async fn sweep(&self) {
        let mut ticks = interval(SWEEP);
        loop {
            ticks.tick().await;
            let now = (self.clock)();
            self.directory.sweep(now);
            self.records.sweep(now);
        }
    }

    /// Looks which sessions have ended, for ever.
    pub(super) async fn ends(&self) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.records.look((self.clock)());
        }
    }
}

/// The end of a debug container.
struct DebugEnd<'a> {
    uid: &'a str,
    container: &'a str,
    at: SystemTime,
    code: i32,
}

fn ended_debug_containers(pod: &Pod) -> impl Iterator<Item = DebugEnd<'_>> {
    let statuses =
        pod.status.iter().flat_map(|it| it.ephemeral_container_statuses.iter().flatten());
    statuses.filter_map(|status| {
        let ended = status.state.as_ref()?.terminated.as_ref()?;
        let at = ended.finished_at.as_ref().map(|time| SystemTime::from(time.0));
        let uid = pod.metadata.uid.as_deref()?;
        Some(DebugEnd { uid, container: &status.name, at: at?, code: ended.exit_code })
    })
}

/// A word that is not known is taken for the stricter one.
fn mode(namespace: &Namespace) -> Option<Mode> {
    let label = namespace.metadata.labels.as_ref()?.get(MODE_LABEL)?;
    Some(if label == "record" { Mode::Record } else { Mode::Enforce })
}
