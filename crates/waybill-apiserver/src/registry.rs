//! Every resource that is served, one line each.
//!
//! A resource is one descriptor, in the file of its kind: how it is called and which verbs it has, what its
//! objects must look like, how they are printed, selected and merged. Everything else reads descriptors and
//! compares no names, so a new resource is one file in `kinds` and one line here.

use std::fmt;

use crate::{
    kinds::{
        Kind, admission_policy, admission_policy_binding, certificate_request, config_map,
        csi_driver, csi_node, endpoint_slice, endpoints, event, lease, namespace, node, pod,
        pod_template, priority_class, provider_class, review, role, role_binding, runtime_class,
        secret, service, service_account, webhook_configuration,
    },
    patch::schema::{self as patch, Fields},
    protobuf,
    schema::KindSchema,
    selector::supported::{self, SelectableField},
    table::Table,
};

/// A resource of the API.
pub(crate) struct Resource {
    pub(crate) group: &'static str,
    /// The version that is stored and preferred.
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) scope: Scope,
    pub(crate) verbs: &'static [&'static str],
    pub(crate) subresources: &'static [Subresource],
    /// What its objects and their lists look like.
    pub(crate) schemas: &'static [KindSchema],
    /// What they look like in protobuf; nothing if they are JSON only.
    pub(crate) protobuf: Option<&'static protobuf::Message>,
    /// The rules of its objects: what is filled in, and what is refused. Only what is not kept has none.
    pub(crate) rules: Option<&'static dyn Kind>,
    /// How objects are printed.
    pub(crate) table: Table,
    /// What objects can be selected by.
    pub(crate) fields: &'static [SelectableField],
    /// How strategic merge patches treat them.
    pub(crate) patch: Fields,
    /// The resource in whose form they are stored; none if in this one.
    pub(crate) stored_as: Option<&'static Self>,
    /// What is answered, of a resource whose objects are not kept.
    pub(crate) review: Option<Review>,
}

/// A question that is answered and forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    LocalSubjectAccess,
    SelfSubject,
    SelfSubjectAccess,
    SelfSubjectRules,
    SubjectAccess,
    Token,
}

/// Whether objects live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Cluster,
    Namespaced,
}

/// A part of a resource with verbs of its own.
#[derive(Debug)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    /// Group and version of the kind, where they are not those of the resource.
    pub(crate) group_version: Option<(&'static str, &'static str)>,
    pub(crate) kind: &'static str,
    pub(crate) verbs: &'static [&'static str],
}

impl Resource {
    /// What most resources are; a descriptor says what is different.
    pub(crate) const BASE: Self = Self {
        group: "",
        version: "v1",
        plural: "",
        singular: "",
        kind: "",
        short_names: &[],
        categories: &[],
        scope: Scope::Namespaced,
        verbs: &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        subresources: &[],
        schemas: &[],
        protobuf: None,
        rules: None,
        table: Table::PLAIN,
        fields: supported::NONE,
        patch: patch::ANY,
        stored_as: None,
        review: None,
    };

    /// Whether both are the same, or forms of the same objects.
    pub(crate) fn is(&'static self, other: &'static Self) -> bool {
        std::ptr::eq(self.storage(), other.storage())
    }

    /// Whether its objects are kept; reviews are answered and forgotten.
    pub(crate) fn is_stored(&self) -> bool {
        self.review.is_none()
    }

    /// The schema of its objects.
    pub(crate) fn schema(&self) -> Option<&'static KindSchema> {
        self.schemas.first()
    }

    pub(crate) fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// `v1`, or `group/version`.
    pub(crate) fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }

    /// The resource in whose form objects are stored; others are views of the same objects.
    pub(crate) fn storage(&'static self) -> &'static Self {
        self.stored_as.unwrap_or(self)
    }

    /// `resource.group`, also where the group has no name.
    pub(crate) fn qualified(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// Whether `api_version` is that of its objects.
    pub(crate) fn is_in(&self, api_version: &str) -> bool {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        self.group == group && self.version == version
    }

    /// Where its objects lie in the store, with a slash at the end.
    pub(crate) fn prefix(&'static self) -> String {
        let stored = self.storage();
        match stored.group {
            "" => format!("/registry/core/{}/", stored.plural),
            group => format!("/registry/{group}/{}/", stored.plural),
        }
    }

    /// The store's key of one object.
    pub(crate) fn key(&'static self, namespace: &str, name: &str) -> String {
        match self.scope {
            Scope::Cluster => format!("{}{name}", self.prefix()),
            Scope::Namespaced => format!("{}{namespace}/{name}", self.prefix()),
        }
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resource({}, {})", self.api_version(), self.plural)
    }
}

/// `version` in the core group, `group/version` elsewhere.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

/// The resource called `plural` in `group`, at a version that is served.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().copied().find(|resource| {
        resource.group == group && resource.plural == plural && resource.version == version
    })
}

/// The resource of this name that is stored, for tests that walk over many.
#[cfg(test)]
pub(crate) fn named(plural: &str) -> &'static Resource {
    let mut all = RESOURCES.iter().copied();
    all.find(|resource| resource.plural == plural && resource.stored_as.is_none()).unwrap()
}

/// Groups and their versions, in the order of discovery.
pub(crate) fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    for resource in RESOURCES {
        let pair = (resource.group, resource.version);
        if !found.contains(&pair) {
            found.push(pair);
        }
    }
    found
}

impl Subresource {
    /// The status of objects, which only their controllers write.
    pub(crate) const STATUS: Self =
        Self { name: "status", group_version: None, kind: "", verbs: &["get", "patch", "update"] };

    /// A session.
    pub(crate) const fn connect(name: &'static str, kind: &'static str) -> Self {
        Self { name, group_version: None, kind, verbs: &["create", "get"] }
    }
}

/// In the order of discovery: groups by name, resources by name.
pub(crate) static RESOURCES: &[&Resource] = &[
    &config_map::CONFIG_MAPS,
    &endpoints::ENDPOINTS,
    &event::EVENTS,
    &namespace::NAMESPACES,
    &node::NODES,
    &pod::PODS,
    &pod_template::POD_TEMPLATES,
    &secret::SECRETS,
    &service_account::SERVICE_ACCOUNTS,
    &service::SERVICES,
    &webhook_configuration::MUTATING_WEBHOOK_CONFIGURATIONS,
    &admission_policy::VALIDATING_ADMISSION_POLICIES,
    &admission_policy_binding::VALIDATING_ADMISSION_POLICY_BINDINGS,
    &webhook_configuration::VALIDATING_WEBHOOK_CONFIGURATIONS,
    &review::SELF_SUBJECT_REVIEWS,
    &review::TOKEN_REVIEWS,
    &review::LOCAL_SUBJECT_ACCESS_REVIEWS,
    &review::SELF_SUBJECT_ACCESS_REVIEWS,
    &review::SELF_SUBJECT_RULES_REVIEWS,
    &review::SUBJECT_ACCESS_REVIEWS,
    &certificate_request::CERTIFICATE_SIGNING_REQUESTS,
    &lease::LEASES,
    &endpoint_slice::ENDPOINT_SLICES,
    &event::EVENTS_OF_EVENTS,
    &runtime_class::RUNTIME_CLASSES,
    &role_binding::CLUSTER_ROLE_BINDINGS,
    &role::CLUSTER_ROLES,
    &role_binding::ROLE_BINDINGS,
    &role::ROLES,
    &priority_class::PRIORITY_CLASSES,
    &csi_driver::CSI_DRIVERS,
    &csi_node::CSI_NODES,
    &provider_class::PROVIDER_CLASSES,
    &provider_class::OLDER_PROVIDER_CLASSES,
];

#[cfg(test)]
mod tests;
