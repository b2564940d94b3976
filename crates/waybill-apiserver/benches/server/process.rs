//! This program started again as a server, and what the kernel says about that process.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use tokio_rustls::TlsConnector;
use waybill_api::gates::{FeatureGates, KubeVersion};
use waybill_apiserver::{
    AnonymousAccess, Config, Encryption, NodeAddressType, RequestLimits, Server, StoreConfig,
};

use crate::{Result, client::trusting};

/// The token of an administrator.
pub(crate) const TOKEN: &str = "bench-token-0123456789abcdef";

/// The tokens of two others, of whom one asks for much.
pub(crate) const GREEDY: &str = "greedy-token-0123456789abcdef";
pub(crate) const OTHER: &str = "other-token-0123456789abcdef";

/// A server in a process of its own. Killed on drop.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) connector: TlsConnector,
    directory: TempDir,
}

impl Process {
    /// Starts this program with `mode` and waits until it says where it listens.
    pub(crate) async fn start(mode: &'static str) -> Result<Self> {
        tokio::task::spawn_blocking(move || Self::spawn(mode)).await?
    }

    fn spawn(mode: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg(mode)
            .arg(directory.path())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("the child has no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse()?;
        let certificate = fs::read_to_string(directory.path().join("ca.crt"))?;
        let connector = trusting(&certificate)?;
        Ok(Self { child, address, connector, directory })
    }

    /// What it holds in memory, in megabytes.
    pub(crate) fn resident(&self) -> Result<f64> {
        self.memory("VmRSS:")
    }

    /// The most that it held since [`Self::forget_peak`].
    pub(crate) fn peak(&self) -> Result<f64> {
        self.memory("VmHWM:")
    }

    pub(crate) fn forget_peak(&self) -> Result<()> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")?)
    }

    fn memory(&self, what: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(what));
        let kibibytes = line.and_then(|rest| rest.split_whitespace().next());
        Ok(kibibytes.ok_or("the kernel does not say")?.parse::<f64>()? * 1024.0 / 1e6)
    }

    /// The certificate that it is trusted by.
    pub(crate) fn authority(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    /// How long it has used the processor.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        processor_time(self.child.id())
    }
}

/// How long we, the clients, have used the processor.
pub(crate) fn own_processor_time() -> Result<Duration> {
    processor_time(std::process::id())
}

/// Over all threads of a process.
fn processor_time(process: u32) -> Result<Duration> {
    let mut nanoseconds = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        let first = text.split_whitespace().next().unwrap_or("0");
        nanoseconds += first.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the child does: serves from `directory` until it is killed.
pub(crate) async fn serve(directory: &Path) -> Result<()> {
    let tokens = directory.join("tokens.csv");
    let others = format!("{GREEDY},greedy,2,\"devs\"\n{OTHER},other,3,\"devs\"\n");
    fs::write(&tokens, format!("{TOKEN},bench,1,\"system:masters\"\n{others}"))?;
    let config = Config {
        state_dir: directory.to_owned(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        store: StoreConfig::Embedded,
        env: waybill_api::pod::EnvOptions::default(),
        gates: FeatureGates::parse("", KubeVersion::default())?,
        token_file: Some(tokens),
        audit_policy: None,
        strict_audit: false,
        audit_failure: waybill_apiserver::AuditFailure::default(),
        audit_rotation: waybill_apiserver::AuditRotation::default(),
        audit_webhook: None,
        anonymous: AnonymousAccess::default(),
        service_account_keys: Vec::new(),
        limits: RequestLimits::default(),
        node_address_types: NodeAddressType::USUAL.to_vec(),
        encryption: Encryption::default(),
        login_lifetime: Duration::from_secs(600),
    };
    let server = Server::start(config).await?;
    fs::write(directory.join("ca.crt"), server.ca_certificate())?;
    println!("{}", server.address());
    std::future::pending().await
}
