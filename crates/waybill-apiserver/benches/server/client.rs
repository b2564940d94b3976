//! A client that costs as little as it can, because it shares the processor with the server.

use std::{
    future::Future,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{Result, process::Process};

const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// A persistent connection.
pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
    filled: usize,
}

impl Connection {
    pub(crate) async fn open(process: &Process) -> Result<Self> {
        Self::to(process.address, &process.connector).await
    }

    pub(crate) async fn to(address: SocketAddr, connector: &TlsConnector) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::IpAddress(address.ip().into());
        let stream = connector.connect(name, stream).await?;
        Ok(Self { stream, buffer: vec![0; 64 * 1024], filled: 0 })
    }

    /// Sends a request and reads all of its answer; returns the status code.
    pub(crate) async fn call(&mut self, request: &[u8]) -> Result<u16> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.filled = 0;
        let head = loop {
            self.read().await?;
            if let Some(end) = find(self.received(), b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = std::str::from_utf8(self.received().get(..head).unwrap_or_default())?;
        let code = text.get(9..12).unwrap_or_default().parse()?;
        let Some(length) = text.lines().find_map(|line| line.strip_prefix("content-length: "))
        else {
            // In chunks, of which the last is empty; nothing comes after it.
            while !self.received().ends_with(LAST_CHUNK) {
                let kept = self.filled.saturating_sub(LAST_CHUNK.len());
                self.buffer.copy_within(kept..self.filled, 0);
                self.filled -= kept;
                self.read().await?;
            }
            return Ok(code);
        };
        let mut left = (head + length.parse::<usize>()?).saturating_sub(self.filled);
        while left > 0 {
            self.filled = 0;
            left = left.saturating_sub(self.read().await?);
        }
        Ok(code)
    }

    /// Sends a request for an answer that never ends.
    pub(crate) async fn begin(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.read_until(b"\r\n\r\n").await
    }

    /// Reads until `end` has come, and forgets what was read.
    pub(crate) async fn read_until(&mut self, end: &[u8]) -> Result<()> {
        while find(self.received(), end).is_none() {
            self.read().await?;
        }
        self.filled = 0;
        Ok(())
    }

    async fn read(&mut self) -> Result<usize> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.filled * 2, 0);
        }
        let free = self.buffer.get_mut(self.filled..).unwrap_or_default();
        let read = self.stream.read(free).await?;
        if read == 0 {
            return Err("the server closed the connection".into());
        }
        self.filled += read;
        Ok(read)
    }

    fn received(&self) -> &[u8] {
        self.buffer.get(..self.filled).unwrap_or_default()
    }
}

/// TLS that trusts one authority.
pub(crate) fn trusting(certificate: &str) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// A request of the administrator, as it goes over the wire.
pub(crate) fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    request_as(crate::process::TOKEN, method, path, body)
}

/// A request of whoever has this token.
pub(crate) fn request_as(token: &str, method: &str, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let kind = if method == "PATCH" { "merge-patch+json" } else { "json" };
    format!(
        "{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n\
         user-agent: bench\r\naccept: application/json\r\ncontent-type: application/{kind}\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// How many calls came through, and how long each took.
pub(crate) struct Load {
    elapsed: Duration,
    calls: Vec<Duration>,
}

impl Load {
    pub(crate) fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a run has far fewer calls than 2^52")]
        let calls = self.calls.len() as f64;
        calls / self.elapsed.as_secs_f64()
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// The time within which this share of the calls was answered.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        percentile(&self.calls, percent)
    }
}

/// Of sorted times the one that this share does not exceed.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

/// One client's call, told how many it made before.
pub(crate) trait Caller: Send + 'static {
    fn call(&mut self, number: usize) -> impl Future<Output = Result<()>> + Send;
}

/// Lets the callers call for `duration`, each as soon as it has its answer.
pub(crate) async fn load(callers: Vec<impl Caller>, duration: Duration) -> Result<Load> {
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for mut caller in callers {
        clients.spawn(async move {
            let mut calls = Vec::new();
            while started.elapsed() < duration {
                let sent = Instant::now();
                caller.call(calls.len()).await?;
                calls.push(sent.elapsed());
            }
            Result::Ok(calls)
        });
    }
    let mut calls = Vec::new();
    while let Some(client) = clients.join_next().await {
        calls.extend(client??);
    }
    let elapsed = started.elapsed();
    calls.sort_unstable();
    Ok(Load { elapsed, calls })
}
