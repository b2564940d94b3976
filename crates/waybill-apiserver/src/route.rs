//! From method, path and query to what a request is about.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::{
    kinds::node::NODES,
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
#[derive(Clone, Debug)]
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
            Self::Path => match PathParts::parse(path) {
                // A resource or version that we do not have is judged like one that we have: whoever
                // may read all resources learns that there is none.
                Some(parts) => Action {
                    verb: verb(method, &parts.name, watch).to_owned(),
                    target: Target::Resource(parts.into_target()),
                },
                None => Action {
                    verb: method.as_str().to_ascii_lowercase(),
                    target: Target::Path(path.to_owned()),
                },
            },
            Self::Resource(route) => Action {
                verb: route.verb(method, watch).to_owned(),
                target: Target::Resource(route.target()),
            },
        }
    }
}

impl ResourceRoute {
    /// The way to one object.
    pub(crate) fn to(resource: &'static Resource, namespace: &str, name: &str) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Self { resource, namespace, name, subresource: String::new() }
    }

    /// The way to a part of the object; to all of it if that is empty.
    pub(crate) fn with_subresource(&self, subresource: &str) -> Self {
        Self { subresource: subresource.to_owned(), ..self.clone() }
    }

    /// The verb of RBAC for `method`.
    pub(crate) fn verb(&self, method: &Method, watch: bool) -> &'static str {
        verb(method, &self.name, watch)
    }

    /// The path by which clients reach it.
    pub(crate) fn path(&self) -> String {
        let Resource { group, version, plural, .. } = self.resource;
        let mut path = match *group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        if !self.namespace.is_empty() {
            path.push_str(&format!("/namespaces/{}", self.namespace));
        }
        for part in [plural, self.name.as_str(), self.subresource.as_str()] {
            if !part.is_empty() {
                path.push('/');
                path.push_str(part);
            }
        }
        path
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
    let parts = PathParts::parse(path)?;
    let resource = registry::find(&parts.group, &parts.version, &parts.plural)?;
    // What follows is a path of the node, and none of ours.
    let is_node_path = resource.is(&NODES) && parts.subresource == "proxy";
    if parts.has_more && !is_node_path {
        return None;
    }
    // An object of a namespace needs one; objects of all namespaces can only be listed.
    let fits = resource.is_namespaced() || parts.namespace.is_empty();
    let addressed =
        !resource.is_namespaced() || !parts.namespace.is_empty() || parts.name.is_empty();
    (fits && addressed).then(|| ResourceRoute {
        resource,
        namespace: parts.namespace.into_owned(),
        name: parts.name.into_owned(),
        subresource: parts.subresource.into_owned(),
    })
}

fn verb(method: &Method, name: &str, watch: bool) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if name.is_empty() => "deletecollection",
        Method::DELETE => "delete",
        _ if !name.is_empty() => "get",
        _ if watch => "watch",
        _ => "list",
    }
}

/// The segments of a path of the API by their meaning, whether or not there is such a resource.
#[derive(Default)]
struct PathParts<'a> {
    group: Cow<'a, str>,
    version: Cow<'a, str>,
    namespace: Cow<'a, str>,
    plural: Cow<'a, str>,
    name: Cow<'a, str>,
    subresource: Cow<'a, str>,
    /// Whether more segments follow.
    has_more: bool,
}

impl<'a> PathParts<'a> {
    fn parse(path: &'a str) -> Option<Self> {
        let mut segments = Vec::new();
        for segment in path.trim_start_matches('/').trim_end_matches('/').split('/') {
            segments.push(percent_decode_str(segment).decode_utf8().ok()?);
        }
        let mut segments = segments.into_iter().peekable();
        let group = match segments.next()?.as_ref() {
            "api" => Cow::Borrowed(""),
            "apis" => segments.next()?,
            _ => return None,
        };
        let version = segments.next()?;
        let first = segments.next()?;
        let mut parts = Self { group, version, ..Self::default() };
        let second = segments.next();
        // `/namespaces/x/status` is about the namespace, `/namespaces/x/pods` about what is in it.
        let is_inside = first == "namespaces"
            && segments.peek().is_some_and(|third| !is_namespace_part(&parts.group, third));
        if is_inside {
            parts.namespace = second.unwrap_or_default();
            parts.plural = segments.next().unwrap_or_default();
            parts.name = segments.next().unwrap_or_default();
        } else {
            parts.plural = first;
            parts.name = second.unwrap_or_default();
        }
        parts.subresource = segments.next().unwrap_or_default();
        parts.has_more = segments.next().is_some();
        Some(parts)
    }

    fn into_target(self) -> ResourceTarget {
        ResourceTarget {
            group: self.group.into_owned(),
            version: self.version.into_owned(),
            resource: self.plural.into_owned(),
            subresource: self.subresource.into_owned(),
            namespace: self.namespace.into_owned(),
            name: self.name.into_owned(),
        }
    }
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
    fn a_resource_that_is_not_served_is_judged_as_a_resource() {
        let target = |path: &str| Route::parse(path).action(&Method::GET, path, false);
        let action = target("/apis/apps/v9/namespaces/a/deployments/b/scale");
        let Target::Resource(found) = action.target else { panic!("no resource") };
        assert_eq!((action.verb.as_str(), found.group.as_str()), ("get", "apps"));
        assert_eq!((found.version.as_str(), found.resource.as_str()), ("v9", "deployments"));
        assert_eq!((found.namespace.as_str(), found.name.as_str()), ("a", "b"));
        assert_eq!(found.subresource, "scale");
        for path in ["/apis/apps/v9", "/apis/apps", "/api/v9", "/healthz", "/"] {
            assert_eq!(target(path).target, Target::Path(path.to_owned()), "{path}");
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
