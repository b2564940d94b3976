//! `waybill gate` as a process, to be asked and ended.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use crate::child::Killed;

/// A gate that runs. Killed on drop.
#[derive(Debug)]
pub struct Gate {
    child: Killed,
    address: SocketAddr,
}

/// How a gate is started.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// `waybill`.
    pub binary: &'a str,
    /// For its log.
    pub dir: &'a Path,
    /// Its certificate and key.
    pub pair: (PathBuf, PathBuf),
    /// Of the cluster.
    pub kubeconfig: &'a Path,
    /// The API group of ProviderClasses there.
    pub group: &'a str,
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
        command.arg("--tls-cert").arg(certificate).arg("--tls-key").arg(key);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = Killed::spawn(&mut command);
        let stdout = child.get_mut().stdout.take().expect("stdout is piped");
        // It prints nothing else.
        let mut first = String::new();
        BufReader::new(stdout).read_line(&mut first).expect("the gate's output can be read");
        let address = first.trim_end().strip_prefix("serving on https://");
        let address = address.and_then(|it| it.parse().ok());
        let address =
            address.unwrap_or_else(|| panic!("no address in {first:?}; its log:\n{}", self.log()));
        Gate { child, address }
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

    /// Its process.
    pub fn pid(&mut self) -> u32 {
        self.child.get_mut().id()
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.get_mut().wait().expect("a child can be waited for")
    }
}
