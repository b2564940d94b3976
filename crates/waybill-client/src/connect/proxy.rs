//! Which proxy stands between us and a server.
//!
//! As in client-go: that of the kubeconfig always; that of the environment unless `NO_PROXY` names the server, and never
//! for this machine itself. `kube` would compare `NO_PROXY` with the proxy rather than with the server.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::Kubeconfig;

/// The `proxy-url` of the chosen cluster.
pub(super) fn written(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = context.or(kubeconfig.current_context.as_deref());
    let named = kubeconfig.contexts.iter().find(|named| Some(named.name.as_str()) == context)?;
    let cluster = &named.context.as_ref()?.cluster;
    let named = kubeconfig.clusters.iter().find(|named| named.name == *cluster)?;
    named.cluster.as_ref()?.proxy_url.clone().filter(|url| !url.is_empty())
}

/// That of the environment for this server.
#[expect(clippy::disallowed_methods, reason = "every client follows these variables")]
pub(super) fn of_environment(server: &Uri) -> Option<Uri> {
    find(server, |name| std::env::var(name).ok())
}

fn find(server: &Uri, variable: impl Fn(&str) -> Option<String>) -> Option<Uri> {
    let first = |names: [&str; 2]| {
        names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()))
    };
    let host = server.host()?.trim_start_matches('[').trim_end_matches(']');
    if host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()) {
        return None;
    }
    let proxy = match server.scheme_str() {
        Some("https") => first(["HTTPS_PROXY", "https_proxy"])?,
        _ => first(["HTTP_PROXY", "http_proxy"])?,
    };
    let exceptions = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let rules = Matcher::builder().all(proxy.as_str()).no(exceptions.as_str()).build();
    rules.intercept(server)?;
    let with_scheme = if proxy.contains("://") { proxy } else { format!("http://{proxy}") };
    with_scheme.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(server: &str, variables: &[(&str, &str)], expected: Option<&str>) {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let found = find(&server.parse().unwrap(), variable);
        assert_eq!(found, expected.map(|uri| uri.parse().unwrap()), "{server} {variables:?}");
    }

    #[test]
    fn the_environment_names_a_proxy_as_it_does_for_kubectl() {
        let https = ("HTTPS_PROXY", "http://proxy:3128");
        check("https://api.example.com:6443", &[https], Some("http://proxy:3128"));
        check("https://api.example.com", &[("https_proxy", "proxy:1")], Some("http://proxy:1"));
        check("http://api.example.com", &[https], None);
        check("http://api.example.com", &[("http_proxy", "http://p:1")], Some("http://p:1"));
        check("https://api.example.com", &[("HTTPS_PROXY", "")], None);
        let user = ("HTTPS_PROXY", "http://me:pw@proxy:1");
        check("https://api.example.com", &[user], Some("http://me:pw@proxy:1"));
    }

    #[test]
    fn exceptions_and_this_machine_are_asked_straight() {
        let https = ("HTTPS_PROXY", "http://proxy:3128");
        for server in ["https://127.0.0.1:6443", "https://localhost:1", "https://[::1]:6443"] {
            check(server, &[https], None);
        }
        check("https://api.example.com", &[https, ("NO_PROXY", ".example.com")], None);
        check("https://10.1.2.3", &[https, ("no_proxy", "10.0.0.0/8")], None);
        check("https://10.1.2.3", &[https, ("NO_PROXY", "proxy")], Some("http://proxy:3128"));
        check("https://api.example.com", &[https, ("NO_PROXY", "*")], None);
    }
}
