//! Exec sessions: each a process, a cgroup and a record that tells who ran what.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::net::UnixStream,
};

use rustix::{
    process::Pid,
    thread::{LinkNameSpaceType, ThreadNameSpaceType},
};

use super::{
    child::{self, Fault, Pipes, Plan, Program},
    container::Container,
    streams::pipe,
};
use crate::engine::{
    Exit, ExitCause,
    cgroup::{SessionCgroup, SessionIdentity},
    clock, environment,
    message::{Failure, Reply, SessionRequest},
    record::{self, SessionFile},
    sys::{self, Fork},
    wire::{Read, Reader},
};

/// A session that was asked for. It lives until its cgroup is empty.
pub(super) struct Session {
    pub(super) id: String,
    pub(super) pid: Pid,
    pub(super) cgroup: SessionCgroup,
    pub(super) stage: Stage,
    record: SessionFile,
    program: Vec<u8>,
    cwd: String,
}

/// How far a session has come.
pub(super) enum Stage {
    /// Between the fork and the program.
    Starting(Starting),
    Running,
    Ended,
}

/// What is needed until the program runs.
pub(super) struct Starting {
    /// Whom to answer, and the number of their request.
    pub(super) asked_by: (u64, u64),
    status: OwnedFd,
    reader: Reader,
    fault: Option<Fault>,
    /// The caller's ends; a terminal's master arrives from the child.
    theirs: Vec<OwnedFd>,
}

impl AsFd for Starting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.status.as_fd()
    }
}

impl Session {
    /// Forks the session's process into a cgroup of its own, where it waits until it is on record. The answer follows when the
    /// program runs or cannot run.
    pub(super) fn start(
        container: &Container,
        request: SessionRequest,
        block: &[u8],
        asked_by: (u64, u64),
    ) -> Result<Self, Failure> {
        let invalid = |text: &str| Failure::Refused(text.to_owned());
        let strings = || environment::strings(block);
        let argv: Vec<CString> = strings()
            .take(request.arguments)
            .filter_map(|string| CString::new(string).ok())
            .collect();
        let variables = || strings().skip(request.arguments);
        let caller = variables().take(request.caller_variables);
        let runtime = variables().skip(request.caller_variables);
        let environment = environment::merge(&container.environment, caller, runtime)
            .ok_or_else(|| invalid("a variable has no name"))?;
        let program =
            Program::new(argv, &environment).ok_or_else(|| invalid("no program is given"))?;
        let name = program.argv.first().map(|name| name.as_bytes().to_vec()).unwrap_or_default();

        let failed = |error: io::Error| match container.is_dying() {
            true => Failure::NotRunning,
            false => Failure::Refused(format!("cannot start a session: {error}")),
        };
        let cgroup =
            SessionCgroup::create(&container.sessions, &request.session).map_err(failed)?;
        let (stdio, theirs) = streams(container, &request).map_err(failed)?;
        let (status, child_status) = UnixStream::pair().map_err(failed)?;
        let plan = Plan {
            settings: &container.settings,
            map: container.map,
            init: container.init.as_fd(),
            entrances: &container.entrances,
            program,
            environment,
            stdio,
            status: child_status.as_fd(),
        };
        let pid = match fork_session(container, &cgroup, plan) {
            Ok(pid) => pid,
            Err(error) => {
                let _ = cgroup.remove_if_empty();
                return Err(failed(error));
            }
        };
        status.set_nonblocking(true).map_err(failed)?;
        let session = Self {
            record: record_of(&request, variables(), pid, container.privileged, cgroup.identity()),
            id: request.session,
            pid,
            cgroup,
            stage: Stage::Starting(Starting {
                asked_by,
                status: status.into(),
                reader: Reader::default(),
                fault: None,
                theirs,
            }),
            program: name,
            cwd: container.settings.cwd.clone(),
        };
        let recorded = record::save_session(&session.record);
        if let Stage::Starting(starting) = &session.stage {
            child::tell_recorded(starting.status.as_fd(), &recorded);
        }
        Ok(session)
    }

    /// Reads what the child reports. The answer and its descriptors, once it is decided.
    pub(super) fn progress(
        &mut self,
        container: &Container,
    ) -> Option<((u64, u64), Reply, Vec<OwnedFd>)> {
        let Stage::Starting(starting) = &mut self.stage else { return None };
        loop {
            match starting.reader.read(starting.status.as_fd()) {
                Ok(Read::Frame(frame)) => match frame.parse() {
                    Ok(message) => starting.fault = Some(Fault::from_message(message)),
                    // Nothing but the terminal.
                    Err(_) => starting.theirs.extend(frame.fds),
                },
                Ok(Read::Later) => return None,
                Ok(Read::End) | Err(_) => break,
            }
        }
        let asked_by = starting.asked_by;
        let theirs = std::mem::take(&mut starting.theirs);
        Some(match starting.fault {
            None => {
                self.stage = Stage::Running;
                let SessionFile { pid, started_at, identity, privileged, .. } = self.record;
                let reply = Reply::Session { pid, started_at, identity, privileged };
                (asked_by, reply, theirs)
            }
            Some(fault) => {
                let message = fault.describe(&self.program, &self.cwd);
                self.stage = Stage::Ended;
                record::remove_session(&self.id);
                let failure = match fault.is_of_container() {
                    true if container.is_dying() => Failure::NotRunning,
                    true => Failure::Refused(message),
                    false => Failure::Exec { code: fault.code(), message },
                };
                (asked_by, Reply::Failed(failure), Vec::new())
            }
        })
    }

    /// Notes that the process ended; its exit, unless its start had failed.
    pub(super) fn end(&mut self, code: i32, out_of_memory: bool) -> Option<Exit> {
        if !matches!(self.stage, Stage::Running) {
            return None;
        }
        let exit = Exit {
            code,
            cause: if out_of_memory { ExitCause::OutOfMemory } else { ExitCause::Own },
            started_at: Some(self.record.started_at),
            finished_at: clock::now(),
        };
        self.stage = Stage::Ended;
        self.record.exit = Some(exit.clone());
        // The runtime has it in memory too, and one that starts again sees that nothing is left in the cgroup.
        let _ = record::save_session(&self.record);
        Some(exit)
    }
}

fn record_of<'a>(
    request: &SessionRequest,
    variables: impl Iterator<Item = &'a [u8]>,
    pid: Pid,
    privileged: bool,
    identity: SessionIdentity,
) -> SessionFile {
    SessionFile {
        identity,
        privileged,
        id: request.session.clone(),
        container: request.container.clone(),
        pid: pid.as_raw_nonzero().get(),
        started_at: clock::now(),
        exit: None,
        injected: record::names_of(variables.filter_map(environment::name_of)),
        audit_id: request.audit_id.clone(),
    }
}

/// Forks into the session's cgroup and the container's PID namespace: the monitor lends itself the namespace for its next
/// child and takes its own back.
fn fork_session(container: &Container, cgroup: &SessionCgroup, plan: Plan<'_>) -> io::Result<Pid> {
    if !container.machine_pids {
        rustix::thread::move_into_thread_name_spaces(
            container.init.as_fd(),
            ThreadNameSpaceType::PROCESS_ID,
        )?;
    }
    let forked = match sys::fork_into(cgroup.directory().as_fd()) {
        Ok(Fork::Child) => child::run(plan),
        Ok(Fork::Parent(pid)) => Ok(pid),
        Err(error) => Err(error),
    };
    if !container.machine_pids {
        rustix::thread::move_into_link_name_space(
            container.own_pids.as_fd(),
            Some(LinkNameSpaceType::ProcessID),
        )?;
    }
    forked
}

/// The child's ends of its streams, and the caller's.
fn streams(
    container: &Container,
    request: &SessionRequest,
) -> io::Result<(Option<Pipes>, Vec<OwnedFd>)> {
    let mut theirs = Vec::new();
    if request.tty {
        return Ok((None, theirs));
    }
    let stdin = if request.stdin {
        let (read, write) = pipe()?;
        theirs.push(write);
        Some(read)
    } else {
        None
    };
    let mut output = |asked: bool| -> io::Result<Option<OwnedFd>> {
        if !asked {
            return Ok(None);
        }
        let (read, write) = pipe()?;
        theirs.push(read);
        Ok(Some(write))
    };
    let ours = [stdin, output(request.stdout)?, output(request.stderr)?];
    give_to_user(container, &ours)?;
    Ok((Some(ours), theirs))
}

/// Lets a program that is not root open `/dev/stdout` again.
fn give_to_user(container: &Container, ours: &Pipes) -> io::Result<()> {
    let (uid, gid) = container.settings.owner(container.map)?;
    for pipe in ours.iter().flatten() {
        rustix::fs::fchown(pipe, Some(uid), Some(gid))?;
    }
    Ok(())
}
