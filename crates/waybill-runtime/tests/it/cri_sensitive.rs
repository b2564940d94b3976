//! Words of a command that hold a secret: the container gets them, and nobody else.

use std::{path::Path, process::Command};

use waybill_proto::cri::{
    ContainerConfig, ContainerStatusRequest, ListContainersRequest, StartContainerRequest,
};

use crate::cri_lab::{CriLab, container};

const CANARY: &str = "canary-41d8cd98";
const ANNOTATION: &str = "waybill.dev/sensitive-args";

fn marked(config: ContainerConfig, words: &str) -> ContainerConfig {
    ContainerConfig { annotations: [(ANNOTATION.to_owned(), words.to_owned())].into(), ..config }
}

/// Files below `directory` that hold the canary.
fn found(directory: &Path) -> String {
    let output = Command::new("grep").args(["-r", "-l", CANARY]).arg(directory).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

async fn told(lab: &CriLab, id: &str) -> String {
    let request = ContainerStatusRequest { container_id: id.into(), verbose: true };
    let status = lab.runtime().await.container_status(request).await.unwrap().into_inner();
    let list = lab.runtime().await.list_containers(ListContainersRequest::default()).await;
    format!("{:?} {:?} {:?}", status.info, status.status, list.unwrap().into_inner())
}

#[tokio::test]
async fn a_secret_among_the_arguments_is_in_no_file_and_no_status() {
    let Some(mut lab) = CriLab::open().await else { return };
    let script = container("c", &["sh", "-c", "test ${#0} = 15 && sleep 1000; true", CANARY]);
    let (sandbox, id) = lab.run("arguments", marked(script, "command[3]")).await;
    for _ in 0..2 {
        assert_eq!(found(&lab.path("")), "");
        let told = told(&lab, &id).await;
        assert!(!told.contains(CANARY), "{told}");
        assert!(told.contains("<hidden>") && told.contains("sleep 1000"), "{told}");
        // The process itself has it.
        assert!(lab.sh(&id, "cat /proc/1/cmdline").await.contains(CANARY));
        lab.stop().await;
        lab.start().await;
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn a_program_whose_name_is_secret_is_not_named_in_errors() {
    let Some(lab) = CriLab::open().await else { return };
    let sandbox = lab.run_sandbox(lab.sandbox_config("program")).await;
    let id = lab.create(&sandbox, marked(container("c", &[CANARY]), "command[0]")).await;
    let request = StartContainerRequest { container_id: id.clone() };
    let error = lab.runtime().await.start_container(request).await.unwrap_err();
    assert!(error.message().contains("exec: \"<hidden>\": executable file not found"), "{error}");
    let told = told(&lab, &id).await;
    assert!(!told.contains(CANARY) && told.contains("StartError"), "{told}");
    assert_eq!(found(&lab.path("")), "");
    lab.remove(&sandbox).await;
    lab.close().await;
}
