//! A runtime that is started again continues with what is there.

use std::{fs, os::unix::net::UnixListener};

use tonic::Code;
use waybill_proto::cri::{
    ContainerState, ListContainersRequest, ListPodSandboxRequest, RunPodSandboxRequest,
    StopContainerRequest,
};

use crate::{
    cri_lab::{CriLab, container, sleeper},
    lab::eventually,
};

#[tokio::test]
async fn containers_run_and_end_while_the_runtime_is_away() {
    let Some(mut lab) = CriLab::open().await else { return };
    let (first, runs) = lab.run("runs", sleeper("c")).await;
    let gate = lab.path("gate");
    fs::create_dir(&gate).unwrap();
    let mut config =
        container("c", &["sh", "-c", "while test ! -e /gate/go; do sleep 0.02; done; exit 9"]);
    config.mounts = vec![waybill_proto::cri::Mount {
        host_path: gate.display().to_string(),
        container_path: "/gate".into(),
        ..Default::default()
    }];
    let (second, ends) = lab.run("ends", config).await;
    let created = lab.create(&second, sleeper("created")).await;
    lab.stop().await;
    fs::write(gate.join("go"), "").unwrap();
    lab.start().await;

    assert_eq!(lab.sh(&runs, "echo $FROM").await, "image");
    let ended = lab.ended(&ends).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (9, "Error"));
    assert_eq!(lab.status(&created).await.state(), ContainerState::ContainerCreated);
    lab.start_container(&created).await;
    // Names are still taken.
    let request =
        RunPodSandboxRequest { config: Some(lab.sandbox_config("runs")), ..Default::default() };
    assert!(lab.runtime().await.run_pod_sandbox(request).await.is_err());
    lab.remove(&first).await;
    lab.remove(&second).await;
    lab.close().await;
}

#[tokio::test]
async fn what_was_left_half_done_is_cleared_away() {
    let Some(mut lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("kept", sleeper("c")).await;
    let (broken, lost) = lab.run("broken", sleeper("c")).await;
    lab.stop().await;
    // As if the runtime had died before it wrote these.
    for path in [format!("run/cri/sandboxes/{broken}"), format!("run/cri/containers/{lost}")] {
        fs::remove_file(lab.path(&path).join("record.json")).unwrap();
    }
    lab.start().await;
    let mut runtime = lab.runtime().await;
    let sandboxes = runtime.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap();
    let sandboxes: Vec<_> = sandboxes.into_inner().items.into_iter().map(|it| it.id).collect();
    assert_eq!(sandboxes, std::slice::from_ref(&sandbox));
    let containers = runtime.list_containers(ListContainersRequest::default()).await.unwrap();
    let containers: Vec<_> =
        containers.into_inner().containers.into_iter().map(|it| it.id).collect();
    assert_eq!(containers, [id]);
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// It served nobody and did not end either, for as long as the grace of one container.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn a_runtime_that_stops_does_not_wait_for_the_grace_of_a_container() {
    let Some(mut lab) = CriLab::open().await else { return };
    let heard = lab.path("heard");
    fs::create_dir(&heard).unwrap();
    let script = "trap 'touch /heard/it' TERM; while true; do sleep 0.02; done";
    let mut config = container("c", &["sh", "-c", script]);
    config.mounts = vec![waybill_proto::cri::Mount {
        host_path: heard.display().to_string(),
        container_path: "/heard".into(),
        ..Default::default()
    }];
    let (sandbox, id) = lab.run("stubborn", config).await;
    let (mut runtime, container_id) = (lab.runtime().await, id.clone());
    let stopping = tokio::spawn(async move {
        let request = StopContainerRequest { container_id, timeout: 100_000 };
        runtime.stop_container(request).await
    });
    eventually("the container hears its signal", || heard.join("it").exists()).await;
    lab.stop().await;
    let refusal = stopping.await.unwrap().unwrap_err();
    assert_eq!(refusal.code(), Code::Unavailable, "{refusal}");
    assert!(refusal.message().contains("runtime is stopping"), "{refusal}");

    lab.start().await;
    assert_eq!(lab.status(&id).await.state(), ContainerState::ContainerRunning);
    let request = StopContainerRequest { container_id: id.clone(), timeout: 0 };
    lab.runtime().await.stop_container(request).await.unwrap();
    assert_eq!(lab.ended(&id).await.exit_code, 137);
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// A runtime that came back used to wait for the monitor of a creation that hung before it served anybody.
#[tokio::test]
async fn a_creation_that_hangs_does_not_keep_the_runtime_from_serving() {
    let Some(mut lab) = CriLab::open().await else { return };
    let (sandbox, runs) = lab.run("runs", sleeper("c")).await;
    lab.stop().await;
    // As a monitor leaves it that has begun to make a container, and hangs.
    let hangs = lab.path("run/containers/hangs");
    fs::create_dir(&hangs).unwrap();
    let record =
        serde_json::json!({"version": 1, "cgroup": format!("{}/hangs", lab.cgroup), "made": []});
    fs::write(hangs.join("record.json"), record.to_string()).unwrap();
    let listener = UnixListener::bind(hangs.join("monitor.sock")).unwrap();
    lab.start().await;
    assert_eq!(lab.sh(&runs, "echo $FROM").await, "image");
    assert!(lab.containers_named("hangs").await.is_empty());
    drop(listener);
    eventually("what is left of it is cleared away", || !hangs.exists()).await;
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// A pod that runs once had failed when the runtime died while it removed a container that was never started: what was left of that
/// looked as if it had run and been killed.
#[tokio::test]
async fn a_removal_that_began_is_brought_to_its_end() {
    let Some(mut lab) = CriLab::open().await else { return };
    let sandbox = lab.run_sandbox(lab.sandbox_config("pod")).await;
    let id = lab.create(&sandbox, sleeper("c")).await;
    let kept = lab.create(&sandbox, sleeper("kept")).await;
    lab.stop().await;
    // As a runtime leaves it that was killed before anything but the intention was on record.
    let file = lab.path("run/cri/containers").join(&id).join("record.json");
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(record["removing"], false);
    record["removing"] = true.into();
    fs::write(&file, record.to_string()).unwrap();
    lab.start().await;
    assert!(lab.containers_named("c").await.is_empty());
    assert_eq!(lab.containers_named("kept").await, [kept]);
    eventually("nothing is left of it", || !lab.path("run/containers").join(&id).exists()).await;
    lab.remove(&sandbox).await;
    lab.close().await;
}
