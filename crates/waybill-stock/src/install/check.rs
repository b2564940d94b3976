//! What a cluster lacks, before anything is written to it.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::Node,
};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde_json::Value;
use waybill_client::Resources;

use super::{InstallError, InstallOptions, is_optional, manifests, named};
use crate::agent::setup::{NodeRuntime, RuntimeKind};

/// The oldest Kubernetes whose tokens say on which node they are used, and whose policies are stable.
const KUBERNETES: (u64, u64) = (1, 30);

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether it stands in the way.
    pub is_fault: bool,
    /// What was found.
    pub text: String,
}

impl Finding {
    fn good(text: impl Into<String>) -> Self {
        Self { is_fault: false, text: text.into() }
    }

    fn fault(text: impl Into<String>) -> Self {
        Self { is_fault: true, text: text.into() }
    }
}

/// Looks at versions, kinds, rights and nodes. Nothing is written.
pub async fn check(
    client: &Client,
    options: &InstallOptions,
) -> Result<Vec<Finding>, InstallError> {
    let [first, last] = manifests(options)?;
    let objects: Vec<_> = first.iter().chain(&last).collect();
    let mut findings = Vec::new();
    match client.apiserver_version().await {
        Ok(version) => findings.push(server(&version.major, &version.minor)),
        Err(error) => {
            findings.push(Finding::fault(format!("the API server does not answer: {error}")));
        }
    }
    let resources = Resources::fetch(client).await?;
    findings.extend(kinds(&objects, &resources));
    findings.extend(rights(client, &objects, &resources).await);
    let nodes: Api<Node> = Api::all(client.clone());
    match nodes.list(&ListParams::default()).await {
        Ok(list) => findings.extend(list.items.iter().map(node)),
        Err(error) => findings.push(Finding::fault(format!("nodes cannot be listed: {error}"))),
    }
    Ok(findings)
}

fn server(major: &str, minor: &str) -> Finding {
    let number = |text: &str| {
        text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
    };
    let version: (u64, u64) = (number(major), number(minor));
    match version >= KUBERNETES {
        true => Finding::good(format!("Kubernetes {major}.{minor}")),
        false => Finding::fault(format!(
            "Kubernetes {major}.{minor} is too old: {}.{} or later is needed",
            KUBERNETES.0, KUBERNETES.1
        )),
    }
}

/// Kinds that the cluster does not serve. Those that a CRD of ours brings need not be there yet.
fn kinds(objects: &[&Value], resources: &Resources) -> Vec<Finding> {
    let wanted: BTreeSet<_> = objects.iter().map(|it| (named(it).0, named(it).1)).collect();
    let missing =
        wanted.into_iter().filter(|(version, kind)| resources.of_kind(version, kind).is_none());
    let told = |(version, kind): (&str, &str)| match is_optional(kind) {
        true => Finding::good(format!(
            "no kind {kind} in {version}: pods of labelled namespaces need the gate to start"
        )),
        false => Finding::fault(format!("there is no kind {kind} in {version}")),
    };
    missing.map(told).collect()
}

/// Whether whoever asks may apply every kind.
async fn rights(client: &Client, objects: &[&Value], resources: &Resources) -> Vec<Finding> {
    let mut asked = BTreeSet::new();
    for object in objects {
        let (version, kind, _, namespace) = named(object);
        if let Some(resource) = resources.of_kind(version, kind) {
            asked.insert((resource.group.clone(), resource.plural.clone(), namespace));
        }
    }
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut findings = Vec::new();
    for (group, plural, namespace) in asked {
        for verb in ["create", "patch"] {
            let attributes = ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group.clone()),
                resource: Some(plural.clone()),
                namespace: namespace.map(str::to_owned),
                ..ResourceAttributes::default()
            };
            let spec = SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            };
            let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
            let answer = api.create(&PostParams::default(), &review).await;
            if !answer.is_ok_and(|answer| answer.status.is_some_and(|it| it.allowed)) {
                findings.push(Finding::fault(format!("you may not {verb} {plural} {group}")));
            }
        }
    }
    if findings.is_empty() {
        findings.push(Finding::good("you may apply everything"));
    }
    findings
}

/// Whether the runtime of a node can have a handler.
fn node(node: &Node) -> Finding {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let Some(info) = info else {
        return Finding::fault(format!("node {name} does not tell what it runs"));
    };
    let (runtime, kubelet) = (&info.container_runtime_version, &info.kubelet_version);
    if info.operating_system != "linux" {
        return Finding::good(format!("node {name}: {} is left alone", info.operating_system));
    }
    match NodeRuntime::parse(runtime, kubelet) {
        Ok(parsed) if parsed.kind == RuntimeKind::Containerd && parsed.version < (1, 6) => {
            Finding::fault(format!("node {name}: {runtime} is too old"))
        }
        Ok(_) => Finding::good(format!("node {name}: {runtime}, kubelet {kubelet}")),
        Err(error) => Finding::fault(format!("node {name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn old_servers_and_foreign_runtimes_stand_in_the_way() {
        assert!(!server("1", "30").is_fault && !server("1", "37+").is_fault);
        assert!(server("1", "29").is_fault && server("", "").is_fault);
        let told = |runtime: &str, system: &str| {
            let info = json!({"containerRuntimeVersion": runtime, "kubeletVersion": "v1.33.0", "operatingSystem": system,
                "architecture": "", "bootID": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "",
                "osImage": "", "systemUUID": ""});
            let object = json!({"metadata": {"name": "n"}, "status": {"nodeInfo": info}});
            node(&serde_json::from_value(object).unwrap())
        };
        assert!(!told("containerd://1.7.2", "linux").is_fault);
        assert!(!told("cri-o://1.33.0", "linux").is_fault);
        assert!(told("containerd://1.5.0", "linux").is_fault);
        assert!(told("docker://20.10", "linux").is_fault);
        assert!(!told("containerd://1.7.2", "windows").is_fault);
    }
}
