//! A real OpenBao, which has Vault's API: in memory, with TLS, on a free port.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{child::Killed, port, program::OPENBAO};

/// Longer than it needs to be ready, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that forgets everything at its end. Stopped on drop.
#[derive(Debug)]
pub struct OpenBao {
    _child: Killed,
    binary: PathBuf,
    directory: TempDir,
    address: String,
}

impl OpenBao {
    /// Starts it and waits until it answers; `None` if this machine has none.
    pub fn start() -> Option<Self> {
        let binary = OPENBAO.find()?;
        let directory = tempfile::tempdir().expect("the temporary directory is writable");
        let [port] = port::lasting();
        let child = spawn(&binary, directory.path(), port);
        let address = format!("https://127.0.0.1:{port}");
        let server = Self { _child: child, binary, directory, address };
        server.wait();
        Some(server)
    }

    /// Where clients reach it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Who signed its certificate, in PEM.
    pub fn ca_bundle(&self) -> String {
        fs::read_to_string(self.ca()).expect("it has written its certificates")
    }

    /// Runs its client as root, with the arguments in `line`, split at blanks.
    pub fn line(&self, line: &str) -> String {
        self.run(&line.split_whitespace().collect::<Vec<_>>(), "")
    }

    /// Writes `content` to a path of its API.
    pub fn write(&self, path: &str, content: &Value) {
        self.run(&["write", path, "-"], &content.to_string());
    }

    /// The same in a namespace.
    pub fn write_in(&self, namespace: &str, path: &str, content: &Value) {
        self.run(&["write", "-namespace", namespace, path, "-"], &content.to_string());
    }

    /// How often it was asked to `read` or `update` a path, as its audit log says.
    pub fn requests(&self, operation: &str, path: &str) -> usize {
        let log = fs::read_to_string(self.directory.path().join("audit")).unwrap_or_default();
        let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let asked = |entry: &Value| {
            let request = &entry["request"];
            entry["type"] == "request"
                && request["path"].as_str() == Some(path)
                && request["operation"].as_str() == Some(operation)
        };
        entries.filter(asked).count()
    }

    fn run(&self, args: &[&str], input: &str) -> String {
        let mut child = self
            .client(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("its client starts");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        stdin.write_all(input.as_bytes()).expect("its client reads");
        drop(stdin);
        let output = child.wait_with_output().expect("its client ends");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "bao {args:?} failed: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn client(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.env_clear().env("HOME", self.directory.path()).env("BAO_ADDR", &self.address);
        command.env("BAO_TOKEN", "root").env("BAO_CACERT", self.ca()).args(args);
        command
    }

    fn ca(&self) -> PathBuf {
        self.directory.path().join("vault-ca.pem")
    }

    fn wait(&self) {
        let start = Instant::now();
        let quiet = |mut command: Command| {
            let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        while !quiet(self.client(&["token", "lookup"])) {
            let log = || fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(start.elapsed() < PATIENCE, "OpenBao does not answer; its log:\n{}", log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn spawn(binary: &Path, directory: &Path, port: u16) -> Killed {
    let audit = directory.join("audit");
    let config = format!(
        "disable_clustering = true\n\
         audit \"file\" \"requests\" {{\n  options = {{ file_path = \"{}\" }}\n}}\n",
        audit.display()
    );
    let path = directory.join("config.hcl");
    fs::write(&path, config).expect("the directory is writable");
    let mut command = Command::new(binary);
    command.arg("server").arg("-config").arg(path);
    command.args(["-dev", "-dev-root-token-id=root", "-dev-no-store-token", "-dev-tls"]);
    command.arg(format!("-dev-listen-address=127.0.0.1:{port}"));
    command.arg(format!("-dev-tls-cert-dir={}", directory.display()));
    let log = fs::File::create(directory.join("log")).expect("the directory is writable");
    let errors = log.try_clone().expect("the log is open");
    // It writes below its home.
    command.env_clear().env("HOME", directory);
    Killed::spawn(command.stdin(Stdio::null()).stdout(log).stderr(errors))
}
