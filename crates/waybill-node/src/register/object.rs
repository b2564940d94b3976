//! The node's object: what does not change while the node runs.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeDaemonEndpoints, NodeFeatures,
        NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeSpec, NodeStatus, NodeSwapStatus,
        NodeSystemInfo,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, json};
use waybill_proto::cri::{Image, RuntimeHandler, StatusResponse};

use super::{Facts, Options, machine::Machine};

/// The version of Kubernetes that the node behaves as, and that it is ours.
const VERSION: &str = "v1.37.0+waybill";

/// What is told of the node whatever happens.
pub(super) struct Description {
    name: String,
    labels: BTreeMap<String, String>,
    status: NodeStatus,
}

impl Description {
    pub(super) fn new(options: &Options, facts: &Facts, machine: &Machine) -> Self {
        let status = NodeStatus {
            addresses: Some(addresses(options)),
            allocatable: Some(facts.allocatable.clone()),
            capacity: Some(facts.capacity.clone()),
            daemon_endpoints: Some(NodeDaemonEndpoints {
                kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(options.port) }),
            }),
            node_info: Some(system_info(facts, machine)),
            ..NodeStatus::default()
        };
        Self { name: options.name.clone(), labels: labels(options), status }
    }

    /// The status, without conditions and images.
    pub(super) fn status(&self) -> NodeStatus {
        self.status.clone()
    }

    /// The object of a node that there was not.
    pub(super) fn node(&self, status: NodeStatus) -> Node {
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(self.labels.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec::default()),
            status: Some(status),
        }
    }

    /// Our labels that `node` does not have. Others are not touched.
    pub(super) fn missing_labels(&self, node: &Node) -> BTreeMap<String, String> {
        let has = |name: &String, value: &String| {
            node.metadata.labels.as_ref().and_then(|labels| labels.get(name)) == Some(value)
        };
        let missing = self.labels.iter().filter(|(name, value)| !has(name, value));
        missing.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// What the runtime can do for pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Abilities {
    pub(super) features: Option<NodeFeatures>,
    pub(super) handlers: Option<Vec<NodeRuntimeHandler>>,
}

impl Abilities {
    pub(super) fn of(runtime: &StatusResponse) -> Self {
        let features = runtime.features.as_ref().map(|features| NodeFeatures {
            supplemental_groups_policy: Some(features.supplemental_groups_policy),
        });
        let handler = |handler: &RuntimeHandler| NodeRuntimeHandler {
            // Without one it is the default.
            name: Some(handler.name.clone()).filter(|name| !name.is_empty()),
            features: handler.features.as_ref().map(|features| NodeRuntimeHandlerFeatures {
                recursive_read_only_mounts: Some(features.recursive_read_only_mounts),
                user_namespaces: Some(features.user_namespaces),
            }),
        };
        let handlers: Vec<_> = runtime.runtime_handlers.iter().map(handler).collect();
        Self { features, handlers: Some(handlers).filter(|handlers| !handlers.is_empty()) }
    }
}

/// The body that brings `status` about, whatever there is.
pub(super) fn patch(status: &NodeStatus) -> Result<Value, serde_json::Error> {
    let mut status = serde_json::to_value(status)?;
    if let Some(Value::Array(addresses)) = status.get_mut("addresses") {
        // They are merged by type otherwise, and there may be two of one type.
        addresses.push(json!({"$patch": "replace"}));
    }
    Ok(json!({"status": status}))
}

/// The largest images, as a status shows them.
pub(super) fn images(mut images: Vec<Image>, most: usize) -> Vec<ContainerImage> {
    images.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    let shown = images.into_iter().filter_map(|image| {
        let mut names = image.repo_digests;
        names.extend(image.repo_tags);
        // As the API server counts names.
        names.truncate(5);
        (!names.is_empty()).then(|| ContainerImage {
            names: Some(names),
            size_bytes: i64::try_from(image.size).ok(),
        })
    });
    shown.take(most).collect()
}

fn addresses(options: &Options) -> Vec<NodeAddress> {
    let address = |kind: &str, address: String| NodeAddress { type_: kind.to_owned(), address };
    vec![
        address("InternalIP", options.address.to_string()),
        address("Hostname", options.name.clone()),
    ]
}

fn labels(options: &Options) -> BTreeMap<String, String> {
    let own = [
        ("beta.kubernetes.io/arch", architecture()),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
        ("kubernetes.io/hostname", &options.name),
        ("kubernetes.io/os", "linux"),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    own.into_iter().chain(options.labels.clone()).collect()
}

fn system_info(facts: &Facts, machine: &Machine) -> NodeSystemInfo {
    NodeSystemInfo {
        architecture: architecture().to_owned(),
        boot_id: machine.boot_id.clone(),
        container_runtime_version: format!("{}://{}", facts.runtime_name, facts.runtime_version),
        kernel_version: machine.kernel.clone(),
        kubelet_version: VERSION.to_owned(),
        machine_id: machine.machine_id.clone(),
        operating_system: "linux".to_owned(),
        os_image: machine.os_image.clone(),
        // API servers refuse a capacity of nothing.
        swap: i64::try_from(machine.swap)
            .ok()
            .filter(|&capacity| capacity > 0)
            .map(|capacity| NodeSwapStatus { capacity: Some(capacity) }),
        system_uuid: machine.system_uuid.clone(),
        ..NodeSystemInfo::default()
    }
}

/// As Go names it, and so images and labels do.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "x86" => "386",
        "x86_64" => "amd64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_images_are_shown_by_all_their_names() {
        let image = |size, tags: &[&str]| Image {
            id: format!("id{size}"),
            size,
            repo_tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            repo_digests: vec![format!("d{size}")].into_iter().filter(|_| size != 3).collect(),
            ..Image::default()
        };
        let shown = images(vec![image(1, &[]), image(3, &[]), image(4, &["a"]), image(2, &[])], 2);
        let names: Vec<_> = shown.iter().map(|image| image.names.clone().unwrap()).collect();
        assert_eq!(names, [vec!["d4", "a"], vec!["d2"]]);
    }

    #[test]
    fn labels_of_others_are_left_alone() {
        let labels = |list: &[(&str, &str)]| -> BTreeMap<String, String> {
            list.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let description = Description {
            name: "n".to_owned(),
            labels: labels(&[("a", "1"), ("b", "2")]),
            status: NodeStatus::default(),
        };
        let mut node = Node::default();
        node.metadata.labels = Some(labels(&[("a", "1"), ("b", "old"), ("theirs", "x")]));
        assert_eq!(description.missing_labels(&node), labels(&[("b", "2")]));
    }

    #[test]
    fn addresses_are_replaced() {
        let address = NodeAddress { type_: "InternalIP".to_owned(), address: "::1".to_owned() };
        let status = NodeStatus { addresses: Some(vec![address]), ..NodeStatus::default() };
        let patch = patch(&status).unwrap();
        assert_eq!(patch["status"]["addresses"][1], json!({"$patch": "replace"}));
    }
}
