//! Exec, attach and port-forward: from a request to the URL where the runtime serves it.

use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use tokio::time::Instant;
use waybill_api::{
    exec::{EnvParams, ExecVar, PodExecOptions, SessionKind},
    gates::FeatureGate,
};
use waybill_proto::{cri, session::AUDIT_ID_METADATA};
use waybill_stream::long_target;

use super::{
    Service,
    answer::{Answer, Refusal},
    containers::{self, limited},
    features::ExecEnvs,
    metrics::StreamKind,
    route::{ContainerPath, PodPath},
    session::{Admitted, Asked, SessionFault},
    stream::{Session, require_upgrade},
};
use crate::pod::{ContainerRef, ContainerSpec, Pod};

/// What the node does when a session has variables and the runtime does not take any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecEnvPolicy {
    /// The session begins without them; an event and a counter say so (EXEC-41).
    #[default]
    Warn,
    /// The session is refused (EXEC-42).
    Deny,
}

impl Service {
    /// A new process in a container.
    pub(super) async fn exec(
        &self,
        request: Request<Incoming>,
        path: &ContainerPath,
        asked: Instant,
    ) -> Result<Answer, Refusal> {
        let query = long_target::query(&request);
        let admitted = self.admit(SessionKind::Exec, &request, path).await?;
        require_upgrade(&request)?;
        let env = if self.gates.enabled(FeatureGate::ExecEnvVar) {
            EnvParams::Read
        } else {
            EnvParams::Ignored
        };
        let options = PodExecOptions::from_kubelet_query(query, env)
            .map_err(|error| Refusal::BadRequest(error.to_string()))?;
        require_streams([options.stdin, options.stdout, options.stderr])?;
        let pod = self.find_admitted(SessionKind::Exec, &admitted, &path.pod)?;
        self.check_env_support(&pod, &path.container, &options.env).await?;
        let url = self.exec_url(&pod, &path.container, &options).await?;
        self.pass_on(request, Session { kind: StreamKind::Exec, asked, url }).await
    }

    /// Asks the runtime for a session, in the container that ran a moment ago if there is one.
    async fn exec_url(
        &self,
        pod: &Pod,
        container: &str,
        options: &PodExecOptions,
    ) -> Result<String, Refusal> {
        if let Some(id) = self.running_ids.find(pod, container) {
            match self.ask_exec(id, options).await {
                Ok(url) => return Ok(url),
                // It may have ended, and another may run in its place.
                Err(_) => self.running_ids.forget(pod, container),
            }
        }
        let id = self.running(pod, container).await?;
        let url = self.ask_exec(id.clone(), options).await?;
        self.running_ids.remember(pod, container, &id);
        Ok(url)
    }

    async fn ask_exec(
        &self,
        container_id: String,
        options: &PodExecOptions,
    ) -> Result<String, tonic::Status> {
        let exec = cri::ExecRequest {
            container_id,
            cmd: options.command.clone(),
            tty: options.tty,
            stdin: options.stdin,
            stdout: options.stdout,
            stderr: options.stderr,
            envs: key_values(&options.env),
        };
        Ok(self.runtime.containers().exec(limited(exec)).await?.into_inner().url)
    }

    /// The streams of a container's own process.
    pub(super) async fn attach(
        &self,
        request: Request<Incoming>,
        path: &ContainerPath,
        asked: Instant,
    ) -> Result<Answer, Refusal> {
        let query = long_target::query(&request);
        let admitted = self.admit(SessionKind::Attach, &request, path).await?;
        require_upgrade(&request)?;
        let options = PodExecOptions::from_kubelet_query(query, EnvParams::Ignored)
            .map_err(|error| Refusal::BadRequest(error.to_string()))?;
        let pod = self.find_admitted(SessionKind::Attach, &admitted, &path.pod)?;
        let container = pod.containers().find(|container| container.name() == path.container);
        let container =
            container.ok_or_else(|| Refusal::ContainerNotFound(path.container.clone()))?;
        // It is the container that has a terminal or not, whatever the client says.
        let tty = has_terminal(container);
        let stderr = options.stderr && !tty;
        require_streams([options.stdin, options.stdout, stderr])?;
        let container_id = self.running(&pod, &path.container).await?;
        let attach = cri::AttachRequest {
            container_id,
            stdin: options.stdin,
            tty,
            stdout: options.stdout,
            stderr,
        };
        let attach = with_audit_id(limited(attach), &admitted)?;
        let url = self.runtime.containers().attach(attach).await?.into_inner().url;
        self.pass_on(request, Session { kind: StreamKind::Attach, asked, url }).await
    }

    /// Ports of a pod.
    pub(super) async fn port_forward(
        &self,
        request: Request<Incoming>,
        path: &PodPath,
        asked: Instant,
    ) -> Result<Answer, Refusal> {
        require_upgrade(&request)?;
        let port = ports(long_target::query(&request))?;
        let pod = self.find_pod(path)?;
        let sandbox = containers::ready_sandbox(&self.runtime, &pod).await?;
        let pod_sandbox_id = sandbox
            .ok_or_else(|| Refusal::NotFound(format!("pod {:?} is not running", pod.name())))?;
        let forward = cri::PortForwardRequest { pod_sandbox_id, port };
        let url = self.runtime.containers().port_forward(limited(forward)).await?.into_inner().url;
        self.pass_on(request, Session { kind: StreamKind::PortForward, asked, url }).await
    }

    async fn running(&self, pod: &Pod, container: &str) -> Result<String, Refusal> {
        let found = containers::running(&self.runtime, pod, container).await?;
        found.ok_or_else(|| Refusal::ContainerNotFound(container.to_owned()))
    }

    /// Whether the API server opened this session.
    async fn admit(
        &self,
        kind: SessionKind,
        request: &Request<Incoming>,
        path: &ContainerPath,
    ) -> Result<Admitted, Refusal> {
        let asked = Asked { kind, path, query: long_target::query(request) };
        let admitted = self.sessions.admit(request.headers(), &asked).await;
        admitted.inspect_err(|refusal| self.count_refusal(refusal))
    }

    /// The pod that is meant; there may be an earlier one of the same name that is ending.
    fn find_admitted(
        &self,
        kind: SessionKind,
        admitted: &Admitted,
        path: &PodPath,
    ) -> Result<Arc<Pod>, Refusal> {
        let Admitted::Signed { uid, .. } = admitted else { return self.find_pod(path) };
        let found = self.pods.find(&path.namespace, &path.name, Some(uid));
        let fits = path.uid.as_ref().is_none_or(|asked| asked == uid);
        match found.filter(|_| fits) {
            Some(pod) => Ok(pod),
            None => {
                self.find_pod(path)?;
                let refusal = Refusal::from(SessionFault::OtherPod.of(kind));
                self.count_refusal(&refusal);
                Err(refusal)
            }
        }
    }

    fn count_refusal(&self, refusal: &Refusal) {
        if let Refusal::Session(refusal) = refusal {
            self.metrics.exec_session_refused(refusal.fault.label());
        }
    }

    /// EXEC-41, EXEC-42. Names and values of the variables are nobody's business here, only that
    /// there are some.
    async fn check_env_support(
        &self,
        pod: &Pod,
        container: &str,
        env: &[ExecVar],
    ) -> Result<(), Refusal> {
        if env.is_empty() {
            return Ok(());
        }
        match (self.features.exec_envs(&self.runtime).await, self.exec_env) {
            (Ok(ExecEnvs::Supported), _) => Ok(()),
            (Ok(ExecEnvs::Unsupported), ExecEnvPolicy::Deny) => Err(Refusal::ExecEnvUnsupported),
            (Ok(ExecEnvs::Unsupported), ExecEnvPolicy::Warn) => {
                self.metrics.exec_envs_unsupported();
                let message = format!(
                    "exec session in container {container:?} began without its {} variables: \
                     container runtime does not support ExecRequest.envs",
                    env.len()
                );
                self.events.warn(pod, "ExecEnvUnsupported", &message);
                Ok(())
            }
            // Without an answer nothing is promised, and nothing is known to be missing.
            (Err(status), ExecEnvPolicy::Deny) => Err(status.into()),
            (Err(_), ExecEnvPolicy::Warn) => Ok(()),
        }
    }
}

/// Tells the runtime which request the streams are for. CRI has no field for it; runtimes that do not know
/// the metadata pass over it.
fn with_audit_id<T>(
    mut request: tonic::Request<T>,
    admitted: &Admitted,
) -> Result<tonic::Request<T>, Refusal> {
    if let Admitted::Signed { audit_id, .. } = admitted {
        let value = audit_id.as_str().parse().map_err(|_| {
            Refusal::BadRequest("the audit ID cannot be passed on to the runtime".to_owned())
        })?;
        request.metadata_mut().insert(AUDIT_ID_METADATA, value);
    }
    Ok(request)
}

/// In order; of a name that is there more than once only the last stays (EXEC-37, OP-6).
fn key_values(env: &[ExecVar]) -> Vec<cri::KeyValue> {
    let later = |index: usize, name: &str| {
        env.iter().skip(index + 1).any(|variable| variable.name() == name)
    };
    env.iter()
        .enumerate()
        .filter(|(index, variable)| !later(*index, variable.name()))
        .map(|(_, variable)| cri::KeyValue {
            key: variable.name().to_owned(),
            value: variable.value().expose().to_vec(),
        })
        .collect()
}

fn require_streams(streams: [bool; 3]) -> Result<(), Refusal> {
    if streams.contains(&true) {
        return Ok(());
    }
    let text = "you must specify at least 1 of stdin, stdout, stderr";
    Err(Refusal::BadRequest(text.to_owned()))
}

fn has_terminal(container: ContainerRef<'_>) -> bool {
    match container.container {
        ContainerSpec::Ephemeral(container) => container.tty,
        ContainerSpec::Usual(container) => container.tty,
    }
    .unwrap_or_default()
}

/// Only WebSockets name ports here; over SPDY each stream does.
fn ports(query: &str) -> Result<Vec<i32>, Refusal> {
    let texts = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "port");
    let mut ports = Vec::new();
    for (_, text) in texts {
        for port in text.split(',') {
            match port.parse::<u16>() {
                Ok(0) | Err(_) => {
                    let text = "query parameter port is not a port".to_owned();
                    return Err(Refusal::BadRequest(text));
                }
                Ok(port) => ports.push(i32::from(port)),
            }
        }
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use waybill_core::id::AuditId;

    use super::*;

    /// EXEC-37, OP-6
    #[test]
    fn variables_keep_their_order_and_the_last_of_a_name_stays_exec_37() {
        let env = [("A", "1"), ("B", "2"), ("A", "3"), ("C", ""), ("a", "4")];
        let env: Vec<_> = env.iter().map(|(name, value)| ExecVar::new(*name, *value)).collect();
        let found = key_values(&env);
        let found: Vec<_> =
            found.iter().map(|pair| (pair.key.as_str(), pair.value.as_slice())).collect();
        let expected: [(&str, &[u8]); 4] = [("B", b"2"), ("A", b"3"), ("C", b""), ("a", b"4")];
        assert_eq!(found, expected);
    }

    /// EXEC-49
    #[test]
    fn an_audit_id_costs_one_small_pair_exec_49() {
        let id = AuditId::parse("5c1e0f2a-0000-4000-8000-000000000000").unwrap();
        let size = |env: &[ExecVar]| {
            cri::ExecRequest { envs: key_values(env), ..Default::default() }.encoded_len()
        };
        let pair = size(&[ExecVar::audit_id(Some(&id))]) - size(&[]);
        assert!(pair <= 66, "{pair} bytes");
    }

    #[test]
    fn the_runtime_is_told_the_audit_id_of_a_signed_attach() {
        let audit_id = AuditId::parse("5c1e-0f2a").unwrap();
        let signed = Admitted::Signed { uid: "u-1".to_owned(), audit_id };
        let request = with_audit_id(limited(()), &signed).unwrap();
        assert_eq!(request.metadata().get("waybill-audit-id").unwrap(), "5c1e-0f2a");
        let request = with_audit_id(limited(()), &Admitted::Unsigned).unwrap();
        assert!(request.metadata().get("waybill-audit-id").is_none());
    }

    #[test]
    fn ports_stand_alone_or_between_commas() {
        assert_eq!(ports("port=80&port=443,8080&x=1").unwrap(), [80, 443, 8080]);
        assert!(ports("").unwrap().is_empty());
        for bad in ["port=", "port=0", "port=65536", "port=x", "port=80,"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }
}
