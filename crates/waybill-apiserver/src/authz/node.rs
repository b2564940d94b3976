//! What a node may do: read what the pods bound to it refer to, report on them and on itself.
//!
//! Roles say nothing of this; the graph of pods does. It is stricter than Kubernetes, which leaves
//! writes of nodes and pod status to an admission plugin: all that the request names is judged here.
//! What the body of a write says is left to [`restriction`]. Refusals read as upstream's where
//! upstream refuses too.

pub(crate) mod audience;
pub(crate) mod graph;
mod references;
pub(crate) mod restriction;

use waybill_api::{exec::SESSION_KEYS_PATH, provider_class};

use self::{
    graph::{NodeGraph, ObjectName},
    references::Reference,
};
use super::{Decision, FieldTerm, Reason, rule::PolicyRule};
use crate::request::{Action, ResourceTarget, Target, User};

/// The group that every node is in.
pub(crate) const NODES_GROUP: &str = "system:nodes";

/// What stands before the node in the name of its user.
pub(crate) const NODE_USER_PREFIX: &str = "system:node:";

/// The namespace of the leases by which nodes say that they live.
const LEASE_NAMESPACE: &str = "kube-node-lease";

const READ: &[&str] = &["get", "list", "watch"];

/// The node that `user` is; `None` if it is none.
pub(crate) fn node_of(user: &User) -> Option<&str> {
    let node = user.name.strip_prefix(NODE_USER_PREFIX)?;
    user.groups.iter().any(|group| group == NODES_GROUP).then_some(node)
}

/// What every node may do whatever its pods are.
pub(super) fn unconditional_rules() -> Vec<PolicyRule> {
    let resources = UNCONDITIONAL
        .iter()
        .map(|(group, resource, verbs)| PolicyRule::resources(&[group], &[resource], verbs));
    resources.chain([PolicyRule::paths(&[SESSION_KEYS_PATH], &["get"])]).collect()
}

/// Group, resource, verbs. The reviews let the node ask about those who connect to it.
const UNCONDITIONAL: &[(&str, &str, &[&str])] = &[
    ("", "events", &["create", "patch", "update"]),
    ("events.k8s.io", "events", &["create", "patch", "update"]),
    ("authentication.k8s.io", "tokenreviews", &["create"]),
    ("authorization.k8s.io", "localsubjectaccessreviews", &["create"]),
    ("authorization.k8s.io", "subjectaccessreviews", &["create"]),
    ("certificates.k8s.io", "certificatesigningrequests", &["create", "get", "list", "watch"]),
    ("node.k8s.io", "runtimeclasses", READ),
    ("", "services", READ),
    ("storage.k8s.io", "csidrivers", READ),
];

impl NodeGraph {
    /// Whether the node may do `action`, whose list or watch is limited to `fields`.
    pub(crate) fn node_may(
        &self,
        node: &str,
        action: &Action,
        fields: &[FieldTerm<'_>],
    ) -> Decision {
        let answer = match &action.target {
            // Here and in no role, so that nobody can take it away: a node that is refused takes the
            // server for one that signs no sessions.
            Target::Path(path) if path == SESSION_KEYS_PATH && action.verb == "get" => Ok(()),
            // What nodes read of discovery they read as everyone does.
            Target::Path(_) => Err(String::new()),
            Target::Resource(_) if node.is_empty() => {
                Err(format!("unknown node for user {NODE_USER_PREFIX:?}"))
            }
            Target::Resource(target) => {
                self.judge(&Asked { node, verb: &action.verb, target, fields })
            }
        };
        match answer {
            Ok(()) => Decision::Allow { reason: Reason::None },
            Err(text) if text.is_empty() => Decision::NoOpinion { reason: Reason::None },
            Err(text) => Decision::NoOpinion { reason: Reason::Text(text) },
        }
    }

    fn judge(&self, asked: &Asked<'_>) -> Result<(), String> {
        match (asked.target.group.as_str(), asked.target.resource.as_str()) {
            ("", "secrets") => self.judge_read(asked, Reference::Secret),
            ("", "configmaps") => self.judge_read(asked, Reference::ConfigMap),
            ("", "serviceaccounts") => self.judge_token(asked),
            ("", "nodes") => judge_node(asked),
            ("", "pods") => self.judge_pod(asked),
            ("coordination.k8s.io", "leases") => judge_lease(asked),
            ("storage.k8s.io", "csinodes") => judge_csi_node(asked),
            (provider_class::GROUP, provider_class::RESOURCE) => self.judge_class(asked),
            (group, resource) => {
                let listed = UNCONDITIONAL.iter().any(|(listed_group, listed, verbs)| {
                    (*listed_group, *listed) == (group, resource) && verbs.contains(&asked.verb)
                });
                allow_if(listed && asked.target.subresource.is_empty(), "")
            }
        }
    }

    /// Secrets and ConfigMaps: only by name, and only if a pod of the node refers to them.
    fn judge_read(
        &self,
        asked: &Asked<'_>,
        reference: fn(ObjectName) -> Reference,
    ) -> Result<(), String> {
        allow_if(READ.contains(&asked.verb), "can only read resources of this type")?;
        allow_if(asked.target.subresource.is_empty(), "cannot read subresource")?;
        let namespace = &asked.target.namespace;
        allow_if(!namespace.is_empty(), "can only read namespaced object of this type")?;
        let name = asked.object_name().ok_or("No Object name found")?;
        let refers = self.refers(asked.node, &reference(ObjectName::new(namespace, name)));
        allow_if(refers, &asked.no_relationship())
    }

    fn judge_class(&self, asked: &Asked<'_>) -> Result<(), String> {
        allow_if(READ.contains(&asked.verb), "can only read resources of this type")?;
        allow_if(asked.target.subresource.is_empty(), "cannot read subresource")?;
        let name = asked.object_name().ok_or("No Object name found")?;
        let refers = self.refers(asked.node, &Reference::ProviderClass(name.into()));
        allow_if(refers, &asked.no_relationship())
    }

    fn judge_token(&self, asked: &Asked<'_>) -> Result<(), String> {
        let ResourceTarget { namespace, name, subresource, .. } = asked.target;
        allow_if(
            asked.verb == "create" && !name.is_empty(),
            "can only create tokens for individual service accounts",
        )?;
        allow_if(subresource == "token", "can only create token subresource of serviceaccount")?;
        let account = Reference::ServiceAccount(ObjectName::new(namespace, name));
        allow_if(self.refers(asked.node, &account), &asked.no_relationship())
    }

    fn judge_pod(&self, asked: &Asked<'_>) -> Result<(), String> {
        match (asked.target.subresource.as_str(), asked.verb) {
            ("", "list" | "watch") if asked.has_term("spec.nodeName", asked.node) => Ok(()),
            ("", "list" | "watch") if asked.object_name().is_none() => {
                Err("can only list/watch pods with spec.nodeName field selector".to_owned())
            }
            ("", "get" | "list" | "watch" | "delete")
            | ("eviction", "create")
            | ("status", "get" | "update" | "patch") => {
                let name = asked.object_name().ok_or("No Object name found")?;
                let pod = ObjectName::new(&asked.target.namespace, name);
                allow_if(self.is_bound(asked.node, &pod), &asked.no_relationship())
            }
            // Mirrors of static pods; which pods are such, only their bodies tell.
            ("", "create") => Ok(()),
            _ => Err(String::new()),
        }
    }
}

/// One question of one node.
struct Asked<'a> {
    node: &'a str,
    verb: &'a str,
    target: &'a ResourceTarget,
    fields: &'a [FieldTerm<'a>],
}

impl<'a> Asked<'a> {
    /// The one object that is meant: by the path, or by the field selector of a list or watch.
    fn object_name(&self) -> Option<&'a str> {
        if !self.target.name.is_empty() {
            return Some(&self.target.name);
        }
        let mut names = self.fields.iter().filter(|term| term.field == "metadata.name");
        match (self.verb, names.next(), names.next()) {
            ("list" | "watch", Some(term), None) if !term.value.is_empty() => Some(term.value),
            _ => None,
        }
    }

    fn has_term(&self, field: &str, value: &str) -> bool {
        self.fields.iter().any(|term| term.field == field && term.value == value)
    }

    fn no_relationship(&self) -> String {
        format!("no relationship found between node '{}' and this object", self.node)
    }
}

fn judge_node(asked: &Asked<'_>) -> Result<(), String> {
    match (asked.target.subresource.as_str(), asked.verb) {
        // The name of what is created stands in its body.
        ("", "create") if asked.target.name.is_empty() => Ok(()),
        ("", "get" | "list" | "watch") => match asked.object_name() {
            Some(name) if name == asked.node => Ok(()),
            None => Err(format!(
                "node '{}' cannot read all nodes, only its own Node object",
                asked.node
            )),
            Some(name) => {
                Err(format!("node '{}' cannot read '{name}', only its own Node object", asked.node))
            }
        },
        ("", "create" | "update" | "patch") | ("status", "get" | "update" | "patch") => {
            let name = &asked.target.name;
            let refusal = format!("node {:?} is not allowed to modify node {name:?}", asked.node);
            allow_if(name == asked.node, &refusal)
        }
        _ => Err(String::new()),
    }
}

fn judge_lease(asked: &Asked<'_>) -> Result<(), String> {
    allow_if(
        matches!(asked.verb, "get" | "create" | "update" | "patch" | "delete"),
        "can only get, create, update, patch, or delete a node lease",
    )?;
    allow_if(
        asked.target.namespace == LEASE_NAMESPACE,
        &format!("can only access leases in the {LEASE_NAMESPACE:?} system namespace"),
    )?;
    // The name of what is created stands in its body.
    let name = &asked.target.name;
    allow_if(
        name == asked.node || (asked.verb == "create" && name.is_empty()),
        "can only access node lease with the same name as the requesting node",
    )
}

fn judge_csi_node(asked: &Asked<'_>) -> Result<(), String> {
    allow_if(
        matches!(asked.verb, "get" | "create" | "update" | "patch" | "delete"),
        "can only get, create, update, patch, or delete a CSINode",
    )?;
    allow_if(asked.target.subresource.is_empty(), "cannot authorize CSINode subresources")?;
    // The name of what is created stands in its body.
    let name = &asked.target.name;
    allow_if(
        name == asked.node || (asked.verb == "create" && name.is_empty()),
        "can only access CSINode with the same name as the requesting node",
    )
}

fn allow_if(allowed: bool, refusal: &str) -> Result<(), String> {
    if allowed { Ok(()) } else { Err(refusal.to_owned()) }
}

#[cfg(test)]
mod tests;
