//! What a runtime that was started again finds: sandboxes and containers go on, and what a request
//! left half done is cleared away.

use std::{collections::BTreeSet, fs, sync::Arc};

use tracing::{info, warn};
use waybill_core::chain::Chain;

use super::{
    Cri,
    error::{CriError, Result},
    image_volume,
    record::{self, ContainerRecord, SandboxRecord, directories},
    store::Name,
};

impl Cri {
    /// Reads all records. Nothing else may run meanwhile.
    pub(super) async fn recover(self: &Arc<Self>) -> Result<()> {
        for directory in [self.sandboxes_dir(), self.containers_dir()] {
            fs::create_dir_all(&directory).map_err(CriError::io("make", &directory))?;
        }
        let half_made = self.recover_sandboxes()?;
        self.recover_containers().await?;
        self.clear_strangers().await?;
        // Last, because a sandbox goes after its containers.
        for id in half_made {
            self.clear_sandbox(&id).await;
        }
        if let Err(error) = self.engine.finish_sandbox_removals().await {
            warn!(error = %Chain(&error), "cgroups of sandboxes that were removed are left");
        }
        let (sandboxes, containers) = (self.store.sandboxes().len(), self.store.containers().len());
        if sandboxes + containers > 0 {
            info!(sandboxes, containers, "continue with what was there");
        }
        Ok(())
    }

    /// Returns the ids of those that have no good record.
    fn recover_sandboxes(&self) -> Result<Vec<String>> {
        let parent = self.sandboxes_dir();
        let mut half_made = Vec::new();
        for id in directories(&parent).map_err(CriError::io("list", &parent))? {
            match record::read::<SandboxRecord>(&parent.join(&id)) {
                Ok(Some(record)) if record.id == id => {
                    let metadata = record.config.metadata.clone().unwrap_or_default();
                    self.store.reserve(Name::of_sandbox(&metadata), &id)?.keep();
                    self.store.add_sandbox(record);
                }
                other => {
                    warn!(sandbox = id, fault = ?other.err(), "a half-made sandbox is cleared away");
                    half_made.push(id);
                }
            }
        }
        Ok(half_made)
    }

    async fn recover_containers(self: &Arc<Self>) -> Result<()> {
        let parent = self.containers_dir();
        for id in directories(&parent).map_err(CriError::io("list", &parent))? {
            let record = record::read::<ContainerRecord>(&parent.join(&id));
            // A container with a record that the engine has lost was being removed.
            let known = self.engine.state(&id).is_ok();
            let has_sandbox =
                |record: &ContainerRecord| self.store.sandbox(&record.sandbox).is_ok();
            match record {
                Ok(Some(record)) if record.id == id && known && has_sandbox(&record) => {
                    let metadata = record.config.metadata.clone().unwrap_or_default();
                    let name = Name::of_container(&record.sandbox, &metadata);
                    self.store.reserve(name, &id)?.keep();
                    self.store.add_container(record);
                }
                other => {
                    let fault = other.err();
                    warn!(container = id, ?fault, "a half-made container is cleared away");
                    self.clear_container(&id).await;
                }
            }
        }
        Ok(())
    }

    /// Containers that the engine or the image store know and we do not: after a crash between two
    /// steps, or after the machine was started anew and the tmpfs with all records is gone.
    async fn clear_strangers(self: &Arc<Self>) -> Result<()> {
        let ours: BTreeSet<String> =
            self.store.containers().iter().map(|container| container.record().id).collect();
        for id in self.engine.containers() {
            if !ours.contains(&id) {
                warn!(container = id, "a container without a record is cleared away");
                self.clear_container(&id).await;
            }
        }
        let records = self.store.containers().into_iter().map(|container| container.record());
        let mounted =
            records.flat_map(|record| image_volume::store_ids(&record).collect::<Vec<_>>());
        let (cri, mounted) = (Arc::clone(self), mounted.collect());
        let cleaned = self.blocking(move || Ok(cri.images.clean(&mounted)?)).await;
        match cleaned {
            Ok(ids) if !ids.is_empty() => {
                info!(count = ids.len(), "old root file systems are removed");
            }
            Ok(_) => {}
            Err(error) => warn!(error = %Chain(&error), "old root file systems are left"),
        }
        Ok(())
    }
}
