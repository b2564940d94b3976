//! Servers that answer as AWS does: ministack, which checks signatures, trust and policies, and moto, which others wrote
//! and which so has an opinion of its own.

use std::{
    fs,
    io::Write,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    child::Killed,
    port,
    program::{MINISTACK, MOTO},
};

/// Longer than one needs to open its port, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where everything is.
pub const REGION: &str = "eu-central-1";

/// Makes calls with the client of AWS that comes with both servers, as their root.
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

/// Tells moto how many requests it lets pass before it checks signatures and policies.
const UNCHECKED: &str = r#"
import sys, urllib.request
address, requests = sys.argv[1] + "/moto-api/reset-auth", sys.argv[2].encode()
# What is sent as a form, as it would be without this, is not read.
urllib.request.urlopen(urllib.request.Request(address, requests, {"Content-Type": "text/plain"}))
"#;

/// Which server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// It checks everything, from its first request on.
    Ministack,
    /// It checks signatures and actions if it is told to, and neither trust, resources nor clocks.
    Moto,
}

/// A server that forgets everything at its end. Stopped on drop.
#[derive(Debug)]
pub struct AwsServer {
    make: Make,
    _child: Killed,
    python: PathBuf,
    _directory: TempDir,
    address: String,
}

impl AwsServer {
    /// Starts one and waits until it takes connections; `None` if this machine has none.
    pub fn start(make: Make) -> Option<Self> {
        let binary = match make {
            Make::Ministack => MINISTACK.find()?,
            Make::Moto => MOTO.find()?,
        };
        let python = binary.with_file_name("python");
        let directory = tempfile::tempdir().expect("the temporary directory is writable");
        let [port] = port::lasting();
        let log =
            fs::File::create(directory.path().join("log")).expect("the directory is writable");
        let errors = log.try_clone().expect("the log is open");
        let mut command = make.command(&binary, port);
        command.env("HOME", directory.path()).current_dir(directory.path());
        let child = Killed::spawn(command.stdin(Stdio::null()).stdout(log).stderr(errors));
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || fs::read_to_string(directory.path().join("log")).unwrap_or_default();
            assert!(start.elapsed() < PATIENCE, "{make:?} does not listen; its log:\n{}", log());
            thread::sleep(Duration::from_millis(20));
        }
        let address = format!("http://127.0.0.1:{port}");
        Some(Self { make, _child: child, python, _directory: directory, address })
    }

    /// Which it is.
    pub fn make(&self) -> Make {
        self.make
    }

    /// Where clients reach it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Makes calls as its root, each a service, an operation and parameters as botocore names them. Moto has no root,
    /// so it checks nothing from here on.
    pub fn calls(&self, calls: &Value) -> Value {
        self.check_after("inf");
        let output = self.python(&[CALLS, &self.address, REGION], &calls.to_string());
        serde_json::from_slice(&output).expect("its Python prints JSON")
    }

    /// Has each request checked after the next one. That must be a log-in with web identity: nobody signs those, which
    /// moto takes for a signature that is missing.
    pub fn check_after_log_in(&self) {
        self.check_after("1");
    }

    fn check_after(&self, requests: &str) {
        match self.make {
            Make::Ministack => {}
            Make::Moto => drop(self.python(&[UNCHECKED, &self.address, requests], "")),
        }
    }

    fn python(&self, args: &[&str], input: &str) -> Vec<u8> {
        let mut child = Command::new(&self.python)
            .arg("-c")
            .args(args)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("its Python starts");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        stdin.write_all(input.as_bytes()).expect("its Python reads");
        drop(stdin);
        let output = child.wait_with_output().expect("its Python ends");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "a call to {:?} failed: {error}", self.make);
        output.stdout
    }
}

impl Make {
    /// Both would listen everywhere, or write below their home.
    fn command(self, binary: &Path, port: u16) -> Command {
        let mut command = Command::new(binary);
        command.env_clear();
        match self {
            Self::Ministack => {
                command.env("BIND_HOST", "127.0.0.1").env("GATEWAY_PORT", port.to_string());
                command.env("AUTH", "true").env("MINISTACK_IMDS_V2_REQUIRED", "1");
                command.env("MINISTACK_REGION", REGION);
            }
            Self::Moto => {
                command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
                command.env("MOTO_ACCOUNT_ID", "000000000000");
            }
        }
        command
    }
}
