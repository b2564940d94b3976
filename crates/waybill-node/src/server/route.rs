//! What a request asks for, and what its sender must be allowed to do: both from method and path
//! alone, as kubelets decide it.

use http::Method;
use percent_encoding::percent_decode_str;

/// Something that the node serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Attach(ContainerPath),
    /// Where the variables of a container come from; ours.
    Environment(ContainerPath),
    Exec(ContainerPath),
    Health,
    Logs(ContainerPath),
    Metrics,
    Pods,
    PortForward(PodPath),
    RunningPods,
    StatsSummary,
    /// What ran in sessions; ours.
    Trace,
}

impl Route {
    /// Finds the route; to be called only for those who may know.
    pub(super) fn find(method: &Method, path: &str) -> Result<Self, RouteError> {
        let segments = segments(path).ok_or(RouteError::NoSuchPath)?;
        let segments: Vec<_> = segments.iter().map(String::as_str).collect();
        let route = Self::of(&segments).ok_or(RouteError::NoSuchPath)?;
        if route.methods().contains(method) { Ok(route) } else { Err(RouteError::Method) }
    }

    /// A word for metrics and logs.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Attach(_) => "attach",
            Self::Environment(_) => "environment",
            Self::Exec(_) => "exec",
            Self::Health => "healthz",
            Self::Logs(_) => "containerLogs",
            Self::Metrics => "metrics",
            Self::Pods => "pods",
            Self::PortForward(_) => "portForward",
            Self::RunningPods => "runningpods",
            Self::StatsSummary => "stats",
            Self::Trace => "trace",
        }
    }

    fn of(segments: &[&str]) -> Option<Self> {
        Some(match segments {
            ["healthz"] => Self::Health,
            ["metrics"] => Self::Metrics,
            ["pods"] => Self::Pods,
            ["runningpods"] => Self::RunningPods,
            ["stats", "summary"] => Self::StatsSummary,
            ["waybill", "v1", "trace"] => Self::Trace,
            ["waybill", "v1", "environment", rest @ ..] => Self::Environment(container(rest)?),
            ["attach", rest @ ..] => Self::Attach(container(rest)?),
            ["containerLogs", rest @ ..] if rest.len() == 3 => Self::Logs(container(rest)?),
            ["exec", rest @ ..] => Self::Exec(container(rest)?),
            ["portForward", namespace, name] => Self::PortForward(pod(namespace, name, None)),
            ["portForward", namespace, name, uid] => {
                Self::PortForward(pod(namespace, name, Some(uid)))
            }
            _ => return None,
        })
    }

    fn methods(&self) -> &'static [Method] {
        match self {
            Self::Attach(_) | Self::Exec(_) | Self::PortForward(_) => &[Method::GET, Method::POST],
            Self::Environment(_)
            | Self::Health
            | Self::Logs(_)
            | Self::Metrics
            | Self::Pods
            | Self::RunningPods
            | Self::StatsSummary
            | Self::Trace => &[Method::GET],
        }
    }
}

/// A pod, as paths name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodPath {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: Option<String>,
}

/// A container, as paths name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerPath {
    pub(super) pod: PodPath,
    pub(super) container: String,
}

/// Why there is no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteError {
    Method,
    NoSuchPath,
}

/// What the sender of a request must be allowed to do: the verb on one of these parts of the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attributes {
    pub(super) verb: &'static str,
    /// Any of them will do; the narrower one is asked first.
    pub(super) subresources: &'static [&'static str],
}

impl Attributes {
    /// As kubelets map requests, those with fine-grained authorization included.
    pub(super) fn of(method: &Method, path: &str) -> Option<Self> {
        let verb = match method.as_str() {
            "POST" => "create",
            "GET" | "HEAD" => "get",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ => return None,
        };
        // Decoded as routes are, so that no spelling of a path needs other rights than it gets.
        let segments = segments(path).unwrap_or_default();
        let segments: Vec<_> = segments.iter().map(String::as_str).collect();
        let subresources: &[_] = match segments.first().copied().unwrap_or_default() {
            "waybill" if matches!(segments.as_slice(), [_, "v1", "trace", ..]) => &["trace"],
            "stats" => &["stats"],
            "metrics" => &["metrics"],
            "logs" => &["log"],
            "pods" | "runningpods" => &["pods", "proxy"],
            "healthz" => &["healthz", "proxy"],
            "configz" => &["configz", "proxy"],
            _ => &["proxy"],
        };
        Some(Self { verb, subresources })
    }
}

/// Decoded one by one, so that nothing in a name can add a segment. One slash at the end is fine.
fn segments(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix('/')?;
    let path = path.strip_suffix('/').unwrap_or(path);
    path.split('/')
        .map(|segment| {
            let decoded = percent_decode_str(segment).decode_utf8().ok()?;
            (!decoded.is_empty()).then(|| decoded.into_owned())
        })
        .collect()
}

fn container(segments: &[&str]) -> Option<ContainerPath> {
    let (pod, container) = match segments {
        [namespace, name, container] => (pod(namespace, name, None), container),
        [namespace, name, uid, container] => (pod(namespace, name, Some(uid)), container),
        _ => return None,
    };
    Some(ContainerPath { pod, container: (*container).to_owned() })
}

fn pod(namespace: &str, name: &str, uid: Option<&str>) -> PodPath {
    PodPath { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(method: &Method, path: &str) -> Result<Route, RouteError> {
        Route::find(method, path)
    }

    fn main_of_web(uid: Option<&str>) -> ContainerPath {
        ContainerPath { pod: pod("default", "web", uid), container: "main".to_owned() }
    }

    /// EXEC-37: with and without uid, GET and POST.
    #[test]
    fn streams_are_found_with_and_without_uid_exec_37() {
        for method in [Method::GET, Method::POST] {
            let find = |path| find(&method, path).unwrap();
            assert_eq!(find("/exec/default/web/main"), Route::Exec(main_of_web(None)));
            assert_eq!(find("/exec/default/web/u-1/main"), Route::Exec(main_of_web(Some("u-1"))));
            assert_eq!(find("/attach/default/web/main"), Route::Attach(main_of_web(None)));
            let forward = Route::PortForward(pod("default", "web", None));
            assert_eq!(find("/portForward/default/web"), forward);
            let forward = Route::PortForward(pod("default", "web", Some("u-1")));
            assert_eq!(find("/portForward/default/web/u-1"), forward);
        }
    }

    #[test]
    fn everything_else_is_read_only() {
        let logs = Route::Logs(main_of_web(None));
        let environment = Route::Environment(main_of_web(None));
        for (path, route) in [
            ("/containerLogs/default/web/main", logs),
            ("/waybill/v1/environment/default/web/main", environment),
            ("/healthz", Route::Health),
            ("/metrics", Route::Metrics),
            ("/pods", Route::Pods),
            ("/pods/", Route::Pods),
            ("/runningpods/", Route::RunningPods),
            ("/stats/summary", Route::StatsSummary),
            ("/waybill/v1/trace", Route::Trace),
        ] {
            assert_eq!(find(&Method::GET, path), Ok(route), "{path}");
            assert_eq!(find(&Method::POST, path), Err(RouteError::Method), "{path}");
        }
    }

    #[test]
    fn names_are_decoded_once_and_stay_in_their_segment() {
        let Ok(Route::Exec(path)) = find(&Method::GET, "/exec/a%2Fb/c%3Fd/x%2541") else {
            panic!("no route");
        };
        assert_eq!((path.pod.namespace.as_str(), path.pod.name.as_str()), ("a/b", "c?d"));
        assert_eq!(path.container, "x%41");
    }

    #[test]
    fn other_paths_are_not_there() {
        for path in [
            "",
            "/",
            "//",
            "/exec",
            "/exec/a/b",
            "/exec/a//b",
            "/exec/a/b/c/d/e",
            "/exec/a/b/%ff",
            "/pods/x",
            "/portForward/a",
            "/containerLogs/a/b",
            "/containerLogs/a/b/u/c",
            "/run/a/b/c",
        ] {
            assert_eq!(find(&Method::GET, path), Err(RouteError::NoSuchPath), "{path}");
        }
    }

    #[test]
    fn requests_need_the_rights_that_a_kubelet_asks_for() {
        #[track_caller]
        fn check(method: &Method, path: &str, verb: &str, subresources: &[&str]) {
            let found = Attributes::of(method, path).unwrap();
            assert_eq!((found.verb, found.subresources), (verb, subresources), "{path}");
        }
        check(&Method::GET, "/exec/a/b/c", "get", &["proxy"]);
        check(&Method::POST, "/exec/a/b/c", "create", &["proxy"]);
        check(&Method::POST, "/portForward/a/b", "create", &["proxy"]);
        check(&Method::GET, "/containerLogs/a/b/c", "get", &["proxy"]);
        check(&Method::GET, "/logs/syslog", "get", &["log"]);
        check(&Method::GET, "/metrics", "get", &["metrics"]);
        check(&Method::GET, "/metrics/cadvisor", "get", &["metrics"]);
        check(&Method::GET, "/stats/summary", "get", &["stats"]);
        check(&Method::GET, "/pods", "get", &["pods", "proxy"]);
        check(&Method::GET, "/runningpods/", "get", &["pods", "proxy"]);
        check(&Method::GET, "/healthz", "get", &["healthz", "proxy"]);
        check(&Method::GET, "/healthzandmore", "get", &["proxy"]);
        check(&Method::GET, "/waybill/v1/environment/a/b/c", "get", &["proxy"]);
        check(&Method::GET, "/waybill/v1/trace", "get", &["trace"]);
        check(&Method::GET, "/waybill/v1/%74race/", "get", &["trace"]);
        check(&Method::DELETE, "/pods", "delete", &["pods", "proxy"]);
        check(&Method::GET, "/%6detrics", "get", &["metrics"]);
        check(&Method::GET, "//metrics", "get", &["proxy"]);
        let odd = Method::from_bytes(b"BREW").unwrap();
        assert_eq!(Attributes::of(&odd, "/pods"), None);
    }

    proptest! {
        #[test]
        fn no_path_panics(path in ".*") {
            let _ = find(&Method::GET, &path);
            let _ = Attributes::of(&Method::GET, &path);
        }

        #[test]
        fn what_is_authorized_as_one_thing_is_not_served_as_another(
            first in "(exec|attach|stats|metrics|pods|healthz|waybill|waybill/v1/trace|waybill/v1/%74race|%70ods|%6detrics|)",
            rest in "(/[a-z%0-9]{0,5}){0,4}",
        ) {
            let path = format!("/{first}{rest}");
            if let Ok(route) = find(&Method::GET, &path) {
                let narrow = match route {
                    Route::Metrics => Some("metrics"),
                    Route::StatsSummary => Some("stats"),
                    Route::Trace => Some("trace"),
                    _ => None,
                };
                let asked = Attributes::of(&Method::GET, &path).unwrap().subresources;
                if let Some(narrow) = narrow {
                    prop_assert_eq!(asked, [narrow], "{}", path);
                } else {
                    prop_assert!(asked.contains(&"proxy"), "{path}: {asked:?}");
                }
            }
        }
    }
}
