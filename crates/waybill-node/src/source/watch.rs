//! Pods that the API server has bound to this node.
//!
//! The list is made anew when the watch is too old or the connection was lost; pods that are missing
//! in it are gone.

use std::{borrow::Cow, collections::HashSet, fmt, pin::pin, sync::Arc, time::Duration};

use futures_util::StreamExt;
use k8s_openapi::{
    NamespaceResourceScope, api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource,
    runtime::{watcher, watcher::Event},
};
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;
use tokio::time::sleep;
use tracing::{info, warn};
use waybill_core::{chain::Chain, id::PodUid};

use super::{Change, NobodyListens, Outlet, mirror};
use crate::{
    event::Recorder,
    pod::{Pod, PodOrigin},
    retry::Pauses,
};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Watches the pods of one node.
pub(super) struct Watch {
    pods: Api<WatchedPod>,
    node: String,
    recorder: Recorder,
    outlet: Outlet,
    mirrors: Option<mirror::Sender>,
    /// Pods that were set.
    known: HashSet<PodUid>,
    /// Of them, those that the list that is being read has not shown yet.
    unseen: HashSet<PodUid>,
    is_synced: bool,
}

impl Watch {
    pub(super) fn new(
        client: Client,
        node: &str,
        recorder: Recorder,
        outlet: Outlet,
        mirrors: Option<mirror::Sender>,
    ) -> Self {
        Self {
            pods: Api::all(client),
            node: node.to_owned(),
            recorder,
            outlet,
            mirrors,
            known: HashSet::new(),
            unseen: HashSet::new(),
            is_synced: false,
        }
    }

    /// Runs until nobody listens.
    pub(super) async fn run(mut self) {
        let config = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node));
        let mut events = pin!(watcher(self.pods.clone(), config));
        let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    pauses.reset();
                    if self.take(event).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    warn!(error = %Chain(&error), "the watch of pods is interrupted");
                    sleep(pauses.next()).await;
                }
            }
        }
    }

    async fn take(&mut self, event: Event<WatchedPod>) -> Result<(), NobodyListens> {
        match event {
            Event::Init => {
                self.unseen.clone_from(&self.known);
                self.tell_mirrors(mirror::Told::ListBegins).await;
            }
            Event::InitApply(pod) | Event::Apply(pod) => self.set(pod).await?,
            Event::Delete(pod) => self.delete(&pod).await?,
            Event::InitDone => {
                for uid in std::mem::take(&mut self.unseen) {
                    self.known.remove(&uid);
                    self.outlet.put(Change::Gone(uid)).await?;
                }
                self.tell_mirrors(mirror::Told::ListEnds).await;
                if !std::mem::replace(&mut self.is_synced, true) {
                    info!(pods = self.known.len(), "the pods of the node are known");
                    self.outlet.synced().await?;
                }
            }
        }
        Ok(())
    }

    async fn set(&mut self, watched: WatchedPod) -> Result<(), NobodyListens> {
        if let Some(seen) = mirror::Seen::of(&watched.metadata) {
            self.tell_mirrors(mirror::Told::Seen(seen)).await;
            return Ok(());
        }
        let metadata = watched.metadata;
        if let Some(uid) = uid(&metadata) {
            // Even if it cannot be read now, it is there.
            self.unseen.remove(&uid);
        }
        match Pod::from_value(watched.object, PodOrigin::ApiServer) {
            Ok(pod) => {
                self.known.insert(pod.uid().clone());
                self.outlet.put(Change::Set(Arc::new(pod))).await
            }
            Err(error) => {
                self.report(metadata, &error);
                Ok(())
            }
        }
    }

    async fn delete(&mut self, watched: &WatchedPod) -> Result<(), NobodyListens> {
        if let Some(seen) = mirror::Seen::of(&watched.metadata) {
            self.tell_mirrors(mirror::Told::Deleted(seen)).await;
            return Ok(());
        }
        let Some(uid) = uid(&watched.metadata) else { return Ok(()) };
        self.known.remove(&uid);
        self.unseen.remove(&uid);
        self.outlet.put(Change::Gone(uid)).await
    }

    async fn tell_mirrors(&self, told: mirror::Told) {
        if let Some(mirrors) = &self.mirrors {
            mirrors.tell(told).await;
        }
    }

    fn report(&self, metadata: ObjectMeta, error: &serde_json::Error) {
        let message = format!("the node cannot read this pod: {error}");
        warn!(namespace = metadata.namespace, pod = metadata.name, "{message}");
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: metadata.name,
            namespace: metadata.namespace,
            resource_version: metadata.resource_version,
            uid: metadata.uid,
            field_path: None,
        };
        self.recorder.unreadable(about, "FailedValidation", &message);
    }
}

fn uid(metadata: &ObjectMeta) -> Option<PodUid> {
    PodUid::parse(metadata.uid.as_deref()?).ok()
}

/// A pod as it arrives: whole, so that fields which the types of Kubernetes lack survive.
#[derive(Clone)]
struct WatchedPod {
    metadata: ObjectMeta,
    object: Value,
}

impl<'de> Deserialize<'de> for WatchedPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(deserializer)?;
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            // It is long, and nobody here reads it.
            metadata.remove("managedFields");
        }
        let metadata = object.get("metadata").unwrap_or(&Value::Null);
        let metadata = ObjectMeta::deserialize(metadata).map_err(Error::custom)?;
        Ok(Self { metadata, object })
    }
}

/// Shows no value.
impl fmt::Debug for WatchedPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedPod").field("name", &self.metadata.name).finish_non_exhaustive()
    }
}

impl Resource for WatchedPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
