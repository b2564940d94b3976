//! Starts of pods and containers, and those that failed, under the names that kubelets use (FILE-39).

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use waybill_api::pod::ContainerKind;

/// The counters. An attempt counts, whatever came of it.
#[derive(Default)]
pub(crate) struct Starts {
    containers: Family<TypeLabel, Counter>,
    container_errors: Family<ErrorLabels, Counter>,
    pods: Counter,
    pod_errors: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabel {
    container_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    container_type: &'static str,
    code: &'static str,
}

impl Starts {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "kubelet_started_containers",
            "Starts of containers",
            self.containers.clone(),
        );
        registry.register(
            "kubelet_started_containers_errors",
            "Starts of containers that failed, by the reason in the container's status",
            self.container_errors.clone(),
        );
        registry.register("kubelet_started_pods", "Starts of sandboxes", self.pods.clone());
        registry.register(
            "kubelet_started_pods_errors",
            "Starts of sandboxes that failed",
            self.pod_errors.clone(),
        );
    }

    /// A container is to be started.
    pub(crate) fn container(&self, kind: ContainerKind) {
        self.containers.get_or_create(&TypeLabel { container_type: container_type(kind) }).inc();
    }

    /// It was not; `code` is the reason that its status tells.
    pub(crate) fn container_failed(&self, kind: ContainerKind, code: &'static str) {
        let labels = ErrorLabels { container_type: container_type(kind), code };
        self.container_errors.get_or_create(&labels).inc();
    }

    /// A sandbox is to be started.
    pub(crate) fn pod(&self) {
        self.pods.inc();
    }

    /// It was not.
    pub(crate) fn pod_failed(&self) {
        self.pod_errors.inc();
    }
}

/// Kubelets count sidecars among the init containers, which they are listed with.
fn container_type(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Ephemeral => "ephemeral_container",
        ContainerKind::Init => "init_container",
        ContainerKind::Regular => "container",
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    /// FILE-39
    #[test]
    fn failures_are_told_by_kind_and_reason_file_39() {
        let (starts, mut registry) = (Starts::default(), Registry::default());
        starts.register(&mut registry);
        for kind in ContainerKind::ALL {
            starts.container(kind);
            starts.container_failed(kind, "CreateContainerConfigError");
        }
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for kind in ["container", "init_container", "ephemeral_container"] {
            for line in [
                format!("kubelet_started_containers_total{{container_type=\"{kind}\"}} 1"),
                format!(
                    "kubelet_started_containers_errors_total{{container_type=\"{kind}\",\
                     code=\"CreateContainerConfigError\"}} 1"
                ),
            ] {
                assert!(text.lines().any(|found| found == line), "{line}\n{text}");
            }
        }
    }
}
