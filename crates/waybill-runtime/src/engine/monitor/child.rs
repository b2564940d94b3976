//! From the fork to the program of an exec session: the child joins the container and becomes exactly what the
//! container's first process is, then executes.
//!
//! Everything is prepared before the fork. What fails is reported as a [`Fault`] and put into words by the parent.

use std::{
    ffi::CString,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Rlimit, Uid},
    pty::OpenptFlags,
    thread::ThreadNameSpaceType,
};

use super::{apparmor, privileges, users};
use crate::{
    IdMap,
    engine::{
        environment::{self, Block},
        settings::{RESOURCES, Settings},
        sys, wire,
    },
};

/// What is ready before the fork.
pub(super) struct Plan<'a> {
    pub(super) settings: &'a Settings,
    /// The ids that users of the container have on the machine, if it has a user namespace.
    pub(super) map: Option<IdMap>,
    /// The container's first process.
    pub(super) init: BorrowedFd<'a>,
    /// Files of the older cgroup hierarchies to enter by.
    pub(super) entrances: &'a [File],
    pub(super) program: Program,
    pub(super) environment: Block,
    /// Our ends of pipes, or `None` for a terminal.
    pub(super) stdio: Option<Pipes>,
    /// To the parent: faults, and the terminal's master. From it: whether the session is on record.
    pub(super) status: BorrowedFd<'a>,
}

/// Standard input, output and error; `None` is the null device.
pub(super) type Pipes = [Option<OwnedFd>; 3];

/// What is executed.
pub(super) struct Program {
    pub(super) argv: Vec<CString>,
    /// Where to look, in order: one place if the name has a slash, else one for each directory of `PATH`.
    candidates: Vec<CString>,
    searched: bool,
}

/// What failed before the program ran, and the kernel's reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) step: Step,
    pub(super) errno: i32,
}

/// What the child was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Cgroup,
    Namespaces,
    Limits,
    Terminal,
    Streams,
    Privileges,
    User,
    Directory,
    Search,
    Execute,
    Seccomp,
    AppArmor,
    Keyring,
    Record,
}

const STEPS: [Step; 14] = [
    Step::Cgroup,
    Step::Namespaces,
    Step::Limits,
    Step::Terminal,
    Step::Streams,
    Step::Privileges,
    Step::User,
    Step::Directory,
    Step::Search,
    Step::Execute,
    Step::Seccomp,
    Step::AppArmor,
    Step::Keyring,
    Step::Record,
];

/// Where programs are looked for when an environment has no `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs in the child and does not come back. The plan is never dropped: its descriptors are closed by number.
pub(super) fn run(mut plan: Plan<'_>) -> ! {
    let fault = join_and_execute(&mut plan);
    fault.report(plan.status);
    sys::exit_now(fault.code())
}

fn join_and_execute(plan: &mut Plan<'_>) -> Fault {
    match join(plan) {
        Ok(()) => {
            add_home(&mut plan.environment, plan.settings.uid);
            let recorded = wait_for_record(plan.status).map_err(Step::Record.failed());
            // A filter may deny even reading, so it comes last.
            match recorded.and_then(|()| privileges::seal(plan.settings)) {
                Ok(()) => plan.program.execute(&plan.environment),
                Err(fault) => fault,
            }
        }
        Err(fault) => fault,
    }
}

/// Tells a child that its session is on record and its program may run, or why it may not. One that has failed already does not
/// hear it.
pub(super) fn tell_recorded(status: BorrowedFd<'_>, recorded: &io::Result<()>) {
    let errno =
        recorded.as_ref().err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
    let _ = rustix::net::send(status, &errno.to_ne_bytes(), rustix::net::SendFlags::NOSIGNAL);
}

/// Without a parent there is no record either.
fn wait_for_record(status: BorrowedFd<'_>) -> io::Result<()> {
    let mut errno = [0; 4];
    let read = rustix::io::retry_on_intr(|| rustix::io::read(status, &mut errno))?;
    match i32::from_ne_bytes(errno) {
        0 if read == errno.len() => Ok(()),
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn join(plan: &mut Plan<'_>) -> Result<(), Fault> {
    let settings = plan.settings;
    enter_cgroups(plan.entrances).map_err(Step::Cgroup.failed())?;
    // Refused when it is lower than ours and we lack CAP_SYS_RESOURCE; the first process was let off too.
    let _ = set_oom_score(settings);
    apply_limits(settings).map_err(Step::Limits.failed())?;
    if let Some(profile) = &settings.apparmor_profile {
        apparmor::change_on_exec(profile).map_err(Step::AppArmor.failed())?;
    }
    let_go_of_the_machine(plan).map_err(Step::Streams.failed())?;
    let mut namespaces = joined_namespaces();
    if let Some(map) = plan.map {
        users::become_root(map).map_err(Step::User.failed())?;
        // The kernel enters it before the others, whatever the order here.
        namespaces |= ThreadNameSpaceType::USER;
    }
    rustix::thread::move_into_thread_name_spaces(plan.init, namespaces)
        .map_err(|errno| Step::Namespaces.failed()(errno.into()))?;
    rustix::process::setsid().map_err(|errno| Step::Terminal.failed()(errno.into()))?;
    match &plan.stdio {
        Some(stdio) => use_streams(stdio).map_err(Step::Streams.failed())?,
        None => open_terminal(settings, plan.status).map_err(Step::Terminal.failed())?,
    }
    sys::close_all_but(&[plan.status]).map_err(Step::Streams.failed())?;
    privileges::settle(settings)?;
    sys::reset_signals();
    Ok(())
}

/// Lets go of everything of the machine before any path of the container is looked up: by `/proc/self/fd` a path may lead
/// into whatever directory is open then, close-on-exec or not (CVE-2024-21626).
fn let_go_of_the_machine(plan: &Plan<'_>) -> io::Result<()> {
    let mut keep = vec![plan.init, plan.status];
    keep.extend(plan.stdio.iter().flatten().flatten().map(OwnedFd::as_fd));
    sys::close_all_but(&keep)
}

/// All but that of process ids, which the parent chose before the fork, and that of users, which few containers have.
fn joined_namespaces() -> ThreadNameSpaceType {
    ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::CONTROL_GROUP
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
        | ThreadNameSpaceType::NETWORK
}

/// Enters the older cgroup hierarchies; see `Cgroup::entrances`.
pub(super) fn enter_cgroups(entrances: &[File]) -> io::Result<()> {
    entrances.iter().try_for_each(|mut file| file.write_all(b"0"))
}

pub(super) fn set_oom_score(settings: &Settings) -> io::Result<()> {
    match settings.oom_score_adj {
        Some(score) => std::fs::write("/proc/self/oom_score_adj", score.to_string()),
        None => Ok(()),
    }
}

fn apply_limits(settings: &Settings) -> io::Result<()> {
    for limit in &settings.rlimits {
        let Some((_, resource)) = RESOURCES.get(limit.resource) else { continue };
        let bound = |value| (value != u64::MAX).then_some(value);
        let new = Rlimit { current: bound(limit.soft), maximum: bound(limit.hard) };
        rustix::process::setrlimit(*resource, new)?;
    }
    Ok(())
}

fn use_streams([stdin, stdout, stderr]: &Pipes) -> io::Result<()> {
    let null = null_device()?;
    rustix::stdio::dup2_stdin(stdin.as_ref().unwrap_or(&null))?;
    rustix::stdio::dup2_stdout(stdout.as_ref().unwrap_or(&null))?;
    rustix::stdio::dup2_stderr(stderr.as_ref().unwrap_or(&null))?;
    Ok(())
}

/// The container's own: root in the container may change mode and owner of what it finds open. A container that took its
/// null device away gets a pipe without another end.
fn null_device() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = rustix::fs::open("/dev/null", flags, Mode::empty()).and_then(|device| {
        let number = rustix::fs::fstat(&device)?.st_rdev;
        let is_null = rustix::fs::major(number) == 1 && rustix::fs::minor(number) == 3;
        if is_null { Ok(device) } else { Err(rustix::io::Errno::NOTTY) }
    });
    match device {
        Ok(device) => {
            rustix::io::ioctl_fionbio(&device, false)?;
            Ok(device)
        }
        Err(_) => Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?.0),
    }
}

/// Opens a terminal of the container's own devpts, so that its name is right inside, and sends the master back.
fn open_terminal(settings: &Settings, status: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let master = rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty())?;
    check_is_ptmx(&master)?;
    rustix::pty::unlockpt(&master)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    rustix::fs::fchown(&terminal, Some(Uid::from_raw(settings.uid)), None)?;
    rustix::process::ioctl_tiocsctty(&terminal)?;
    rustix::stdio::dup2_stdin(&terminal)?;
    rustix::stdio::dup2_stdout(&terminal)?;
    rustix::stdio::dup2_stderr(&terminal)?;
    wire::Outgoing::new(&(), &[], vec![master])?.send(status)?;
    Ok(())
}

/// The container decides what lies at `/dev/pts`: only a real terminal multiplexer is opened further.
fn check_is_ptmx(master: &OwnedFd) -> io::Result<()> {
    const DEVPTS_MAGIC: u64 = 0x1cd1;
    let stat = rustix::fs::fstat(master)?;
    let magic = rustix::fs::fstatfs(master)?.f_type;
    let is_ptmx = rustix::fs::major(stat.st_rdev) == 5
        && rustix::fs::minor(stat.st_rdev) == 2
        && u64::try_from(magic).is_ok_and(|magic| magic == DEVPTS_MAGIC);
    if is_ptmx { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENOTTY)) }
}

/// Programs expect `HOME`; like other runtimes we take it from the container's own list of users.
pub(super) fn add_home(environment: &mut Block, uid: u32) {
    if environment::value_of(environment, "HOME").is_none_or(<[u8]>::is_empty) {
        let users = read_users("/etc/passwd").unwrap_or_default();
        let home = home_of(&users, uid).unwrap_or(b"/");
        let line = [b"HOME=", home, b"\0"].concat();
        let kept: Vec<u8> = environment::strings(environment)
            .filter(|string| !string.starts_with(b"HOME="))
            .flat_map(|string| string.iter().copied().chain([0]))
            .chain(line)
            .collect();
        *environment = kept.into();
    }
}

/// The container decides what lies there: a pipe would be waited for, and a device may never end.
fn read_users(path: &str) -> io::Result<Vec<u8>> {
    const LONGEST: u64 = 4 << 20;
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let mut users = Vec::new();
    if file.metadata()?.is_file() {
        file.take(LONGEST).read_to_end(&mut users)?;
    }
    Ok(users)
}

fn home_of(users: &[u8], uid: u32) -> Option<&[u8]> {
    let uid = uid.to_string();
    users.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':');
        (fields.nth(2)? == uid.as_bytes()).then(|| fields.nth(2)).flatten()
    })
}

impl Program {
    /// Decides where to look, by the `PATH` of the environment that the program gets. `None` if there is no program.
    pub(super) fn new(argv: Vec<CString>, environment: &[u8]) -> Option<Self> {
        let name = argv.first()?.as_bytes();
        let searched = !name.contains(&b'/');
        let candidates = if searched {
            let path = environment::value_of(environment, "PATH").unwrap_or(DEFAULT_PATH);
            path.split(|&byte| byte == b':')
                .map(|directory| if directory.is_empty() { b"." } else { directory })
                .filter_map(|directory| CString::new([directory, b"/", name].concat()).ok())
                .collect()
        } else {
            vec![argv.first()?.clone()]
        };
        Some(Self { argv, candidates, searched })
    }

    /// Executes the first candidate that the kernel takes.
    pub(super) fn execute(&self, environment: &[u8]) -> Fault {
        let (argv, envp) = (sys::Pointers::to(&self.argv), sys::Pointers::into_block(environment));
        self.search(|candidate| {
            sys::execve(candidate, &argv, &envp).raw_os_error().unwrap_or(libc::EIO)
        })
    }

    fn search(&self, mut attempt: impl FnMut(&CString) -> i32) -> Fault {
        let mut denied = false;
        for candidate in &self.candidates {
            match attempt(candidate) {
                libc::ENOENT | libc::ENOTDIR if self.searched => {}
                libc::EACCES if self.searched => denied = true,
                errno => return Fault { step: Step::Execute, errno },
            }
        }
        if denied {
            Fault { step: Step::Execute, errno: libc::EACCES }
        } else {
            Fault { step: Step::Search, errno: libc::ENOENT }
        }
    }
}

impl Step {
    pub(super) fn failed(self) -> impl Fn(io::Error) -> Fault {
        move |error| Fault { step: self, errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }
}

impl Fault {
    /// Whether the container was in the way, and not the command.
    pub(super) fn is_of_container(self) -> bool {
        !matches!(self.step, Step::Directory | Step::Search | Step::Execute)
    }

    /// What a shell returns for it.
    pub(super) fn code(self) -> i32 {
        match (self.step, self.errno) {
            (Step::Search, _) | (Step::Execute, libc::ENOENT) => 127,
            _ => 126,
        }
    }

    /// Tells the parent, as bytes.
    pub(super) fn report(self, status: BorrowedFd<'_>) {
        let step = STEPS.iter().position(|&step| step == self.step).unwrap_or(0);
        if let Ok(mut message) = wire::Outgoing::new(&(step, self.errno), &[], Vec::new()) {
            let _ = message.send(status.as_fd());
        }
    }

    pub(super) fn from_message((step, errno): (usize, i32)) -> Self {
        Self { step: STEPS.get(step).copied().unwrap_or(Step::Execute), errno }
    }

    /// In the words that users of other runtimes know.
    pub(super) fn describe(self, program: &[u8], cwd: &str) -> String {
        let program = program.escape_ascii();
        let reason = reason(self.errno);
        match self.step {
            Step::Search => format!("exec: \"{program}\": executable file not found in $PATH"),
            Step::Execute => format!("exec: \"{program}\": {reason}"),
            Step::Directory => format!("chdir to cwd (\"{cwd}\") failed: {reason}"),
            Step::Cgroup => format!("cannot enter the container's cgroups: {reason}"),
            Step::Namespaces => format!("cannot join the container's namespaces: {reason}"),
            Step::Limits => format!("cannot set resource limits: {reason}"),
            Step::Terminal => format!("cannot open a terminal in the container: {reason}"),
            Step::Streams => format!("cannot set up the streams: {reason}"),
            Step::Privileges => format!("cannot limit privileges: {reason}"),
            Step::Seccomp => format!(
                "cannot install the seccomp filter: {reason}; use a kernel with CONFIG_SECCOMP_FILTER, or set seccompProfile.type to Unconfined"
            ),
            Step::Record => format!(
                "the session cannot be recorded, so it does not begin: {reason}; see how full the runtime's --run-dir is"
            ),
            Step::AppArmor => format!(
                "cannot change to the container's AppArmor profile: {reason}; load it, or set appArmorProfile.type to Unconfined"
            ),
            Step::Keyring => format!("cannot make a session keyring: {reason}"),
            Step::User => format!("cannot change to the container's user: {reason}"),
        }
    }
}

fn reason(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, environment: &[u8]) -> Vec<String> {
        Program::new(vec![CString::new(name).unwrap()], environment)
            .unwrap()
            .candidates
            .iter()
            .map(|candidate| candidate.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_program_is_looked_for_in_the_path_of_its_own_environment() {
        assert_eq!(program("ls", b"A=b\0PATH=/a::/b\0"), ["/a/ls", "./ls", "/b/ls"]);
        assert_eq!(program("/bin/ls", b"PATH=/a\0"), ["/bin/ls"]);
        assert_eq!(program("./ls", b"PATH=/a\0"), ["./ls"]);
        assert_eq!(program("ls", b"")[5], "/bin/ls");
        assert!(Program::new(Vec::new(), b"").is_none());
    }

    /// A pipe at `/etc/passwd` held a session for ever, and a device took all memory.
    #[test]
    fn a_list_of_users_is_a_file_of_reasonable_length() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("device")).unwrap();
        std::fs::write(at("file"), "root:x:0:0::/root:").unwrap();
        File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_users(&at("pipe")).unwrap(), b"");
        assert_eq!(read_users(&at("device")).unwrap(), b"");
        assert_eq!(read_users(&at("file")).unwrap(), b"root:x:0:0::/root:");
        assert_eq!(read_users(&at("huge")).unwrap().len(), 4 << 20);
        assert!(read_users(&at("none")).is_err());
    }

    #[test]
    fn faults_read_like_those_of_other_runtimes() {
        let fault = |step, errno| Fault { step, errno };
        let missing = fault(Step::Search, libc::ENOENT);
        assert_eq!(
            missing.describe(b"nope", "/"),
            "exec: \"nope\": executable file not found in $PATH"
        );
        assert_eq!(missing.code(), 127);
        let denied = fault(Step::Execute, libc::EACCES);
        assert_eq!(
            denied.describe(b"/etc/passwd", "/"),
            "exec: \"/etc/passwd\": permission denied"
        );
        assert_eq!(denied.code(), 126);
        assert_eq!(
            fault(Step::Directory, libc::ENOENT).describe(b"ls", "/gone"),
            "chdir to cwd (\"/gone\") failed: no such file or directory"
        );
    }

    #[test]
    fn home_comes_from_the_list_of_users_unless_it_is_set() {
        let users = b"root:x:0:0:root:/root:/bin/sh\nweb:x:33:33::/srv/web:/bin/false\n";
        assert_eq!(home_of(users, 33), Some(&b"/srv/web"[..]));
        assert_eq!(home_of(users, 7), None);
        let mut environment: Block = b"A=1\0HOME=/here\0".to_vec().into();
        add_home(&mut environment, 0);
        assert_eq!(*environment, b"A=1\0HOME=/here\0");
    }
}
