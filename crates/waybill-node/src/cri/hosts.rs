//! The hosts file of a pod.

use std::fmt::Write as _;

use super::sandbox;
use crate::pod::Pod;

/// The content of a pod's own hosts file. `machine` is the machine's, which a pod on the machine's
/// network begins with. `None` if the runtime's is as good.
pub(crate) fn content(pod: &Pod, ips: &[String], machine: &str) -> Option<String> {
    let aliases = pod.spec().host_aliases.as_deref().unwrap_or_default();
    let mut text = String::new();
    if pod.spec().host_network == Some(true) {
        if aliases.is_empty() {
            return None;
        }
        text.push_str("# Kubernetes-managed hosts file (host network).\n");
        text.push_str(machine);
    } else {
        text.push_str(
            "# Kubernetes-managed hosts file.\n\
             127.0.0.1\tlocalhost\n\
             ::1\tlocalhost ip6-localhost ip6-loopback\n\
             fe00::0\tip6-localnet\n\
             fe00::0\tip6-mcastprefix\n\
             fe00::1\tip6-allnodes\n\
             fe00::2\tip6-allrouters\n",
        );
        let names = match sandbox::fqdn(pod) {
            Some(name) => format!("{name}\t{}", sandbox::hostname(pod)),
            None => sandbox::hostname(pod),
        };
        // A pod without a network of its own still finds itself.
        let loopback = ["127.0.0.1".to_owned()];
        for ip in if ips.is_empty() { &loopback[..] } else { ips } {
            let _ = writeln!(text, "{ip}\t{names}");
        }
    }
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        let _ = writeln!(text, "{}\t{names}", alias.ip);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::testing::pod;

    #[test]
    fn a_pod_finds_itself_and_its_aliases() {
        let pod = pod(json!({
            "subdomain": "sub",
            "hostAliases": [{ "ip": "10.1.1.1", "hostnames": ["x", "y"] }],
        }));
        let text = content(&pod, &["10.0.0.9".to_owned()], "").unwrap();
        assert!(text.contains("\n10.0.0.9\tp.sub.ns.svc.cluster.local\tp\n"), "{text}");
        assert!(text.ends_with("\n# Entries added by HostAliases.\n10.1.1.1\tx\ty\n"), "{text}");
    }

    #[test]
    fn a_pod_that_is_called_otherwise_has_that_name_alone() {
        let pod = pod(json!({ "subdomain": "sub", "hostnameOverride": "other" }));
        let text = content(&pod, &[], "").unwrap();
        assert!(text.ends_with("\n127.0.0.1\tother\n"), "{text}");
    }

    #[test]
    fn a_pod_without_a_network_is_its_own_loopback() {
        let text = content(&pod(json!({})), &[], "").unwrap();
        assert!(text.ends_with("\n127.0.0.1\tp\n"), "{text}");
    }

    #[test]
    fn on_the_machines_network_the_machines_names_hold() {
        assert_eq!(content(&pod(json!({ "hostNetwork": true })), &[], "m\n"), None);
        let aliases = json!([{ "ip": "10.1.1.1", "hostnames": ["x"] }]);
        let pod = pod(json!({ "hostNetwork": true, "hostAliases": aliases }));
        let text = content(&pod, &[], "1.1.1.1\tm\n").unwrap();
        assert!(text.contains("\n1.1.1.1\tm\n") && text.ends_with("10.1.1.1\tx\n"), "{text}");
    }
}
