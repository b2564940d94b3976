//! What a runtime that was started again finds: sandboxes and containers go on, what a request left half done is
//! cleared away, and what is not understood stays as it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Arc,
    time::Duration,
};

use tokio::time::timeout;
use tracing::{error, info, warn};
use waybill_core::chain::Chain;

use super::{
    Cri,
    error::{CriError, Result},
    record::{self, ContainerRecord, SandboxRecord, directories},
    store::Name,
    unknown::{UnknownContainer, UnknownSandbox},
};
use crate::{
    engine::{EngineError, State},
    versioned::Unreadable,
};

/// How long what was left half done may take to go before the runtime serves without waiting for it.
const PATIENCE: Duration = Duration::from_secs(5);

impl Cri {
    /// Reads all records. Nothing else may run meanwhile.
    pub(super) async fn recover(self: &Arc<Self>) -> Result<()> {
        for directory in [self.sandboxes_dir(), self.containers_dir()] {
            fs::create_dir_all(&directory).map_err(CriError::io("make", &directory))?;
        }
        let sandboxes = self.recover_sandboxes()?;
        let mut half_made = self.recover_containers(&sandboxes.unknown)?;
        self.keep_unknown(sandboxes.unknown);
        let strangers = self.strangers(&half_made);
        half_made.extend(strangers);
        self.clear_root_file_systems(self.living(&half_made)).await;
        let clearing = Arc::clone(self).clear_half_made(half_made, sandboxes.half_made);
        // Something in it may hang, and must not keep the others from being served.
        let clearing = self.tasks.spawn(clearing);
        if timeout(PATIENCE, clearing).await.is_err() {
            warn!("what was left half done is cleared away while the runtime serves");
        }
        let (sandboxes, containers) = (self.store.sandboxes().len(), self.store.containers().len());
        let unknown = self.store.unknown_sandboxes().len() + self.store.unknown_containers().len();
        if sandboxes + containers + unknown > 0 {
            info!(sandboxes, containers, unknown, "continue with what was there");
        }
        Ok(())
    }

    fn recover_sandboxes(&self) -> Result<FoundSandboxes> {
        let parent = self.sandboxes_dir();
        let mut found = FoundSandboxes::default();
        for id in directories(&parent).map_err(CriError::io("list", &parent))? {
            let directory = parent.join(&id);
            let understood = self.engine.check_sandbox(&id);
            match (record::read::<SandboxRecord>(&directory), understood) {
                (Ok(Some(record)), Ok(())) if record.id == id => {
                    let metadata = record.config.metadata.clone().unwrap_or_default();
                    self.store.reserve(Name::of_sandbox(&metadata), &id)?.keep();
                    self.store.add_sandbox(record);
                }
                (Ok(None), Ok(())) => {
                    warn!(sandbox = id, "a half-made sandbox is cleared away");
                    found.half_made.push(id);
                }
                (record, understood) => {
                    let reason = reason(&directory, record.err(), understood.err());
                    error!(sandbox = id, reason, "a sandbox is not understood and left as it is");
                    found.unknown.insert(id.clone(), UnknownSandbox::new(&id, &directory, reason));
                }
            }
        }
        Ok(found)
    }

    /// Returns the ids of those that were being made or removed.
    fn recover_containers(
        &self,
        unknown: &BTreeMap<String, UnknownSandbox>,
    ) -> Result<BTreeSet<String>> {
        let parent = self.containers_dir();
        let mut half_made = BTreeSet::new();
        for id in directories(&parent).map_err(CriError::io("list", &parent))? {
            let directory = parent.join(&id);
            let state = self.engine.state(&id).ok();
            let has_sandbox = |record: &ContainerRecord| {
                let id = &record.sandbox;
                self.store.sandbox(id).is_ok() || unknown.contains_key(id)
            };
            match (record::read::<ContainerRecord>(&directory), state) {
                (Ok(Some(record)), Some(_))
                    if record.id == id && has_sandbox(&record) && !record.removing =>
                {
                    let metadata = record.config.metadata.clone().unwrap_or_default();
                    let name = Name::of_container(&record.sandbox, &metadata);
                    self.store.reserve(name, &id)?.keep();
                    self.store.add_container(record);
                }
                // What is not understood is not ours to clear away, whatever else is missing of it.
                (Err(unreadable), _) => {
                    self.leave_container(
                        &id,
                        &directory,
                        reason(&directory, Some(unreadable), None),
                    );
                }
                (Ok(_), Some(State::Unknown { reason })) => {
                    self.leave_container(&id, &directory, reason);
                }
                // One with a record that the engine has lost was being removed.
                (Ok(_), _) => {
                    warn!(container = id, "a half-made container is cleared away");
                    half_made.insert(id);
                }
            }
        }
        Ok(half_made)
    }

    fn leave_container(&self, id: &str, directory: &Path, reason: String) {
        error!(container = id, reason, "a container is not understood and left as it is");
        self.store.add_unknown_container(UnknownContainer::new(id, directory, reason));
    }

    fn keep_unknown(&self, unknown: BTreeMap<String, UnknownSandbox>) {
        for (id, sandbox) in unknown {
            let container = self.store.containers_of(&id).first().map(|it| it.record());
            self.store.add_unknown_sandbox(sandbox.or_named_by(container.as_ref()));
        }
    }

    /// Containers that the engine knows and we do not, after a crash between two steps. Those that it does not understand
    /// are kept.
    fn strangers(&self, half_made: &BTreeSet<String>) -> Vec<String> {
        let mut strangers = Vec::new();
        for id in self.engine.containers() {
            let shown =
                self.store.container(&id).is_ok() || self.store.unknown_container(&id).is_some();
            if shown || half_made.contains(&id) {
                continue;
            }
            match self.engine.state(&id) {
                Ok(State::Unknown { reason }) => {
                    self.leave_container(&id, &self.container_dir(&id), reason);
                }
                _ => {
                    warn!(container = id, "a container without a record is cleared away");
                    strangers.push(id);
                }
            }
        }
        strangers
    }

    /// What the image store calls root file systems and volumes that must stay.
    fn living(&self, half_made: &BTreeSet<String>) -> BTreeSet<String> {
        let known = self.store.containers().into_iter().map(|it| it.record().id);
        let unknown = self.store.unknown_containers().into_iter().map(|it| it.shown.id.clone());
        let containers = known.chain(unknown).chain(half_made.iter().cloned());
        containers.flat_map(|id| self.mounted_for(id)).collect()
    }

    /// After the machine was started anew, the tmpfs with all records is gone, and what containers wrote is not.
    async fn clear_root_file_systems(self: &Arc<Self>, living: BTreeSet<String>) {
        let cri = Arc::clone(self);
        match self.blocking(move || Ok(cri.images.clean(&living)?)).await {
            Ok(ids) if !ids.is_empty() => {
                info!(count = ids.len(), "old root file systems are removed");
            }
            Ok(_) => {}
            Err(error) => warn!(error = %Chain(&error), "old root file systems are left"),
        }
    }

    async fn clear_half_made(
        self: Arc<Self>,
        containers: BTreeSet<String>,
        sandboxes: Vec<String>,
    ) {
        for id in containers {
            self.clear_container(&id).await;
        }
        // Last, because a sandbox goes after its containers.
        for id in sandboxes {
            self.clear_sandbox(&id).await;
        }
        if let Err(error) = self.engine.finish_sandbox_removals().await {
            warn!(error = %Chain(&error), "cgroups of sandboxes that were removed are left");
        }
    }
}

#[derive(Default)]
struct FoundSandboxes {
    unknown: BTreeMap<String, UnknownSandbox>,
    half_made: Vec<String>,
}

/// Why a record, or the engine's own, is not understood.
fn reason(directory: &Path, record: Option<Unreadable>, engine: Option<EngineError>) -> String {
    let file = record::file(directory);
    match (record, engine) {
        (Some(unreadable), _) => format!("{}: {}", file.display(), Chain(&unreadable)),
        (None, Some(EngineError::Unknown { reason, .. })) => reason,
        (None, Some(error)) => Chain(&error).to_string(),
        (None, None) => format!("{}: it is about another one", file.display()),
    }
}
