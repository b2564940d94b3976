//! Runs the binary in a directory of its own.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

use tempfile::TempDir;

/// A directory with files, in which commands run.
pub(crate) struct Dir(TempDir);

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Dir {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("the temporary directory is writable"))
    }

    pub(crate) fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        fs::write(self.path(name), content).expect("the temporary directory is writable");
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with_input(arguments, b"")
    }

    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut child = Command::new(env!("CARGO_BIN_EXE_waybill"))
            .args(arguments)
            .current_dir(self.0.path())
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        // A command that does not read its input may be gone already.
        let _ = child.stdin.take().expect("stdin is piped").write_all(input);
        let output = child.wait_with_output().expect("the binary ends");
        Ran {
            code: output.status.code().expect("no signal ended it"),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).expect("messages are UTF-8"),
        }
    }
}

impl Ran {
    /// Checks exit code and standard output; nothing may be on standard error.
    #[track_caller]
    pub(crate) fn succeeds(&self, stdout: impl AsRef<[u8]>) {
        assert_eq!(self.code, 0, "{self:?}");
        assert_eq!(String::from_utf8_lossy(&self.stdout), String::from_utf8_lossy(stdout.as_ref()));
        assert_eq!(self.stderr, "");
    }

    /// Checks exit code 1 and standard error; nothing may be on standard output.
    #[track_caller]
    pub(crate) fn fails(&self, stderr: &str) {
        assert_eq!(self.code, 1, "{self:?}");
        assert_eq!(self.stderr, stderr);
        assert_eq!(String::from_utf8_lossy(&self.stdout), "");
    }
}
