//! Metrics of pods and containers.

use std::collections::BTreeMap;

use waybill_proto::cri::{
    LinuxContainerConfig, LinuxContainerResources, ListMetricDescriptorsRequest,
    ListPodSandboxMetricsRequest, PodSandboxMetrics,
};

use crate::cri_lab::{CriLab, IMAGE, sleeper};

async fn metrics(lab: &CriLab) -> Vec<PodSandboxMetrics> {
    let mut runtime = lab.runtime().await;
    let answer = runtime.list_pod_sandbox_metrics(ListPodSandboxMetricsRequest {}).await;
    answer.unwrap().into_inner().pod_metrics
}

#[tokio::test]
async fn every_metric_has_the_labels_that_its_descriptor_names() {
    let Some(lab) = CriLab::open().await else { return };
    let resources = LinuxContainerResources {
        memory_limit_in_bytes: 64 << 20,
        cpu_shares: 512,
        ..LinuxContainerResources::default()
    };
    let mut config = sleeper("c");
    config.linux = Some(LinuxContainerConfig { resources: Some(resources), ..Default::default() });
    let (sandbox, id) = lab.run("watched", config).await;
    let request = ListMetricDescriptorsRequest {};
    let descriptors = lab.runtime().await.list_metric_descriptors(request).await.unwrap();
    let descriptors: BTreeMap<_, _> = descriptors
        .into_inner()
        .descriptors
        .into_iter()
        .map(|it| (it.name, it.label_keys))
        .collect();

    let [pod] = metrics(&lab).await.try_into().unwrap();
    assert_eq!(pod.pod_sandbox_id, sandbox);
    let [container] = pod.container_metrics.as_slice() else { panic!("{pod:?}") };
    assert_eq!(container.container_id, id);
    for metric in pod.metrics.iter().chain(&container.metrics) {
        let keys = &descriptors[&metric.name];
        assert_eq!(keys.len(), metric.label_values.len(), "{metric:?}");
        let label = |key: &str| {
            let at = keys.iter().position(|it| it == key).unwrap();
            metric.label_values[at].as_str()
        };
        assert_eq!((label("pod"), label("namespace")), ("watched", "default"));
    }
    let value = |name: &str| {
        let found = container.metrics.iter().find(|it| it.name == name);
        let found = found.unwrap_or_else(|| panic!("no {name}"));
        (found.value.unwrap().value, found.label_values.clone())
    };
    let (limit, labels) = value("container_spec_memory_limit_bytes");
    assert_eq!(limit, 64 << 20);
    assert!(labels.contains(&IMAGE.to_owned()) && labels.contains(&id), "{labels:?}");
    assert_eq!(value("container_processes").0, 1);
    assert_eq!(value("container_spec_cpu_shares").0, 512);
    assert!(value("container_memory_usage_bytes").0 > 0);
    assert!(value("container_start_time_seconds").0 > 0);
    let received: Vec<_> = pod
        .metrics
        .iter()
        .filter(|it| it.name == "container_network_receive_bytes_total")
        .collect();
    assert_eq!(received.len(), 1, "{received:?}");
    assert!(received[0].label_values.contains(&"lo".to_owned()));

    lab.remove(&sandbox).await;
    assert!(metrics(&lab).await.is_empty());
    lab.close().await;
}
