//! From method, path and query to what a request is about.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::{
    registry::{self, Resource},
    request::{Action, ResourceTarget, Target},
};

/// What a path names.
#[derive(Debug, PartialEq)]
pub(crate) enum Route {
    /// A path that is no resource: discovery, health, metrics, OpenAPI and what does not exist.
    Path,
    Resource(ResourceRoute),
}

/// A resource, one of its objects, or a part of one.
#[derive(Debug)]
pub(crate) struct ResourceRoute {
    pub(crate) resource: &'static Resource,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

impl PartialEq for ResourceRoute {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.resource, other.resource)
            && (&self.namespace, &self.name, &self.subresource)
                == (&other.namespace, &other.name, &other.subresource)
    }
}

impl Route {
    pub(crate) fn parse(path: &str) -> Self {
        parse_resource(path).map_or(Self::Path, Self::Resource)
    }

    /// What authorization and audit are told.
    pub(crate) fn action(&self, method: &Method, path: &str, watch: bool) -> Action {
        match self {
            Self::Path => Action {
                verb: method.as_str().to_ascii_lowercase(),
                target: Target::Path(path.to_owned()),
            },
            Self::Resource(route) => Action {
                verb: route.verb(method, watch).to_owned(),
                target: Target::Resource(route.target()),
            },
        }
    }
}

impl ResourceRoute {
    /// The verb of RBAC for `method`.
    pub(crate) fn verb(&self, method: &Method, watch: bool) -> &'static str {
        match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if self.name.is_empty() => "deletecollection",
            Method::DELETE => "delete",
            _ if !self.name.is_empty() => "get",
            _ if watch => "watch",
            _ => "list",
        }
    }

    pub(crate) fn target(&self) -> ResourceTarget {
        ResourceTarget {
            group: self.resource.group.to_owned(),
            version: self.resource.version.to_owned(),
            resource: self.resource.plural.to_owned(),
            subresource: self.subresource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// The resource for a status, without the subresource.
    pub(crate) fn status_target(&self) -> waybill_api::status::Target<'_> {
        waybill_api::status::Target {
            group: self.resource.group,
            resource: self.resource.plural,
            name: &self.name,
        }
    }
}

fn parse_resource(path: &str) -> Option<ResourceRoute> {
    let mut segments = Vec::new();
    for segment in path.trim_start_matches('/').trim_end_matches('/').split('/') {
        segments.push(percent_decode_str(segment).decode_utf8().ok()?);
    }
    let (group, version, rest): (Cow<'_, str>, Cow<'_, str>, _) = match segments.as_slice() {
        [api, version, rest @ ..] if api == "api" => ("".into(), version.clone(), rest),
        [apis, group, version, rest @ ..] if apis == "apis" => {
            (group.clone(), version.clone(), rest)
        }
        _ => return None,
    };
    let find = |plural: &str| registry::find(&group, &version, plural);
    let (namespace, rest) = match rest {
        // `/namespaces/x/status` is about the namespace, `/namespaces/x/pods` about what is in it.
        [namespaces, namespace, plural, rest @ ..]
            if namespaces == "namespaces" && !is_namespace_part(&group, plural) =>
        {
            (namespace.clone(), [std::slice::from_ref(plural), rest].concat())
        }
        rest => (Cow::Borrowed(""), rest.to_vec()),
    };
    let (plural, name, subresource) = match rest.as_slice() {
        [plural] => (plural, "", ""),
        [plural, name] => (plural, name.as_ref(), ""),
        [plural, name, subresource] => (plural, name.as_ref(), subresource.as_ref()),
        // What follows is a path of the node, and none of ours.
        [plural, name, proxy, ..] if plural == "nodes" && proxy == "proxy" => {
            (plural, name.as_ref(), "proxy")
        }
        _ => return None,
    };
    let resource = find(plural)?;
    // An object of a namespace needs one; objects of all namespaces can only be listed.
    let fits = resource.is_namespaced() || namespace.is_empty();
    let addressed = !resource.is_namespaced() || !namespace.is_empty() || name.is_empty();
    (fits && addressed).then(|| ResourceRoute {
        resource,
        namespace: namespace.clone().into_owned(),
        name: name.to_owned(),
        subresource: subresource.to_owned(),
    })
}

fn is_namespace_part(group: &str, segment: &str) -> bool {
    group.is_empty() && matches!(segment, "finalize" | "status")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Option<(&str, &str, &str, &str)>) {
        let found = match Route::parse(path) {
            Route::Path => None,
            Route::Resource(route) => Some(route),
        };
        let parts = found.as_ref().map(|route| {
            (
                route.resource.plural,
                route.namespace.as_str(),
                route.name.as_str(),
                route.subresource.as_str(),
            )
        });
        assert_eq!(parts, expected, "{path}");
    }

    #[test]
    fn paths_name_resources() {
        check("/api/v1/pods", Some(("pods", "", "", "")));
        check("/api/v1/namespaces/a/pods", Some(("pods", "a", "", "")));
        check("/api/v1/namespaces/a/pods/b", Some(("pods", "a", "b", "")));
        check("/api/v1/namespaces/a/pods/b/exec", Some(("pods", "a", "b", "exec")));
        check("/api/v1/namespaces", Some(("namespaces", "", "", "")));
        check("/api/v1/namespaces/a", Some(("namespaces", "", "a", "")));
        check("/api/v1/namespaces/a/status", Some(("namespaces", "", "a", "status")));
        check("/api/v1/namespaces/a/finalize", Some(("namespaces", "", "a", "finalize")));
        check("/api/v1/nodes/n", Some(("nodes", "", "n", "")));
        check("/api/v1/nodes/n/proxy", Some(("nodes", "", "n", "proxy")));
        check("/api/v1/nodes/n/proxy/a/b/c", Some(("nodes", "", "n", "proxy")));
        check("/apis/coordination.k8s.io/v1/leases", Some(("leases", "", "", "")));
        check(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            Some(("clusterroles", "", "system:node", "")),
        );
    }

    #[test]
    fn other_paths_name_none() {
        for path in [
            "/",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/g/v1",
            "/healthz",
            "/openapi/v3",
            "/api/v2/pods",
            "/api/v1/podz",
            "/apis/storage.k8s.io/v2/csidrivers",
            "/api/v1/namespaces/a/nodes/n",
            "/api/v1/pods/b",
            "/api/v1/nodes/n/status/x",
            "/api/v1/namespaces/a/pods/b/proxy/x",
            "/api/v1/namespaces/a/pods/b/exec/x",
            "/api/v1/namespaces/%ff/pods",
        ] {
            check(path, None);
        }
    }

    #[test]
    fn verbs_are_those_of_rbac() {
        let verb = |method: Method, path: &str, watch| match Route::parse(path) {
            Route::Resource(route) => route.verb(&method, watch),
            Route::Path => panic!("{path} names no resource"),
        };
        let (all, one) = ("/api/v1/nodes", "/api/v1/nodes/n");
        assert_eq!(verb(Method::GET, all, false), "list");
        assert_eq!(verb(Method::GET, all, true), "watch");
        assert_eq!(verb(Method::GET, one, false), "get");
        assert_eq!(verb(Method::POST, all, false), "create");
        assert_eq!(verb(Method::PUT, one, false), "update");
        assert_eq!(verb(Method::PATCH, one, false), "patch");
        assert_eq!(verb(Method::DELETE, one, false), "delete");
        assert_eq!(verb(Method::DELETE, all, false), "deletecollection");
    }
}
