//! What containers use, as the runtime tells it, in the form of a kubelet's summary.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use waybill_proto::cri;

use super::{
    Service,
    answer::{self, Answer, Refusal},
    containers::limited,
};

impl Service {
    /// CPU and memory of every container, under its pod. The node as a whole is not measured.
    pub(super) async fn stats_summary(&self) -> Result<Answer, Refusal> {
        let request = cri::ListContainerStatsRequest { filter: None };
        let stats = self.runtime.containers().list_container_stats(limited(request)).await?;
        answer::json(&summary(&self.node_name, stats.into_inner().stats))
    }
}

fn summary(node: &str, stats: Vec<cri::ContainerStats>) -> Value {
    let mut pods = BTreeMap::<[String; 3], Vec<Value>>::new();
    for stats in stats {
        let Some(attributes) = &stats.attributes else { continue };
        let label = |name: &str| attributes.labels.get(name).cloned().unwrap_or_default();
        let pod =
            ["namespace", "name", "uid"].map(|part| label(&format!("io.kubernetes.pod.{part}")));
        let name = label("io.kubernetes.container.name");
        pods.entry(pod).or_default().push(container(&name, &stats));
    }
    let pods: Vec<_> = pods
        .into_iter()
        .map(|([namespace, name, uid], containers)| {
            let pod = json!({ "name": name, "namespace": namespace, "uid": uid });
            json!({ "podRef": pod, "containers": containers })
        })
        .collect();
    json!({ "node": { "nodeName": node }, "pods": pods })
}

/// Only what the runtime knows; what it does not know is not 0.
fn container(name: &str, stats: &cri::ContainerStats) -> Value {
    let mut shown = Map::from_iter([("name".to_owned(), name.into())]);
    if let Some(cpu) = &stats.cpu {
        let numbers = [
            ("usageNanoCores", cpu.usage_nano_cores),
            ("usageCoreNanoSeconds", cpu.usage_core_nano_seconds),
        ];
        shown.insert("cpu".to_owned(), measured(cpu.timestamp, &numbers));
    }
    if let Some(memory) = &stats.memory {
        let numbers = [
            ("availableBytes", memory.available_bytes),
            ("usageBytes", memory.usage_bytes),
            ("workingSetBytes", memory.working_set_bytes),
            ("rssBytes", memory.rss_bytes),
            ("pageFaults", memory.page_faults),
            ("majorPageFaults", memory.major_page_faults),
        ];
        shown.insert("memory".to_owned(), measured(memory.timestamp, &numbers));
    }
    shown.into()
}

fn measured(nanoseconds: i64, numbers: &[(&str, Option<cri::UInt64Value>)]) -> Value {
    let time = Timestamp::from_nanosecond(nanoseconds.into()).unwrap_or_default();
    let known = numbers.iter().filter_map(|(name, number)| {
        number.map(|number| ((*name).to_owned(), Value::from(number.value)))
    });
    Map::from_iter(known.chain([("time".to_owned(), format!("{time:.0}").into())])).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_runtime_knows_stands_under_its_pod() {
        let labels = [
            ("pod.namespace", "default"),
            ("pod.name", "web"),
            ("pod.uid", "u-1"),
            ("container.name", "main"),
        ];
        let labels =
            labels.map(|(label, value)| (format!("io.kubernetes.{label}"), value.to_owned()));
        let stats = cri::ContainerStats {
            attributes: Some(cri::ContainerAttributes {
                labels: labels.into(),
                ..Default::default()
            }),
            cpu: Some(cri::CpuUsage {
                timestamp: 1_000_000_000,
                usage_core_nano_seconds: Some(cri::UInt64Value { value: 5 }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let expected = json!({
            "node": { "nodeName": "n" },
            "pods": [{
                "podRef": { "name": "web", "namespace": "default", "uid": "u-1" },
                "containers": [{
                    "name": "main",
                    "cpu": { "time": "1970-01-01T00:00:01Z", "usageCoreNanoSeconds": 5 },
                }],
            }],
        });
        assert_eq!(summary("n", vec![stats]), expected);
    }
}
