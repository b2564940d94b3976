//! Asking the runtime what it has of a pod.

use std::{cmp::Reverse, collections::BTreeMap, path::Path};

use futures_util::future::try_join_all;
use jiff::Timestamp;
use tonic::Status;
use waybill_core::id::PodUid;
use waybill_proto::cri::{self, ContainerStatus, PodSandbox, PodSandboxState, PodSandboxStatus};

use super::{Runtime, labels, resources::ContainerLimits, termination, words};
use crate::{
    directories::Directories,
    observed::{ContainerState, Observed, ObservedContainer, ObservedSandbox},
};

/// What runtimes call the end of a container whose program could not be executed.
const START_ERROR: &str = "StartError";

/// Everything that the runtime has of one pod.
pub(crate) async fn observe(
    runtime: &Runtime,
    directories: &Directories,
    uid: &PodUid,
) -> Result<Observed, Status> {
    let (sandboxes, containers) =
        tokio::try_join!(runtime.sandboxes(Some(uid.as_str())), runtime.list(Some(uid.as_str())))?;
    let statuses = containers.iter().map(|container| async {
        let status = runtime.container_status(&container.id).await?;
        Ok::<_, Status>(status.map(|status| (container.pod_sandbox_id.clone(), status)))
    });
    let (mut sandboxes, statuses) =
        tokio::try_join!(with_addresses(runtime, sandboxes), try_join_all(statuses))?;
    let mut containers: Vec<_> = statuses
        .into_iter()
        .flatten()
        .map(|(sandbox, status)| container(directories, uid, sandbox, status))
        .collect();
    sandboxes.sort_by_key(|sandbox| Reverse((sandbox.attempt, sandbox.created)));
    containers.sort_by_key(|container| Reverse((container.attempt, container.created)));
    Ok(Observed { sandboxes, containers })
}

/// Lists do not tell addresses, and only a sandbox that is ready has them.
async fn with_addresses(
    runtime: &Runtime,
    sandboxes: Vec<PodSandbox>,
) -> Result<Vec<ObservedSandbox>, Status> {
    let asked = sandboxes.into_iter().map(|found| async {
        let ready = found.state() == PodSandboxState::SandboxReady;
        let status = if ready { runtime.sandbox_status(&found.id).await? } else { None };
        Ok(ObservedSandbox {
            attempt: found.metadata.map_or(0, |metadata| metadata.attempt),
            created: timestamp(found.created_at).unwrap_or_default(),
            ips: status.map(addresses).unwrap_or_default(),
            id: found.id,
            ready,
        })
    });
    try_join_all(asked).await
}

/// The addresses of a sandbox.
pub(crate) fn addresses(status: PodSandboxStatus) -> Vec<String> {
    let network = status.network.unwrap_or_default();
    let all = [network.ip].into_iter().chain(network.additional_ips.into_iter().map(|it| it.ip));
    all.filter(|ip| !ip.is_empty()).collect()
}

fn container(
    directories: &Directories,
    uid: &PodUid,
    sandbox: String,
    mut status: ContainerStatus,
) -> ObservedContainer {
    if status.reason == START_ERROR {
        let hides = words::hides_program(status.annotations.get(labels::SENSITIVE_ARGS));
        status.message = words::shown_fault(std::mem::take(&mut status.message), hides);
    }
    let name = label(&status.labels, labels::CONTAINER_NAME)
        .map(str::to_owned)
        .or_else(|| Some(status.metadata.as_ref()?.name.clone()))
        .unwrap_or_default();
    let attempt = label(&status.annotations, labels::RESTART_COUNT)
        .and_then(|count| count.parse().ok())
        .or_else(|| Some(status.metadata.as_ref()?.attempt))
        .unwrap_or_default();
    let message_file = directories.termination_message(uid, &name, attempt);
    ObservedContainer {
        sandbox,
        name,
        attempt,
        spec_hash: label(&status.annotations, labels::CONTAINER_HASH).map(str::to_owned),
        image: status.image.as_ref().map(shown_image).unwrap_or_default(),
        image_id: status.image_ref.clone(),
        log_path: status.log_path.clone(),
        created: timestamp(status.created_at).unwrap_or_default(),
        state: state(&status, &message_file),
        limits: status.resources.and_then(|all| Some(ContainerLimits::told(&all.linux?))),
        id: status.id,
    }
}

/// What the pod asked for, if the runtime tells it; its own name for the image else.
fn shown_image(image: &cri::ImageSpec) -> String {
    let asked = &image.user_specified_image;
    if asked.is_empty() { &image.image } else { asked }.clone()
}

fn state(status: &ContainerStatus, message_file: &Path) -> ContainerState {
    match status.state() {
        cri::ContainerState::ContainerCreated => ContainerState::Created,
        cri::ContainerState::ContainerRunning => {
            ContainerState::Running { started: timestamp(status.started_at).unwrap_or_default() }
        }
        cri::ContainerState::ContainerExited => ContainerState::Exited {
            started: timestamp(status.started_at),
            finished: timestamp(status.finished_at)
                .or_else(|| timestamp(status.created_at))
                .unwrap_or_default(),
            code: status.exit_code,
            signal: None,
            reason: reason(status),
            message: termination::message(status, message_file),
        },
        cri::ContainerState::ContainerUnknown => ContainerState::Unknown,
    }
}

fn reason(status: &ContainerStatus) -> String {
    match (status.reason.as_str(), status.exit_code) {
        ("", 0) => "Completed".to_owned(),
        ("", _) => "Error".to_owned(),
        (reason, _) => reason.to_owned(),
    }
}

fn label<'m>(labels: &'m BTreeMap<String, String>, name: &str) -> Option<&'m str> {
    labels.get(name).map(String::as_str)
}

/// CRI counts nanoseconds, and says 0 for never.
fn timestamp(nanoseconds: i64) -> Option<Timestamp> {
    (nanoseconds > 0).then(|| Timestamp::from_nanosecond(nanoseconds.into()).ok()).flatten()
}
