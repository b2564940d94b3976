//! One question to a container, of any kind.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Container, ExecAction, GRPCAction, Probe, TCPSocketAction},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::time::timeout;
use tonic::Code;
use waybill_core::chain::Chain;
use waybill_proto::cri::ExecSyncRequest;

use super::{
    dial::{Place, dial},
    grpc,
    http::{self, Caller},
};
use crate::{cri::Runtime, pod::Pod};

/// The runtime ends a command itself; only if it does not, we stop waiting this much later.
const EXEC_SLACK: Duration = Duration::from_secs(10);

/// What a command prints is shown up to this much.
const OUTPUT_BYTES: usize = 900;

/// Whom to ask.
pub(super) struct Subject {
    pub(super) pod: Arc<Pod>,
    pub(super) container: Container,
    pub(super) id: String,
    pub(super) place: Place,
    pub(super) runtime: Runtime,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Passed,
    /// Passed, but not as it should be.
    Warned(String),
    Failed(String),
    /// The question could not be put.
    Unknown(String),
}

/// Asks once.
pub(super) async fn ask(subject: &Subject, probe: &Probe, limit: Duration) -> Answer {
    if let Some(action) = &probe.exec {
        return exec(subject, action, limit).await;
    }
    let asked = async {
        if let Some(action) = &probe.http_get {
            let caller = Caller::Probe;
            let Subject { place, runtime, container, .. } = subject;
            match http::get(caller, (runtime, place), container, action).await {
                Ok(http::Reached::Final(_)) => Answer::Passed,
                Ok(http::Reached::Elsewhere(to)) => Answer::Warned(format!(
                    "Probe terminated redirects, Response body: the answer leads to {to}"
                )),
                Err(error) => Answer::Failed(Chain(&error).to_string()),
            }
        } else if let Some(action) = &probe.tcp_socket {
            tcp(subject, action).await
        } else if let Some(action) = &probe.grpc {
            grpc(subject, action).await
        } else {
            Answer::Unknown("the probe has no action that this node knows".to_owned())
        }
    };
    let late = || Answer::Failed(format!("no answer within {}s", limit.as_secs()));
    timeout(limit, asked).await.unwrap_or_else(|_| late())
}

/// The port that a probe or hook of `container` means.
pub(super) fn port(container: &Container, port: &IntOrString) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let found = ports.find(|port| port.name.as_deref() == Some(name));
            found.map(|port| port.container_port).or_else(|| name.parse().ok())
        }
    };
    number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0)
}

async fn exec(subject: &Subject, action: &ExecAction, limit: Duration) -> Answer {
    let request = ExecSyncRequest {
        container_id: subject.id.clone(),
        cmd: action.command.clone().unwrap_or_default(),
        timeout: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
    };
    let late = || Answer::Failed(format!("command timed out after {}s", limit.as_secs()));
    let mut client = subject.runtime.containers();
    let answer = timeout(limit.saturating_add(EXEC_SLACK), client.exec_sync(request)).await;
    match answer {
        Err(_) => late(),
        Ok(Err(status)) if status.code() == Code::DeadlineExceeded => late(),
        Ok(Err(status)) => Answer::Unknown(status.message().to_owned()),
        Ok(Ok(answer)) => {
            let answer = answer.into_inner();
            match answer.exit_code {
                0 => Answer::Passed,
                _ => Answer::Failed(printed(answer.stdout, &answer.stderr)),
            }
        }
    }
}

fn printed(mut stdout: Vec<u8>, stderr: &[u8]) -> String {
    stdout.extend_from_slice(stderr);
    let text = String::from_utf8_lossy(&stdout);
    let text = text.trim_end();
    text.get(..text.floor_char_boundary(OUTPUT_BYTES)).unwrap_or(text).to_owned()
}

async fn tcp(subject: &Subject, action: &TCPSocketAction) -> Answer {
    let Some(port) = port(&subject.container, &action.port) else {
        return Answer::Unknown("the container has no port of that name".to_owned());
    };
    let host = action.host.clone().filter(|host| !host.is_empty()).map(Place::Host);
    let place = host.as_ref().unwrap_or(&subject.place);
    match dial(&subject.runtime, place, port).await {
        Ok(_) => Answer::Passed,
        Err(error) => Answer::Failed(Chain(&error).to_string()),
    }
}

async fn grpc(subject: &Subject, action: &GRPCAction) -> Answer {
    let Ok(port) = u16::try_from(action.port) else {
        return Answer::Unknown("the port is none".to_owned());
    };
    let service = action.service.as_deref().unwrap_or_default();
    let connection = match dial(&subject.runtime, &subject.place, port).await {
        Ok(connection) => connection,
        Err(error) => return Answer::Failed(Chain(&error).to_string()),
    };
    match grpc::check(connection, service).await {
        Ok(()) => Answer::Passed,
        Err(error) => Answer::Failed(Chain(&error).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerPort;

    use super::*;

    #[test]
    fn ports_have_numbers_or_names() {
        let container = Container {
            ports: Some(vec![ContainerPort {
                name: Some("web".to_owned()),
                container_port: 8080,
                ..ContainerPort::default()
            }]),
            ..Container::default()
        };
        let named = |name: &str| port(&container, &IntOrString::String(name.to_owned()));
        assert_eq!(named("web"), Some(8080));
        assert_eq!(named("81"), Some(81));
        assert_eq!(named("other"), None);
        assert_eq!(port(&container, &IntOrString::Int(70_000)), None);
        assert_eq!(port(&container, &IntOrString::Int(80)), Some(80));
    }

    #[test]
    fn output_is_cut_between_characters() {
        assert_eq!(printed(b"a\n".to_vec(), b"b\n"), "a\nb");
        assert_eq!(printed("ü".repeat(1000).into_bytes(), b"").len(), OUTPUT_BYTES);
    }
}
