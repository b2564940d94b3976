//! Mirrors: the API objects that show static pods to users.
//!
//! A static pod is made by its file alone. Its mirror is made when it is missing, made anew when it
//! shows another version of the file, and deleted when the file is gone. Deleting a mirror changes
//! nothing about its pod.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, PostParams, Preconditions},
    core::ApiResource,
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::sleep};
use tracing::{debug, warn};
use waybill_core::{chain::Chain, id::PodUid};

use crate::{pod::Pod, retry::Pauses, status::Writer};

/// As kubelets mark static pods and their mirrors.
pub(super) const CONFIG_HASH: &str = "kubernetes.io/config.hash";
pub(super) const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
pub(super) const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
pub(super) const CONFIG_SOURCE: &str = "kubernetes.io/config.source";

const QUEUE: usize = 64;

/// What failed is tried again after this, and less often if it keeps failing: an API server may
/// not want mirrors at all.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_mins(5);

/// Whoever deletes a mirror has this long to see it go. kubectl looks at it twice after it has asked, and
/// would wait for ever if another one stood there at its second look.
const FAREWELL: Duration = Duration::from_secs(1);

/// Where a mirror stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    namespace: String,
    name: String,
}

impl Key {
    pub(super) fn of(pod: &Pod) -> Self {
        Self { namespace: pod.namespace().to_owned(), name: pod.name().to_owned() }
    }
}

/// What sources know.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// A static pod is there, or is another one now.
    File(StaticPod),
    /// The file of a static pod is gone.
    FileGone(Key),
    /// All files have been told of.
    FilesRead,
    /// The API server has a mirror.
    Seen(Seen),
    /// The API server has it no more.
    Deleted(Seen),
    /// All mirrors are about to be told of again.
    ListBegins,
    /// All mirrors have been told of.
    ListEnds,
}

/// A static pod, with its object for the API server.
#[derive(Clone, Debug)]
pub(super) struct StaticPod {
    pub(super) key: Key,
    pub(super) uid: PodUid,
    pub(super) object: Value,
}

/// A mirror as the API server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    key: Key,
    uid: String,
    /// Which static pod it shows.
    hash: String,
    /// Somebody deleted it, and it only waits for its end.
    deleting: bool,
}

impl Seen {
    /// `None` if the pod is no mirror.
    pub(super) fn of(metadata: &ObjectMeta) -> Option<Self> {
        let hash = metadata.annotations.as_ref()?.get(CONFIG_MIRROR)?;
        let key = Key { namespace: metadata.namespace.clone()?, name: metadata.name.clone()? };
        let uid = metadata.uid.clone()?;
        let deleting = metadata.deletion_timestamp.is_some();
        Some(Self { key, uid, hash: hash.clone(), deleting })
    }
}

/// Where sources tell what they know.
#[derive(Clone)]
pub(super) struct Sender(mpsc::Sender<Told>);

impl Sender {
    pub(super) async fn tell(&self, told: Told) {
        // Without a keeper the node ends, and mirrors do not matter.
        let _ = self.0.send(told).await;
    }
}

pub(super) fn channel() -> (Sender, mpsc::Receiver<Told>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Sender(sender), receiver)
}

/// Keeps mirrors as they should be.
pub(super) struct Keeper {
    client: Client,
    node: String,
    writer: Writer,
    plan: Plan,
}

/// What is wanted and what there is.
#[derive(Debug, Default)]
struct Plan {
    wanted: BTreeMap<Key, StaticPod>,
    seen: BTreeMap<Key, Seen>,
    files_unread: bool,
    list_unread: bool,
}

/// What to do about one mirror.
#[derive(Debug)]
enum Step {
    Create(StaticPod),
    Delete(Seen),
}

impl Keeper {
    pub(super) fn new(client: Client, node: &str, writer: Writer, has_files: bool) -> Self {
        let plan = Plan { files_unread: has_files, list_unread: true, ..Plan::default() };
        Self { client, node: node.to_owned(), writer, plan }
    }

    /// Runs until the sources end.
    pub(super) async fn run(mut self, mut told: mpsc::Receiver<Told>) {
        let mut pauses = Pauses::new(FIRST_RETRY, LONGEST_RETRY);
        loop {
            let failed = self.work().await;
            let pause = if failed { pauses.next() } else { Duration::MAX };
            if !failed {
                pauses.reset();
            }
            let news = async {
                let Some(first) = told.recv().await else { return false };
                self.plan.take(first);
                // What else is known already, so that one round serves all.
                while let Ok(more) = told.try_recv() {
                    self.plan.take(more);
                }
                true
            };
            tokio::select! {
                goes_on = news => if !goes_on { return },
                () = sleep(pause), if failed => {}
            }
        }
    }

    /// Does what is to be done; whether some of it failed.
    async fn work(&mut self) -> bool {
        let mut failed = false;
        let steps = self.plan.steps();
        if steps.iter().any(|step| matches!(step, Step::Delete(seen) if seen.deleting)) {
            sleep(FAREWELL).await;
        }
        for step in steps {
            let (key, result) = match step {
                Step::Create(pod) => (pod.key.clone(), self.create(&pod).await),
                Step::Delete(seen) => (seen.key.clone(), self.delete(&seen).await),
            };
            if let Err(error) = result {
                let (namespace, pod) = (key.namespace, key.name);
                warn!(namespace, pod, error = %Chain(&error), "a mirror is not as it should be");
                failed = true;
            }
        }
        failed
    }

    async fn create(&mut self, pod: &StaticPod) -> Result<(), kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node_uid = nodes.get_metadata(&self.node).await?.metadata.uid.unwrap_or_default();
        let object = mirror_of(pod, &self.node, &node_uid);
        let object: DynamicObject =
            serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        let made = match self.pods(&pod.key).create(&PostParams::default(), &object).await {
            Ok(made) => made,
            // The watch tells of it soon.
            Err(kube::Error::Api(status)) if status.code == 409 => return Ok(()),
            Err(error) => return Err(error),
        };
        debug!(namespace = pod.key.namespace, pod = pod.key.name, "mirror made");
        if let Some(seen) = Seen::of(&made.metadata) {
            self.plan.take(Told::Seen(seen));
        }
        self.writer.mirror_made(&pod.uid);
        Ok(())
    }

    async fn delete(&mut self, seen: &Seen) -> Result<(), kube::Error> {
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(seen.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self.pods(&seen.key).delete(&seen.key.name, &parameters).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error),
        }
        self.plan.take(Told::Deleted(seen.clone()));
        // A mirror of a newer file takes its place.
        if let Some(wanted) = self.plan.wanted.get(&seen.key).cloned() {
            self.create(&wanted).await?;
        }
        Ok(())
    }

    fn pods(&self, key: &Key) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        Api::namespaced_with(self.client.clone(), &key.namespace, &resource)
    }
}

impl Plan {
    fn take(&mut self, told: Told) {
        match told {
            Told::File(pod) => drop(self.wanted.insert(pod.key.clone(), pod)),
            Told::FileGone(key) => drop(self.wanted.remove(&key)),
            Told::FilesRead => self.files_unread = false,
            Told::Seen(seen) => drop(self.seen.insert(seen.key.clone(), seen)),
            Told::Deleted(seen) => {
                if self.seen.get(&seen.key).is_some_and(|known| known.uid == seen.uid) {
                    self.seen.remove(&seen.key);
                }
            }
            Told::ListBegins => {
                self.seen.clear();
                self.list_unread = true;
            }
            Told::ListEnds => self.list_unread = false,
        }
    }

    /// As long as one side is not known, nothing is missing and nothing is left over.
    fn steps(&self) -> Vec<Step> {
        if self.files_unread || self.list_unread {
            return Vec::new();
        }
        let stale = self.seen.values().filter(|seen| {
            let wanted = self.wanted.get(&seen.key);
            seen.deleting || wanted.is_none_or(|wanted| wanted.uid.as_str() != seen.hash)
        });
        let missing = self.wanted.values().filter(|pod| !self.seen.contains_key(&pod.key));
        let stale = stale.cloned().map(Step::Delete);
        stale.chain(missing.cloned().map(Step::Create)).collect()
    }
}

/// The object of a mirror. It belongs to its node, as API servers demand of nodes.
fn mirror_of(pod: &StaticPod, node: &str, node_uid: &str) -> Value {
    let mut object = pod.object.clone();
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return object };
    metadata.remove("uid");
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.insert(CONFIG_MIRROR.to_owned(), pod.uid.as_str().into());
    }
    let owner = json!({
        "apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": true,
    });
    metadata.insert("ownerReferences".to_owned(), json!([owner]));
    object
}

#[cfg(test)]
mod tests;
