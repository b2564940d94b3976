//! Which kernel settings a pod may ask for, as kubelets decide it: safe ones, and those that the node was told to allow.

use k8s_openapi::api::core::v1::{PodSecurityContext, PodSpec};

/// Settings that a pod may change without touching others: they belong to a namespace, and what they allow to use is counted.
/// The list of `pkg/kubelet/sysctl/safe_sysctls.go`.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// What a pod is told that asks for another.
pub(crate) const FORBIDDEN: &str = "SysctlForbidden";

/// The settings that pods of this node may ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysctlPolicy {
    /// Names, and beginnings of names that end with `*`.
    unsafe_ones: Vec<String>,
}

impl SysctlPolicy {
    /// Allows `unsafe_ones` besides the safe ones: names, and beginnings of names that end with `*`. What belongs to no namespace of
    /// a pod cannot be allowed.
    pub fn allowing(unsafe_ones: &[String]) -> Result<Self, String> {
        let unsafe_ones: Vec<String> =
            unsafe_ones.iter().map(|pattern| pattern.replace('/', ".")).collect();
        match unsafe_ones.iter().find(|pattern| Namespace::of(pattern).is_none()) {
            Some(pattern) => Err(format!("the sysctls {pattern:?} are not known to be namespaced")),
            None => Ok(Self { unsafe_ones }),
        }
    }

    /// Why the pod must not run, if it must not.
    pub(super) fn refusal(&self, spec: &PodSpec) -> Option<String> {
        let context: Option<&PodSecurityContext> = spec.security_context.as_ref();
        let wanted = context.and_then(|context| context.sysctls.as_ref()).into_iter().flatten();
        wanted
            .map(|sysctl| sysctl.name.replace('/', "."))
            .find_map(|name| self.refused(&name, spec))
            .map(|reason| format!("forbidden sysctl: {reason}"))
    }

    fn refused(&self, name: &str, spec: &PodSpec) -> Option<String> {
        let allows = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == pattern,
        };
        if !SAFE.contains(&name) && !self.unsafe_ones.iter().any(allows) {
            return Some(format!("{name:?} not allowlisted"));
        }
        let shared = match Namespace::of(name)? {
            Namespace::Ipc => spec.host_ipc.unwrap_or(false).then_some("IPC"),
            Namespace::Network => spec.host_network.unwrap_or(false).then_some("Net"),
        };
        shared.map(|namespace| format!("{name:?} not allowed with host {namespace} enabled"))
    }
}

/// Whose a setting is.
enum Namespace {
    Ipc,
    Network,
}

impl Namespace {
    fn of(pattern: &str) -> Option<Self> {
        let begins = |beginning: &str| pattern.starts_with(beginning);
        if pattern == "kernel.sem"
            || ["kernel.shm", "kernel.msg", "fs.mqueue."].into_iter().any(begins)
        {
            Some(Self::Ipc)
        } else {
            begins("net.").then_some(Self::Network)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(name: &str, host: &str, expected: Option<&str>) {
        let allowed = vec!["kernel.msg*".to_owned(), "net/core/somaxconn".to_owned()];
        let mut spec = json!({
            "containers": [{ "name": "a", "image": "i" }],
            "securityContext": { "sysctls": [{ "name": name, "value": "1" }] },
        });
        if !host.is_empty() {
            spec[host] = json!(true);
        }
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let refusal = SysctlPolicy::allowing(&allowed).unwrap().refusal(&spec);
        let expected = expected.map(|reason| format!("forbidden sysctl: {reason}"));
        assert_eq!(refusal, expected, "{name} {host}");
    }

    #[test]
    fn safe_settings_and_those_that_are_allowed_may_be_asked_for() {
        check("net.ipv4.tcp_syncookies", "", None);
        check("net/ipv4/tcp_syncookies", "", None);
        check("kernel.shm_rmid_forced", "", None);
        check("kernel.msgmax", "", None);
        check("net.core.somaxconn", "", None);
    }

    /// Unsafe ones were accepted, whatever the node was told.
    #[test]
    fn others_are_forbidden() {
        let not = |name: &str| format!("{name:?} not allowlisted");
        for name in ["net.ipv4.ip_forward", "kernel.shmmax", "vm.swappiness", "net.core.somaxconn2"]
        {
            check(name, "", Some(&not(name)));
        }
    }

    #[test]
    fn settings_of_the_machine_stay_as_they_are() {
        let shared =
            |name: &str, namespace| format!("{name:?} not allowed with host {namespace} enabled");
        check(
            "net.ipv4.tcp_syncookies",
            "hostNetwork",
            Some(&shared("net.ipv4.tcp_syncookies", "Net")),
        );
        check("kernel.msgmax", "hostIPC", Some(&shared("kernel.msgmax", "IPC")));
        check("kernel.msgmax", "hostNetwork", None);
    }

    #[test]
    fn what_belongs_to_no_pod_cannot_be_allowed() {
        for bad in ["*", "vm.*", "kernel.*", "kernel.hostname"] {
            assert!(SysctlPolicy::allowing(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
