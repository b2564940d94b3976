//! How a container comes into being: it is made by a creator, and started when the runtime says so.

use std::{
    collections::HashMap,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, PidfdFlags, WaitStatus},
};

use super::{
    Monitor,
    child::Fault,
    container::{Container, Phase},
    creator::{self, Outcome},
    log::Log,
    streams::{Streams, pipe},
};
use crate::engine::{
    cgroup::{Cgroup, Hierarchies},
    clock,
    environment::{self, Block},
    message::{CreateRequest, Failure, FromMonitor, Reply},
    record::{self, CgroupsFile},
    sys::{self, Fork},
    wire::{self, Read, Reader},
};

/// A container that is being made.
pub(super) struct Creation {
    asked_by: (u64, u64),
    pub(super) creator: Pid,
    pub(super) outcome: OwnedFd,
    reader: Reader,
    request: Box<CreateRequest>,
    cgroup: Cgroup,
    cgroups: CgroupsFile,
    environment: Block,
    status: OwnedFd,
    console: Option<UnixListener>,
    /// Children that ended before we knew who they were.
    pub(super) ended: HashMap<Pid, WaitStatus>,
}

/// What is known of a container's first process when its start is judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstProcess {
    Lives,
    Ended,
}

impl Monitor {
    pub(super) fn create(
        &mut self,
        asked_by: (u64, u64),
        mut request: Box<CreateRequest>,
        block: &[u8],
    ) -> Result<(), Failure> {
        if self.container.is_some() || self.creation.is_some() {
            return Err(Failure::Refused("this monitor has a container already".to_owned()));
        }
        let (arguments, environment) =
            environment::split(block, request.arguments).ok_or_else(|| {
                Failure::Refused("there are fewer arguments than were told".to_owned())
            })?;
        let arguments = Block::from(arguments.to_vec());
        let environment = Block::from(environment.to_vec());
        request.settings.oom_score_adj.get_or_insert(self.oom_score);
        // Swap is a file too. Where locked memory is limited to less, the container matters more.
        let _ = sys::lock_in_memory(&environment);
        let creation = self
            .begin_creation(asked_by, request, arguments, environment)
            .map_err(|error| Failure::Create(error.to_string()))?;
        self.creation = Some(creation);
        Ok(())
    }

    fn begin_creation(
        &mut self,
        asked_by: (u64, u64),
        request: Box<CreateRequest>,
        arguments: Block,
        environment: Block,
    ) -> io::Result<Creation> {
        let cgroup = Cgroup::new(&Hierarchies::detect()?, &request.cgroup)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        cgroup.create()?;
        let cgroups = CgroupsFile::of(cgroup.create_leaves()?);
        record::save(Path::new(record::CGROUPS), &cgroups)?;
        let directory = cgroup.open_processes()?;
        let stdio = &request.stdio;
        self.streams = Streams::new(stdio);
        self.streams.log = stdio.log.as_deref().map(Log::open).transpose()?;
        let console = stdio.tty.then(|| UnixListener::bind(creator::CONSOLE_SOCKET)).transpose()?;
        console.iter().try_for_each(|console| console.set_nonblocking(true))?;
        let container_stdio = if stdio.tty { None } else { Some(self.pipes(&request)?) };
        let (outcome, creator_outcome) = UnixStream::pair()?;
        let (status, init_status) = UnixStream::pair()?;
        outcome.set_nonblocking(true)?;
        status.set_nonblocking(true)?;
        let plan = creator::Plan {
            settings: request.settings.clone(),
            cgroup: cgroup.clone(),
            resources: request.resources.clone(),
            device_rules: request.device_rules.clone(),
            volumes: request.volumes.clone(),
            users: request.users.clone(),
            cgroup_view: request.cgroup_view.clone(),
            arguments,
            environment: Block::from(environment.to_vec()),
            stdio: container_stdio,
            outcome: creator_outcome.into(),
            status: init_status.into(),
        };
        let creator = match sys::fork_into(directory.as_fd())? {
            Fork::Child => creator::run(plan),
            Fork::Parent(pid) => pid,
        };
        Ok(Creation {
            asked_by,
            creator,
            outcome: outcome.into(),
            reader: Reader::default(),
            request,
            cgroup,
            cgroups,
            environment,
            status: status.into(),
            console,
            ended: HashMap::new(),
        })
    }

    /// Makes the container's pipes; keeps our ends and returns its own.
    fn pipes(&mut self, request: &CreateRequest) -> io::Result<[OwnedFd; 3]> {
        let stdin = if request.stdio.stdin {
            let (read, write) = pipe()?;
            self.streams.stdin = Some(write);
            read
        } else {
            rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?
        };
        let ((our_stdout, stdout), (our_stderr, stderr)) = (pipe()?, pipe()?);
        let map = request.users.as_ref().map(|users| users.map);
        let (uid, gid) = request.settings.owner(map)?;
        for fd in [&stdin, &stdout, &stderr].into_iter().skip(usize::from(!request.stdio.stdin)) {
            rustix::fs::fchown(fd, Some(uid), Some(gid))?;
        }
        for fd in self.streams.stdin.iter().chain([&our_stdout, &our_stderr]) {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        (self.streams.stdout, self.streams.stderr) = (Some(our_stdout), Some(our_stderr));
        Ok([stdin, stdout, stderr])
    }

    pub(super) fn advance_creation(&mut self) {
        let Some(creation) = &mut self.creation else { return };
        let outcome = match creation.reader.read(creation.outcome.as_fd()) {
            Ok(Read::Later) => return,
            Ok(Read::Frame(frame)) => frame.parse().map_err(|error| error.to_string()),
            Ok(Read::End) | Err(_) => Err("its creator died".to_owned()),
        };
        let Some(creation) = self.creation.take() else { return };
        let asked_by = creation.asked_by;
        let result = match outcome {
            Ok(Outcome::Created { pid, warnings, privileged }) => self
                .finish_creation(creation, pid, privileged)
                .map(|ended| (warnings, ended))
                .map_err(|error| error.to_string()),
            Ok(Outcome::Failed { reason }) | Err(reason) => Err(reason),
        };
        match result {
            Ok((warnings, ended)) => {
                self.reply(asked_by, Reply::Created { warnings }, Vec::new());
                if let Some(status) = ended {
                    self.init_ended(status);
                }
            }
            Err(reason) => {
                self.reply(asked_by, Reply::Failed(Failure::Create(reason)), Vec::new());
                self.failed = true;
            }
        }
    }

    fn finish_creation(
        &mut self,
        creation: Creation,
        pid: i32,
        privileged: bool,
    ) -> io::Result<Option<WaitStatus>> {
        if privileged {
            let mut cgroups = creation.cgroups.clone();
            cgroups.privileged = true;
            record::save(Path::new(record::CGROUPS), &cgroups)?;
        }
        let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process was made"))?;
        let init = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        if let Some(console) = &creation.console {
            self.receive_terminal(console)?;
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let own_pids = rustix::fs::open("/proc/self/ns/pid", flags, Mode::empty())?;
        self.container = Some(Container {
            pid,
            init,
            settings: creation.request.settings,
            map: creation.request.users.map(|users| users.map),
            program: creation.request.program,
            environment: creation.environment,
            sessions: creation.cgroup.open_sessions()?,
            entrances: creation.cgroup.entrances()?,
            cgroup: creation.cgroup,
            machine_pids: creation.request.machine_pids,
            privileged,
            own_pids,
            status: Some(creation.status),
            phase: Phase::Created,
        });
        Ok(creation.ended.get(&pid).copied())
    }

    /// The terminal lies ready: libcontainer sent it before it reported. If not, nobody waits for it.
    fn receive_terminal(&mut self, console: &UnixListener) -> io::Result<()> {
        let (socket, _) = console.accept()?;
        socket.set_nonblocking(true)?;
        let master = wire::receive_descriptor(socket.as_fd())?;
        rustix::io::ioctl_fionbio(&master, true)?;
        self.streams.stdin = Some(master.try_clone()?);
        self.streams.stdout = Some(master);
        let _ = std::fs::remove_file(creator::CONSOLE_SOCKET);
        Ok(())
    }

    pub(super) fn start(&mut self, asked_by: (u64, u64)) -> Result<(), Failure> {
        let container = self.made()?;
        if !matches!(container.phase, Phase::Created) {
            return Err(Failure::Refused("the container was started already".to_owned()));
        }
        // The end of the connection is the signal; what is written does not matter.
        UnixStream::connect(creator::START_SOCKET)
            .map_err(|error| Failure::Refused(format!("cannot start the container: {error}")))?;
        container.phase = Phase::Starting { asked_by };
        Ok(())
    }

    /// Answers the start, if it is known by now whether the program runs.
    pub(super) fn advance_start(&mut self) {
        self.judge_start(FirstProcess::Lives);
    }

    /// Answers the start at the latest moment.
    pub(super) fn finish_start(&mut self) {
        self.judge_start(FirstProcess::Ended);
    }

    fn judge_start(&mut self, first: FirstProcess) {
        let Some(container) = &mut self.container else { return };
        let Phase::Starting { asked_by } = container.phase else { return };
        let Some(status) = &container.status else { return };
        let fault = match Reader::default().read(status.as_fd()) {
            Ok(Read::Later) if first == FirstProcess::Lives => return,
            // It said nothing before it ended, so its program ran. That the other end is open is its creator's doing, which may
            // take its time to end on a busy machine.
            Ok(Read::Later) => None,
            Ok(Read::Frame(frame)) => frame.parse().ok().map(Fault::from_message),
            Ok(Read::End) | Err(_) => None,
        };
        container.status = None;
        let reply = match fault {
            None => {
                let (pid, started_at) = (container.pid.as_raw_nonzero().get(), clock::now());
                container.phase = Phase::Running { started_at };
                // Whoever asked may be gone, and another runtime here.
                self.tell_all(&FromMonitor::Started { pid, started_at });
                Reply::Started { pid, started_at }
            }
            // Its process has ended or is about to.
            Some(fault) => {
                container.phase = Phase::Created;
                let message = fault.describe(&container.program, &container.settings.cwd);
                Reply::Failed(Failure::Exec { code: fault.code(), message })
            }
        };
        self.reply(asked_by, reply, Vec::new());
    }

    pub(super) fn creator_died(&mut self) {
        if let Some(creation) = self.creation.take() {
            let reason = "its creator died; the machine may be out of memory".to_owned();
            self.reply(creation.asked_by, Reply::Failed(Failure::Create(reason)), Vec::new());
            self.failed = true;
        }
    }
}
