//! What clients of CRI see of records of a newer runtime and of damaged ones, and that nothing happens to what they are about
//! (D15, ADR 0044).

use std::{fs, path::PathBuf};

use serde_json::Value;
use tonic::Code;
use waybill_proto::cri::{
    ContainerState, ListContainersRequest, ListImagesRequest, ListPodSandboxRequest, PodSandbox,
    PodSandboxState, PodSandboxStatusRequest, RemoveContainerRequest, RemovePodSandboxRequest,
    StatusRequest, StopContainerRequest, StopPodSandboxRequest,
};

use crate::cri_lab::{CriLab, sleeper};

/// A record, and what was in it before somebody changed it.
struct Changed {
    path: PathBuf,
    was: Vec<u8>,
}

impl Changed {
    fn newer(path: PathBuf) -> Self {
        let was = fs::read(&path).unwrap();
        let mut value: Value = serde_json::from_slice(&was).unwrap();
        value["version"] = 99.into();
        value["user"] = "changed its meaning".into();
        fs::write(&path, serde_json::to_vec(&value).unwrap()).unwrap();
        Self { path, was }
    }

    fn garbage(path: PathBuf) -> Self {
        let was = fs::read(&path).unwrap();
        fs::write(&path, &was[..was.len() / 2]).unwrap();
        Self { path, was }
    }

    fn restore(self) {
        fs::write(self.path, self.was).unwrap();
    }
}

fn record(lab: &CriLab, kind: &str, id: &str) -> PathBuf {
    lab.path("run/cri").join(kind).join(id).join("record.json")
}

/// The monitor of a container; it is there as long as the container is.
fn monitors(lab: &CriLab, id: &str) -> usize {
    let directory = lab.path("run/containers").canonicalize().unwrap().join(id);
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let works_there = |cwd: PathBuf| fs::read_link(cwd).is_ok_and(|cwd| cwd == directory);
    processes.filter(|process| works_there(process.path().join("cwd"))).count()
}

async fn refuses_to_touch(lab: &CriLab, id: &str) {
    let stop = StopContainerRequest { container_id: id.into(), timeout: 0 };
    let stopped = lab.runtime().await.stop_container(stop).await.unwrap_err();
    assert_eq!(stopped.code(), Code::FailedPrecondition, "{stopped}");
    assert!(stopped.message().contains("left as it is"), "{stopped}");
    let remove = RemoveContainerRequest { container_id: id.into() };
    assert!(lab.runtime().await.remove_container(remove).await.is_err());
    assert_eq!(monitors(lab, id), 1, "it lives");
}

async fn refuses_to_touch_sandbox(lab: &CriLab, id: &str) {
    let stop = StopPodSandboxRequest { pod_sandbox_id: id.into() };
    let stopped = lab.runtime().await.stop_pod_sandbox(stop).await.unwrap_err();
    assert_eq!(stopped.code(), Code::FailedPrecondition, "{stopped}");
    let remove = RemovePodSandboxRequest { pod_sandbox_id: id.into() };
    assert!(lab.runtime().await.remove_pod_sandbox(remove).await.is_err());
}

async fn listed_sandbox(lab: &CriLab, id: &str) -> PodSandbox {
    let list = lab.runtime().await.list_pod_sandbox(ListPodSandboxRequest::default()).await;
    list.unwrap().into_inner().items.into_iter().find(|it| it.id == id).expect("it is listed")
}

#[tokio::test]
async fn containers_of_tomorrow_are_unknown_and_live() {
    let Some(mut lab) = CriLab::open().await else { return };
    let (good_pod, good) = lab.run("good", sleeper("c")).await;
    let (newer_pod, newer) = lab.run("newer", sleeper("c")).await;
    let (broken_pod, broken) = lab.run("broken", sleeper("c")).await;
    let (engine_pod, engine) = lab.run("engine", sleeper("c")).await;
    lab.stop().await;
    let changed = [
        Changed::newer(record(&lab, "containers", &newer)),
        Changed::garbage(record(&lab, "containers", &broken)),
        Changed::newer(lab.path("run/containers").join(&engine).join("record.json")),
    ];
    lab.start().await;

    assert_eq!(lab.sh(&good, "echo $FROM").await, "image");
    for id in [&newer, &broken, &engine] {
        let status = lab.status(id).await;
        assert_eq!(status.state(), ContainerState::ContainerUnknown, "{status:?}");
        assert!(status.message.contains("left as it is"), "{status:?}");
        refuses_to_touch(&lab, id).await;
    }
    // One of tomorrow is still shown with its name, so that nobody makes another.
    let list = lab.runtime().await.list_containers(ListContainersRequest::default()).await;
    let list = list.unwrap().into_inner().containers;
    assert_eq!(list.len(), 4);
    let shown = list.iter().find(|it| it.id == newer).unwrap();
    assert_eq!(shown.pod_sandbox_id, newer_pod);
    assert_eq!(shown.metadata.as_ref().unwrap().name, "c");
    // Its pod cannot be stopped under it.
    refuses_to_touch_sandbox(&lab, &newer_pod).await;
    refuses_to_touch_sandbox(&lab, &engine_pod).await;
    lab.remove(&good_pod).await;

    lab.stop().await;
    changed.into_iter().for_each(Changed::restore);
    lab.start().await;
    for (pod, id) in [(newer_pod, newer), (broken_pod, broken), (engine_pod, engine)] {
        assert_eq!(lab.sh(&id, "echo $FROM").await, "image");
        lab.remove(&pod).await;
    }
    lab.close().await;
}

#[tokio::test]
async fn sandboxes_of_tomorrow_are_shown_and_live() {
    let Some(mut lab) = CriLab::open().await else { return };
    let (good_pod, good) = lab.run("good", sleeper("c")).await;
    let (newer_pod, newer) = lab.run("newer", sleeper("c")).await;
    let mut config = sleeper("c");
    config.labels = [("io.kubernetes.pod.name".to_owned(), "broken".to_owned())].into();
    let (broken_pod, broken) = lab.run("broken", config).await;
    let (engine_pod, engine) = lab.run("engine", sleeper("c")).await;
    lab.stop().await;
    let changed = [
        Changed::newer(record(&lab, "sandboxes", &newer_pod)),
        Changed::garbage(record(&lab, "sandboxes", &broken_pod)),
        Changed::newer(lab.path("run/sandboxes").join(&engine_pod).join("record.json")),
    ];
    lab.start().await;

    assert_eq!(lab.sh(&good, "echo $FROM").await, "image");
    for (pod, id, name) in [
        (&newer_pod, &newer, "newer"),
        (&broken_pod, &broken, "broken"),
        (&engine_pod, &engine, "engine"),
    ] {
        let shown = listed_sandbox(&lab, pod).await;
        assert_eq!(shown.state(), PodSandboxState::SandboxReady);
        assert_eq!(shown.metadata.unwrap().name, name);
        let request = PodSandboxStatusRequest { pod_sandbox_id: pod.clone(), verbose: false };
        let status = lab.runtime().await.pod_sandbox_status(request).await.unwrap().into_inner();
        assert!(status.info["unknown"].contains("record.json"), "{status:?}");
        assert_eq!(status.containers_statuses.len(), 1);
        refuses_to_touch_sandbox(&lab, pod).await;
        // The container itself is understood.
        assert_eq!(lab.sh(id, "echo $FROM").await, "image");
    }
    lab.remove(&good_pod).await;

    lab.stop().await;
    changed.into_iter().for_each(Changed::restore);
    lab.start().await;
    for pod in [newer_pod, broken_pod, engine_pod] {
        lab.remove(&pod).await;
    }
    lab.close().await;
}

#[tokio::test]
async fn an_image_store_of_tomorrow_is_left_alone_and_containers_go_on() {
    let Some(mut lab) = CriLab::open().await else { return };
    let (pod, id) = lab.run("box", sleeper("c")).await;
    lab.stop().await;
    let blobs = || fs::read_dir(lab.path("state/images/blobs/sha256")).unwrap().count();
    let (before, layers) =
        (blobs(), fs::read_dir(lab.path("state/images/layers")).unwrap().count());
    let used = Changed::newer(lab.path("state/containers").join(&id).join("image.json"));
    let index = Changed::newer(lab.path("state/images/index.json"));
    lab.start().await;

    assert_eq!(lab.sh(&id, "echo $FROM; ls /bin | wc -l >/dev/null").await, "image");
    let refused = lab.images().await.list_images(ListImagesRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("run the version that wrote it"), "{refused}");
    let status = lab.runtime().await.status(StatusRequest::default()).await.unwrap().into_inner();
    let conditions = status.status.unwrap().conditions;
    let runtime = conditions.iter().find(|it| it.r#type == "RuntimeReady").unwrap();
    assert!(!runtime.status && runtime.reason == "ImageStoreSealed", "{runtime:?}");

    // Also with a list that is understood, no layer goes while one does not know who uses it.
    lab.stop().await;
    index.restore();
    lab.start().await;
    let image = lab.images().await.list_images(ListImagesRequest::default()).await.unwrap();
    let image = image.into_inner().images.remove(0).id;
    let spec = waybill_proto::cri::ImageSpec { image, ..Default::default() };
    let request = waybill_proto::cri::RemoveImageRequest { image: Some(spec) };
    lab.images().await.remove_image(request).await.unwrap();
    assert_eq!(fs::read_dir(lab.path("state/images/layers")).unwrap().count(), layers);
    assert!(before > 0);
    assert_eq!(lab.sh(&id, "ls /bin/sh").await, "/bin/sh");
    lab.stop().await;
    used.restore();
    lab.start().await;
    lab.remove(&pod).await;
    lab.close().await;
}
