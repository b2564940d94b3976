//! Stock kubectl as tests use it: run to its end, or followed line by line.

use std::{
    env,
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::program::KUBECTL;

/// Longer than anything takes that a test waits for, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// What kubectl 1.32 says when a session was faster than itself: it reads before it has made its streams, and throws away what came
/// meanwhile, the exit code too. Later ones wait.
const TOO_FAST: &str = "Unknown stream id";

/// A kubectl that talks to one cluster.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    /// Its home and where it runs.
    dir: PathBuf,
}

/// What a command left behind.
#[derive(Debug)]
pub struct Ran {
    command: String,
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A command that still runs; it ends when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Kubectl {
    /// For the cluster of a kubeconfig, at home in `dir`; `None` if this machine has no kubectl.
    pub fn find(kubeconfig: &Path, dir: &Path) -> Option<Self> {
        let program = KUBECTL.find()?;
        Some(Self { program, kubeconfig: kubeconfig.to_owned(), dir: dir.to_owned() })
    }

    /// Runs it with the arguments in `line`, split at blanks.
    pub fn line(&self, line: &str) -> Ran {
        self.run(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs it with these arguments.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.with_input(arguments, "")
    }

    /// The same with something on its standard input.
    pub fn with_input(&self, arguments: &[&str], input: &str) -> Ran {
        loop {
            let mut child = self.spawn(arguments);
            // A command that fails early does not read its input.
            let _ = child.stdin.take().expect("stdin is piped").write_all(input.as_bytes());
            let ran = Ran::of(format!("kubectl {}", arguments.join(" ")), child);
            if !(arguments.contains(&"exec") && ran.stderr.contains(TOO_FAST)) {
                return ran;
            }
        }
    }

    /// `kubectl apply` of `manifest`.
    pub fn apply(&self, manifest: &str) -> Ran {
        // Without the dashes kubectl takes what begins with a brace for JSON.
        self.with_input(&["apply", "-f", "-"], &format!("---\n{manifest}"))
    }

    /// Starts one that goes on until it is dropped; its input stays open.
    pub fn follow(&self, arguments: &[&str]) -> Running {
        Running::of(self.spawn(arguments))
    }

    /// Runs `line` until its standard output is `expected`.
    #[track_caller]
    pub fn eventually(&self, line: &str, expected: &str) {
        self.until(line, |ran| ran.stdout.trim_end() == expected, expected);
    }

    /// Runs `line` until its standard output has `part` in it.
    #[track_caller]
    pub fn eventually_shows(&self, line: &str, part: &str) {
        self.until(line, |ran| squeeze(&ran.stdout).contains(part), part);
    }

    /// Waits until a pod is ready; says what kubectl knows of it if it is not in time.
    #[track_caller]
    pub fn wait_until_ready(&self, pod: &str) {
        let timeout = PATIENCE.as_secs();
        let waited =
            self.line(&format!("wait --for=condition=Ready pod/{pod} --timeout={timeout}s"));
        if !waited.succeeded() {
            let described = self.line(&format!("describe pod {pod}"));
            panic!("{pod} is not ready: {waited:#?}\n{}", described.stdout);
        }
    }

    /// The program and its surroundings, for a shell that is to run it.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.dir)
            .env_clear()
            .env("PATH", path())
            .env("HOME", &self.dir)
            .env("TERM", "xterm")
            .env("KUBECTL", &self.program)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    #[track_caller]
    fn until(&self, line: &str, holds: impl Fn(&Ran) -> bool, expected: &str) {
        let start = Instant::now();
        loop {
            let ran = self.line(line);
            if holds(&ran) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "not {expected:?} in time: {ran:#?}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(&self.program);
        command.args(arguments).spawn().expect("kubectl starts")
    }
}

impl Ran {
    /// Waits for the end of a command whose streams are pipes.
    pub fn of(command: String, child: Child) -> Self {
        let output = child.wait_with_output().expect("the command ends");
        Self {
            command,
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Whether it ended with code 0.
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// It ended with code 0.
    #[track_caller]
    pub fn succeeds(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// It ended the first process of its container, and ended with code 0 or by the kernel, which ends everybody with that process.
    #[track_caller]
    pub fn ends_its_container(&self) {
        assert!(matches!(self.code, Some(0 | 137)), "{self:#?}");
    }

    /// Succeeds and prints exactly `expected`, give or take white space at the ends.
    #[track_caller]
    pub fn prints(&self, expected: &str) {
        // Since 1.34, kubectl says where it deletes.
        let printed = self.succeeds().stdout.replace(" from default namespace", "");
        assert_eq!(printed.trim(), expected.trim(), "{}", self.command);
    }

    /// Succeeds and prints each of `parts`, blanks in a row taken as one.
    #[track_caller]
    pub fn shows(&self, parts: &[&str]) {
        let printed = squeeze(&self.succeeds().stdout);
        for part in parts {
            assert!(printed.contains(part), "{part:?} is not in the output of {self:#?}");
        }
    }

    /// Fails with code 1 and says exactly `expected` on standard error.
    #[track_caller]
    pub fn fails(&self, expected: &str) {
        assert_eq!(self.code, Some(1), "{self:#?}");
        assert_eq!(self.stderr.trim(), expected.trim(), "{}", self.command);
    }

    /// Fails with `code` and says `part`, among other things, on standard error.
    #[track_caller]
    pub fn fails_with(&self, code: i32, part: &str) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(self.stderr.contains(part), "{part:?} is not in {self:#?}");
    }

    /// A diff that found differences and shows each of `parts`.
    #[track_caller]
    pub fn differs(&self, parts: &[&str]) {
        assert_eq!(self.code, Some(1), "{self:#?}");
        let printed = squeeze(&self.stdout);
        for part in parts {
            assert!(printed.contains(part), "{part:?} is not in the output of {self:#?}");
        }
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.succeeds().stdout).expect("kubectl prints JSON")
    }
}

impl Running {
    /// Follows a command whose streams are pipes.
    pub fn of(mut child: Child) -> Self {
        let lines = read_lines(child.stdout.take().expect("stdout is piped"));
        Self { child, lines }
    }

    /// Reads lines until one has `part` in it.
    #[track_caller]
    pub fn wait_for(&self, part: &str) -> String {
        let mut seen = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            if squeeze(&line).contains(part) {
                return line;
            }
            seen.push(line);
        }
        panic!("{part:?} was not printed, but {seen:#?}");
    }

    /// Its standard input.
    pub fn input(&mut self) -> &mut ChildStdin {
        self.child.stdin.as_mut().expect("stdin is piped")
    }

    /// Closes its input and waits for the end; returns the exit code.
    pub fn ends(mut self) -> Option<i32> {
        drop(self.child.stdin.take());
        self.child.wait().expect("the command can be waited for").code()
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
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            // Nobody may be waiting any more; the pipe is read all the same.
            let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
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
fn path() -> OsString {
    env::var_os("PATH").unwrap_or_default()
}
