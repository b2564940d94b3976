//! A server with a state directory of its own, and kubectl that talks to it.

use std::{
    env,
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use waybill_testkit::{
    apiserver::{ApiServer, Setup},
    program::KUBECTL,
};

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Users of the token file; neither has any right of its own.
const TOKENS: &str = "alice-token,alice,1,\"devs\"\nbob-token,bob,2\n";

const GATES: &str = "--feature-gates=ExecEnvVar=true,ExecRequestID=true,CSIDirectEnvInjection=true";

/// A running server; it ends when this is dropped.
pub(crate) struct Cluster {
    dir: TempDir,
    setup: Setup,
    kubectl: PathBuf,
    _server: ApiServer,
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    command: String,
    code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A command that still runs; it ends when this is dropped.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Cluster {
    /// Starts a server and waits until it serves; nothing if this machine has no kubectl.
    pub(crate) fn start() -> Option<Self> {
        let kubectl = KUBECTL.find()?;
        let dir = tempfile::tempdir().expect("the temporary directory is writable");
        let mut setup = Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path()).flag(GATES);
        setup.tokens = TOKENS.to_owned();
        let server = setup.start();
        Some(Self { dir, setup, kubectl, _server: server })
    }

    /// Runs kubectl with the arguments in `line`, split at spaces.
    pub(crate) fn kubectl(&self, line: &str) -> Ran {
        self.kubectl_with_input(line, "")
    }

    /// The same, as the user of a static token.
    pub(crate) fn kubectl_as(&self, user: &str, line: &str) -> Ran {
        self.kubectl(&format!("--token={user}-token {line}"))
    }

    pub(crate) fn kubectl_with_input(&self, line: &str, input: &str) -> Ran {
        let mut child = self.spawn(line);
        // Without the dashes kubectl takes what begins with a brace for JSON.
        let document = format!("---\n{input}");
        // A command that fails early does not read its input.
        let _ = child.stdin.take().expect("stdin is piped").write_all(document.as_bytes());
        let output = child.wait_with_output().expect("kubectl ends");
        Ran {
            command: format!("kubectl {line}"),
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("kubectl prints UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("kubectl prints UTF-8"),
        }
    }

    /// `kubectl apply` of `manifest`.
    pub(crate) fn apply(&self, manifest: &str) -> Ran {
        self.kubectl_with_input("apply -f -", manifest)
    }

    /// Starts a kubectl that goes on until it is dropped.
    pub(crate) fn follow(&self, line: &str) -> Running {
        let mut child = self.spawn(line);
        let lines = read_lines(child.stdout.take().expect("stdout is piped"));
        Running { child, lines }
    }

    /// Runs `line` until its standard output is `expected`.
    #[track_caller]
    pub(crate) fn eventually(&self, line: &str, expected: &str) {
        let start = Instant::now();
        loop {
            let ran = self.kubectl(line);
            if ran.stdout.trim_end() == expected {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "not {expected:?} in time: {ran:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Adds a node that takes pods.
    #[track_caller]
    pub(crate) fn add_ready_node(&self, name: &str) {
        self.apply(&format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}"))
            .prints(&format!("node/{name} created"));
        let status = "{\"status\":{\"capacity\":{\"cpu\":\"2\",\"memory\":\"4Gi\",\"pods\":\"10\"},\
                      \"allocatable\":{\"cpu\":\"2\",\"memory\":\"4Gi\",\"pods\":\"10\"},\
                      \"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}";
        self.kubectl(&format!("patch node {name} --subresource=status --type=merge -p {status}"))
            .prints(&format!("node/{name} patched"));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn spawn(&self, line: &str) -> Child {
        Command::new(&self.kubectl)
            .args(line.split_whitespace())
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", path())
            .env("HOME", self.dir.path())
            .env("KUBECONFIG", self.path("state/kubeconfig"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("the server's log:\n{}", self.setup.log());
        }
    }
}

impl Ran {
    /// Succeeds and prints exactly `expected`, give or take white space at the ends.
    #[track_caller]
    pub(crate) fn prints(&self, expected: &str) {
        // Since 1.34, kubectl says where it deletes.
        let printed = self.succeeds().stdout.replace(" from default namespace", "");
        assert_eq!(printed.trim(), expected.trim(), "{}", self.command);
    }

    /// Succeeds and prints each of `parts`, blanks in a row taken as one.
    #[track_caller]
    pub(crate) fn shows(&self, parts: &[&str]) {
        let printed = squeeze(&self.succeeds().stdout);
        for part in parts {
            assert!(printed.contains(part), "{part:?} is not in the output of {self:#?}");
        }
    }

    #[track_caller]
    pub(crate) fn succeeds(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// Fails and says exactly `expected` on standard error.
    #[track_caller]
    pub(crate) fn fails(&self, expected: &str) {
        assert_eq!(self.code, Some(1), "{self:#?}");
        assert_eq!(self.stderr.trim(), expected.trim(), "{}", self.command);
    }

    /// A diff that found differences and shows each of `parts`.
    #[track_caller]
    pub(crate) fn differs(&self, parts: &[&str]) {
        assert_eq!(self.code, Some(1), "{self:#?}");
        let printed = squeeze(&self.stdout);
        for part in parts {
            assert!(printed.contains(part), "{part:?} is not in the output of {self:#?}");
        }
    }

    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.succeeds().stdout).expect("kubectl prints JSON")
    }
}

impl Running {
    /// Reads lines until one has `part` in it.
    #[track_caller]
    pub(crate) fn wait_for(&self, part: &str) -> String {
        let mut seen = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            if squeeze(&line).contains(part) {
                return line;
            }
            seen.push(line);
        }
        panic!("{part:?} was not printed, but {seen:#?}");
    }

    /// Waits for the end, which must be a success.
    #[track_caller]
    pub(crate) fn ends(mut self) {
        let status = self.child.wait().expect("kubectl can be waited for");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lines(stdout: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // Nobody may be waiting any more; the pipe is read all the same.
            let _ = sender.send(line);
        }
    });
    receiver
}

/// Columns are aligned with blanks; how many is not our business.
fn squeeze(text: &str) -> String {
    let lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    lines.join("\n")
}

/// For the programs that kubectl runs.
#[expect(clippy::disallowed_methods, reason = "a test finds the programs of its machine")]
fn path() -> OsString {
    env::var_os("PATH").unwrap_or_default()
}
