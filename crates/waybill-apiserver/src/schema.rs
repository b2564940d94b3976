//! What objects look like: the schemas that the server serves and checks against.
//!
//! They are those of `k8s-openapi` and our extensions. Decoding walks a compact form that each kind
//! makes on first use and keeps; documents with descriptions are made on demand. There is no IO
//! here, and nothing that a peer sends can panic or recurse without bound.

mod compiled;
mod decode;
mod definitions;
pub(crate) mod extensions;
mod kinds;
mod list_types;
mod openapi;
mod place;
mod scalar;
mod walk;
mod yaml;

#[cfg(test)]
mod crd;

use std::{borrow::Cow, fmt, sync::OnceLock};

use schemars::SchemaGenerator;
use waybill_policy::cel::ObjectType;

use self::compiled::Compiled;
pub(crate) use self::{
    decode::{DecodeError, FieldValidation},
    kinds::{item, of},
    openapi::{OpenApi, ServedKind, ServedSubresource, V2_PROTOBUF},
};

/// The schema of `kind` in `group` (empty for the core group) and `version`.
pub(crate) fn lookup(group: &str, version: &str, kind: &str) -> Option<&'static KindSchema> {
    kinds::all()
        .find(|known| known.kind == kind && known.version == version && known.group == group)
}

/// What every kind looks like, by definition.
#[cfg(test)]
pub(crate) fn all_definitions() -> serde_json::Map<String, serde_json::Value> {
    definitions::define(kinds::all())
}

/// The schema of one kind.
pub(crate) struct KindSchema {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    versions: Versions,
    /// The name of its definition.
    name: fn() -> Cow<'static, str>,
    /// Adds its definition, and all that this refers to, to a generator.
    define: fn(&mut SchemaGenerator),
    compiled: OnceLock<Compiled>,
    merge: OnceLock<waybill_apply::Schema>,
}

impl KindSchema {
    /// The `apiVersion` of objects of this kind.
    pub(crate) fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }

    #[cfg(test)]
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    fn compiled(&self) -> &Compiled {
        let compile = || Compiled::new(&definitions::define([self]), &self.definition());
        self.compiled.get_or_init(compile)
    }

    /// What lists and maps of this kind mean to server-side apply.
    pub(crate) fn merge(&self) -> &waybill_apply::Schema {
        let compile =
            || waybill_apply::Schema::new(&definitions::define([self]), &self.definition());
        self.merge.get_or_init(compile)
    }

    /// What its objects look like to the expressions of policies.
    pub(crate) fn object_type(&self) -> ObjectType {
        self.compiled().object_type(self.kind)
    }

    pub(crate) fn definition(&self) -> Cow<'static, str> {
        (self.name)()
    }
}

impl fmt::Debug for KindSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KindSchema({}, {})", self.api_version(), self.kind)
    }
}

/// In which versions clients may send a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Versions {
    /// In its own.
    Own,
    /// In all, as options and answers that belong to no group are.
    Every,
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_served_kind_has_a_schema() {
        let kinds = [
            ("", "v1", "Namespace"),
            ("", "v1", "Node"),
            ("", "v1", "Pod"),
            ("", "v1", "PodTemplate"),
            ("", "v1", "ConfigMap"),
            ("", "v1", "Secret"),
            ("", "v1", "ServiceAccount"),
            ("", "v1", "Event"),
            ("events.k8s.io", "v1", "Event"),
            ("coordination.k8s.io", "v1", "Lease"),
            ("rbac.authorization.k8s.io", "v1", "Role"),
            ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
            ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
            ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
            ("storage.k8s.io", "v1", "CSIDriver"),
            ("storage.k8s.io", "v1", "CSINode"),
            ("storage.k8s.io", "v1", "ProviderClass"),
            ("storage.k8s.io", "v1alpha1", "ProviderClass"),
        ];
        for (group, version, kind) in kinds {
            for kind in [kind.to_owned(), format!("{kind}List")] {
                assert!(lookup(group, version, &kind).is_some(), "{group}/{version} {kind}");
            }
        }
        let singles = [
            ("", "Binding"),
            ("", "PodExecOptions"),
            ("", "Status"),
            ("", "DeleteOptions"),
            ("policy", "Eviction"),
            ("authentication.k8s.io", "TokenRequest"),
            ("authentication.k8s.io", "TokenReview"),
            ("authentication.k8s.io", "SelfSubjectReview"),
            ("authorization.k8s.io", "SubjectAccessReview"),
            ("authorization.k8s.io", "LocalSubjectAccessReview"),
            ("authorization.k8s.io", "SelfSubjectAccessReview"),
            ("authorization.k8s.io", "SelfSubjectRulesReview"),
        ];
        for (group, kind) in singles {
            assert!(lookup(group, "v1", kind).is_some(), "{group} {kind}");
        }
    }

    #[test]
    fn every_schema_compiles_and_is_listed_once() {
        let mut names = HashSet::new();
        for schema in kinds::all() {
            assert!(names.insert(schema.definition()), "{schema:?}");
            schema.decode(b"{}", FieldValidation::Strict).unwrap();
        }
    }
}
