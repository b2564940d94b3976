//! `waybill up` as a process: a whole cluster in a directory of its own, and nothing left of it afterwards.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex,
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    kubectl::{Kubectl, PATIENCE},
    port,
    remains::{Remains, is_alive, processes},
    skip::skip,
};

/// The image that every stack brings.
pub const IMAGE: &str = "waybill.dev/busybox:1";

/// How a stack is started.
#[derive(Clone, Debug)]
pub struct Setup {
    binary: PathBuf,
    flags: Vec<String>,
    /// Of the API server, the same after each start.
    port: u16,
}

/// A cluster that runs. Killed on drop; [`Stack::stop`] is the polite way, and looks for left-overs.
#[derive(Debug)]
pub struct Stack {
    up: Child,
    notes: Mutex<Receiver<String>>,
    kubectl: Kubectl,
    setup: Setup,
    /// Above those of its pods.
    cgroup: String,
    dir: TempDir,
}

impl Setup {
    /// The stack of `binary`, on free ports.
    pub fn new(binary: &str) -> Self {
        let [port] = port::lasting();
        Self { binary: binary.into(), flags: Vec::new(), port }
    }

    /// The same with another flag.
    #[must_use]
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// Starts it and waits until pods can run; `None`, with a word about it, where it cannot.
    pub fn start(self) -> Option<Stack> {
        if fs::metadata("/proc/self").is_ok_and(|found| found.uid() != 0) {
            skip("root", "only root may run containers");
            return None;
        }
        if !Path::new("/bin/busybox").exists() {
            skip("busybox", "install the Debian package busybox-static");
            return None;
        }
        let dir = tempfile::tempdir().expect("the temporary directory is writable");
        let kubectl = Kubectl::find(&dir.path().join("state/kubeconfig"), dir.path())?;
        let (up, notes) = self.spawn(dir.path());
        let mut stack = Stack {
            up,
            notes: Mutex::new(notes),
            kubectl,
            setup: self,
            cgroup: String::new(),
            dir,
        };
        let node = arguments(stack.role("node"));
        let mut following = node.into_iter().skip_while(|it| it != "--cgroup-root").skip(1);
        stack.cgroup = following.next().expect("the node is told its cgroup");
        Some(stack)
    }

    fn spawn(&self, dir: &Path) -> (Child, Receiver<String>) {
        let mut command = Command::new(&self.binary);
        command.arg("up").arg("--state-dir").arg(dir.join("state"));
        command.args(["--listen", &format!("127.0.0.1:{}", self.port)]);
        command.args(["--built-in-images", "busybox"]);
        command.args(&self.flags).env_clear().stdin(Stdio::null());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("`waybill up` starts");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let notes = notes(child.stderr.take().expect("stderr is piped"));
        let ready = lines.by_ref().map_while(Result::ok).any(|line| line.starts_with("ready in"));
        if !ready {
            let status = child.wait().expect("it can be waited for");
            panic!("`waybill up` ended with {status}: {:#?}", notes.iter().collect::<Vec<_>>());
        }
        // What follows is read, so that it never waits for room in the pipe.
        thread::spawn(move || lines.for_each(drop));
        (child, notes)
    }
}

impl Stack {
    /// kubectl for it.
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Where it keeps what it keeps.
    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// The cgroup above those of its pods, in every hierarchy of the machine that has it.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        self.remains().cgroups()
    }

    /// A directory that ends with the stack.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Our own program, with the kubeconfig of the stack.
    pub fn waybill(&self) -> Command {
        self.kubectl.command(&self.setup.binary)
    }

    /// The process of a role.
    pub fn role(&self, name: &str) -> u32 {
        let children = children(self.up.id());
        let found = children.into_iter().find(|pid| arguments(*pid).iter().any(|it| it == name));
        found.unwrap_or_else(|| panic!("{name} does not run"))
    }

    /// Kills a role as `kill -9` does, and waits until another process has its place.
    #[track_caller]
    pub fn kill_role(&self, name: &str) {
        self.kill_process(name, name);
    }

    /// The same with a driver, by its kind.
    #[track_caller]
    pub fn kill_driver(&self, kind: &str) {
        self.kill_process(kind, &format!("{kind} driver"));
    }

    #[track_caller]
    fn kill_process(&self, name: &str, title: &str) {
        let before = self.role(name);
        signal(before, "KILL");
        let is_back = || {
            let children = children(self.up.id());
            children.iter().any(|pid| *pid != before && arguments(*pid).iter().any(|it| it == name))
        };
        wait_until(&format!("{name} is started again"), is_back);
        self.wait_for_note(&format!("the {title} is back"));
    }

    /// Stops a role as Ctrl-Z does, which it cannot refuse; returns the process, which sleeps until it is told to go
    /// on with [`Stack::resume`].
    #[track_caller]
    pub fn pause_role(&self, name: &str) -> u32 {
        let role = self.role(name);
        signal(role, "STOP");
        let is_stopped = || {
            let status = fs::read_to_string(format!("/proc/{role}/status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("State:\tT"))
        };
        wait_until(&format!("{name} is stopped"), is_stopped);
        role
    }

    /// Lets a process go on.
    pub fn resume(&self, process: u32) {
        signal(process, "CONT");
    }

    /// Waits until it says `part`.
    #[track_caller]
    pub fn wait_for_note(&self, part: &str) {
        let mut seen = Vec::new();
        let notes = self.notes.lock().expect("nobody panics with it");
        while let Ok(line) = notes.recv_timeout(PATIENCE) {
            if line.contains(part) {
                return;
            }
            seen.push(line);
        }
        panic!("{part:?} was not said, but {seen:#?}");
    }

    /// Kills the supervisor as `kill -9` does; returns once its roles are gone too. Containers go on.
    pub fn kill(&mut self) {
        let roles = children(self.up.id());
        self.up.kill().expect("it can be killed");
        self.up.wait().expect("it can be waited for");
        for role in roles {
            wait_until("a role ends with its supervisor", || !is_alive(role));
        }
    }

    /// As when the power fails and comes back: no process, no mount and nothing that was in memory is left. The disk stays.
    #[track_caller]
    pub fn power_cycle(&mut self) {
        self.kill();
        assert!(self.remains().clear(), "something of it is left");
        let _ = fs::remove_dir_all(self.state().join("run"));
        self.restart();
    }

    fn remains(&self) -> Remains {
        Remains::of(&self.state(), &self.cgroup)
    }

    /// Starts it again on what is there.
    pub fn restart(&mut self) {
        let (up, notes) = self.setup.spawn(self.dir.path());
        (self.up, self.notes) = (up, Mutex::new(notes));
    }

    /// The same with these flags in place of those from before.
    pub fn restart_with(&mut self, flags: &[&str]) {
        self.setup.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        self.restart();
    }

    /// Tells it to stop, and waits for that.
    pub fn end(&mut self) -> ExitStatus {
        signal(self.up.id(), "TERM");
        self.up.wait().expect("it can be waited for")
    }

    /// Stops it, and checks that it ended well and left nothing behind.
    #[track_caller]
    pub fn stop(mut self) {
        let status = self.end();
        let said = || self.notes.lock().map(|notes| notes.try_iter().collect::<Vec<_>>());
        assert!(status.success(), "{status}: {:#?}", said());
        self.check_nothing_is_left();
    }

    /// No mount, no process, no cgroup.
    #[track_caller]
    pub fn check_nothing_is_left(&self) {
        let state = self.state().display().to_string();
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("procfs is mounted");
        let mounts: Vec<_> = mounts.lines().filter(|line| line.contains(&state)).collect();
        assert!(mounts.is_empty(), "left mounted: {mounts:#?}");
        let processes = processes().into_iter().filter(|pid| {
            *pid != std::process::id() && arguments(*pid).iter().any(|it| it.contains(&state))
        });
        let processes: Vec<_> = processes.map(|pid| (pid, arguments(pid))).collect();
        assert!(processes.is_empty(), "left running: {processes:#?}");
        let pods = fs::read_dir(self.state().join("node/pods")).into_iter().flatten().count();
        assert_eq!(pods, 0, "directories of pods are left");
        wait_until("the cgroups of its pods are gone", || self.cgroups().is_empty());
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if thread::panicking() {
            for role in ["apiserver", "runtime", "node"] {
                let log = fs::read_to_string(self.state().join(format!("logs/{role}.log")));
                let log = log.unwrap_or_default();
                let lines: Vec<_> = log.lines().collect();
                let tail = lines.get(lines.len().saturating_sub(40)..).unwrap_or_default();
                println!("the end of the log of {role}:\n{}", tail.join("\n"));
            }
        }
        if matches!(self.up.try_wait(), Ok(None)) {
            // Politely at first, because containers outlive a kill.
            let _ = self.end();
        }
        self.remains().clear_if_panicking();
    }
}

fn notes(stderr: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            // Nobody may be waiting any more; the pipe is read all the same.
            let _ = sender.send(line);
        }
    });
    receiver
}

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status();
    assert!(status.expect("kill is there").success(), "process {pid} cannot be signalled");
}

#[track_caller]
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn children(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status
            .lines()
            .any(|line| line.strip_prefix("PPid:").map(str::trim) == Some(&parent.to_string()))
    };
    processes().into_iter().filter(is_child).collect()
}

fn arguments(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|it| String::from_utf8_lossy(it).into_owned()).collect()
}
