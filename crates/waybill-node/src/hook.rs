//! Lifecycle hooks: what a container does right after its start and right before its end.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use tokio::time::{sleep, timeout};
use waybill_proto::cri::{ContainerFilter, ExecSyncRequest, ListContainersRequest};

use crate::{
    cri::Runtime,
    deadline,
    pod::{ContainerSpec, Pod},
    probe::{
        dial::Place,
        http::{self, Caller, GetError},
    },
};

/// What a command prints is shown up to this much.
const OUTPUT_BYTES: usize = 900;

/// A container that takes no connection, or does not answer, is not waited for longer.
const HTTP_LIMIT: Duration = Duration::from_secs(60);

/// Why a hook failed. The text is that of the event.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
    #[error("exec hook: the command exited with {code}{}", shown(.output))]
    Exit { code: i32, output: String },
    #[error("exec hook: the runtime did not run the command")]
    Exec(#[source] Box<tonic::Status>),
    #[error("httpGet hook")]
    Http(#[source] GetError),
    #[error("httpGet hook: no answer within {}s", HTTP_LIMIT.as_secs())]
    Late,
    #[error("httpGet hook: the container cannot be found")]
    Lookup(#[source] Box<tonic::Status>),
    #[error("the hook has no action that this node knows")]
    Unknown,
}

fn shown(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(": {output}") }
}

/// Runs a hook to its end. How long it may take is for the caller to say: dropping this ends the
/// waiting.
pub(crate) async fn run(
    runtime: &Runtime,
    pod: &Pod,
    container_id: &str,
    pod_ip: Option<&str>,
    handler: &LifecycleHandler,
) -> Result<(), HookError> {
    if let Some(action) = &handler.exec {
        return exec(runtime, container_id, action.command.clone().unwrap_or_default()).await;
    }
    if let Some(action) = &handler.http_get {
        let place = match pod_ip {
            Some(ip) => Place::Host(ip.to_owned()),
            None => Place::Sandbox(sandbox_of(runtime, container_id).await?),
        };
        let nothing = Container::default();
        let container = owner(pod, handler).unwrap_or(&nothing);
        let asked = http::get(Caller::Hook, (runtime, &place), container, action);
        return match timeout(HTTP_LIMIT, asked).await {
            // Any answer will do.
            Ok(Ok(_) | Err(GetError::Status(_))) => Ok(()),
            Ok(Err(error)) => Err(HookError::Http(error)),
            Err(_) => Err(HookError::Late),
        };
    }
    if let Some(action) = &handler.sleep {
        sleep(deadline::seconds(action.seconds)).await;
        return Ok(());
    }
    Err(HookError::Unknown)
}

async fn exec(runtime: &Runtime, container_id: &str, cmd: Vec<String>) -> Result<(), HookError> {
    // Zero is without limit.
    let request = ExecSyncRequest { container_id: container_id.to_owned(), cmd, timeout: 0 };
    let answer = runtime.containers().exec_sync(request).await;
    let answer = answer.map_err(|status| HookError::Exec(Box::new(status)))?.into_inner();
    if answer.exit_code == 0 {
        return Ok(());
    }
    let mut output = answer.stdout;
    output.extend_from_slice(&answer.stderr);
    let output = String::from_utf8_lossy(&output);
    let output = output.trim_end();
    let output = output.get(..output.floor_char_boundary(OUTPUT_BYTES)).unwrap_or(output);
    Err(HookError::Exit { code: answer.exit_code, output: output.to_owned() })
}

/// The container whose hook this is, for the names of its ports.
fn owner<'p>(pod: &'p Pod, handler: &LifecycleHandler) -> Option<&'p Container> {
    pod.containers().find_map(|container| {
        let ContainerSpec::Usual(spec) = container.container else { return None };
        let hooks = spec.lifecycle.as_ref()?;
        let mut hooks = [&hooks.post_start, &hooks.pre_stop].into_iter().flatten();
        hooks.any(|hook| hook == handler).then_some(spec)
    })
}

async fn sandbox_of(runtime: &Runtime, container_id: &str) -> Result<String, HookError> {
    let filter = ContainerFilter { id: container_id.to_owned(), ..ContainerFilter::default() };
    let request = ListContainersRequest { filter: Some(filter) };
    let answer = runtime.containers().list_containers(request).await;
    let answer = answer.map_err(|status| HookError::Lookup(Box::new(status)))?.into_inner();
    let found = answer.containers.into_iter().find(|found| found.id == container_id);
    let missing = || HookError::Lookup(Box::new(tonic::Status::not_found("no such container")));
    found.map(|found| found.pod_sandbox_id).ok_or_else(missing)
}

#[cfg(test)]
mod tests;
