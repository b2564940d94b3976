//! What the node's own API asks of parts that are started after it.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use serde_json::{Value, json};
use waybill_core::id::PodUid;

use crate::{
    environment::Provenance,
    event::{Kind, Recorder},
    pod::Pod,
    server::{EventSink, PodLookup, ProvenanceLookup},
    worker::Workers,
};

/// The pods that the workers know, once there are workers.
#[derive(Default)]
pub(super) struct KnownPods(OnceLock<Workers>);

impl KnownPods {
    /// From now on there are workers.
    pub(super) fn set(&self, workers: Workers) {
        let _ = self.0.set(workers);
    }

    pub(super) fn wake(&self, uid: &PodUid) {
        if let Some(workers) = self.0.get() {
            workers.wake(uid);
        }
    }

    /// The names of images that pods which have not ended use as volumes.
    pub(super) fn volume_images(&self) -> BTreeSet<String> {
        let running = self.all().into_iter().filter(|pod| !pod.has_ended());
        let images = running.flat_map(|pod| {
            let volumes = pod.spec().volumes.iter().flatten();
            let images = volumes.filter_map(|volume| volume.image.as_ref()?.reference.clone());
            images.collect::<Vec<_>>()
        });
        images.collect()
    }
}

impl PodLookup for KnownPods {
    fn find(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<Arc<Pod>> {
        self.0.get()?.find(namespace, name, uid)
    }

    fn all(&self) -> Vec<Arc<Pod>> {
        self.0.get().map(Workers::all).unwrap_or_default()
    }
}

/// What containers were made with, and what is old of it.
pub(super) struct KnownEnvironments {
    pub(super) provenance: Arc<Provenance>,
    pub(super) pods: Arc<KnownPods>,
}

impl ProvenanceLookup for KnownEnvironments {
    fn find(&self, pod: &Pod, container: &str) -> Option<Value> {
        let mut found = self.provenance.find(pod, container)?;
        if let Some(workers) = self.pods.0.get()
            && let Some(told) = found.as_object_mut()
        {
            let stale = workers.stale_variables(pod.uid(), container);
            if !stale.is_empty() {
                told.insert("stale".to_owned(), json!(stale));
            }
            if workers.is_unknown(pod.uid(), container) {
                told.insert("staleUnknown".to_owned(), json!(true));
            }
        }
        Some(found)
    }
}

/// Warnings become events.
pub(super) struct Warnings(pub(super) Recorder);

impl EventSink for Warnings {
    fn warn(&self, pod: &Pod, reason: &str, message: &str) {
        self.0.pod(pod, Kind::Warning, reason, message);
    }
}
