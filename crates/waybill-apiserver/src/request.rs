//! Who asks for what: the facts that authentication finds and that authorization, admission and
//! audit read.

use std::collections::BTreeMap;

/// Whoever makes a request, as authentication found them; never derived again further down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// What a request wants to do, and to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    /// In lower case, as in RBAC rules: `get`, `list`, `watch`, `create`, `update`, `patch`,
    /// `delete`, `deletecollection`, or a word of a review such as `use`. For paths that are no
    /// resources the HTTP method in lower case.
    pub(crate) verb: String,
    pub(crate) target: Target,
}

/// The thing a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A path that is no resource, such as `/healthz` or `/openapi/v3`.
    Path(String),
    Resource(ResourceTarget),
}

/// A resource, a subresource, or one object of it; what does not apply is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceTarget {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}
