//! `waybill gate` as a process, to be asked and ended.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use crate::child::Killed;

/// A gate that runs. Killed on drop.
#[derive(Debug)]
pub struct Gate {
    child: Killed,
    address: SocketAddr,
    records: Arc<Mutex<Vec<String>>>,
}

/// How a gate is started.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// `waybill`.
    pub binary: &'a str,
    /// For its log.
    pub dir: &'a Path,
    /// Its certificate and key; empty paths if it makes its own.
    pub pair: (PathBuf, PathBuf),
    /// Of the cluster.
    pub kubeconfig: &'a Path,
    /// The API group of ProviderClasses there.
    pub group: &'a str,
    /// Further flags; `--caller` is one of them.
    pub flags: &'a [&'a str],
}

impl Setup<'_> {
    /// Starts a gate on a free port, and waits until it listens.
    pub fn start(&self) -> Gate {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("gate.log"))
            .expect("the directory is writable");
        let (certificate, key) = &self.pair;
        let mut command = Command::new(self.binary);
        command.args(["gate", "--listen", "127.0.0.1:0", "--drain", "0"]);
        command.args(["--provider-class-group", self.group, "--kubeconfig"]).arg(self.kubeconfig);
        if !certificate.as_os_str().is_empty() {
            command.arg("--tls-cert").arg(certificate).arg("--tls-key").arg(key);
        }
        command.args(self.flags);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = Killed::spawn(&mut command);
        let stdout = child.get_mut().stdout.take().expect("stdout is piped");
        let mut stdout = BufReader::new(stdout);
        let mut first = String::new();
        stdout.read_line(&mut first).expect("the gate's output can be read");
        let address = first.trim_end().strip_prefix("serving on https://");
        let address = address.and_then(|it| it.parse().ok());
        let address =
            address.unwrap_or_else(|| panic!("no address in {first:?}; its log:\n{}", self.log()));
        // All other lines are records.
        let records = Arc::new(Mutex::new(Vec::new()));
        let read = Arc::clone(&records);
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                read.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Gate { child, address, records }
    }

    /// What gates in this directory have logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("gate.log")).unwrap_or_default()
    }
}

impl Gate {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The sessions that it has recorded, one line of JSON each.
    pub fn records(&self) -> Vec<String> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its process.
    pub fn pid(&mut self) -> u32 {
        self.child.get_mut().id()
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.get_mut().wait().expect("a child can be waited for")
    }
}
