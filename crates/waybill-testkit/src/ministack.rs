//! A server that answers as AWS does, and checks signatures and policies.

use std::{
    fs,
    io::Write,
    net::TcpStream,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{child::Killed, port, program::MINISTACK};

/// Longer than it needs to open its port, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where everything is.
pub const REGION: &str = "eu-central-1";

/// Makes calls with the client of AWS that comes with the server, as its root.
const CALLS: &str = r#"
import json, sys
from botocore.session import Session
endpoint, region, calls = sys.argv[1], sys.argv[2], json.load(sys.stdin)
session = Session()
session.set_credentials("test", "test")
answers = []
for service, operation, parameters in calls:
    client = session.create_client(service, region_name=region, endpoint_url=endpoint)
    answer = getattr(client, operation)(**parameters)
    answer.pop("ResponseMetadata", None)
    answers.append(answer)
print(json.dumps(answers, default=str))
"#;

/// A server that forgets everything at its end. Stopped on drop.
#[derive(Debug)]
pub struct Ministack {
    _child: Killed,
    python: PathBuf,
    _directory: TempDir,
    address: String,
}

impl Ministack {
    /// Starts it and waits until it takes connections; `None` if this machine has none.
    pub fn start() -> Option<Self> {
        let binary = MINISTACK.find()?;
        let python = binary.with_file_name("python");
        let directory = tempfile::tempdir().expect("the temporary directory is writable");
        let [port] = port::lasting();
        let log =
            fs::File::create(directory.path().join("log")).expect("the directory is writable");
        let errors = log.try_clone().expect("the log is open");
        let mut command = Command::new(binary);
        command.env_clear().env("HOME", directory.path()).current_dir(directory.path());
        // It would listen everywhere.
        command.env("BIND_HOST", "127.0.0.1").env("GATEWAY_PORT", port.to_string());
        command.env("AUTH", "true").env("MINISTACK_IMDS_V2_REQUIRED", "1");
        command.env("MINISTACK_REGION", REGION);
        let child = Killed::spawn(command.stdin(Stdio::null()).stdout(log).stderr(errors));
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || fs::read_to_string(directory.path().join("log")).unwrap_or_default();
            assert!(start.elapsed() < PATIENCE, "ministack does not listen; its log:\n{}", log());
            thread::sleep(Duration::from_millis(20));
        }
        let address = format!("http://127.0.0.1:{port}");
        Some(Self { _child: child, python, _directory: directory, address })
    }

    /// Where clients reach it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Makes calls as its root, each a service, an operation and parameters as botocore names them.
    pub fn calls(&self, calls: &Value) -> Value {
        let mut child = Command::new(&self.python)
            .args(["-c", CALLS, &self.address, REGION])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("its Python starts");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        stdin.write_all(calls.to_string().as_bytes()).expect("its Python reads");
        drop(stdin);
        let output = child.wait_with_output().expect("its Python ends");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "a call to ministack failed: {error}");
        serde_json::from_slice(&output.stdout).expect("its Python prints JSON")
    }
}
