//! `waybill up` in a directory of its own.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use waybill_client::Options;

/// The program that was built for this.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_waybill");

pub(crate) struct Up {
    child: Child,
    directory: TempDir,
}

impl Up {
    /// Starts it and waits until it says that it is ready.
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::start_program(PROGRAM, flags)
    }

    /// The same with another `waybill`.
    pub(crate) fn start_program(program: &str, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new(program)
            .args(["up", "--listen", "127.0.0.1:0", "--state-dir"])
            .arg(directory.path())
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("kubectl")), "`waybill up` ended");
        // What follows is read, so that it never waits for room in the pipe.
        thread::spawn(move || lines.for_each(drop));
        Self { child, directory }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn options(&self) -> Options {
        Options { kubeconfig: self.directory.path().join("kubeconfig"), ..Options::default() }
    }

    pub(crate) fn runtime_socket(&self) -> PathBuf {
        self.directory.path().join("run/runtime.sock")
    }

    pub(crate) fn stop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.stop();
    }
}
