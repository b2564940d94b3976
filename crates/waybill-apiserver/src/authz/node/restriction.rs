//! What only the body of a node's request tells.
//!
//! The small part of the `NodeRestriction` plugin of Kubernetes that authorization cannot do: a
//! create names its object in the body, and a token says there which pod it is for.

use serde_json::Value;

use super::graph::{NodeGraph, ObjectName, text};
use crate::request::ResourceTarget;

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
