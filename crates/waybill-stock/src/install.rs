//! `waybill install` and `uninstall`: the objects of a stock cluster that are ours, applied, upgraded and taken away.
//!
//! The manifests in `deploy/` are the one source; they are part of the program. Applying is server-side apply, so a second
//! time changes nothing and a newer program upgrades in place.

mod check;
mod remove;

use std::time::Duration;

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use waybill_client::{ManifestError, Place, RequestError, Resource, Resources, read_manifests};

pub use self::{
    check::{Finding, check},
    remove::{RemoveError, RemoveOptions, remove},
};
use crate::agent::NAMESPACE;

/// As which server-side apply knows us.
pub(crate) const MANAGER: &str = "waybill-install";

/// The image that the manifests name.
const IMAGE: &str = "waybill:0.1.0";

/// What `cargo xtask image` calls it.
pub const DEFAULT_IMAGE: &str = "waybill.dev/waybill:0.1.0";

/// For kinds of a new CRD to be served, and for gates and agents to be ready.
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_secs(1);

/// What must be there first, in the order in which it is applied.
const FIRST: &[&str] = &[
    include_str!("../../../deploy/gate/crd.yaml"),
    include_str!("../../../deploy/gate/gate.yaml"),
    include_str!("../../../deploy/gate/apiservice.yaml"),
    include_str!("../../../deploy/stock/agent-policy.yaml"),
    include_str!("../../../deploy/stock/agent.yaml"),
];

/// What refuses requests while the gate is not ready.
const LAST: &[&str] = &[
    include_str!("../../../deploy/gate/policies.yaml"),
    include_str!("../../../deploy/gate/new-pods.yaml"),
    include_str!("../../../deploy/gate/webhooks.yaml"),
];

/// What is installed.
#[derive(Clone, Debug)]
pub struct InstallOptions {
    /// The image of gates and agents.
    pub image: String,
    /// What becomes of an exec without a session, where a namespace does not say: `enforce` or `record`.
    pub mode: String,
    /// Audiences of the tokens that drivers get, besides the API server's own.
    pub audiences: Vec<String>,
}

impl Default for InstallOptions {
    fn default() -> Self {
        Self { image: DEFAULT_IMAGE.to_owned(), mode: "record".to_owned(), audiences: Vec::new() }
    }
}

/// Why something is not installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// A manifest of ours is broken.
    #[error("a manifest of this program is not understood")]
    Manifest(#[from] ManifestError),
    /// The cluster cannot be asked what it serves.
    #[error("cannot ask the cluster what it serves")]
    Discovery(#[from] RequestError),
    /// The cluster lacks a kind.
    #[error("the cluster has no kind {kind} in {api_version}")]
    Kind {
        /// Which.
        kind: String,
        /// Of which group and version.
        api_version: String,
    },
    /// The cluster refuses an object.
    #[error("cannot apply {kind} {name}")]
    Apply {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// What the cluster said.
        #[source]
        source: Box<kube::Error>,
    },
    /// Something does not become ready.
    #[error("{what} is not ready after {} s; kubectl -n {NAMESPACE} get pods says more", PATIENCE.as_secs())]
    NotReady {
        /// What.
        what: &'static str,
    },
}

/// All objects: those that come first, and those that wait for the gate.
pub fn manifests(options: &InstallOptions) -> Result<[Vec<Value>; 2], InstallError> {
    let read = |texts: &[&str]| -> Result<Vec<Value>, InstallError> {
        let mut objects = Vec::new();
        for text in texts {
            objects.extend(read_manifests(text)?);
        }
        objects.iter_mut().for_each(|object| options.fit(object));
        Ok(objects)
    };
    Ok([read(FIRST)?, read(LAST)?])
}

impl InstallOptions {
    /// Puts what is chosen into an object.
    fn fit(&self, object: &mut Value) {
        for container in containers(object) {
            if container.get("image").and_then(Value::as_str) == Some(IMAGE) {
                container["image"] = self.image.clone().into();
            }
            let arguments = container.get_mut("args").and_then(Value::as_array_mut);
            for argument in arguments.into_iter().flatten() {
                if argument.as_str().is_some_and(|it| it.starts_with("--mode=")) {
                    *argument = format!("--mode={}", self.mode).into();
                }
            }
        }
        let tokens = object.pointer_mut("/spec/tokenRequests").and_then(Value::as_array_mut);
        if let Some(tokens) = tokens {
            tokens.extend(self.audiences.iter().map(|it| serde_json::json!({"audience": it})));
        }
    }
}

/// The containers of a workload.
fn containers(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let spec = object.pointer_mut("/spec/template/spec/containers");
    spec.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Applies everything, and says each step to `told`.
pub async fn install(
    client: &Client,
    options: &InstallOptions,
    told: &mut impl FnMut(&str),
) -> Result<(), InstallError> {
    let [first, last] = manifests(options)?;
    for object in &first {
        apply(client, object, told).await?;
    }
    told("waiting for the gate");
    wait(client, "deployments", "waybill-gate", "the gate").await?;
    for object in &last {
        apply(client, object, told).await?;
    }
    told("waiting for the agents");
    wait(client, "daemonsets", "waybill-agent", "an agent").await
}

/// Whether a cluster may lack the kind of an object: gate does the same, while it is there.
pub(crate) fn is_optional(kind: &str) -> bool {
    kind.starts_with("MutatingAdmissionPolicy")
}

/// Kind, name and where an object is.
pub(crate) fn named(object: &Value) -> (&str, &str, &str, Option<&str>) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let or_empty = |pointer: &str| text(pointer).unwrap_or_default();
    let namespace = text("/metadata/namespace");
    (or_empty("/apiVersion"), or_empty("/kind"), or_empty("/metadata/name"), namespace)
}

/// Where objects of a kind are.
pub(crate) fn api(
    client: &Client,
    resource: &Resource,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind);
    let kind = ApiResource::from_gvk_with_plural(&kind, &resource.plural);
    match namespace.filter(|_| resource.namespaced) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

async fn apply(
    client: &Client,
    object: &Value,
    told: &mut impl FnMut(&str),
) -> Result<(), InstallError> {
    let (_, kind, name, namespace) = named(object);
    let resource = match resource(client, object).await {
        Err(InstallError::Kind { .. }) if is_optional(kind) => {
            told(&format!("{kind} {name} left out: the API server has no such kind"));
            return Ok(());
        }
        found => found?,
    };
    let api = api(client, &resource, namespace);
    let parameters = PatchParams::apply(MANAGER).force();
    let applied = api.patch(name, &parameters, &Patch::Apply(object)).await;
    applied.map_err(|source| InstallError::Apply {
        kind: kind.to_owned(),
        name: name.to_owned(),
        source: Box::new(source),
    })?;
    told(&format!("{kind} {name}"));
    Ok(())
}

/// What the cluster calls the kind of an object.
pub(crate) async fn resource(client: &Client, object: &Value) -> Result<Resource, InstallError> {
    let (api_version, kind, ..) = named(object);
    let found = Resources::fetch(client).await?;
    let missing =
        || InstallError::Kind { kind: kind.to_owned(), api_version: api_version.to_owned() };
    found.of_kind(api_version, kind).cloned().ok_or_else(missing)
}

/// Waits until a workload is ready as it was applied last.
async fn wait(
    client: &Client,
    plural: &str,
    name: &str,
    what: &'static str,
) -> Result<(), InstallError> {
    let resource = Resource {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        namespaced: true,
        ..Resource::default()
    };
    let path = resource.object_path(&Place::Namespace(NAMESPACE.to_owned()), name);
    let requests = waybill_client::Requests::new(client.clone());
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if is_ready(&requests.get(&path).await?) {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
    Err(InstallError::NotReady { what })
}

/// A Deployment or a DaemonSet.
fn is_ready(workload: &Value) -> bool {
    let number = |pointer: &str| workload.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let current = number("/status/observedGeneration") >= number("/metadata/generation");
    let wanted = match workload.pointer("/status/desiredNumberScheduled") {
        Some(wanted) => wanted.as_i64().unwrap_or(0),
        None => number("/spec/replicas"),
    };
    let updated = number("/status/updatedReplicas").max(number("/status/updatedNumberScheduled"));
    let ready = number("/status/readyReplicas").max(number("/status/numberReady"));
    current && updated >= wanted && ready >= wanted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn manifests_have_what_was_chosen() {
        let options = InstallOptions {
            image: "registry.example/waybill:2".to_owned(),
            mode: "enforce".to_owned(),
            audiences: vec!["vault".to_owned()],
        };
        let [mut first, last] = manifests(&options).unwrap();
        let text = json!(first).to_string();
        assert!(!text.contains("\"waybill:0.1.0\""));
        assert_eq!(text.matches("registry.example/waybill:2").count(), 2);
        assert!(text.contains("--mode=enforce") && !text.contains("--mode=record"));
        assert!(text.contains(r#"[{"audience":""},{"audience":"vault"}]"#));
        let refuses = |kind: &str| kind.contains("Webhook") || kind.contains("AdmissionPolicy");
        assert_eq!(last.iter().filter(|it| is_optional(named(it).1)).count(), 2);
        assert!(last.iter().all(|it| refuses(named(it).1)));
        let kinds: Vec<_> = first.iter_mut().map(|it| named(it).1.to_owned()).collect();
        assert_eq!(kinds[0], "CustomResourceDefinition");
        let place = |kind: &str| kinds.iter().position(|it| it == kind).unwrap();
        assert!(place("Namespace") < place("ServiceAccount"));
        assert!(place("ValidatingAdmissionPolicy") < place("DaemonSet"));
    }

    #[test]
    fn a_workload_is_ready_when_all_of_it_is_as_applied_last() {
        let deployment = |observed: i64, updated: i64, ready: i64| {
            json!({"metadata": {"generation": 2}, "spec": {"replicas": 2},
                "status": {"observedGeneration": observed, "updatedReplicas": updated, "readyReplicas": ready}})
        };
        assert!(is_ready(&deployment(2, 2, 2)));
        assert!(!is_ready(&deployment(1, 2, 2)));
        assert!(!is_ready(&deployment(2, 1, 2)));
        assert!(!is_ready(&deployment(2, 2, 1)));
        let set = |wanted: i64, updated: i64, ready: i64| {
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1,
                "desiredNumberScheduled": wanted, "updatedNumberScheduled": updated, "numberReady": ready}})
        };
        assert!(is_ready(&set(3, 3, 3)));
        assert!(!is_ready(&set(3, 3, 2)));
        assert!(!is_ready(&set(3, 2, 3)));
    }
}
