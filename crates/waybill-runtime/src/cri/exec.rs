//! Exec, attach and port-forward: what is asked for is checked here, and parked under a token or run.

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    time::{Instant, timeout, timeout_at},
};
use tonic::metadata::MetadataMap;
use uuid::Uuid;
use waybill_core::{
    env::{name::EnvName, name::NameRules, value::EnvValue},
    id::AuditId,
};
use waybill_proto::{
    cri::{
        AttachRequest, ExecRequest as CriExecRequest, ExecSyncRequest, ExecSyncResponse, KeyValue,
        PortForwardRequest,
    },
    env::variables,
    session::AUDIT_ID_METADATA,
};
use waybill_stream::command::Streams;

use super::{
    Cri,
    error::{CriError, Result},
};
use crate::engine::{EngineError, ExecRequest, ExitCause, ProcessIo, Session, seconds};

/// What one stream of ExecSync may bring; more is dropped (CVE-2022-1708).
const OUTPUT_BYTES: usize = 16 << 20;
/// How long output is read after the process has ended, while its children hold the pipe.
const DRAIN: Duration = Duration::from_secs(2);
const CHUNK: usize = 64 << 10;

impl Cri {
    /// Runs a command to its end. It has no variables of its own (EXEC-11).
    pub(super) async fn exec_sync(
        self: Arc<Self>,
        request: ExecSyncRequest,
    ) -> Result<ExecSyncResponse> {
        let container = self.running(&request.container_id)?;
        let limit = u64::try_from(request.timeout)
            .map_err(|_| CriError::invalid("timeout is less than nothing"))?;
        let exec = ExecRequest {
            session: new_session(),
            argv: argv(request.cmd)?,
            env: Vec::new(),
            runtime_env: self.runtime_env()?,
            tty: false,
            stdin: false,
            stdout: true,
            stderr: true,
        };
        // From now on, and not from the start of the command: a machine may take its time for that.
        let deadline = (limit > 0).then(|| Instant::now() + seconds(request.timeout));
        let late = || CriError::Deadline { what: "the command", seconds: limit };
        let started = self.start_before(deadline, container.clone(), exec).await;
        let session = match started.ok_or_else(late)? {
            Ok(session) => session,
            // The command could not be started: that is its result, as a shell would tell it.
            Err(CriError::Engine(EngineError::Exec(fault))) => {
                return Ok(ExecSyncResponse {
                    stdout: Vec::new(),
                    stderr: fault.message.into_bytes(),
                    exit_code: fault.code,
                });
            }
            Err(error) => return Err(error),
        };
        let process = session.process.clone();
        match before(deadline, collect(&container, session)).await {
            Some(response) => response,
            None => {
                process.kill().await?;
                Err(late())
            }
        }
    }

    /// Starts a session, unless that takes longer than its caller waits: then it is killed as soon as it is there.
    async fn start_before(
        self: &Arc<Self>,
        deadline: Option<Instant>,
        container: String,
        exec: ExecRequest,
    ) -> Option<Result<Session>> {
        let engine = Arc::clone(&self.engine);
        let mut start = self.tasks.spawn(async move { engine.exec(&container, exec).await });
        let started = before(deadline, &mut start).await;
        if started.is_none() {
            self.tasks.spawn(async move {
                if let Ok(Ok(session)) = start.await {
                    // Dead, or dying with its container.
                    let _ = session.process.kill().await;
                }
            });
        }
        started.map(|joined| Ok(joined.map_err(|_| CriError::Stopping)??))
    }

    /// Parks an exec session and returns its URL. The variables wait with it, in memory (EXEC-10).
    pub(super) fn exec_url(&self, request: CriExecRequest) -> Result<String> {
        let CriExecRequest { stdin, stdout, stderr, tty, .. } = request;
        let streams = Streams { stdin, stdout, stderr, tty };
        let container = self.streamable(&request.container_id, streams)?;
        let record = self.store.container(&container)?.record();
        let has_term = record.env_names.iter().any(|name| name == "TERM");
        let exec = ExecRequest {
            session: new_session(),
            argv: argv(request.cmd)?,
            env: session_env(request.envs, tty && !has_term)?,
            runtime_env: self.runtime_env()?,
            tty,
            stdin,
            stdout,
            stderr,
        };
        Ok(self.streaming.exec_url(&container, exec)?)
    }

    /// Parks an attachment to a container's own process and returns its URL.
    pub(super) fn attach_url(
        &self,
        request: &AttachRequest,
        audit_id: Option<AuditId>,
    ) -> Result<String> {
        let AttachRequest { stdin, stdout, stderr, tty, .. } = *request;
        let streams = Streams { stdin, stdout, stderr, tty };
        let container = self.streamable(&request.container_id, streams)?;
        let config = self.store.container(&container)?.record().config;
        if tty != config.tty {
            let (is, asked) = if config.tty { ("a", "none") } else { ("no", "one") };
            let reason = format!("the container has {is} terminal, the request asks for {asked}");
            return Err(CriError::invalid(reason));
        }
        if stdin && !config.stdin {
            return Err(CriError::invalid("the container was created without stdin"));
        }
        Ok(self.streaming.attach_url(&container, streams, audit_id)?)
    }

    /// Parks a port-forward and returns its URL.
    pub(super) fn forward_url(&self, request: &PortForwardRequest) -> Result<String> {
        let sandbox = self.store.sandbox(&request.pod_sandbox_id)?.record();
        if sandbox.stopped {
            return Err(CriError::state(format!("sandbox {:?} is not ready", sandbox.id)));
        }
        let port = |port: &i32| {
            u16::try_from(*port).ok().filter(|port| *port > 0).ok_or_else(|| {
                CriError::invalid(format!("port {port} is not a number from 1 to 65535"))
            })
        };
        let ports = request.port.iter().map(port).collect::<Result<Vec<_>>>()?;
        Ok(self.streaming.forward_url(&sandbox.id, ports)?)
    }

    /// The whole id of a running container that can be streamed to like this.
    fn streamable(&self, id: &str, streams: Streams) -> Result<String> {
        check_streams(streams)?;
        self.running(id)
    }
}

/// What `work` brings, if it does so in time.
async fn before<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => timeout_at(deadline, work).await.ok(),
        None => Some(work.await),
    }
}

/// The audit ID of the API request behind an `Attach` call. One that is none is refused, since the record
/// of the session would be wrong.
pub(super) fn audit_id(metadata: &MetadataMap) -> Result<Option<AuditId>> {
    let Some(value) = metadata.get(AUDIT_ID_METADATA) else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| AuditId::parse(text).ok());
    id.map(Some).ok_or_else(|| CriError::invalid("the metadata waybill-audit-id is no audit ID"))
}

fn check_streams(streams: Streams) -> Result<()> {
    if streams.tty && streams.stderr {
        return Err(CriError::invalid(
            "tty and stderr exclude each other: a terminal has one output",
        ));
    }
    if !(streams.stdin || streams.stdout || streams.stderr) {
        return Err(CriError::invalid("one of stdin, stdout and stderr must be set"));
    }
    Ok(())
}

fn argv(command: Vec<String>) -> Result<Vec<Vec<u8>>> {
    if command.first().is_none_or(String::is_empty) {
        return Err(CriError::invalid("cmd is empty"));
    }
    if command.iter().any(|word| word.contains('\0')) {
        return Err(CriError::invalid("cmd cannot contain NUL"));
    }
    Ok(command.into_iter().map(String::into_bytes).collect())
}

/// The request's variables in their order; the engine lets the last of a name win (EXEC-06). A
/// terminal needs a TERM if neither container nor request has one.
fn session_env(envs: Vec<KeyValue>, needs_term: bool) -> Result<Vec<(EnvName, EnvValue)>> {
    let mut env = Vec::with_capacity(envs.len().saturating_add(1));
    if needs_term
        && let Ok(name) = EnvName::parse("TERM", NameRules::Kernel)
        && let Ok(value) = EnvValue::plain(*b"xterm")
    {
        env.push((name, value));
    }
    env.extend(variables(envs)?);
    Ok(env)
}

fn new_session() -> String {
    Uuid::new_v4().simple().to_string()
}

/// Reads both streams and waits for the end.
async fn collect(container: &str, session: Session) -> Result<ExecSyncResponse> {
    let Session { io, process } = session;
    let (stdout, stderr) = match io {
        ProcessIo::Pipes { stdout, stderr, .. } => (stdout, stderr),
        ProcessIo::Terminal(_) => (None, None),
    };
    let (mut stdout, mut stderr) = (Output::new(stdout)?, Output::new(stderr)?);
    let exit = {
        let reading = async { tokio::join!(stdout.read(), stderr.read()) };
        tokio::pin!(reading);
        // The process may end before its output is read, and the output before the process.
        tokio::select! {
            exit = process.wait() => {
                let _ = timeout(DRAIN, &mut reading).await;
                exit?
            }
            _ = &mut reading => process.wait().await?,
        }
    };
    if exit.cause == ExitCause::MonitorLost {
        // The command was killed with it, and its code would be ours.
        return Err(EngineError::MonitorLost { id: container.to_owned() }.into());
    }
    Ok(ExecSyncResponse { stdout: stdout.content, stderr: stderr.content, exit_code: exit.code })
}

/// One stream of a process, as far as it is kept.
struct Output {
    pipe: Option<pipe::Receiver>,
    content: Vec<u8>,
}

impl Output {
    fn new(fd: Option<OwnedFd>) -> Result<Self> {
        let pipe = fd.map(pipe::Receiver::from_owned_fd).transpose();
        let pipe = pipe.map_err(CriError::io("read", "the output of a command"))?;
        Ok(Self { pipe, content: Vec::new() })
    }

    /// Reads to the end; what is too much is read and dropped, so that the process goes on.
    async fn read(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let mut chunk = vec![0; CHUNK];
        while let Ok(count) = pipe.read(&mut chunk).await {
            if count == 0 {
                return;
            }
            let room = OUTPUT_BYTES.saturating_sub(self.content.len());
            self.content.extend_from_slice(chunk.get(..count.min(room)).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams(stdin: bool, stdout: bool, stderr: bool, tty: bool) -> Streams {
        Streams { stdin, stdout, stderr, tty }
    }

    #[test]
    fn a_terminal_has_no_stderr_and_something_must_be_streamed() {
        assert!(check_streams(streams(true, true, true, false)).is_ok());
        assert!(check_streams(streams(false, true, false, true)).is_ok());
        assert!(check_streams(streams(true, true, true, true)).is_err());
        assert!(check_streams(streams(false, false, false, true)).is_err());
    }

    #[test]
    fn an_audit_id_comes_with_the_call_or_not_at_all() {
        let mut metadata = MetadataMap::new();
        assert_eq!(audit_id(&metadata).unwrap(), None);
        metadata.insert("waybill-audit-id", "5c1e-0f2a".parse().unwrap());
        assert_eq!(audit_id(&metadata).unwrap().unwrap().as_str(), "5c1e-0f2a");
        metadata.insert("waybill-audit-id", "".parse().unwrap());
        assert!(audit_id(&metadata).is_err());
    }

    #[test]
    fn a_command_has_a_program() {
        assert!(argv(Vec::new()).is_err());
        assert!(argv(vec![String::new()]).is_err());
        assert!(argv(vec!["a\0".into()]).is_err());
        assert_eq!(argv(vec!["a".into(), String::new()]).unwrap(), [b"a".to_vec(), Vec::new()]);
    }

    /// EXEC-06: order is kept, so that the last can win.
    #[test]
    fn variables_keep_their_order_exec_06() {
        let pair = |key: &str| KeyValue { key: key.into(), value: Vec::new() };
        let names = |term| {
            let env = session_env(vec![pair("B"), pair("A"), pair("B")], term).unwrap();
            env.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(false), ["B", "A", "B"]);
        assert_eq!(names(true), ["TERM", "B", "A", "B"]);
    }

    #[tokio::test]
    async fn output_beyond_the_limit_is_dropped_and_read() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut output = Output::new(Some(read)).unwrap();
        let writer = std::thread::spawn(move || {
            let mut file = std::fs::File::from(write);
            for _ in 0..17 {
                std::io::Write::write_all(&mut file, &vec![b'x'; 1 << 20]).unwrap();
            }
        });
        output.read().await;
        writer.join().unwrap();
        assert_eq!(output.content.len(), OUTPUT_BYTES);
    }
}
