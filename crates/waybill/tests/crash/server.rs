//! The binary, to be killed.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// A running server.
pub(crate) struct Server {
    child: Child,
    state: PathBuf,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts a server on what is in `dir` and waits until it serves.
    pub(crate) fn start(dir: &TempDir) -> Self {
        let tokens = dir.path().join("tokens.csv");
        fs::write(&tokens, "token,admin,1,\"system:masters\"\n")
            .expect("the directory is writable");
        let state = dir.path().join("state");
        let mut child = Command::new(env!("CARGO_BIN_EXE_waybill"))
            .args(["apiserver", "--listen", "127.0.0.1:0", "--state-dir"])
            .arg(&state)
            .arg("--token-auth-file")
            .arg(tokens)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stdout = child.stdout.as_mut().expect("stdout is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("the server says where it listens");
        let address = line.trim().strip_prefix("serving on https://").unwrap_or_default();
        let address = address.parse().unwrap_or_else(|_| panic!("no address in {line:?}"));
        Self { child, state, address }
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn state(&self) -> &Path {
        &self.state
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
