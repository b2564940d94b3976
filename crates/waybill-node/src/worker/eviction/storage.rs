//! How much of the node's disk a pod takes, and whether that is more than the `ephemeral-storage` limits of its containers.
//!
//! Counted are the layers that containers write to, their logs, their last words, and all that lies in the pod's own directory: its
//! hosts file and its volumes on disk. What is mounted there, memory included, is not the node's disk.

use std::{collections::BTreeMap, path::PathBuf};

use k8s_openapi::api::core::v1::Container;
use tracing::debug;
use waybill_core::quantity::Quantity;

use super::super::surroundings::Surroundings;
use crate::{
    pod::Pod,
    volume::{self, Taken},
};

const RESOURCE: &str = "ephemeral-storage";

/// What a pod takes of the node's disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// What containers wrote beside their volumes.
    pub(super) layers: Taken,
    /// Volumes, logs and the pod's own files.
    pub(super) files: Taken,
    /// In bytes: layers, logs and last words.
    pub(super) containers: BTreeMap<String, u64>,
}

impl Usage {
    pub(super) fn pod(&self) -> Taken {
        self.layers.saturating_add(self.files)
    }
}

impl Surroundings {
    /// Why the pod must go, if it takes more than it may. A pod without limits is not measured.
    pub(crate) async fn exceeded_storage(&self, pod: &Pod) -> Option<String> {
        limit_of_pod(pod)?;
        excess(pod, &self.storage_of(pod).await)
    }

    /// What cannot be measured counts as nothing: it may have gone just now.
    pub(super) async fn storage_of(&self, pod: &Pod) -> Usage {
        let layers = self.runtime.writable_layers(pod.uid()).await.unwrap_or_else(|status| {
            debug!(reason = status.message(), "the runtime does not tell what containers wrote");
            BTreeMap::new()
        });
        let own = self.directories.pod(pod.uid());
        let logs = self.directories.pod_logs(pod.namespace(), pod.name(), pod.uid());
        let mut usage = Usage {
            layers: layers.values().copied().fold(Taken::default(), Taken::saturating_add),
            files: taken(own).await.saturating_add(taken(logs.clone()).await),
            ..Usage::default()
        };
        for container in pod.regular() {
            let name = container.name();
            let words = self.directories.termination_messages(pod.uid(), name);
            let written = layers.get(name).copied().unwrap_or_default();
            let rest = taken(logs.join(name)).await.saturating_add(taken(words).await);
            usage.containers.insert(name.to_owned(), written.saturating_add(rest).bytes);
        }
        usage
    }
}

async fn taken(directory: PathBuf) -> Taken {
    volume::taken(directory).await.unwrap_or_default()
}

/// The words are a kubelet's, down to the blanks at their ends. The pod comes before its containers there, too.
fn excess(pod: &Pod, usage: &Usage) -> Option<String> {
    let exceeds =
        |used: u64, limit: Quantity| u64::try_from(limit.value()).is_ok_and(|limit| used > limit);
    if let Some(limit) = limit_of_pod(pod)
        && exceeds(usage.pod().bytes, limit)
    {
        return Some(format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
        ));
    }
    pod.spec().containers.iter().find_map(|container| {
        let limit = limit(container)?;
        let used = usage.containers.get(&container.name)?;
        let name = &container.name;
        exceeds(*used, limit).then(|| {
            let limit = limit.to_string();
            format!("Container {name} exceeded its local ephemeral storage limit {limit:?}. ")
        })
    })
}

/// The most that containers which run at one time may take together. As with kubelets, one that has no limit adds nothing, and what
/// it takes counts against the limits of the others.
fn limit_of_pod(pod: &Pod) -> Option<Quantity> {
    let (mut sidecars, mut most) = (None, None);
    for container in pod.init() {
        let own = sum(sidecars, limit(&container.to_container()));
        most = most.max(own);
        if container.is_sidecar() {
            sidecars = own;
        }
    }
    most.max(pod.spec().containers.iter().map(limit).fold(sidecars, sum))
}

fn sum(one: Option<Quantity>, other: Option<Quantity>) -> Option<Quantity> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}

/// A limit of nothing is none.
fn limit(container: &Container) -> Option<Quantity> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    Quantity::parse(&limits.get(RESOURCE)?.0).ok().filter(|limit| !limit.is_zero())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::testing::pod;

    fn container(name: &str, limit: &str) -> Value {
        let limits = if limit.is_empty() { json!({}) } else { json!({ RESOURCE: limit }) };
        json!({ "name": name, "image": "i", "resources": { "limits": limits } })
    }

    #[track_caller]
    fn check(containers: &[Value], mebibytes: (u64, &[(&str, u64)]), expected: Option<&str>) {
        let pod = pod(json!({ "containers": containers }));
        let each = mebibytes.1.iter().map(|(name, used)| ((*name).to_owned(), used << 20));
        let files = Taken { bytes: mebibytes.0 << 20, files: 1 };
        let usage = Usage { files, containers: each.collect(), ..Usage::default() };
        assert_eq!(excess(&pod, &usage).as_deref(), expected);
    }

    #[test]
    fn a_pod_may_take_what_its_containers_may_and_each_of_them_its_own() {
        let two = [container("a", "10Mi"), container("b", "5Mi")];
        check(&two, (15, &[("a", 10), ("b", 5)]), None);
        check(
            &two,
            (16, &[("a", 10), ("b", 5)]),
            Some("Pod ephemeral local storage usage exceeds the total limit of containers 15Mi. "),
        );
        check(
            &two,
            (12, &[("a", 2), ("b", 6)]),
            Some("Container b exceeded its local ephemeral storage limit \"5Mi\". "),
        );
        let one = [container("a", "10Mi"), container("b", "")];
        check(&one, (9, &[("a", 1), ("b", 8)]), None);
        check(
            &one,
            (11, &[("a", 1), ("b", 10)]),
            Some("Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. "),
        );
        check(&[container("a", ""), container("b", "0")], (1000, &[("a", 1000)]), None);
    }

    #[test]
    fn init_containers_run_before_and_sidecars_beside_the_others() {
        let mut sidecar = container("s", "4Mi");
        sidecar["restartPolicy"] = "Always".into();
        let of = |first: &str| {
            let init = [container("i", first), sidecar.clone()];
            let found =
                pod(json!({ "initContainers": init, "containers": [container("a", "2Mi")] }));
            limit_of_pod(&found).unwrap().to_string()
        };
        assert_eq!(of("1Mi"), "6Mi");
        assert_eq!(of("20Mi"), "20Mi");
    }
}
