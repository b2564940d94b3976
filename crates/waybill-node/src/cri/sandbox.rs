//! What a pod's sandbox shall be, in CRI's terms.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerPort, PodSecurityContext};
use waybill_core::id::PodUid;
use waybill_proto::cri::{
    DnsConfig, Int64Value, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceMode,
    NamespaceOption, PodSandboxConfig, PodSandboxMetadata, PortMapping, Protocol, SecurityProfile,
    SupplementalGroupsPolicy, UserNamespace, security_profile::ProfileType,
};

use super::{dns, labels, resources::Qos, security};
use crate::{
    directories::Directories,
    pod::{ContainerRef, Pod, PodOrigin},
};

/// The longest name that a kernel calls a machine by in DNS.
const HOSTNAME_BYTES: usize = 63;
/// The domain of pods; nobody serves it, and names below it are only written into hosts files.
const CLUSTER_DOMAIN: &str = "cluster.local";
/// kubectl keeps the whole manifest here, values of variables included.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What all pods of a node share.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) node: String,
    pub(crate) directories: Directories,
    /// Above the cgroups of all pods, such as `/waybill`.
    pub(crate) cgroup_root: String,
    /// Bytes of memory.
    pub(crate) memory: i64,
}

/// Why a pod cannot be put in CRI's terms, as users read it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(pub(crate) String);

/// The sandbox of `pod`; `machine_dns` is the machine's own resolver configuration, `users` what the pod has instead of the machine's
/// users.
pub(crate) fn config(
    pod: &Pod,
    attempt: u32,
    machine: &Machine,
    machine_dns: &DnsConfig,
    users: Option<UserNamespace>,
) -> PodSandboxConfig {
    let spec = pod.spec();
    let host_network = spec.host_network == Some(true);
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: pod.name().to_owned(),
            uid: pod.uid().to_string(),
            namespace: pod.namespace().to_owned(),
            attempt,
        }),
        hostname: if host_network { String::new() } else { hostname(pod) },
        log_directory: machine
            .directories
            .pod_logs(pod.namespace(), pod.name(), pod.uid())
            .display()
            .to_string(),
        dns_config: Some(dns::config(pod, machine_dns)),
        port_mappings: spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .flat_map(|container| container.ports.iter().flatten())
            .map(port_mapping)
            .collect(),
        labels: pod_labels(pod),
        annotations: annotations(pod, machine),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: cgroup_parent(&machine.cgroup_root, Qos::of(pod), pod.uid()),
            security_context: Some(security_context(pod, users)),
            sysctls: sysctls(spec.security_context.as_ref()),
            ..LinuxPodSandboxConfig::default()
        }),
        windows: None,
    }
}

/// What the pod calls itself.
pub(crate) fn hostname(pod: &Pod) -> String {
    let spec = pod.spec();
    if let Some(name) = hostname_override(pod) {
        return name.to_owned();
    }
    let short = short_hostname(pod);
    match fqdn(pod) {
        Some(name) if spec.set_hostname_as_fqdn == Some(true) => name,
        _ => short,
    }
}

fn hostname_override(pod: &Pod) -> Option<&str> {
    pod.spec().hostname_override.as_deref().filter(|name| !name.is_empty())
}

fn short_hostname(pod: &Pod) -> String {
    let asked = pod.spec().hostname.as_deref().filter(|name| !name.is_empty());
    let name = asked.unwrap_or(pod.name());
    let cut = name.get(..HOSTNAME_BYTES).unwrap_or(name);
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// The pod's name in the domain of its subdomain, if it has one. A pod that is called otherwise has no other name.
pub(crate) fn fqdn(pod: &Pod) -> Option<String> {
    if hostname_override(pod).is_some() {
        return None;
    }
    let subdomain = pod.spec().subdomain.as_deref().filter(|name| !name.is_empty())?;
    let (host, namespace) = (short_hostname(pod), pod.namespace());
    Some(format!("{host}.{subdomain}.{namespace}.svc.{CLUSTER_DOMAIN}"))
}

/// The cgroup of a pod. The runtime makes it, with those above.
pub(crate) fn cgroup_parent(root: &str, qos: Qos, uid: &PodUid) -> String {
    let root = root.trim_end_matches('/');
    match qos {
        Qos::Guaranteed => format!("{root}/pod{uid}"),
        Qos::Burstable => format!("{root}/burstable/pod{uid}"),
        Qos::BestEffort => format!("{root}/besteffort/pod{uid}"),
    }
}

/// What the pod of a sandbox has instead of the machine's users.
pub(super) fn users(sandbox: &PodSandboxConfig) -> Option<&UserNamespace> {
    let context = sandbox.linux.as_ref()?.security_context.as_ref()?;
    context.namespace_options.as_ref()?.userns_options.as_ref()
}

/// The namespaces of the pod, and those of one of its containers, but for users.
pub(super) fn namespaces(pod: &Pod) -> NamespaceOption {
    let spec = pod.spec();
    let node_or = |host: Option<bool>, other| {
        if host == Some(true) { NamespaceMode::Node } else { other }
    };
    let own_pid = match spec.share_process_namespace {
        Some(true) => NamespaceMode::Pod,
        _ => NamespaceMode::Container,
    };
    NamespaceOption {
        network: node_or(spec.host_network, NamespaceMode::Pod).into(),
        pid: node_or(spec.host_pid, own_pid).into(),
        ipc: node_or(spec.host_ipc, NamespaceMode::Pod).into(),
        ..NamespaceOption::default()
    }
}

/// By which the sandbox and its containers are found again.
pub(super) fn pod_labels(pod: &Pod) -> BTreeMap<String, String> {
    let mut all = pod.object().metadata.labels.clone().unwrap_or_default();
    for (name, value) in [
        (labels::POD_NAME, pod.name()),
        (labels::POD_NAMESPACE, pod.namespace()),
        (labels::POD_UID, pod.uid().as_str()),
    ] {
        all.insert(name.to_owned(), value.to_owned());
    }
    all
}

fn annotations(pod: &Pod, machine: &Machine) -> BTreeMap<String, String> {
    let mut all = pod.object().metadata.annotations.clone().unwrap_or_default();
    all.remove(LAST_APPLIED);
    let source = match pod.origin() {
        PodOrigin::ApiServer => "api",
        PodOrigin::File => "file",
    };
    all.insert(labels::SOURCE.to_owned(), source.to_owned());
    all.insert(labels::NODE.to_owned(), machine.node.clone());
    all.insert(labels::GRACE.to_owned(), pod.grace().to_string());
    all
}

fn port_mapping(port: &ContainerPort) -> PortMapping {
    let protocol = match port.protocol.as_deref() {
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        _ => Protocol::Tcp,
    };
    PortMapping {
        protocol: protocol.into(),
        container_port: port.container_port,
        host_port: port.host_port.unwrap_or_default(),
        host_ip: port.host_ip.clone().unwrap_or_default(),
    }
}

fn security_context(pod: &Pod, users: Option<UserNamespace>) -> LinuxSandboxSecurityContext {
    let context = pod.spec().security_context.clone().unwrap_or_default();
    let run_as_user = context.run_as_user.map(|value| Int64Value { value });
    LinuxSandboxSecurityContext {
        namespace_options: Some(NamespaceOption { userns_options: users, ..namespaces(pod) }),
        selinux_options: context.se_linux_options.as_ref().map(security::selinux),
        run_as_group: context
            .run_as_group
            .filter(|_| run_as_user.is_some())
            .map(|value| Int64Value { value }),
        run_as_user,
        supplemental_groups: supplemental_groups(&context),
        supplemental_groups_policy: groups_policy(&context).into(),
        privileged: pod.containers().any(|container| is_privileged(&container)),
        seccomp: Some(SecurityProfile {
            profile_type: ProfileType::RuntimeDefault.into(),
            localhost_ref: String::new(),
        }),
        ..LinuxSandboxSecurityContext::default()
    }
}

fn is_privileged(container: &ContainerRef<'_>) -> bool {
    container.security_context().and_then(|context| context.privileged) == Some(true)
}

/// The group of the volumes is one of the processes' groups.
pub(super) fn supplemental_groups(context: &PodSecurityContext) -> Vec<i64> {
    let asked = context.supplemental_groups.iter().flatten().copied();
    context.fs_group.into_iter().chain(asked).collect()
}

pub(super) fn groups_policy(context: &PodSecurityContext) -> SupplementalGroupsPolicy {
    match context.supplemental_groups_policy.as_deref() {
        Some("Strict") => SupplementalGroupsPolicy::Strict,
        _ => SupplementalGroupsPolicy::Merge,
    }
}

fn sysctls(context: Option<&PodSecurityContext>) -> BTreeMap<String, String> {
    let all = context.and_then(|context| context.sysctls.as_ref()).into_iter().flatten();
    // Both spellings mean the same file.
    all.map(|sysctl| (sysctl.name.replace('/', "."), sysctl.value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::testing::pod;

    fn machine() -> Machine {
        Machine {
            node: "n".to_owned(),
            directories: Directories { state: "/s".into(), logs: "/l".into() },
            cgroup_root: "/waybill".to_owned(),
            memory: 1 << 30,
        }
    }

    fn of(spec: Value) -> PodSandboxConfig {
        config(&pod(spec), 2, &machine(), &DnsConfig::default(), None)
    }

    fn modes(spec: Value) -> [NamespaceMode; 3] {
        let context = of(spec).linux.unwrap().security_context.unwrap();
        let options = context.namespace_options.unwrap();
        [options.network(), options.pid(), options.ipc()]
    }

    #[test]
    fn a_sandbox_is_found_by_its_pod() {
        let config = of(json!({}));
        let metadata = config.metadata.unwrap();
        assert_eq!((metadata.name.as_str(), metadata.attempt), ("p", 2));
        assert_eq!(config.labels[labels::POD_UID], "uid-1");
        assert_eq!(config.annotations[labels::NODE], "n");
        assert_eq!(config.log_directory, "/l/ns_p_uid-1");
    }

    /// The manifest that kubectl keeps in an annotation holds values of variables; runtimes write
    /// annotations to disk.
    #[test]
    fn the_last_applied_manifest_does_not_reach_the_runtime() {
        let metadata = json!({
            "name": "p", "namespace": "ns", "uid": "uid-1",
            "annotations": { LAST_APPLIED: "hunter2", "kept": "yes" },
        });
        let spec = json!({ "containers": [{ "name": "a", "image": "i" }] });
        let object = json!({ "metadata": metadata, "spec": spec });
        let pod = Pod::from_value(object, PodOrigin::ApiServer).unwrap();
        let config = config(&pod, 0, &machine(), &DnsConfig::default(), None);
        assert_eq!(config.annotations["kept"], "yes");
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn namespaces_are_the_pods_own_unless_it_asks_for_the_machines() {
        use NamespaceMode::{Container, Node, Pod};
        assert_eq!(modes(json!({})), [Pod, Container, Pod]);
        assert_eq!(modes(json!({ "shareProcessNamespace": true })), [Pod, Pod, Pod]);
        let machines = json!({ "hostNetwork": true, "hostPID": true, "hostIPC": true });
        assert_eq!(modes(machines), [Node, Node, Node]);
    }

    #[test]
    fn the_name_of_the_pod_is_that_of_its_machine_unless_it_says_otherwise() {
        assert_eq!(of(json!({})).hostname, "p");
        assert_eq!(of(json!({ "hostname": "h" })).hostname, "h");
        assert_eq!(of(json!({ "hostNetwork": true })).hostname, "");
        let full = json!({ "hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true });
        assert_eq!(of(full).hostname, "h.s.ns.svc.cluster.local");
        let other = json!({ "hostname": "h", "subdomain": "s", "hostnameOverride": "a.example" });
        assert_eq!(of(other).hostname, "a.example");
        let long = format!("{}-{}", "a".repeat(62), "b".repeat(20));
        assert_eq!(of(json!({ "hostname": long })).hostname, "a".repeat(62));
    }

    #[test]
    fn cgroups_stand_below_the_class_of_their_pods() {
        let parent = |spec| of(spec).linux.unwrap().cgroup_parent;
        assert_eq!(parent(json!({})), "/waybill/besteffort/poduid-1");
        let with = |resources: Value| json!({ "containers": [{ "name": "a", "image": "i", "resources": &resources }] });
        let some = with(json!({ "requests": { "cpu": "1" } }));
        assert_eq!(parent(some), "/waybill/burstable/poduid-1");
        let all = with(json!({ "limits": { "cpu": "1", "memory": "1Mi" } }));
        assert_eq!(parent(all), "/waybill/poduid-1");
    }

    #[test]
    fn a_pod_has_the_users_that_it_was_given() {
        assert_eq!(users(&of(json!({}))), None);
        let given = UserNamespace::default();
        let own = pod(json!({ "hostUsers": false }));
        let config = config(&own, 0, &machine(), &DnsConfig::default(), Some(given.clone()));
        assert_eq!(users(&config), Some(&given));
    }
}
