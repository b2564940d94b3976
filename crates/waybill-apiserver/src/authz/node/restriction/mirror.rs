//! The pods that a node creates: mirrors of its static pods.

use serde_json::Value;

use super::{AskingNode, NodeRestrictionError};
use crate::authz::node::{
    graph::text,
    references::{Reference, references},
};

/// What a node marks the API object of a static pod with.
const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

/// A node creates pods only to show its static ones. Such a pod is the node's own, and refers to nothing that
/// the node could then ask for.
pub(super) fn check_mirror(
    asking: AskingNode<'_>,
    pod: &Value,
) -> Result<(), NodeRestrictionError> {
    let node = asking.name.to_owned();
    if text(pod, MIRROR).is_empty() {
        return Err(NodeRestrictionError::PodWithoutMirrorMark(node));
    }
    if text(pod, "/spec/nodeName") != asking.name {
        return Err(NodeRestrictionError::PodOfOtherNode(node));
    }
    check_owner(asking, pod)?;
    match forbidden_reference(pod) {
        Some(what) => Err(NodeRestrictionError::PodWith { node, what }),
        None => Ok(()),
    }
}

fn check_owner(asking: AskingNode<'_>, pod: &Value) -> Result<(), NodeRestrictionError> {
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let is_node = |owner: &&Value| {
        text(owner, "/apiVersion") == "v1"
            && text(owner, "/kind") == "Node"
            && text(owner, "/name") == asking.name
            && owner.get("controller") == Some(&Value::Bool(true))
            && owner.get("blockOwnerDeletion") != Some(&Value::Bool(true))
    };
    let owner = match owners.map(Vec::as_slice) {
        Some([owner]) => Some(owner).filter(is_node),
        _ => None,
    };
    let owner =
        owner.ok_or_else(|| NodeRestrictionError::PodOfOtherOwner(asking.name.to_owned()))?;
    if text(owner, "/uid") != asking.uid || asking.uid.is_empty() {
        return Err(NodeRestrictionError::NodeUid {
            node: asking.name.to_owned(),
            found: text(owner, "/uid").to_owned(),
            uid: asking.uid.to_owned(),
        });
    }
    Ok(())
}

/// What the pod refers to and must not, in upstream's words.
fn forbidden_reference(pod: &Value) -> Option<&'static str> {
    let named = references(pod).first().map(|reference| match reference {
        Reference::ConfigMap(_) => "configmaps",
        Reference::ProviderClass(_) => "providerclasses",
        Reference::Secret(_) => "secrets",
        Reference::ServiceAccount(_) => "a service account",
    });
    let list = |pointer: &str| pod.pointer(pointer).and_then(Value::as_array);
    let claims = list("/spec/resourceClaims").is_some_and(|claims| !claims.is_empty());
    named
        .or(claims.then_some("resourceclaims"))
        .or_else(|| list("/spec/volumes")?.iter().find_map(forbidden_volume))
}

fn forbidden_volume(volume: &Value) -> Option<&'static str> {
    let has = |object: &Value, field: &str| object.get(field).is_some_and(|it| !it.is_null());
    if has(volume, "persistentVolumeClaim") || has(volume, "ephemeral") {
        return Some("persistentvolumeclaims");
    }
    let sources = volume.pointer("/projected/sources").and_then(Value::as_array)?;
    sources.iter().find_map(|source| {
        [
            ("clusterTrustBundle", "clustertrustbundles"),
            ("podCertificate", "podcertificaterequests"),
            ("serviceAccountToken", "a service account"),
        ]
        .into_iter()
        .find_map(|(field, what)| has(source, field).then_some(what))
    })
}
