//! `waybill node` as a process, to be killed, or stopped and started again with other flags.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    thread,
};

use crate::child::Killed;

/// How a node is started.
#[derive(Clone, Debug)]
pub struct Setup {
    binary: PathBuf,
    dir: PathBuf,
    flags: Vec<String>,
}

/// A node that serves. Killed on drop, as `kill -9` does it; its pods are not.
#[derive(Debug)]
pub struct Node {
    child: Killed,
}

impl Setup {
    /// The node of `binary`, with all it has in `dir`.
    pub fn new(binary: &str, dir: &Path) -> Self {
        Self { binary: binary.into(), dir: dir.into(), flags: Vec::new() }
    }

    /// The same with another flag.
    #[must_use]
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// Starts a node on what is in the directory, and waits until it serves.
    pub fn start(&self) -> Node {
        fs::create_dir_all(&self.dir).expect("the directory can be made");
        let log = fs::File::options().create(true).append(true).open(self.dir.join("node.log"));
        let mut command = Command::new(&self.binary);
        command.arg("node").arg("--state-dir").arg(self.state_dir());
        command.arg("--log-dir").arg(self.dir.join("pod-logs"));
        // The disk of this machine may be as full as it is.
        command.arg("--eviction-hard=memory.available<100Mi");
        command.args(&self.flags).env_clear().stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Killed::spawn(command.stderr(log.expect("the directory is writable")));
        let stdout = child.get_mut().stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let first = lines.next().unwrap_or_default();
        assert!(first.starts_with("serving on "), "{first:?}; its log:\n{}", self.log());
        // What follows is read, so that the node never waits for room in the pipe.
        thread::spawn(move || lines.for_each(drop));
        Node { child }
    }

    /// Where the node keeps what belongs to pods.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.join("node")
    }

    /// What nodes in this directory have logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("node.log")).unwrap_or_default()
    }
}

impl Node {
    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Tells it to stop, and waits for that: the pods end as well, if it drains.
    pub fn stop(mut self) -> ExitStatus {
        let child = self.child.get_mut();
        // One that has ended by itself is waited for all the same.
        let _ = Command::new("kill").arg(child.id().to_string()).status();
        child.wait().expect("it can be waited for")
    }
}
