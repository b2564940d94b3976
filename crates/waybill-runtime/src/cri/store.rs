//! All sandboxes and containers, found by id or the beginning of one, and the names that are taken.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Mutex as AsyncMutex, watch};
use uuid::Uuid;
use waybill_proto::cri::{ContainerMetadata, PodSandboxMetadata};

use super::{
    error::{CriError, Result},
    record::{ContainerRecord, SandboxRecord},
    unknown::{UnknownContainer, UnknownSandbox},
};

/// Something with a record.
#[derive(Debug)]
pub(crate) struct Entry<R> {
    record: Mutex<R>,
    /// Held while it is made, started or removed, so that these do not meet. Stopping does not take
    /// it: a kill must not wait for a slow stop.
    pub(crate) lifecycle: AsyncMutex<()>,
    /// How many wait to end it.
    ending: watch::Sender<usize>,
}

pub(crate) type Sandbox = Entry<SandboxRecord>;
pub(crate) type Container = Entry<ContainerRecord>;

impl<R: Clone> Entry<R> {
    pub(crate) fn new(record: R) -> Arc<Self> {
        Arc::new(Self {
            record: Mutex::new(record),
            lifecycle: AsyncMutex::new(()),
            ending: watch::Sender::new(0),
        })
    }

    /// Says that somebody waits to end it, until this is dropped.
    pub(crate) fn announce_end(&self) -> EndAnnounced<'_> {
        self.ending.send_modify(|waiting| *waiting += 1);
        EndAnnounced(&self.ending)
    }

    pub(crate) fn is_ending(&self) -> bool {
        *self.ending.borrow() > 0
    }

    /// Waits until somebody waits to end it.
    pub(crate) async fn end_announced(&self) {
        // The sender is ours: it cannot be gone.
        let _ = self.ending.subscribe().wait_for(|waiting| *waiting > 0).await;
    }

    /// The record as it is now.
    pub(crate) fn record(&self) -> R {
        lock(&self.record).clone()
    }

    /// Changes the record; `save` writes it, and if that fails nothing has changed.
    pub(crate) fn change(
        &self,
        change: impl FnOnce(&mut R),
        save: impl FnOnce(&R) -> Result<()>,
    ) -> Result<()> {
        let mut record = lock(&self.record);
        let mut changed = record.clone();
        change(&mut changed);
        save(&changed)?;
        *record = changed;
        Ok(())
    }
}

/// Somebody waits to end something.
pub(crate) struct EndAnnounced<'a>(&'a watch::Sender<usize>);

impl Drop for EndAnnounced<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting = waiting.saturating_sub(1));
    }
}

/// What exists.
#[derive(Debug, Default)]
pub(crate) struct Store {
    sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    containers: Mutex<BTreeMap<String, Arc<Container>>>,
    unknown_sandboxes: Mutex<BTreeMap<String, Arc<UnknownSandbox>>>,
    unknown_containers: Mutex<BTreeMap<String, Arc<UnknownContainer>>>,
    names: Arc<Mutex<BTreeMap<Name, String>>>,
}

/// What no two may share: a retried request finds its name taken and makes no second one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Sandbox { name: String, namespace: String, uid: String, attempt: u32 },
    Container { sandbox: String, name: String, attempt: u32 },
}

impl Name {
    pub(crate) fn of_sandbox(metadata: &PodSandboxMetadata) -> Self {
        let PodSandboxMetadata { name, uid, namespace, attempt } = metadata.clone();
        Self::Sandbox { name, namespace, uid, attempt }
    }

    pub(crate) fn of_container(sandbox: &str, metadata: &ContainerMetadata) -> Self {
        let ContainerMetadata { name, attempt } = metadata.clone();
        Self::Container { sandbox: sandbox.to_owned(), name, attempt }
    }

    fn shown(&self) -> (&'static str, String) {
        match self {
            Self::Sandbox { name, namespace, uid, attempt } => {
                ("sandbox", format!("{namespace}/{name} (uid {uid}, attempt {attempt})"))
            }
            Self::Container { name, attempt, .. } => {
                ("container", format!("{name} (attempt {attempt})"))
            }
        }
    }
}

/// A name that is taken until this is dropped, or for good once it is kept.
#[derive(Debug)]
pub(crate) struct Reservation {
    names: Arc<Mutex<BTreeMap<Name, String>>>,
    name: Option<Name>,
}

impl Reservation {
    pub(crate) fn keep(mut self) {
        self.name = None;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            lock(&self.names).remove(&name);
        }
    }
}

impl Store {
    /// Takes a name for `id`.
    pub(crate) fn reserve(&self, name: Name, id: &str) -> Result<Reservation> {
        let mut names = lock(&self.names);
        if let Some(owner) = names.get(&name) {
            let (kind, text) = name.shown();
            return Err(CriError::NameTaken { kind, name: text, id: owner.clone() });
        }
        names.insert(name.clone(), id.to_owned());
        Ok(Reservation { names: Arc::clone(&self.names), name: Some(name) })
    }

    pub(crate) fn add_sandbox(&self, record: SandboxRecord) -> Arc<Sandbox> {
        let id = record.id.clone();
        let sandbox = Entry::new(record);
        lock(&self.sandboxes).insert(id, Arc::clone(&sandbox));
        sandbox
    }

    pub(crate) fn add_container(&self, record: ContainerRecord) -> Arc<Container> {
        let id = record.id.clone();
        let container = Entry::new(record);
        lock(&self.containers).insert(id, Arc::clone(&container));
        container
    }

    pub(crate) fn remove_sandbox(&self, id: &str) {
        let removed = lock(&self.sandboxes).remove(id);
        if let Some(metadata) = removed.and_then(|it| it.record().config.metadata) {
            lock(&self.names).remove(&Name::of_sandbox(&metadata));
        }
    }

    pub(crate) fn remove_container(&self, id: &str) {
        let removed = lock(&self.containers).remove(id).map(|container| container.record());
        if let Some(record) = removed
            && let Some(metadata) = record.config.metadata
        {
            lock(&self.names).remove(&Name::of_container(&record.sandbox, &metadata));
        }
    }

    /// Keeps what is not understood. Its name, as far as that can be told, is taken.
    pub(crate) fn add_unknown_sandbox(&self, sandbox: UnknownSandbox) {
        if let Some(metadata) = &sandbox.shown.metadata {
            lock(&self.names).insert(Name::of_sandbox(metadata), sandbox.shown.id.clone());
        }
        lock(&self.unknown_sandboxes).insert(sandbox.shown.id.clone(), Arc::new(sandbox));
    }

    /// Keeps what is not understood. Its name, as far as that can be told, is taken.
    pub(crate) fn add_unknown_container(&self, container: UnknownContainer) {
        let shown = &container.shown;
        if let Some(metadata) = &shown.metadata {
            let name = Name::of_container(&shown.pod_sandbox_id, metadata);
            lock(&self.names).insert(name, shown.id.clone());
        }
        lock(&self.unknown_containers).insert(shown.id.clone(), Arc::new(container));
    }

    pub(crate) fn unknown_sandboxes(&self) -> Vec<Arc<UnknownSandbox>> {
        lock(&self.unknown_sandboxes).values().cloned().collect()
    }

    pub(crate) fn unknown_containers(&self) -> Vec<Arc<UnknownContainer>> {
        lock(&self.unknown_containers).values().cloned().collect()
    }

    /// The sandbox of an id or of the beginning of one, among those that are not understood.
    pub(crate) fn unknown_sandbox(&self, id: &str) -> Option<Arc<UnknownSandbox>> {
        find(&lock(&self.unknown_sandboxes), id, "sandbox").ok()
    }

    /// The container of an id or of the beginning of one, among those that are not understood.
    pub(crate) fn unknown_container(&self, id: &str) -> Option<Arc<UnknownContainer>> {
        find(&lock(&self.unknown_containers), id, "container").ok()
    }

    /// The sandbox of an id or of the beginning of one, which may be touched.
    pub(crate) fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>> {
        find(&lock(&self.sandboxes), id, "sandbox")
            .map_err(|error| self.unknown_sandbox(id).map_or(error, |unknown| unknown.error()))
    }

    /// The container of an id or of the beginning of one, which may be touched.
    pub(crate) fn container(&self, id: &str) -> Result<Arc<Container>> {
        find(&lock(&self.containers), id, "container")
            .map_err(|error| self.unknown_container(id).map_or(error, |unknown| unknown.error()))
    }

    pub(crate) fn sandboxes(&self) -> Vec<Arc<Sandbox>> {
        lock(&self.sandboxes).values().cloned().collect()
    }

    pub(crate) fn containers(&self) -> Vec<Arc<Container>> {
        lock(&self.containers).values().cloned().collect()
    }

    /// The containers of a sandbox.
    pub(crate) fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        let mut containers = self.containers();
        containers.retain(|container| lock(&container.record).sandbox == sandbox);
        containers
    }
}

/// 64 hex digits that nobody can guess.
pub(crate) fn new_id() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

fn find<T>(all: &BTreeMap<String, Arc<T>>, id: &str, kind: &'static str) -> Result<Arc<T>> {
    if id.is_empty() {
        return Err(CriError::invalid(format!("the {kind} id is empty")));
    }
    if let Some(exact) = all.get(id) {
        return Ok(Arc::clone(exact));
    }
    let from = (Bound::Included(id), Bound::Unbounded);
    let mut matches = all.range::<str, _>(from).take_while(|(other, _)| other.starts_with(id));
    match (matches.next(), matches.count()) {
        (Some((_, only)), 0) => Ok(Arc::clone(only)),
        (Some(_), more) => {
            Err(CriError::Ambiguous { kind, id: id.to_owned(), count: more.saturating_add(1) })
        }
        (None, _) => Err(CriError::NotFound { kind, id: id.to_owned() }),
    }
}

/// A panic while the lock was held left nothing half done that could matter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::record::NamespacePaths;

    fn sandbox(id: &str, name: &str) -> SandboxRecord {
        let metadata = PodSandboxMetadata { name: name.into(), ..PodSandboxMetadata::default() };
        SandboxRecord {
            id: id.into(),
            created_at: 1,
            config: waybill_proto::cri::PodSandboxConfig {
                metadata: Some(metadata),
                ..Default::default()
            },
            runtime_handler: String::new(),
            namespaces: NamespacePaths::default(),
            cgroup_parent: "/".into(),
            stopped: false,
        }
    }

    #[test]
    fn a_beginning_that_only_one_has_is_enough() {
        let store = Store::default();
        for id in ["abc1", "abc2", "b", "bb"] {
            store.add_sandbox(sandbox(id, id));
        }
        let found = |id: &str| store.sandbox(id).map(|it| it.record().id);
        assert_eq!(found("abc1").unwrap(), "abc1");
        assert_eq!(found("b").unwrap(), "b");
        assert_eq!(
            found("abc").unwrap_err().to_string(),
            "sandbox id \"abc\" is ambiguous: it begins 2 ids"
        );
        assert!(found("c").unwrap_err().is_not_found());
        assert!(!found("").unwrap_err().is_not_found());
        assert_eq!(found("bb").unwrap(), "bb");
    }

    #[test]
    fn a_name_is_free_again_when_its_request_fails_or_its_owner_goes() {
        let store = Store::default();
        let name = || Name::of_sandbox(&sandbox("", "pod").config.metadata.unwrap());
        let first = store.reserve(name(), "1").unwrap();
        let error = store.reserve(name(), "2").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the name /pod (uid , attempt 0) is taken by sandbox \"1\"; remove that first"
        );
        drop(first);
        store.reserve(name(), "3").unwrap().keep();
        store.add_sandbox(sandbox("3", "pod"));
        assert!(store.reserve(name(), "4").is_err());
        store.remove_sandbox("3");
        assert!(store.reserve(name(), "4").is_ok());
    }

    #[test]
    fn a_change_that_cannot_be_saved_did_not_happen() {
        let store = Store::default();
        let entry = store.add_sandbox(sandbox("1", "pod"));
        let refused = entry.change(|it| it.stopped = true, |_| Err(CriError::Stopping));
        assert!(refused.is_err() && !entry.record().stopped);
        entry.change(|it| it.stopped = true, |_| Ok(())).unwrap();
        assert!(entry.record().stopped);
    }

    #[test]
    fn ids_are_64_hex_digits_and_differ() {
        let id = new_id();
        assert_eq!(id.len(), 64);
        assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(id, new_id());
    }
}
