//! A real etcd for tests: found, started on free ports in a directory of its own, and stopped.

use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use super::EtcdConfig;
use crate::store::history::Limits;

/// A member of a cluster of one. Stopped on drop.
pub(in crate::store) struct Server {
    child: Child,
    binary: PathBuf,
    directory: TempDir,
    ports: [u16; 2],
    tls: Option<ServerTls>,
}

/// Files for a server that asks its clients for certificates.
pub(super) struct ServerTls {
    pub(super) ca: PathBuf,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Server {
    /// Starts etcd; `None`, with a word on standard error, if this machine has none.
    pub(super) fn start(tls: Option<ServerTls>) -> Option<Self> {
        let Some(binary) = find() else {
            eprintln!(
                "SKIPPED: no etcd found. Set WAYBILL_ETCD to its path, or run: \
                 mkdir -p ~/.cache/waybill/etcd && cd ~/.cache/waybill/etcd && \
                 apt-get download etcd-server && dpkg-deb -x etcd-server_*.deb ."
            );
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        // Both are bound before either is released, so that they differ.
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = listeners.map(|listener| listener.local_addr().unwrap().port());
        let child = spawn(&binary, directory.path(), ports, tls.as_ref());
        Some(Self { child, binary, directory, ports, tls })
    }

    /// Kills it as `kill -9` does, and starts it again on what it left.
    pub(super) fn restart(&mut self) {
        self.stop();
        self.child = spawn(&self.binary, self.directory.path(), self.ports, self.tls.as_ref());
    }

    /// How a store reaches it; what a TLS server needs is for the caller to add.
    pub(super) fn config(&self, prefix: &str) -> EtcdConfig {
        EtcdConfig {
            endpoints: vec![endpoint(self.ports[0], self.tls.as_ref())],
            prefix: prefix.into(),
            tls: None,
            timeout: Duration::from_secs(5),
            history: Limits::default(),
        }
    }

    fn stop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Calls `open` until it succeeds, because a new server needs a moment.
pub(super) async fn eventually<T, E: std::fmt::Debug>(open: impl AsyncFn() -> Result<T, E>) -> T {
    for _ in 0..200 {
        if let Ok(opened) = open().await {
            return opened;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    open().await.unwrap()
}

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment where etcd is")]
fn find() -> Option<PathBuf> {
    if let Some(named) = env::var_os("WAYBILL_ETCD") {
        return Some(named.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join("etcd"));
    let home = PathBuf::from(env::var_os("HOME").unwrap_or_default());
    let cached = home.join(".cache/waybill/etcd/usr/bin/etcd");
    in_path.chain([cached]).find(|candidate| fs::metadata(candidate).is_ok_and(|it| it.is_file()))
}

fn endpoint(port: u16, tls: Option<&ServerTls>) -> String {
    let scheme = if tls.is_some() { "https" } else { "http" };
    format!("{scheme}://127.0.0.1:{port}")
}

fn spawn(
    binary: &Path,
    directory: &Path,
    [client, peer]: [u16; 2],
    tls: Option<&ServerTls>,
) -> Child {
    let (client, peer) = (endpoint(client, tls), endpoint(peer, None));
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
    let log = fs::File::options().create(true).append(true).open(directory.join("log")).unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}
