//! Every resource that is served, one row each.
//!
//! A row says how a resource is called and which verbs it has; what its objects must look like is in
//! `kinds`, how they are printed in `table`. Discovery, OpenAPI, routing and the tests that walk over
//! all verbs read this table and nothing else.

/// A resource of the API.
#[derive(Debug)]
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
    /// Whether its objects are kept; reviews are answered and forgotten.
    pub(crate) fn is_stored(&self) -> bool {
        self.verbs.contains(&"get")
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
        let stored = match (self.group, self.version) {
            ("events.k8s.io", _) => find("", "v1", self.plural),
            (group, "v1alpha1") => find(group, "v1", self.plural),
            _ => None,
        };
        stored.unwrap_or(self)
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

/// `version` in the core group, `group/version` elsewhere.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

/// The resource called `plural` in `group`, at a version that is served.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| {
        resource.group == group && resource.plural == plural && resource.version == version
    })
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

const ALL: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Namespaces cannot be deleted in bulk.
const NO_BULK: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

const CREATE: &[&str] = &["create"];

const STATUS: Subresource = Subresource {
    name: "status",
    group_version: None,
    kind: "",
    verbs: &["get", "patch", "update"],
};

const fn connect(name: &'static str, kind: &'static str) -> Subresource {
    Subresource { name, group_version: None, kind, verbs: &["create", "get"] }
}

const BASE: Resource = Resource {
    group: "",
    version: "v1",
    plural: "",
    singular: "",
    kind: "",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    verbs: ALL,
    subresources: &[],
};

const REVIEW: Resource = Resource { scope: Scope::Cluster, verbs: CREATE, ..BASE };

const RBAC: Resource = Resource { group: "rbac.authorization.k8s.io", ..BASE };

/// In the order of discovery: groups by name, resources by name.
pub(crate) static RESOURCES: &[Resource] = &[
    Resource {
        plural: "configmaps",
        singular: "configmap",
        kind: "ConfigMap",
        short_names: &["cm"],
        ..BASE
    },
    Resource { plural: "events", singular: "event", kind: "Event", short_names: &["ev"], ..BASE },
    Resource {
        plural: "namespaces",
        singular: "namespace",
        kind: "Namespace",
        short_names: &["ns"],
        scope: Scope::Cluster,
        verbs: NO_BULK,
        subresources: &[
            Subresource { name: "finalize", group_version: None, kind: "", verbs: &["update"] },
            STATUS,
        ],
        ..BASE
    },
    Resource {
        plural: "nodes",
        singular: "node",
        kind: "Node",
        short_names: &["no"],
        scope: Scope::Cluster,
        subresources: &[
            Subresource {
                name: "proxy",
                group_version: None,
                kind: "NodeProxyOptions",
                verbs: &["get"],
            },
            STATUS,
        ],
        ..BASE
    },
    Resource {
        plural: "pods",
        singular: "pod",
        kind: "Pod",
        short_names: &["po"],
        categories: &["all"],
        subresources: &[
            connect("attach", "PodAttachOptions"),
            Subresource { name: "binding", group_version: None, kind: "Binding", verbs: CREATE },
            Subresource {
                name: "ephemeralcontainers",
                group_version: None,
                kind: "",
                verbs: &["get", "patch", "update"],
            },
            Subresource {
                name: "eviction",
                group_version: Some(("policy", "v1")),
                kind: "Eviction",
                verbs: CREATE,
            },
            connect("exec", "PodExecOptions"),
            Subresource { name: "log", group_version: None, kind: "", verbs: &["get"] },
            connect("portforward", "PodPortForwardOptions"),
            STATUS,
        ],
        ..BASE
    },
    Resource { plural: "podtemplates", singular: "podtemplate", kind: "PodTemplate", ..BASE },
    Resource { plural: "secrets", singular: "secret", kind: "Secret", ..BASE },
    Resource {
        plural: "serviceaccounts",
        singular: "serviceaccount",
        kind: "ServiceAccount",
        short_names: &["sa"],
        subresources: &[Subresource {
            name: "token",
            group_version: Some(("authentication.k8s.io", "v1")),
            kind: "TokenRequest",
            verbs: CREATE,
        }],
        ..BASE
    },
    Resource {
        group: "authentication.k8s.io",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        kind: "SelfSubjectReview",
        ..REVIEW
    },
    Resource {
        group: "authentication.k8s.io",
        plural: "tokenreviews",
        singular: "tokenreview",
        kind: "TokenReview",
        ..REVIEW
    },
    Resource {
        group: "authorization.k8s.io",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        kind: "LocalSubjectAccessReview",
        scope: Scope::Namespaced,
        ..REVIEW
    },
    Resource {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        kind: "SelfSubjectAccessReview",
        ..REVIEW
    },
    Resource {
        group: "authorization.k8s.io",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        kind: "SelfSubjectRulesReview",
        ..REVIEW
    },
    Resource {
        group: "authorization.k8s.io",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        kind: "SubjectAccessReview",
        ..REVIEW
    },
    Resource {
        group: "coordination.k8s.io",
        plural: "leases",
        singular: "lease",
        kind: "Lease",
        ..BASE
    },
    Resource {
        group: "events.k8s.io",
        plural: "events",
        singular: "event",
        kind: "Event",
        short_names: &["ev"],
        ..BASE
    },
    Resource {
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        kind: "ClusterRoleBinding",
        scope: Scope::Cluster,
        ..RBAC
    },
    Resource {
        plural: "clusterroles",
        singular: "clusterrole",
        kind: "ClusterRole",
        scope: Scope::Cluster,
        ..RBAC
    },
    Resource { plural: "rolebindings", singular: "rolebinding", kind: "RoleBinding", ..RBAC },
    Resource { plural: "roles", singular: "role", kind: "Role", ..RBAC },
    Resource {
        group: "storage.k8s.io",
        plural: "csidrivers",
        singular: "csidriver",
        kind: "CSIDriver",
        scope: Scope::Cluster,
        ..BASE
    },
    Resource {
        group: "storage.k8s.io",
        plural: "csinodes",
        singular: "csinode",
        kind: "CSINode",
        scope: Scope::Cluster,
        ..BASE
    },
    Resource {
        group: "storage.k8s.io",
        plural: "providerclasses",
        singular: "providerclass",
        kind: "ProviderClass",
        scope: Scope::Cluster,
        ..BASE
    },
    Resource {
        group: "storage.k8s.io",
        version: "v1alpha1",
        plural: "providerclasses",
        singular: "providerclass",
        kind: "ProviderClass",
        scope: Scope::Cluster,
        ..BASE
    },
];
