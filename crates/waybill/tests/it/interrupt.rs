//! Somebody ends a command that waits for a credential plugin: nothing of the plugin is left, on a terminal and without one.

use std::{
    fs::{self, File},
    io::Write,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use waybill_testkit::kubectl::PATIENCE;

const BINARY: &str = env!("CARGO_BIN_EXE_waybill");

/// Waits for a child, which is in the same group as itself, and leaves an orphan.
const HANGS: &str = "(sleep 1000 & echo $! >orphan) ; sleep 1000 & echo $! >child; echo $$ >self; \
                     mv self ready; wait; wait";

/// A command of ours that waits for its plugin.
struct Waiting {
    dir: tempfile::TempDir,
    child: Child,
    /// Whoever sits at its terminal.
    keyboard: Option<File>,
}

impl Waiting {
    /// In a session of its own, with a terminal or without; after `prepare` in a shell.
    fn start(command: &[&str], script: &str, prepare: &str, terminal: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = kubeconfig(dir.path(), script);
        let pty = terminal.then(pty);
        let mut setsid = Command::new("setsid");
        if terminal {
            setsid.arg("--ctty");
        }
        setsid.args(["sh", "-c", &format!("{prepare} exec \"$@\""), "sh", BINARY]).args(command);
        setsid.arg(format!("--kubeconfig={}", kubeconfig.display()));
        let stdin =
            pty.as_ref().map_or_else(Stdio::null, |(_, end)| end.try_clone().unwrap().into());
        let child =
            setsid.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let waiting = Self { dir, child, keyboard: pty.map(|(keyboard, _)| keyboard) };
        eventually("the plugin runs", || waiting.file("ready").exists());
        waiting
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    fn press(&mut self, key: u8) {
        self.keyboard.as_mut().unwrap().write_all(&[key]).unwrap();
    }

    /// How the command ended, once nothing is left of the plugin.
    fn end(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        for name in ["ready", "child", "orphan"] {
            let pid = fs::read_to_string(self.file(name)).unwrap();
            let proc = Path::new("/proc").join(pid.trim()).join("cmdline");
            // That of a process that nobody has waited for yet is empty.
            let gone = || fs::read(&proc).unwrap_or_default().is_empty();
            eventually(&format!("{name} is gone"), gone);
        }
        status
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        for name in ["child", "orphan"] {
            let pid = fs::read_to_string(self.file(name)).unwrap_or_default();
            let _ = Command::new("kill").arg(pid.trim()).stderr(Stdio::null()).status();
        }
    }
}

fn kubeconfig(dir: &Path, script: &str) -> PathBuf {
    let stanza = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "/bin/sh",
        "args": ["-c", format!("cd {} && {script}", dir.display())],
    });
    let path = dir.join("kubeconfig");
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, \
         clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:1'}}}}], \
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         users: [{{name: u, user: {{exec: {stanza}}}}}]}}"
    );
    fs::write(&path, text).unwrap();
    path
}

/// A terminal: who sits at it, and its other end.
fn pty() -> (File, OwnedFd) {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let end = open(ptsname(&keyboard, Vec::new()).unwrap(), flags, Mode::empty()).unwrap();
    (keyboard.into(), end)
}

#[track_caller]
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

const GET: &[&str] = &["get", "pods"];

/// Hole: the plugin lived on until it ended by itself.
#[test]
fn a_signal_ends_the_plugin_with_the_command() {
    for (name, number) in [("HUP", 1), ("INT", 2), ("QUIT", 3), ("TERM", 15)] {
        let mut waiting = Waiting::start(GET, HANGS, "", false);
        waiting.signal(name);
        assert_eq!(waiting.end().signal(), Some(number), "as if nobody listened");
    }
}

#[test]
fn every_command_that_waits_for_a_plugin_ends_it() {
    for command in [&["credential", "run"][..], &["logs", "web"], &["delete", "pod", "web"]] {
        let mut waiting = Waiting::start(command, HANGS, "", false);
        waiting.signal("TERM");
        assert_eq!(waiting.end().signal(), Some(15), "{command:?}");
    }
}

#[test]
fn a_signal_ends_a_plugin_on_a_terminal() {
    for (name, number) in [("INT", 2), ("TERM", 15)] {
        let mut waiting = Waiting::start(GET, HANGS, "", true);
        waiting.signal(name);
        assert_eq!(waiting.end().signal(), Some(number));
    }
}

/// Ctrl-C reaches both, and a plugin that does not care is killed.
#[test]
fn ctrl_c_ends_the_plugin_whether_it_listens_or_not() {
    for prepare in ["", "trap '' INT; "] {
        let mut waiting = Waiting::start(GET, &format!("{prepare}{HANGS}"), "", true);
        waiting.press(3);
        assert!(!waiting.end().success());
    }
}

/// A plugin that hears Ctrl-C may make the terminal as it was.
#[test]
fn a_plugin_on_a_terminal_has_time_to_tidy_up() {
    let tidies = format!("trap 'echo yes >tidy; exit 1' INT; {HANGS}");
    let mut waiting = Waiting::start(GET, &tidies, "", true);
    waiting.press(3);
    let _ = waiting.child.wait().unwrap();
    assert_eq!(fs::read_to_string(waiting.file("tidy")).unwrap(), "yes\n");
}

/// What `nohup` started goes on.
#[test]
fn a_signal_that_is_ignored_ends_nobody() {
    let mut waiting = Waiting::start(GET, HANGS, "trap '' HUP;", false);
    waiting.signal("HUP");
    waiting.signal("TERM");
    assert_eq!(waiting.end().signal(), Some(15), "it did not end by the first");
}
