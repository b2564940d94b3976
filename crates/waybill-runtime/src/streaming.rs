//! Serves exec, attach and port-forward streams to whoever holds a token.
//!
//! The CRI parks what a client shall get under a token, and the client connects with it. Nothing is
//! started before, and nothing can be added after: the variables of a session stay here, in memory,
//! and no URL holds them (EXEC-10).

mod answer;
mod backend;
mod command;
mod fds;
mod forward;
mod server;
mod session;
mod tokens;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::TcpListener,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use waybill_core::id::AuditId;
use waybill_stream::{command::Streams, open_connections::MostConnections};

pub use backend::{Backend, ExitFuture, Running};
pub use tokens::ParkError;

use self::tokens::Tokens;
use crate::engine::{AttachRequest, EngineError, ExecRequest};

/// The streaming server. Listens from the start, answers once it is served.
pub struct Streaming<B> {
    listener: TcpListener,
    address: SocketAddr,
    backend: B,
    tokens: Tokens<Parked>,
    limits: Limits,
}

/// How long things may take, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a token is good.
    pub token_life: Duration,
    /// How many may wait for their client.
    pub tokens: usize,
    /// How long a client may take for its request.
    pub headers: Duration,
    /// How long a client of SPDY may take to open its streams.
    pub streams: Duration,
    /// How long a session may be silent.
    pub idle: Duration,
    /// How long output is read after the process has ended, while its children hold the pipe.
    pub drain: Duration,
    /// How long a connection to a port may take.
    pub dial: Duration,
    /// How often a client that waits for a process to read gets a sign of life. Its own pings stand
    /// behind what the process does not read, and it gives up after a minute without an answer.
    pub sign_of_life: Duration,
    /// How long we wait for the client's last word.
    pub farewell: Duration,
    /// How many connections there may be; those with a good token are known.
    pub connections: MostConnections,
}

impl Default for Limits {
    /// Tokens and silence as in other runtimes' servers.
    fn default() -> Self {
        Self {
            token_life: Duration::from_secs(60),
            tokens: 1_000,
            headers: Duration::from_secs(30),
            streams: Duration::from_secs(30),
            idle: Duration::from_secs(4 * 60 * 60),
            drain: Duration::from_secs(1),
            dial: Duration::from_secs(30),
            sign_of_life: Duration::from_secs(5),
            farewell: Duration::from_secs(5),
            connections: MostConnections::default(),
        }
    }
}

/// What waits for its client.
enum Parked {
    Command(ParkedCommand),
    Forward { sandbox: String, ports: Vec<u16> },
}

/// A process that waits for its client.
enum ParkedCommand {
    Exec { container: String, request: ExecRequest },
    Attach { container: String, streams: Streams, audit_id: Option<AuditId> },
}

impl Parked {
    /// The first part of the path.
    fn kind(&self) -> &'static str {
        match self {
            Self::Command(ParkedCommand::Exec { .. }) => "exec",
            Self::Command(ParkedCommand::Attach { .. }) => "attach",
            Self::Forward { .. } => "portforward",
        }
    }
}

impl ParkedCommand {
    fn streams(&self) -> Streams {
        match self {
            Self::Exec { request, .. } => Streams {
                stdin: request.stdin,
                stdout: request.stdout,
                stderr: request.stderr && !request.tty,
                tty: request.tty,
            },
            Self::Attach { streams, .. } => *streams,
        }
    }

    /// Starts the process, or joins it.
    async fn start<B: Backend>(self, backend: &B) -> Result<Running, EngineError> {
        match self {
            Self::Exec { container, request } => backend.exec(&container, request).await,
            Self::Attach { container, streams, audit_id } => {
                let request = AttachRequest { stdin: streams.stdin, audit_id };
                backend.attach(&container, request).await
            }
        }
    }
}

impl<B: Backend> Streaming<B> {
    /// Listens on `address`; port 0 takes a free one.
    pub async fn bind(address: SocketAddr, backend: B, limits: Limits) -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let tokens = Tokens::new(limits.tokens, limits.token_life);
        Ok(Arc::new(Self { listener, address, backend, tokens, limits }))
    }

    /// The URL where a client gets the session; the process is started when it connects.
    pub fn exec_url(&self, container: &str, request: ExecRequest) -> Result<String, ParkError> {
        let container = container.to_owned();
        self.park(Parked::Command(ParkedCommand::Exec { container, request }))
    }

    /// The URL where a client gets the streams of the container's own process, for the API request with
    /// this audit ID.
    pub fn attach_url(
        &self,
        container: &str,
        streams: Streams,
        audit_id: Option<AuditId>,
    ) -> Result<String, ParkError> {
        let container = container.to_owned();
        self.park(Parked::Command(ParkedCommand::Attach { container, streams, audit_id }))
    }

    /// The URL where a client gets connections to ports of the sandbox.
    pub fn forward_url(&self, sandbox: &str, ports: Vec<u16>) -> Result<String, ParkError> {
        self.park(Parked::Forward { sandbox: sandbox.to_owned(), ports })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then ends all sessions. Their processes go on.
    pub async fn serve(self: Arc<Self>, stop: CancellationToken) {
        tokio::select! {
            () = server::serve(Arc::clone(&self), stop) => {}
            () = self.forget_expired() => {}
        }
    }

    fn park(&self, parked: Parked) -> Result<String, ParkError> {
        let kind = parked.kind();
        let token = self.tokens.park(parked, Instant::now())?;
        Ok(format!("http://{}/{kind}/{token}", self.address))
    }

    /// Drops what no client came for, with the variables in it. Never ends.
    async fn forget_expired(&self) {
        loop {
            sleep(self.limits.token_life).await;
            self.tokens.forget_expired(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
