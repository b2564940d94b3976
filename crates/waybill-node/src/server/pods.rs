//! What pods there are: those that shall run, those that do, and what they use.

use std::collections::BTreeMap;

use k8s_openapi::{
    List,
    api::core::v1::{Container, PodSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use waybill_proto::cri;

use super::{
    Service,
    answer::{Answer, Refusal, json},
    containers::limited,
};
use crate::pod::{Pod, PodObject};

impl Service {
    /// Every pod that the node was told of.
    pub(super) fn pods(&self) -> Result<Answer, Refusal> {
        let whole =
            |pod: &Pod| PodObject { spec: Some(pod.spec().clone()), ..pod.object().clone() };
        let items = self.pods.all().iter().map(|pod| whole(pod)).collect();
        json(&List { items, ..List::default() })
    }

    /// Every pod that the runtime runs, whoever told it to.
    pub(super) async fn running_pods(&self) -> Result<Answer, Refusal> {
        let ready = cri::PodSandboxStateValue { state: cri::PodSandboxState::SandboxReady.into() };
        let filter = cri::PodSandboxFilter { state: Some(ready), ..Default::default() };
        let request = cri::ListPodSandboxRequest { filter: Some(filter) };
        let sandboxes = self.runtime.containers().list_pod_sandbox(limited(request)).await?;
        let running =
            cri::ContainerStateValue { state: cri::ContainerState::ContainerRunning.into() };
        let filter = cri::ContainerFilter { state: Some(running), ..Default::default() };
        let request = cri::ListContainersRequest { filter: Some(filter) };
        let containers = self.runtime.containers().list_containers(limited(request)).await?;
        let items = running_pods(sandboxes.into_inner().items, containers.into_inner().containers);
        json(&List { items, ..List::default() })
    }
}

fn running_pods(
    sandboxes: Vec<cri::PodSandbox>,
    containers: Vec<cri::Container>,
) -> Vec<PodObject> {
    let mut by_sandbox = BTreeMap::<String, Vec<Container>>::new();
    for container in containers {
        by_sandbox.entry(container.pod_sandbox_id).or_default().push(Container {
            name: container.metadata.unwrap_or_default().name,
            image: container.image.map(|image| image.image),
            ..Container::default()
        });
    }
    let pod = |sandbox: cri::PodSandbox| {
        let metadata = sandbox.metadata.unwrap_or_default();
        PodObject {
            metadata: ObjectMeta {
                name: Some(metadata.name),
                namespace: Some(metadata.namespace),
                uid: Some(metadata.uid),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                containers: by_sandbox.remove(&sandbox.id).unwrap_or_default(),
                ..PodSpec::default()
            }),
            status: None,
        }
    };
    sandboxes.into_iter().map(pod).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_containers_stand_under_their_pod() {
        let sandbox = |id: &str, name: &str| cri::PodSandbox {
            id: id.to_owned(),
            metadata: Some(cri::PodSandboxMetadata { name: name.to_owned(), ..Default::default() }),
            ..Default::default()
        };
        let container = |sandbox: &str, name: &str| cri::Container {
            pod_sandbox_id: sandbox.to_owned(),
            metadata: Some(cri::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            ..Default::default()
        };
        let found = running_pods(
            vec![sandbox("1", "web"), sandbox("2", "idle")],
            vec![container("1", "main"), container("3", "stray"), container("1", "side")],
        );
        let names = |pod: &PodObject| {
            let containers = &pod.spec.as_ref().unwrap().containers;
            let containers = containers.iter().map(|container| container.name.clone());
            (pod.metadata.name.clone().unwrap(), containers.collect::<Vec<_>>())
        };
        let expected = [
            ("web".to_owned(), vec!["main".to_owned(), "side".to_owned()]),
            ("idle".to_owned(), Vec::new()),
        ];
        assert_eq!(found.iter().map(names).collect::<Vec<_>>(), expected);
    }
}
