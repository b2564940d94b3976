//! Exec sessions.

use std::sync::Weak;

use tokio::sync::watch;

use super::{Engine, Result, blocking, io_error, not_found};
use crate::engine::{
    EngineError, ExecRequest, Exit, Kind, ProcessIo, SessionRecord,
    cgroup::{self, Cgroup, SessionIdentity},
    clock, environment,
    message::{Reply, Request, SessionRequest},
    record::{self, SessionFile},
    request,
};

/// A running exec session: its streams, and the process behind them.
#[derive(Debug)]
pub struct Session {
    /// The caller's ends; taken apart from `process` so that each can go its own way.
    pub io: ProcessIo,
    /// To wait for and to kill.
    pub process: SessionProcess,
}

/// The process of an exec session. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SessionProcess {
    id: String,
    pid: i32,
    cgroup: Cgroup,
    exit: watch::Receiver<Option<Exit>>,
    /// Without the engine nobody hears of the exit.
    engine: Weak<Engine>,
}

impl Engine {
    pub(super) async fn start_session(&self, id: &str, request: ExecRequest) -> Result<Session> {
        request::check_exec(&request)?;
        let entry = self.entry(id)?;
        let session = request.session.clone();
        let taken = EngineError::AlreadyExists { kind: Kind::Session, id: session.clone() };
        // Known before it runs, because it may end before we hear that it began.
        let exit = self.sessions.add(record_of(id, &request)).ok_or(taken)?;
        let guard = Forget { engine: self, session: Some(&session) };
        let message = SessionRequest {
            session: session.clone(),
            container: id.to_owned(),
            arguments: request.argv.len(),
            caller_variables: request.env.len(),
            tty: request.tty,
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            audit_id: environment::audit_id(&request.env).map(|id| id.as_str().to_owned()),
        };
        let block = environment::block_of(&request.argv, &[&request.env, &request.runtime_env]);
        let asked = entry.ask(Request::Exec(message), &block).await;
        if matches!(asked, Err(EngineError::MonitorSilent { .. })) {
            // It may have begun, and nobody would know of it.
            let (cgroup, session) = (entry.cgroup.clone(), session.clone());
            let killed = blocking(move || Ok(cgroup::kill_session(&cgroup, &session))).await;
            drop(killed);
        }
        let (reply, fds) = asked?;
        let Reply::Session { pid, started_at, identity, privileged } = reply else {
            return Err(entry.unexpected(reply));
        };
        guard.keep();
        self.sessions.started(&session, pid, started_at, identity, privileged);
        let process = SessionProcess {
            id: session,
            pid,
            cgroup: entry.cgroup.clone(),
            exit,
            engine: self.me.clone(),
        };
        let mut fds = fds.into_iter();
        let io = if request.tty {
            let master = fds.next().ok_or_else(|| entry.unexpected(Reply::Done))?;
            ProcessIo::Terminal(master)
        } else {
            let mut next = |asked: bool| if asked { fds.next() } else { None };
            ProcessIo::Pipes {
                stdin: next(request.stdin),
                stdout: next(request.stdout),
                stderr: next(request.stderr),
            }
        };
        Ok(Session { io, process })
    }
}

/// Forgets a session that did not start, also when nobody waits for it any more.
struct Forget<'a> {
    engine: &'a Engine,
    session: Option<&'a str>,
}

impl Forget<'_> {
    fn keep(mut self) {
        self.session = None;
    }
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            self.engine.sessions.forget(session);
        }
    }
}

fn record_of(container: &str, request: &ExecRequest) -> SessionRecord {
    let variables = request.env.iter().chain(&request.runtime_env);
    let file = SessionFile {
        identity: SessionIdentity::default(),
        privileged: false,
        id: request.session.clone(),
        container: container.to_owned(),
        pid: 0,
        started_at: clock::now(),
        exit: None,
        injected: record::names_of(variables.map(|(name, _)| name.clone())),
        audit_id: None,
    };
    SessionRecord { audit_id: environment::audit_id(&request.env), ..file.into_record() }
}

impl Session {
    /// See [`SessionProcess::wait`].
    pub async fn wait(&self) -> Result<Exit> {
        self.process.wait().await
    }

    /// See [`SessionProcess::kill`].
    pub async fn kill(&self) -> Result<()> {
        self.process.kill().await
    }
}

impl SessionProcess {
    /// The session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The first process, as the machine counts.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until the first process has ended. Cancel-safe, any number of waiters.
    pub async fn wait(&self) -> Result<Exit> {
        let mut exit = self.exit.clone();
        loop {
            if let Some(exit) = &*exit.borrow_and_update() {
                return Ok(exit.clone());
            }
            if exit.changed().await.is_err() || self.engine.strong_count() == 0 {
                return Err(not_found(Kind::Session, &self.id));
            }
        }
    }

    /// Kills every process of the session, also those that outlived the first one, and waits until they are gone. Idempotent.
    pub async fn kill(&self) -> Result<()> {
        let (cgroup, id) = (self.cgroup.clone(), self.id.clone());
        blocking(move || {
            cgroup::kill_session(&cgroup, &id)
                .map_err(io_error("kill a session of", &cgroup.path()))
        })
        .await
    }
}
