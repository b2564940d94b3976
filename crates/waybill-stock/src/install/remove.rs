//! Taking everything away while pods run: first what could refuse requests, then what is on the nodes, then the rest.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, Node, Pod},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waybill_client::Resources;

use super::{InstallError, InstallOptions, MANAGER, api, manifests, named};
use crate::agent::{NAMESPACE, PLUGIN, READY_LABEL, is_of_the_class};

/// For agents to take everything off their nodes; each restarts a runtime.
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_secs(1);

/// How everything is removed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemoveOptions {
    /// Go on although pods have volumes of ours.
    pub ignore_pods: bool,
    /// Leave the ProviderClasses, and so the CRD.
    pub keep_classes: bool,
}

/// Why something is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// Manifests, or the cluster's kinds.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The cluster refuses.
    #[error("cannot {what}")]
    Api {
        /// What was tried.
        what: String,
        /// What the cluster said.
        #[source]
        source: Box<kube::Error>,
    },
    /// Pods would be stuck.
    #[error(
        "these pods have variables from drivers, and could not end without the agent: {pods}; delete them first, or \
         say --ignore-pods"
    )]
    Pods {
        /// Some of them.
        pods: String,
    },
    /// An agent does not come to an end.
    #[error("these nodes are not as they were after {} s: {nodes}", PATIENCE.as_secs())]
    Nodes {
        /// Which.
        nodes: String,
    },
}

/// Removes everything, and says each step to `told`.
pub async fn remove(
    client: &Client,
    options: RemoveOptions,
    told: &mut impl FnMut(&str),
) -> Result<(), RemoveError> {
    if !options.ignore_pods {
        check_pods(client).await?;
    }
    let [first, last] = manifests(&InstallOptions::default())?;
    for object in last.iter().rev() {
        delete(client, object, told).await?;
    }
    let pods = pods_of_the_class(client).await?;
    clear_nodes(client, told).await?;
    if pods > 0 {
        told(&format!(
            "{pods} pods of the RuntimeClass live: on their nodes the handler stays, and a link to the real runtime; delete \
             them, install and uninstall once more to leave nothing"
        ));
    }
    let keeps =
        |object: &&Value| !(options.keep_classes && named(object).1 == "CustomResourceDefinition");
    for object in first.iter().rev().filter(keeps) {
        if named(object).1 == "Namespace" {
            delete_node_keys(client).await?;
        }
        delete(client, object, told).await?;
    }
    Ok(())
}

fn failed(what: impl Into<String>) -> impl FnOnce(kube::Error) -> RemoveError {
    let what = what.into();
    move |source| RemoveError::Api { what, source: Box::new(source) }
}

/// The kubelet asks the plugin before a pod with a volume of its ends.
async fn check_pods(client: &Client) -> Result<(), RemoveError> {
    let pods: Api<Pod> = Api::all(client.clone());
    let list = pods.list(&ListParams::default()).await.map_err(failed("list pods"))?;
    let found = list.items.iter().filter(|pod| has_volume(pod)).map(|pod| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{}/{}", text(&pod.metadata.namespace), text(&pod.metadata.name))
    });
    let found: Vec<_> = found.take(10).collect();
    match found.is_empty() {
        true => Ok(()),
        false => Err(RemoveError::Pods { pods: found.join(", ") }),
    }
}

fn has_volume(pod: &Pod) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut drivers = volumes.filter_map(|volume| volume.csi.as_ref());
    drivers.any(|csi| csi.driver == PLUGIN)
}

/// How many live anywhere.
async fn pods_of_the_class(client: &Client) -> Result<usize, RemoveError> {
    let pods: Api<Pod> = Api::all(client.clone());
    let list = pods.list(&ListParams::default()).await.map_err(failed("list pods"))?;
    Ok(list.items.iter().filter(|pod| is_of_the_class(pod)).count())
}

/// Tells the agents to take everything off their nodes, and waits for that.
async fn clear_nodes(client: &Client, told: &mut impl FnMut(&str)) -> Result<(), RemoveError> {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
    let found = sets.get_opt("waybill-agent").await.map_err(failed("read the DaemonSet"))?;
    let Some(found) = found else { return Ok(()) };
    let found = serde_json::to_value(found).unwrap_or_default();
    let arguments =
        found.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
    let mut arguments: Vec<Value> = arguments.into_iter().flatten().cloned().collect();
    arguments.retain(|it| {
        !it.as_str().is_some_and(|it| it.starts_with("--wrapper") || it == "--remove")
    });
    arguments.push("--remove".into());
    // All nodes at once: nobody waits for anybody here.
    let patch = json!({"spec": {
        "updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}},
        "template": {"spec": {"containers": [{"name": "agent", "args": arguments}]}}}});
    let parameters =
        PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let patched = sets.patch("waybill-agent", &parameters, &Patch::Strategic(patch)).await;
    patched.map_err(failed("tell the agents"))?;
    told("waiting for the agents to take everything off their nodes");
    let nodes: Api<Node> = Api::all(client.clone());
    let labelled = ListParams::default().labels(READY_LABEL);
    let start = Instant::now();
    loop {
        let list = nodes.list(&labelled).await.map_err(failed("list nodes"))?;
        let names: Vec<_> = list.items.into_iter().filter_map(|node| node.metadata.name).collect();
        if names.is_empty() {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(RemoveError::Nodes { nodes: names.join(", ") });
        }
        sleep(PAUSE).await;
    }
}

/// What agents wrote.
async fn delete_node_keys(client: &Client) -> Result<(), RemoveError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let ours = ListParams::default().labels("app.kubernetes.io/name=waybill-agent");
    let deleted = maps.delete_collection(&DeleteParams::default(), &ours).await;
    deleted.map(drop).map_err(failed("delete the keys of nodes"))
}

async fn delete(
    client: &Client,
    object: &Value,
    told: &mut impl FnMut(&str),
) -> Result<(), RemoveError> {
    let (api_version, kind, name, namespace) = named(object);
    let resources = Resources::fetch(client).await.map_err(InstallError::from)?;
    // A kind that is gone has no objects.
    let Some(resource) = resources.of_kind(api_version, kind) else { return Ok(()) };
    match api(client, resource, namespace).delete(name, &DeleteParams::background()).await {
        Ok(_) => told(&format!("{kind} {name} deleted")),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(failed(format!("delete {kind} {name}"))(error)),
    }
    Ok(())
}
