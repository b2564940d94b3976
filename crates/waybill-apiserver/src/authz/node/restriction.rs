//! What a node may write, judged by what it writes: the `NodeRestriction` plugin of Kubernetes.
//!
//! Authorization knows which object is meant, and roles can add to what it allows. Here the content
//! of the request is judged, whatever allowed it: a node changes only what a kubelet changes, so that
//! who has the credentials of one node cannot draw workloads to it or reach what is not its own.
//! Stricter than upstream in two points: all metadata of a pod is closed to the pod's status, and a node gives its own object no
//! owners when it is made and no finalizers ever, which would keep an administrator from deleting it.

mod mirror;
mod token;

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use waybill_api::node::node_may_set_label;

pub(crate) use self::token::{check_token, requested_audience};
use super::{LEASE_NAMESPACE, graph::text};
use crate::request::ResourceTarget;

/// What a node wants to do to one object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NodeWrite<'a> {
    Create(&'a Value),
    Update { new: &'a Value, old: &'a Value },
    Delete(&'a Value),
}

/// The node that asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskingNode<'a> {
    pub(crate) name: &'a str,
    /// The UID of its object; empty if there is none.
    pub(crate) uid: &'a str,
}

impl AskingNode<'_> {
    /// Checks a write to `target`, whose name may stand in the object alone.
    pub(crate) fn check(
        self,
        target: &ResourceTarget,
        write: NodeWrite<'_>,
    ) -> Result<(), NodeRestrictionError> {
        match (target.group.as_str(), target.resource.as_str()) {
            ("", "nodes") => self.check_node(target, write),
            ("", "pods") => self.check_pod(&target.subresource, write),
            ("coordination.k8s.io", "leases") => self.check_lease(target, write),
            ("storage.k8s.io", "csinodes") if name_of(target, write) != self.name => {
                Err(NodeRestrictionError::OtherCsiNode)
            }
            _ => Ok(()),
        }
    }

    fn check_node(
        self,
        target: &ResourceTarget,
        write: NodeWrite<'_>,
    ) -> Result<(), NodeRestrictionError> {
        let node = self.name.to_owned();
        let other = name_of(target, write);
        if other != self.name {
            return Err(NodeRestrictionError::OtherNode { node, other: other.to_owned() });
        }
        let changed = |labels: BTreeSet<&str>| -> Vec<String> {
            labels.into_iter().filter(|it| !node_may_set_label(it)).map(str::to_owned).collect()
        };
        match write {
            NodeWrite::Create(new) => {
                if new.pointer(CONFIG_SOURCE).is_some_and(|source| !source.is_null()) {
                    return Err(NodeRestrictionError::ConfigSource(node));
                }
                self.check_node_metadata(new, &Value::Null)?;
                let labels = changed(changed_labels(new, &Value::Null));
                if labels.is_empty() {
                    Ok(())
                } else {
                    Err(NodeRestrictionError::NodeLabels { node, labels })
                }
            }
            NodeWrite::Update { new, old } => {
                let source = new.pointer(CONFIG_SOURCE).filter(|source| !source.is_null());
                if source.is_some() && source != old.pointer(CONFIG_SOURCE) {
                    return Err(NodeRestrictionError::ConfigSource(node));
                }
                if !same(new, old, "/spec/taints") {
                    return Err(NodeRestrictionError::NodeTaints(node));
                }
                self.check_node_metadata(new, old)?;
                let labels = changed(changed_labels(new, old));
                if labels.is_empty() {
                    Ok(())
                } else {
                    Err(NodeRestrictionError::NodeLabelChange { labels })
                }
            }
            NodeWrite::Delete(_) => Ok(()),
        }
    }

    fn check_node_metadata(self, new: &Value, old: &Value) -> Result<(), NodeRestrictionError> {
        let node = || self.name.to_owned();
        if !same(new, old, "/metadata/ownerReferences") {
            return Err(NodeRestrictionError::NodeOwners(node()));
        }
        if !same(new, old, "/metadata/finalizers") {
            return Err(NodeRestrictionError::NodeFinalizers(node()));
        }
        Ok(())
    }

    fn check_pod(
        self,
        subresource: &str,
        write: NodeWrite<'_>,
    ) -> Result<(), NodeRestrictionError> {
        let node = self.name.to_owned();
        match (subresource, write) {
            ("", NodeWrite::Create(pod)) => mirror::check_mirror(self, pod),
            ("", NodeWrite::Update { .. }) => Err(NodeRestrictionError::PodUpdate(node)),
            ("", NodeWrite::Delete(pod)) if text(pod, "/spec/nodeName") != self.name => {
                Err(NodeRestrictionError::PodDeletion(node))
            }
            ("status", NodeWrite::Update { new, old }) => self.check_pod_status(new, old),
            ("" | "eviction", _) => Ok(()),
            (subresource, _) => Err(NodeRestrictionError::PodSubresource(subresource.to_owned())),
        }
    }

    fn check_pod_status(self, new: &Value, old: &Value) -> Result<(), NodeRestrictionError> {
        let node = self.name.to_owned();
        if text(old, "/spec/nodeName") != self.name {
            return Err(NodeRestrictionError::PodStatusOfOtherNode(node));
        }
        for what in ["labels", "annotations", "finalizers", "ownerReferences"] {
            if !same(new, old, &format!("/metadata/{what}")) {
                return Err(NodeRestrictionError::ThroughPodStatus { node, what });
            }
        }
        if !same(new, old, "/status/resourceClaimStatuses") {
            return Err(NodeRestrictionError::ResourceClaims(node));
        }
        Ok(())
    }

    fn check_lease(
        self,
        target: &ResourceTarget,
        write: NodeWrite<'_>,
    ) -> Result<(), NodeRestrictionError> {
        if target.namespace != LEASE_NAMESPACE {
            return Err(NodeRestrictionError::LeaseNamespace);
        }
        if name_of(target, write) != self.name {
            return Err(NodeRestrictionError::OtherLease);
        }
        Ok(())
    }
}

const CONFIG_SOURCE: &str = "/spec/configSource";

/// The name of the object: that of the path, or for a create that of the object.
fn name_of<'a>(target: &'a ResourceTarget, write: NodeWrite<'a>) -> &'a str {
    match write {
        NodeWrite::Create(object) => text(object, "/metadata/name"),
        NodeWrite::Update { .. } | NodeWrite::Delete(_) => &target.name,
    }
}

/// Whether the same stands there in both; nothing and an empty list or map are the same.
fn same(new: &Value, old: &Value, pointer: &str) -> bool {
    let at = |object| Value::pointer(object, pointer).filter(|found| !is_empty(found));
    at(new) == at(old)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The labels that one has and the other has not, or has with another value.
fn changed_labels<'a>(new: &'a Value, old: &'a Value) -> BTreeSet<&'a str> {
    let labels = |object: &'a Value| object.pointer("/metadata/labels").and_then(Value::as_object);
    let (new, old) = (labels(new), labels(old));
    let names = new.into_iter().chain(old).flat_map(|labels| labels.keys());
    let value = |labels: Option<&'a Map<String, Value>>, name: &str| labels?.get(name);
    names.filter(|name| value(new, name) != value(old, name)).map(String::as_str).collect()
}

/// Why a node may not write this; each is the detail of a 403, in upstream's words where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum NodeRestrictionError {
    /// More than one audience, which no kubelet asks for.
    #[error("node may only request 0 or 1 audiences")]
    Audiences,
    /// A source of configuration, which nodes no longer have and would be let to read.
    #[error("node {0:?} is not allowed to set a non-nil configSource")]
    ConfigSource(String),
    /// A lease elsewhere.
    #[error("can only access leases in the {LEASE_NAMESPACE:?} system namespace")]
    LeaseNamespace,
    /// Finalizers, which would keep its object when somebody deletes it.
    #[error("node {0:?} is not allowed to modify finalizers")]
    NodeFinalizers(String),
    /// Labels of its own object that draw workloads.
    #[error("is not allowed to modify labels: {}", labels.join(", "))]
    NodeLabelChange { labels: Vec<String> },
    /// Labels of its own object that draw workloads.
    #[error("node {node:?} is not allowed to set the following labels: {}", labels.join(", "))]
    NodeLabels { node: String, labels: Vec<String> },
    /// An owner whose end would end the node's object, to be made again without its taints.
    #[error("node {0:?} is not allowed to modify ownerReferences")]
    NodeOwners(String),
    /// Taints keep workloads away.
    #[error("node {0:?} is not allowed to modify taints")]
    NodeTaints(String),
    /// The mirror of a node that was.
    #[error("node {node} UID mismatch: expected {found} got {uid}")]
    NodeUid { node: String, found: String, uid: String },
    /// The drivers of another node.
    #[error("can only access CSINode with the same name as the requesting node")]
    OtherCsiNode,
    /// A lease of another node.
    #[error("can only access node lease with the same name as the requesting node")]
    OtherLease,
    /// Another node.
    #[error("node {node:?} is not allowed to modify node {other:?}")]
    OtherNode { node: String, other: String },
    /// A pod that runs elsewhere.
    #[error("node {0:?} can only delete pods with spec.nodeName set to itself")]
    PodDeletion(String),
    /// A pod that is meant for another node.
    #[error("node {0:?} can only create pods with spec.nodeName set to itself")]
    PodOfOtherNode(String),
    /// A pod that does not go when its node does.
    #[error("node {0:?} can only create pods with an owner reference set to itself")]
    PodOfOtherOwner(String),
    /// The status of a pod that runs elsewhere.
    #[error("node {0:?} can only update pod status for pods with spec.nodeName set to itself")]
    PodStatusOfOtherNode(String),
    /// A part of a pod that is no business of a node.
    #[error("unexpected pod subresource {0:?}, only 'status' and 'eviction' are allowed")]
    PodSubresource(String),
    /// A pod itself.
    #[error("unexpected operation \"UPDATE\", node {0:?} can only create and delete mirror pods")]
    PodUpdate(String),
    /// A pod that refers to what the node could then read or act as.
    #[error("node {node:?} can not create pods that reference {what}")]
    PodWith { node: String, what: &'static str },
    /// A pod that is no mirror.
    #[error(
        "pod does not have \"kubernetes.io/config.mirror\" annotation, node {0:?} can only create mirror pods"
    )]
    PodWithoutMirrorMark(String),
    /// Claims of devices are the scheduler's.
    #[error("node {0:?} cannot update resource claim statuses")]
    ResourceClaims(String),
    /// Metadata of a pod, which its status is no way to.
    #[error("node {node:?} cannot update {what} through pod status")]
    ThroughPodStatus { node: String, what: &'static str },
    /// An audience that the pod does not use, and that nobody granted to the node.
    #[error(
        "audience {audience:?} not found in pod spec volume, {user} is not authorized to request tokens for this audience"
    )]
    TokenAudience { audience: String, user: String },
    /// The pod runs elsewhere.
    #[error("node requested token bound to a pod scheduled on a different node")]
    TokenOfOtherNode,
    /// Another pod of the same name.
    #[error(
        "the UID in the bound object reference ({0}) does not match the UID in record. The object might have been deleted and then recreated"
    )]
    TokenUid(String),
    /// A token that would outlive its pod.
    #[error("node requested token not bound to a pod")]
    TokenWithoutPod,
    /// A token for whatever pod comes to have this name.
    #[error("node requested token with a pod binding without a uid")]
    TokenWithoutUid,
}

#[cfg(test)]
mod tests;
