//! A request as webhooks and policies see it, and what surrounds it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use crate::{cel::Authorize, config::ParamKind, selector::LabelSelector};

/// What a request does with its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is made.
    Create,
    /// It is changed.
    Update,
    /// It is removed.
    Delete,
    /// Somebody connects to it, such as by `exec`.
    Connect,
}

impl Operation {
    /// As rules and reviews write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Group, version and kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupVersionKind<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The kind.
    pub kind: &'a str,
}

/// Group, version and resource of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupVersionResource<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The resource, such as `pods`.
    pub resource: &'a str,
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserInfo {
    /// The name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// The unique id, if there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What else is known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// One request on its way through admission.
#[derive(Clone, Copy)]
pub struct AdmissionRequest<'a> {
    /// What it does.
    pub operation: Operation,
    /// The kind of `object`.
    pub kind: GroupVersionKind<'a>,
    /// The resource in its path.
    pub resource: GroupVersionResource<'a>,
    /// The subresource in its path; empty for none.
    pub subresource: &'a str,
    /// The name; empty as long as the server has not made one.
    pub name: &'a str,
    /// The namespace; a namespace is in itself.
    pub namespace: &'a str,
    /// Who asks.
    pub user: &'a UserInfo,
    /// The object as it is to be, or the options of a connection.
    pub object: Option<&'a Json>,
    /// The object as it is.
    pub old_object: Option<&'a Json>,
    /// The options of the operation, with their kind.
    pub options: Option<&'a Json>,
    /// Whether nothing is to be kept.
    pub dry_run: bool,
}

impl fmt::Debug for AdmissionRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Objects may hold what must not be shown.
        f.debug_struct("AdmissionRequest")
            .field("operation", &self.operation)
            .field("resource", &self.resource)
            .field("subresource", &self.subresource)
            .finish_non_exhaustive()
    }
}

impl AdmissionRequest<'_> {
    /// The fields that reviews and expressions share; empty ones are left out, as upstream does.
    pub(crate) fn fields(&self) -> Map<String, Json> {
        let Self { kind, resource, .. } = self;
        let kind = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let resource = json!({
            "group": resource.group, "version": resource.version, "resource": resource.resource
        });
        let mut fields = Map::new();
        for (name, value) in [
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("operation", Json::from(self.operation.as_str())),
            // A user serialises: it holds texts alone.
            ("userInfo", serde_json::to_value(self.user).unwrap_or_default()),
            ("dryRun", Json::from(self.dry_run)),
            ("options", self.options.cloned().unwrap_or_default()),
        ] {
            fields.insert(name.to_owned(), value);
        }
        for (name, text) in [
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
            ("name", self.name),
            ("namespace", self.namespace),
        ] {
            if !text.is_empty() {
                fields.insert(name.to_owned(), Json::from(text));
            }
        }
        fields
    }

    /// `request`, as expressions see it.
    pub fn for_expressions(&self) -> Json {
        Json::Object(self.fields())
    }

    /// Whether it is about a Namespace itself.
    pub(crate) fn is_namespace(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "namespaces"
    }
}

/// What the server knows around a request.
pub trait Surroundings: Authorize {
    /// The Namespace `name`, if it exists.
    fn namespace(&self, name: &str) -> Option<Arc<Json>>;

    /// The objects of `kind` that a binding chose, or why they cannot be had.
    fn params(&self, query: &ParamQuery<'_>) -> Result<Vec<Arc<Json>>, ParamError>;
}

/// Which parameters are asked for.
#[derive(Clone, Copy, Debug)]
pub struct ParamQuery<'a> {
    /// Their kind.
    pub kind: &'a ParamKind,
    /// The namespace that the binding names; empty if it names none.
    pub namespace: &'a str,
    /// The namespace of the request; empty for none.
    pub request_namespace: &'a str,
    /// One of a name, or all that a selector chooses.
    pub which: WhichParams<'a>,
}

/// By name, or by labels.
#[derive(Clone, Copy, Debug)]
pub enum WhichParams<'a> {
    /// The one of this name.
    Named(&'a str),
    /// All with such labels.
    Selected(&'a LabelSelector),
}

/// Why parameters cannot be had; upstream's texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamError {
    /// The server has no such kind.
    #[error("paramKind kind `{0}` not known")]
    UnknownKind(String),
    /// Parameters have a namespace, and neither the binding nor the request names one.
    #[error(
        "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
    )]
    NoNamespace,
    /// Parameters have no namespace, and the binding names one.
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    NamespaceNotAllowed,
}
