//! When a node is ready: its runtime tells of the handler, and then the node gets a label by which pods find it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeRuntimeHandler, Pod};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::{MANAGER, READY_LABEL, setup::HANDLER};

/// Kubelets look at their runtime every few seconds, and tell the API server every ten.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_secs(2);
const ASK: Duration = Duration::from_secs(10);

/// Why a node is not labelled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The API server does not answer, or refuses.
    #[error("the Node object cannot be read or written")]
    Api(#[source] Box<kube::Error>),
    /// It takes too long.
    #[error("the API server did not answer in {} s", ASK.as_secs())]
    Slow,
    /// The runtime does not know the handler.
    #[error(
        "the kubelet reports handlers, and {HANDLER:?} is not among them {} s after the runtime was configured",
        PATIENCE.as_secs()
    )]
    NoHandler,
}

/// The node as the API server has it.
pub(super) async fn read(client: &Client, name: &str) -> Result<Node, RegisterError> {
    let api: Api<Node> = Api::all(client.clone());
    let found = timeout(ASK, api.get(name)).await.map_err(|_| RegisterError::Slow)?;
    found.map_err(|error| RegisterError::Api(Box::new(error)))
}

/// What the node says of our handler; nothing if it tells of no handlers, as with containerd before 2.0.
pub(super) fn has_handler(node: &Node) -> Option<bool> {
    let handlers = node.status.as_ref()?.runtime_handlers.as_ref()?;
    // The default one has no name.
    let name = |handler: &NodeRuntimeHandler| handler.name.clone().filter(|name| !name.is_empty());
    let mut names = handlers.iter().filter_map(name);
    let first = names.next()?;
    Some(first == HANDLER || names.any(|name| name == HANDLER))
}

/// Waits until the handler shows, and labels the node.
pub(super) async fn announce(client: &Client, name: &str) -> Result<(), RegisterError> {
    let start = Instant::now();
    while has_handler(&read(client, name).await?) == Some(false) {
        if start.elapsed() > PATIENCE {
            return Err(RegisterError::NoHandler);
        }
        sleep(PAUSE).await;
    }
    label(client, name, Some("true")).await
}

/// Whether pods of the RuntimeClass live on a node.
pub(super) async fn has_pods(client: &Client, node: &str) -> Result<bool, RegisterError> {
    let api: Api<Pod> = Api::all(client.clone());
    let parameters = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let listed = timeout(ASK, api.list(&parameters)).await.map_err(|_| RegisterError::Slow)?;
    let listed = listed.map_err(|error| RegisterError::Api(Box::new(error)))?;
    Ok(listed.items.iter().any(is_of_the_class))
}

/// Whether a pod lives that was made through the wrapper.
pub(crate) fn is_of_the_class(pod: &Pod) -> bool {
    let class = pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_deref());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    class == Some(HANDLER) && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Sets or removes the label.
pub(super) async fn label(
    client: &Client,
    name: &str,
    value: Option<&str>,
) -> Result<(), RegisterError> {
    let api: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": {READY_LABEL: value}}}));
    let parameters =
        PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let patched = timeout(ASK, api.patch(name, &parameters, &patch)).await;
    let patched = patched.map_err(|_| RegisterError::Slow)?;
    patched.map(drop).map_err(|error| RegisterError::Api(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(handlers: &serde_json::Value, expected: Option<bool>) {
        let node = json!({"metadata": {"name": "n"}, "status": {"runtimeHandlers": handlers}});
        assert_eq!(has_handler(&serde_json::from_value(node).unwrap()), expected);
    }

    #[test]
    fn a_node_that_tells_of_handlers_must_tell_of_ours() {
        check(&json!(null), None);
        check(&json!([]), None);
        check(&json!([{"name": ""}]), None);
        check(&json!([{"name": ""}, {"name": "runc"}]), Some(false));
        check(&json!([{"name": ""}, {"name": "runc"}, {"name": "waybill"}]), Some(true));
    }
}
