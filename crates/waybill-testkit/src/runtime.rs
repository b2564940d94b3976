//! `waybill runtime` as a process, to be asked, killed and started again.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use crate::child::Killed;

/// How a runtime is started.
#[derive(Clone, Debug)]
pub struct Setup {
    binary: PathBuf,
    dir: PathBuf,
}

/// A runtime that serves. Killed on drop; its containers are not.
#[derive(Debug)]
pub struct Runtime {
    child: Killed,
}

impl Setup {
    /// The runtime `binary`, with all it has in `dir`, which is also where it and its processes work.
    pub fn new(binary: &str, dir: &Path) -> Self {
        Self { binary: binary.into(), dir: dir.into() }
    }

    /// Starts a runtime on what is in the directory, and waits until it serves.
    pub fn start(&self) -> Runtime {
        let mut child = self.spawn();
        let stdout = child.get_mut().stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let first = lines.next().unwrap_or_default();
        assert!(first.starts_with("serving on "), "{first:?}; its log:\n{}", self.log());
        // What follows is read, so that the runtime never waits for room in the pipe.
        thread::spawn(move || lines.for_each(drop));
        Runtime { child }
    }

    /// Starts a runtime and does not wait; it may be killed before it serves.
    pub fn start_only(&self) -> Runtime {
        Runtime { child: self.spawn() }
    }

    /// Where it serves.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("runtime.sock")
    }

    /// Its run directory, with a tmpfs on it.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Its state directory.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// What runtimes in this directory have logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("runtime.log")).unwrap_or_default()
    }

    fn spawn(&self) -> Killed {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("runtime.log"))
            .expect("the directory is writable");
        let listen = format!("unix://{}", self.socket().display());
        let mut command = Command::new(&self.binary);
        command.args(["runtime", "--listen", &listen, "--state-dir"]).arg(self.state_dir());
        command.arg("--run-dir").arg(self.run_dir()).current_dir(&self.dir).env_clear();
        Killed::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log))
    }
}

impl Runtime {
    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Its process.
    pub fn pid(&mut self) -> u32 {
        self.child.get_mut().id()
    }
}
