//! A real etcd: found, started on free ports in a directory of its own, and stopped.

use std::{
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{child::Killed, port, program::ETCD};

/// Longer than etcd needs to open its port, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A member of a cluster of one. Stopped on drop.
#[derive(Debug)]
pub struct EtcdServer {
    child: Killed,
    binary: PathBuf,
    directory: TempDir,
    ports: [u16; 2],
    tls: Option<EtcdTls>,
}

/// Files in PEM for a server that asks its clients for certificates.
#[derive(Debug)]
pub struct EtcdTls {
    /// Who signs the certificates of clients.
    pub ca: PathBuf,
    /// Its own, which must be good for 127.0.0.1.
    pub certificate: PathBuf,
    /// Of that certificate.
    pub key: PathBuf,
}

impl EtcdServer {
    /// Starts etcd and waits until it takes connections; `None` if this machine has none.
    pub fn start() -> Option<Self> {
        Self::start_with(None)
    }

    /// The same, with TLS on both sides.
    pub fn start_tls(tls: EtcdTls) -> Option<Self> {
        Self::start_with(Some(tls))
    }

    fn start_with(tls: Option<EtcdTls>) -> Option<Self> {
        let binary = ETCD.find()?;
        let directory = tempfile::tempdir().expect("the temporary directory is writable");
        let ports = port::lasting();
        let child = spawn(&binary, directory.path(), ports, tls.as_ref());
        let etcd = Self { child, binary, directory, ports, tls };
        etcd.wait();
        Some(etcd)
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Kills it, and starts it again on what it left.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.binary, self.directory.path(), self.ports, self.tls.as_ref());
        self.wait();
    }

    /// Where clients reach it.
    pub fn url(&self) -> String {
        let [client, _] = self.ports;
        url(client, self.tls.as_ref())
    }

    /// The port of that address.
    pub fn port(&self) -> u16 {
        let [client, _] = self.ports;
        client
    }

    /// Where it keeps everything, its log too.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A connection may be answered only when the cluster has its leader, but it is not refused.
    fn wait(&self) {
        let [client, _] = self.ports;
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", client)).is_err() {
            let log = || fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(start.elapsed() < PATIENCE, "etcd does not listen; its log:\n{}", log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn url(port: u16, tls: Option<&EtcdTls>) -> String {
    let scheme = if tls.is_some() { "https" } else { "http" };
    format!("{scheme}://127.0.0.1:{port}")
}

fn spawn(
    binary: &Path,
    directory: &Path,
    [client, peer]: [u16; 2],
    tls: Option<&EtcdTls>,
) -> Killed {
    let (client, peer) = (url(client, tls), url(peer, None));
    let mut command = Command::new(binary);
    command.arg("--data-dir").arg(directory.join("data"));
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    // The API takes objects of up to 3 MiB, twice what etcd takes unasked.
    command.args(["--max-request-bytes", "4194304"]);
    command.args(["--logger", "zap", "--log-level", "error"]);
    if let Some(tls) = tls {
        command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&tls.ca);
        command.arg("--cert-file").arg(&tls.certificate).arg("--key-file").arg(&tls.key);
    }
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(directory.join("log"))
        .expect("the directory is writable");
    Killed::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log))
}
