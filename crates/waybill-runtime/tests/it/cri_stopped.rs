//! Containers that share a PID namespace and stop each other's processes. Nobody waits for those.

use std::{fs, time::Duration};

use tokio::{task::JoinHandle, time::timeout};
use tonic::{Response, Status};
use waybill_proto::cri::{
    CreateContainerRequest, CreateContainerResponse, LinuxContainerSecurityContext, NamespaceMode,
    NamespaceOption, PodSandboxConfig, RemoveContainerRequest, RemovePodSandboxRequest,
};

use crate::cri_lab::{CriLab, container, sleeper, with_context};

/// Less than what a creation may take, and much more than the end of a pod.
const LIMIT: Duration = Duration::from_secs(60);
/// How often the attacker may miss.
const ATTEMPTS: u32 = 50;

fn shared() -> NamespaceOption {
    NamespaceOption {
        network: NamespaceMode::Pod.into(),
        pid: NamespaceMode::Pod.into(),
        ipc: NamespaceMode::Pod.into(),
        ..NamespaceOption::default()
    }
}

fn sharing(lab: &CriLab, name: &str) -> PodSandboxConfig {
    let mut config = lab.sandbox_config(name);
    let context = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    context.namespace_options = Some(shared());
    config
}

/// Whether a process in a cgroup of the pod is stopped.
fn has_stopped_process(lab: &CriLab, pod: &str) -> bool {
    let cgroup = format!("{}/{pod}/", lab.cgroup);
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let stopped = |process: &fs::DirEntry| {
        let read = |name| fs::read_to_string(process.path().join(name)).unwrap_or_default();
        let state = read("stat").rsplit(')').next().unwrap_or_default().trim().chars().next();
        state == Some('T') && read("cgroup").contains(&cgroup)
    };
    processes.into_iter().any(|process| stopped(&process))
}

type Creation = JoinHandle<Result<Response<CreateContainerResponse>, Status>>;

/// A creation in `sandbox` whose processes are stopped before it is done.
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn hung_creation(
    lab: &CriLab,
    sandbox: &str,
    context: &LinuxContainerSecurityContext,
) -> Creation {
    for attempt in 0..ATTEMPTS {
        let victim = with_context(sleeper(&format!("victim-{attempt}")), context.clone());
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(victim),
            sandbox_config: None,
        };
        let mut client = lab.runtime().await;
        let mut creation = tokio::spawn(async move { client.create_container(request).await });
        while !creation.is_finished() && !has_stopped_process(lab, "stopped") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // It may have been done when it was stopped, and about to say so.
        let Ok(created) = timeout(Duration::from_secs(5), &mut creation).await else {
            return creation;
        };
        let container_id = created.unwrap().unwrap().into_inner().container_id;
        let request = RemoveContainerRequest { container_id };
        lab.runtime().await.remove_container(request).await.unwrap();
    }
    panic!("the attacker stops no creation");
}

/// Issue: the end of such a pod waited two minutes for the creation.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_creation_a_neighbour_stops_can_be_removed() {
    let Some(lab) = CriLab::open().await else { return };
    let sandbox = lab.run_sandbox(sharing(&lab, "stopped")).await;
    let context = LinuxContainerSecurityContext {
        namespace_options: Some(shared()),
        ..LinuxContainerSecurityContext::default()
    };
    // Everybody in the namespace but itself and its first process, which waits for nothing but its end.
    let attack = container("attacker", &["sh", "-c", "while :; do kill -STOP -1; done"]);
    let attacker = lab.create(&sandbox, with_context(attack, context.clone())).await;
    lab.start_container(&attacker).await;

    let hung = hung_creation(&lab, &sandbox, &context).await;
    let request = RemovePodSandboxRequest { pod_sandbox_id: sandbox };
    let removed = timeout(LIMIT, lab.runtime().await.remove_pod_sandbox(request)).await;
    removed.expect("nobody waits for a stopped creation").unwrap();
    let refused = timeout(LIMIT, hung).await.expect("the creation has ended").unwrap();
    assert!(refused.is_err(), "{refused:?}");
    lab.close().await;
}
