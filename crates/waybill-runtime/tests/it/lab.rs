//! A place to run containers in: a root file system made of busybox, a run directory, cgroups of its own, and a
//! count of everything that could be left behind.

use std::{
    collections::HashSet,
    fs,
    io::Read,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use oci_spec::runtime::{
    Capability, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxNamespaceBuilder, LinuxNamespaceType,
    Mount, MountBuilder, ProcessBuilder, RootBuilder, Spec, SpecBuilder, UserBuilder,
};
use tempfile::TempDir;
use waybill_core::env::{
    name::{EnvName, NameRules},
    value::EnvValue,
};
use waybill_runtime::engine::{
    ContainerRequest, Engine, ExecRequest, Exit, Patience, ProcessIo, SeccompProfile, Session,
    Spawner, Stdio,
};
use waybill_testkit::{remains::Remains, skip::skip};

pub(crate) const BUSYBOX: &str = "/bin/busybox";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Everything one test needs; `None` of it is left afterwards.
pub(crate) struct Lab {
    pub(crate) engine: Option<Arc<Engine>>,
    pub(crate) directory: TempDir,
    pub(crate) rootfs: PathBuf,
    /// The cgroup below which everything of this lab stands.
    pub(crate) cgroup: PathBuf,
    /// Of the runtime that is started next.
    pub(crate) patience: Patience,
}

impl Lab {
    /// `None` when this machine cannot run containers.
    pub(crate) async fn open() -> Option<Self> {
        if !can_run_containers() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let rootfs = directory.path().join("rootfs");
        make_rootfs(&rootfs);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cgroup = PathBuf::from(format!("/waybill-test-{}-{number}", std::process::id()));
        let patience = Patience::default();
        let mut lab = Self { engine: None, directory, rootfs, cgroup, patience };
        lab.start_runtime().await;
        Some(lab)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.engine.as_ref().unwrap()
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// As a new runtime process does; the old engine must be gone.
    pub(crate) async fn start_runtime(&mut self) {
        let spawner =
            Spawner::start_program(Path::new(env!("CARGO_BIN_EXE_waybill-test-spawner"))).unwrap();
        let engine = Engine::with_patience(spawner, self.run_dir(), self.patience).await;
        self.engine = Some(engine.unwrap());
    }

    /// As when the runtime is killed: its sockets close and nobody hears anything.
    pub(crate) fn stop_runtime(&mut self) {
        self.engine = None;
    }

    /// A container that runs `arguments`.
    pub(crate) fn container(&self, id: &str, arguments: &[&str]) -> ContainerRequest {
        ContainerRequest {
            spec: self.spec(id, arguments),
            env: variables(&[("PATH", "/bin"), ("BASE", "line"), ("OVER", "container")]),
            stdio: Stdio { stdin: false, stdin_once: false, tty: false, log: Some(self.log(id)) },
            seccomp: SeccompProfile::RuntimeDefault,
            program_name: None,
        }
    }

    pub(crate) fn log(&self, id: &str) -> PathBuf {
        self.directory.path().join(format!("{id}.log"))
    }

    /// Text of the log: streams and lines without their times.
    pub(crate) fn logged(&self, id: &str) -> Vec<String> {
        let text = fs::read_to_string(self.log(id)).unwrap();
        text.split_terminator('\n').map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    pub(crate) fn spec(&self, id: &str, arguments: &[&str]) -> Spec {
        let namespaces = [
            LinuxNamespaceType::Pid,
            LinuxNamespaceType::Mount,
            LinuxNamespaceType::Ipc,
            LinuxNamespaceType::Uts,
            LinuxNamespaceType::Network,
            LinuxNamespaceType::Cgroup,
        ];
        let namespaces: Vec<_> = namespaces
            .into_iter()
            .map(|kind| LinuxNamespaceBuilder::default().typ(kind).build().unwrap())
            .collect();
        let capabilities: HashSet<Capability> = default_capabilities();
        let capabilities = LinuxCapabilitiesBuilder::default()
            .bounding(capabilities.clone())
            .effective(capabilities.clone())
            .permitted(capabilities)
            .inheritable(HashSet::new())
            .ambient(HashSet::new())
            .build()
            .unwrap();
        let process = ProcessBuilder::default()
            .args(arguments.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
            .cwd("/")
            .user(UserBuilder::default().uid(0_u32).gid(0_u32).build().unwrap())
            .capabilities(capabilities)
            .no_new_privileges(true)
            .env(Vec::new())
            .build()
            .unwrap();
        let linux = LinuxBuilder::default()
            .namespaces(namespaces)
            .cgroups_path(self.cgroup.join(id))
            .masked_paths(vec!["/proc/kcore".to_owned()])
            .readonly_paths(vec!["/proc/sys".to_owned()])
            .build()
            .unwrap();
        SpecBuilder::default()
            .root(RootBuilder::default().path(self.rootfs.clone()).readonly(false).build().unwrap())
            .mounts(mounts())
            .hostname("lab")
            .process(process)
            .linux(linux)
            .build()
            .unwrap()
    }

    /// Makes and starts a container that stays until it is killed.
    pub(crate) async fn run(&self, id: &str) {
        self.engine().create(id, self.container(id, &["/bin/sleep", "1000"])).await.unwrap();
        self.engine().start(id).await.unwrap();
    }

    pub(crate) async fn kill_and_delete(&self, id: &str) {
        self.engine().kill_all(id).await.unwrap();
        self.engine().wait(id).await.unwrap();
        self.engine().delete(id).await.unwrap();
    }

    /// Runs a program to its end: what it wrote, and how it ended.
    pub(crate) async fn exec(&self, id: &str, request: ExecRequest) -> (String, Exit) {
        let session = self.engine().exec(id, request).await.unwrap();
        finish(session).await
    }

    /// Runs a shell script to its end.
    pub(crate) async fn sh(&self, id: &str, script: &str) -> (String, Exit) {
        self.exec(id, exec(&["/bin/sh", "-c", script])).await
    }

    /// Closes the lab; fails if anything of it is left on the machine.
    pub(crate) async fn close(mut self) {
        assert!(self.engine().containers().is_empty(), "{:?}", self.engine().containers());
        self.stop_runtime();
        let run = self.run_dir();
        for below in ["containers", "sandboxes"] {
            let left: Vec<_> = fs::read_dir(run.join(below)).unwrap().collect();
            assert!(left.is_empty(), "{left:?}");
        }
        assert_eq!(self.cgroups(), Vec::<PathBuf>::new());
        eventually("no process of the lab is left", || self.processes().is_empty()).await;
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let run_text = run.to_str().unwrap().to_owned();
        let below: Vec<&str> =
            mounts.lines().filter(|line| line.contains(&format!("{run_text}/"))).collect();
        assert!(below.is_empty(), "{below:?}");
        // The spawner holds a lock in it until it has ended.
        let flags = rustix::mount::UnmountFlags::empty();
        eventually("its run directory is free", || rustix::mount::unmount(&run, flags).is_ok())
            .await;
    }

    /// Directories of this lab in any cgroup hierarchy.
    pub(crate) fn cgroups(&self) -> Vec<PathBuf> {
        hierarchies()
            .into_iter()
            .map(|root| root.join(self.cgroup.strip_prefix("/").unwrap()))
            .filter(|directory| directory.exists())
            .collect()
    }

    /// Monitors work in their container's directory, so it names them; containers are found by their cgroup.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let run = self.run_dir();
        let lab = self.cgroup.to_str().unwrap();
        pids()
            .into_iter()
            .filter(|pid| {
                let cwd = fs::read_link(format!("/proc/{pid}/cwd"));
                let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
                // What is dead and waits for the machine's first process to notice is nothing of ours.
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                let dead = stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'));
                !dead && (cwd.is_ok_and(|cwd| cwd.starts_with(&run)) || cgroup.contains(lab))
            })
            .collect()
    }

    /// The monitor of a container.
    pub(crate) fn monitor(&self, id: &str) -> i32 {
        self.find_monitor(id).unwrap()
    }

    pub(crate) fn find_monitor(&self, id: &str) -> Option<i32> {
        let directory = self.run_dir().canonicalize().unwrap().join("containers").join(id);
        pids()
            .into_iter()
            .find(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == directory))
    }
}

/// Whether this machine can; says so where it cannot.
pub(crate) fn can_run_containers() -> bool {
    if !rustix::process::getuid().is_root() {
        skip("root", "only root may run containers");
        return false;
    }
    if !Path::new(BUSYBOX).exists() {
        skip("busybox", "install the Debian package busybox-static");
        return false;
    }
    true
}

/// A test that fails leaves nothing behind either.
impl Drop for Lab {
    fn drop(&mut self) {
        self.stop_runtime();
        let cgroup = self.cgroup.display().to_string();
        Remains::of(self.directory.path(), &cgroup).clear_if_panicking();
    }
}

fn pids() -> Vec<i32> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

pub(crate) fn hierarchies() -> Vec<PathBuf> {
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .map(|line| PathBuf::from(line.split(' ').nth(4).unwrap()))
        .collect()
}

/// Where the unified hierarchy is.
pub(crate) fn unified() -> PathBuf {
    let hybrid = PathBuf::from("/sys/fs/cgroup/unified");
    if hybrid.exists() { hybrid } else { PathBuf::from("/sys/fs/cgroup") }
}

/// The container, with the right to look at every process that it sees.
pub(crate) fn with_ptrace(mut request: ContainerRequest) -> ContainerRequest {
    let mut process = request.spec.process().clone().unwrap();
    let mut sets = process.capabilities().clone().unwrap();
    let mut more = sets.permitted().clone().unwrap();
    more.insert(Capability::SysPtrace);
    sets.set_bounding(Some(more.clone()))
        .set_effective(Some(more.clone()))
        .set_permitted(Some(more));
    process.set_capabilities(Some(sets));
    request.spec.set_process(Some(process));
    request
}

/// A session that runs `arguments` and whose output is read.
pub(crate) fn exec(arguments: &[&str]) -> ExecRequest {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    ExecRequest {
        session: format!("session-{number}"),
        argv: arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
        env: Vec::new(),
        runtime_env: Vec::new(),
        tty: false,
        stdin: false,
        stdout: true,
        stderr: true,
    }
}

pub(crate) fn variables(pairs: &[(&str, &str)]) -> Vec<(EnvName, EnvValue)> {
    pairs
        .iter()
        .map(|(name, value)| {
            let name = EnvName::parse(name, NameRules::Kernel).unwrap();
            (name, EnvValue::plain(value.as_bytes()).unwrap())
        })
        .collect()
}

/// Reads a session to its end.
pub(crate) async fn finish(session: Session) -> (String, Exit) {
    let Session { io, process } = session;
    let text = tokio::task::spawn_blocking(move || read_all(io));
    let exit = tokio::time::timeout(Duration::from_secs(20), process.wait()).await;
    let exit = exit.expect("the session ends").unwrap();
    (text.await.unwrap(), exit)
}

fn read_all(io: ProcessIo) -> String {
    let mut bytes = Vec::new();
    let mut read = |fd| {
        // A terminal ends with an error once its other side is closed.
        let _ = fs::File::from(fd).read_to_end(&mut bytes);
    };
    match io {
        ProcessIo::Pipes { stdin, stdout, stderr } => {
            drop(stdin);
            stdout.into_iter().chain(stderr).for_each(&mut read);
        }
        ProcessIo::Terminal(master) => read(master),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for something that the kernel does in its own time.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(std::time::Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn make_rootfs(root: &Path) {
    for directory in ["bin", "dev", "etc", "proc", "sys", "tmp", "home/web", "closed"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::copy(BUSYBOX, root.join("bin/busybox")).unwrap();
    let applets = [
        "sh", "sleep", "env", "true", "false", "cat", "echo", "id", "ls", "kill", "setsid", "tty",
        "pwd", "grep", "mkdir", "stty", "dd", "hostname", "test", "mount", "nc", "ps", "head",
        "rmdir", "yes", "find", "tail", "stat", "readlink", "umask", "seq", "tr", "wc", "usleep",
        "awk",
    ];
    for applet in applets {
        symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nweb:x:1000:1000::/home/web:/bin/sh\n",
    )
    .unwrap();
    fs::write(root.join("etc/plain"), "not a program\n").unwrap();
}

fn mounts() -> Vec<Mount> {
    let mount = |destination: &str, kind: &str, source: &str, options: &[&str]| {
        MountBuilder::default()
            .destination(destination)
            .typ(kind)
            .source(source)
            .options(options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>())
            .build()
            .unwrap()
    };
    let quiet = ["nosuid", "noexec", "nodev"];
    vec![
        mount("/proc", "proc", "proc", &quiet),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
        ),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        mount(
            "/sys/fs/cgroup",
            "cgroup",
            "cgroup",
            &["nosuid", "noexec", "nodev", "relatime", "ro"],
        ),
    ]
}

fn default_capabilities() -> HashSet<Capability> {
    HashSet::from([
        Capability::Chown,
        Capability::DacOverride,
        Capability::Fowner,
        Capability::Kill,
        Capability::NetBindService,
        Capability::Setgid,
        Capability::Setuid,
        Capability::Mknod,
    ])
}
