//! `waybill node` as a process, to be killed and started again.

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

/// A node that serves. Killed on drop; its containers are not.
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
        command.args(["node", "--name", "alone", "--listen", "127.0.0.1:0", "--state-dir"]);
        command.arg(self.dir.join("state")).arg("--log-dir").arg(self.dir.join("logs"));
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

    /// Tells it to stop, and waits for that.
    pub fn stop(mut self) -> ExitStatus {
        let child = self.child.get_mut();
        let told = Command::new("kill").arg(child.id().to_string()).status();
        assert!(told.expect("kill is there").success(), "the node cannot be signalled");
        child.wait().expect("it can be waited for")
    }
}
