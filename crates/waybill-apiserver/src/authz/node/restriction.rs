//! What only the body of a node's request tells.
//!
//! The small part of the `NodeRestriction` plugin of Kubernetes that authorization cannot do: a
//! create names its object in the body, and a token says there which pod it is for.

use serde_json::Value;

use super::{
    graph::{NodeGraph, ObjectName, text},
    references::{Reference, references},
};
use crate::request::ResourceTarget;

/// What a node marks the API object of a static pod with.
const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

impl NodeGraph {
    /// Checks the body of a create that [`NodeGraph::node_may`] allowed to `node`.
    pub(crate) fn check_create(
        &self,
        node: &str,
        target: &ResourceTarget,
        object: &Value,
    ) -> Result<(), NodeRestrictionError> {
        let name = text(object, "/metadata/name");
        let target_kind =
            (target.group.as_str(), target.resource.as_str(), target.subresource.as_str());
        match target_kind {
            ("", "nodes", "") if name != node => Err(NodeRestrictionError::OtherNode {
                node: node.to_owned(),
                other: name.to_owned(),
            }),
            ("coordination.k8s.io", "leases", "") if name != node => {
                Err(NodeRestrictionError::OtherLease)
            }
            ("", "pods", "") => check_mirror(node, object),
            ("", "serviceaccounts", "token") => self.check_token(node, &target.namespace, object),
            _ => Ok(()),
        }
    }

    fn check_token(
        &self,
        node: &str,
        namespace: &str,
        request: &Value,
    ) -> Result<(), NodeRestrictionError> {
        let bound = request.pointer("/spec/boundObjectRef").unwrap_or(&Value::Null);
        if text(bound, "/kind") != "Pod" || text(bound, "/name").is_empty() {
            return Err(NodeRestrictionError::TokenWithoutPod);
        }
        let uid = text(bound, "/uid");
        if uid.is_empty() {
            return Err(NodeRestrictionError::TokenWithoutUid);
        }
        let pod = ObjectName::new(namespace, text(bound, "/name"));
        if self.is_bound_with_uid(node, &pod, uid) {
            Ok(())
        } else {
            Err(NodeRestrictionError::TokenOfOtherNode)
        }
    }
}

/// A node creates pods only to show its static ones. Such a pod is the node's own, and refers to nothing that
/// the node could then ask for.
fn check_mirror(node: &str, pod: &Value) -> Result<(), NodeRestrictionError> {
    let refuse = |refusal: fn(String) -> NodeRestrictionError| Err(refusal(node.to_owned()));
    if text(pod, MIRROR).is_empty() {
        return refuse(NodeRestrictionError::PodWithoutMirrorMark);
    }
    if text(pod, "/spec/nodeName") != node {
        return refuse(NodeRestrictionError::PodOfOtherNode);
    }
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let is_node = |owner: &Value| {
        text(owner, "/apiVersion") == "v1"
            && text(owner, "/kind") == "Node"
            && text(owner, "/name") == node
            && owner.get("controller") == Some(&Value::Bool(true))
            && owner.get("blockOwnerDeletion") != Some(&Value::Bool(true))
    };
    if !matches!(owners.map(Vec::as_slice), Some([owner]) if is_node(owner)) {
        return refuse(NodeRestrictionError::PodOfOtherOwner);
    }
    match references(pod).first() {
        Some(Reference::ConfigMap(_)) => refuse(NodeRestrictionError::PodWithConfigMap),
        Some(Reference::ProviderClass(_)) => refuse(NodeRestrictionError::PodWithProviderClass),
        Some(Reference::Secret(_)) => refuse(NodeRestrictionError::PodWithSecret),
        Some(Reference::ServiceAccount(_)) => refuse(NodeRestrictionError::PodWithServiceAccount),
        None => Ok(()),
    }
}

/// Why a node may not create this object; each is the detail of a 403, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum NodeRestrictionError {
    /// A lease of another node.
    #[error("can only access node lease with the same name as the requesting node")]
    OtherLease,
    /// Another node.
    #[error("node {node:?} is not allowed to modify node {other:?}")]
    OtherNode { node: String, other: String },
    /// A pod that is meant for another node.
    #[error("node {0:?} can only create pods with spec.nodeName set to itself")]
    PodOfOtherNode(String),
    /// A pod that does not go when its node does.
    #[error("node {0:?} can only create pods with an owner reference set to itself")]
    PodOfOtherOwner(String),
    /// A pod that refers to what the node could then read.
    #[error("node {0:?} can not create pods that reference configmaps")]
    PodWithConfigMap(String),
    /// A pod that refers to what the node could then use.
    #[error("node {0:?} can not create pods that reference providerclasses")]
    PodWithProviderClass(String),
    /// A pod that refers to what the node could then read.
    #[error("node {0:?} can not create pods that reference secrets")]
    PodWithSecret(String),
    /// A pod whose account the node could then act as.
    #[error("node {0:?} can not create pods that reference a service account")]
    PodWithServiceAccount(String),
    /// A pod that is no mirror.
    #[error(
        "pod does not have \"kubernetes.io/config.mirror\" annotation, node {0:?} can only create mirror pods"
    )]
    PodWithoutMirrorMark(String),
    /// The pod runs elsewhere, or is another one of the same name.
    #[error("node requested token bound to a pod scheduled on a different node")]
    TokenOfOtherNode,
    /// A token that would outlive its pod.
    #[error("node requested token not bound to a pod")]
    TokenWithoutPod,
    /// A token for whatever pod comes to have this name.
    #[error("node requested token with a pod binding without a uid")]
    TokenWithoutUid,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{authz::fixtures::on, request::Target};

    #[track_caller]
    fn check(target: &str, object: &Value, expected: &Result<(), NodeRestrictionError>) {
        let graph = NodeGraph::default();
        graph.pod_changed(
            None,
            Some(&json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u"},
                "spec": {"nodeName": "n", "serviceAccountName": "sa"}})),
        );
        let Target::Resource(target) = on("create", target).target else { panic!("a path") };
        assert_eq!(graph.check_create("n", &target, object), *expected, "{target:?} {object}");
    }

    #[test]
    fn a_node_creates_itself_and_its_lease_only() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        check("nodes", &named("n"), &Ok(()));
        let other = || NodeRestrictionError::OtherNode { node: "n".into(), other: "m".into() };
        check("nodes", &named("m"), &Err(other()));
        let lease = "kube-node-lease/leases.coordination.k8s.io";
        check(lease, &named("n"), &Ok(()));
        check(lease, &named("m"), &Err(NodeRestrictionError::OtherLease));
        check(lease, &json!({}), &Err(NodeRestrictionError::OtherLease));
        check("ns/events", &named("any"), &Ok(()));
    }

    #[test]
    fn a_node_creates_mirrors_of_its_static_pods_only() {
        let mirror = json!({
            "metadata": {
                "name": "p", "namespace": "ns",
                "annotations": {"kubernetes.io/config.mirror": "x"},
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u",
                    "controller": true,
                }],
            },
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
        });
        check("ns/pods", &mirror, &Ok(()));
        let node = || "n".to_owned();
        for (path, value, expected) in [
            (
                "/metadata/annotations",
                json!({}),
                NodeRestrictionError::PodWithoutMirrorMark(node()),
            ),
            ("/metadata/ownerReferences", json!([]), NodeRestrictionError::PodOfOtherOwner(node())),
            (
                "/metadata/ownerReferences/0/name",
                json!("m"),
                NodeRestrictionError::PodOfOtherOwner(node()),
            ),
            (
                "/metadata/ownerReferences/0/controller",
                json!(false),
                NodeRestrictionError::PodOfOtherOwner(node()),
            ),
            ("/spec/nodeName", json!("m"), NodeRestrictionError::PodOfOtherNode(node())),
            (
                "/spec/containers/0",
                json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}),
                NodeRestrictionError::PodWithSecret(node()),
            ),
            (
                "/spec/containers/0",
                json!({"envFrom": [{"configMapRef": {"name": "s"}}]}),
                NodeRestrictionError::PodWithConfigMap(node()),
            ),
            (
                "/spec",
                json!({"nodeName": "n", "serviceAccountName": "sa"}),
                NodeRestrictionError::PodWithServiceAccount(node()),
            ),
        ] {
            let mut other = mirror.clone();
            *other.pointer_mut(path).unwrap() = value;
            check("ns/pods", &other, &Err(expected));
        }
    }

    #[test]
    fn a_node_asks_for_tokens_of_its_pods_only() {
        let bound = |reference: Value| json!({"spec": {"boundObjectRef": reference}});
        for (reference, expected) in [
            (json!({"kind": "Pod", "name": "p", "uid": "u"}), Ok(())),
            (
                json!({"kind": "Pod", "name": "p", "uid": "v"}),
                Err(NodeRestrictionError::TokenOfOtherNode),
            ),
            (
                json!({"kind": "Pod", "name": "q", "uid": "u"}),
                Err(NodeRestrictionError::TokenOfOtherNode),
            ),
            (json!({"kind": "Pod", "name": "p"}), Err(NodeRestrictionError::TokenWithoutUid)),
            (
                json!({"kind": "Secret", "name": "p", "uid": "u"}),
                Err(NodeRestrictionError::TokenWithoutPod),
            ),
            (json!(null), Err(NodeRestrictionError::TokenWithoutPod)),
        ] {
            check("ns/serviceaccounts/token:sa", &bound(reference), &expected);
        }
    }
}
