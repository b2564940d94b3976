//! Connections to pods: to their address, or through the runtime if they have none.

use std::{future::pending, io, pin::Pin};

use bytes::Bytes;
use http::{
    HeaderValue, Request, Uri,
    header::{HOST, SEC_WEBSOCKET_PROTOCOL},
};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream},
    net::TcpStream,
};
use waybill_proto::cri::PortForwardRequest;
use waybill_stream::{
    connection::{ReceiveError, Receiver, SendError, Sender, Traffic},
    forward::{ForwardEvent, ForwardReader, data_channel},
    protocol::{NoCommonProtocol, Protocol},
    websocket::{
        Role,
        handshake::{ClientHandshake, HandshakeError},
    },
};

use crate::cri::Runtime;

/// Between a connection through the runtime and whoever uses it.
const BUFFER: usize = 64 * 1024;

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// An address or a name.
    Host(String),
    /// Inside a sandbox, by its id.
    Sandbox(String),
}

impl Place {
    /// As URLs name it. A pod without an address is this machine to itself.
    pub(super) fn host(&self) -> &str {
        match self {
            Self::Host(host) => host,
            Self::Sandbox(_) => "127.0.0.1",
        }
    }
}

/// Reads and writes.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection, and the work that keeps it going while it is used.
pub(super) struct Connection {
    pub(super) io: Box<dyn Io>,
    pump: Pump,
}

type Pump = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Connection {
    /// Does `work` on the connection.
    pub(super) async fn drive<T, W: Future<Output = T>>(
        self,
        work: impl FnOnce(Box<dyn Io>) -> W,
    ) -> T {
        let work = work(self.io);
        with(self.pump, work).await
    }
}

/// Does `work`, and `side` beside it as long as that takes.
pub(super) async fn with<T>(side: impl Future<Output = ()>, work: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        done = work => done,
        never = async { side.await; pending().await } => never,
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("dial tcp {host}:{port}")]
    Tcp { host: String, port: u16, source: io::Error },
    #[error("the runtime forwards no port")]
    Call(#[source] Box<tonic::Status>),
    #[error(
        "the runtime's URL for the port cannot be used: it must be http with a host and a port"
    )]
    Url,
    #[error("cannot reach the runtime's streams")]
    Streams(#[source] io::Error),
    #[error("the runtime's streams do not answer")]
    Http(#[source] hyper::Error),
    #[error("cannot make the request for the port")]
    Request(#[source] http::Error),
    #[error("no random numbers")]
    Random,
    #[error("the runtime opens no stream")]
    Handshake(#[source] HandshakeError),
    #[error("the runtime opens no stream")]
    Protocol(#[source] NoCommonProtocol),
    #[error("the stream to the port broke")]
    Send(#[source] SendError),
    #[error("the stream to the port broke")]
    Receive(#[source] ReceiveError),
    #[error("{0}")]
    Refused(String),
    #[error("the runtime closed the stream to the port")]
    Closed,
}

/// Connects to a port. When this returns, somebody has accepted.
pub(super) async fn dial(
    runtime: &Runtime,
    place: &Place,
    port: u16,
) -> Result<Connection, DialError> {
    match place {
        Place::Host(host) => {
            let stream = TcpStream::connect((host.as_str(), port)).await;
            let stream =
                stream.map_err(|source| DialError::Tcp { host: host.clone(), port, source })?;
            // Small questions should leave at once; if they do not, they are only later.
            let _ = stream.set_nodelay(true);
            Ok(Connection { io: Box::new(stream), pump: Box::pin(pending()) })
        }
        Place::Sandbox(id) => forward(runtime, id, port).await,
    }
}

/// Connects through the runtime.
async fn forward(runtime: &Runtime, sandbox: &str, port: u16) -> Result<Connection, DialError> {
    let request =
        PortForwardRequest { pod_sandbox_id: sandbox.to_owned(), port: vec![i32::from(port)] };
    let answer = runtime.containers().port_forward(request).await;
    let url = answer.map_err(|status| DialError::Call(Box::new(status)))?.into_inner().url;
    through(&url, port).await
}

/// Connects to the one port that a URL of the runtime's streams is for.
async fn through(url: &str, port: u16) -> Result<Connection, DialError> {
    let (protocol, stream) = upgrade(url).await?;
    let (read, write) = tokio::io::split(stream);
    let traffic = Traffic::default();
    let events = ForwardReader::new(protocol, Role::Client, &[port]);
    let mut tunnel = Tunnel {
        receiver: Receiver::new(read, events, &[], traffic.clone()),
        sender: Sender::new(write, protocol, Role::Client, traffic),
    };
    let first = tunnel.open().await?;
    let (ours, theirs) = tokio::io::duplex(BUFFER);
    Ok(Connection { io: Box::new(ours), pump: Box::pin(tunnel.pump(first, theirs)) })
}

/// Opens a WebSocket at the URL that the runtime gave.
async fn upgrade(url: &str) -> Result<(Protocol, Box<dyn Io>), DialError> {
    let uri: Uri = url.parse().map_err(|_| DialError::Url)?;
    let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(DialError::Url);
    };
    let port = authority.port_u16().ok_or(DialError::Url)?;
    let host = authority.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, port)).await.map_err(DialError::Streams)?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(DialError::Http)?;
    let handshake = ClientHandshake::new().map_err(|_| DialError::Random)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::get(path).body(Empty::<Bytes>::new()).map_err(DialError::Request)?;
    *request.headers_mut() = handshake.headers();
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| DialError::Url)?;
    request.headers_mut().insert(HOST, host);
    let protocol = HeaderValue::from_static("v4.channel.k8s.io");
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    let asked = async {
        let answer = sender.send_request(request).await.map_err(DialError::Http)?;
        let chosen =
            handshake.finish(answer.status(), answer.headers()).map_err(DialError::Handshake)?;
        let protocol = Protocol::chosen(chosen, &[Protocol::V4]).map_err(DialError::Protocol)?;
        let upgraded = hyper::upgrade::on(answer).await.map_err(DialError::Http)?;
        Ok((protocol, Box::new(TokioIo::new(upgraded)) as Box<dyn Io>))
    };
    // Faults of the connection are those of the request.
    with(async { drop(connection.with_upgrades().await) }, asked).await
}

/// One port inside a WebSocket.
struct Tunnel<S> {
    receiver: Receiver<tokio::io::ReadHalf<S>, ForwardReader>,
    sender: Sender<tokio::io::WriteHalf<S>>,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Tunnel<S> {
    /// Waits until the port is connected; what has arrived from it already.
    async fn open(&mut self) -> Result<Bytes, DialError> {
        // Success has no message of its own. The answer to a ping comes after what went wrong.
        self.sender.ping().await.map_err(DialError::Send)?;
        loop {
            match self.receiver.next().await.map_err(DialError::Receive)? {
                ForwardEvent::Data { payload, .. } => return Ok(payload.into_bytes()),
                ForwardEvent::Pong => return Ok(Bytes::new()),
                ForwardEvent::Failed { reason, .. } => return Err(DialError::Refused(reason)),
                ForwardEvent::Ping(payload) => self.sender.pong(payload),
                ForwardEvent::Close(_) => return Err(DialError::Closed),
            }
        }
    }

    /// Carries bytes until one side ends.
    async fn pump(mut self, first: Bytes, local: DuplexStream) {
        let (mut local_read, mut local_write) = tokio::io::split(local);
        let sender = &self.sender;
        let outward = async {
            let mut buffer = vec![0; BUFFER / 4];
            while let Ok(length @ 1..) = local_read.read(&mut buffer).await {
                let bytes = buffer.get(..length).unwrap_or_default();
                if sender.send_copy(data_channel(0), bytes).await.is_err() {
                    return;
                }
            }
            // The protocol cannot say that nothing follows, and the answer is still to come.
            pending::<()>().await;
        };
        let inward = async {
            let mut bytes = first;
            loop {
                if local_write.write_all(&bytes).await.is_err() {
                    return;
                }
                bytes = match self.receiver.next().await {
                    Ok(ForwardEvent::Data { payload, .. }) => payload.into_bytes(),
                    Ok(ForwardEvent::Ping(payload)) => {
                        sender.pong(payload);
                        Bytes::new()
                    }
                    Ok(ForwardEvent::Pong) => Bytes::new(),
                    Ok(ForwardEvent::Failed { .. } | ForwardEvent::Close(_)) | Err(_) => return,
                };
            }
        };
        tokio::select! {
            () = outward => {}
            () = inward => {}
            _ = sender.send_pongs() => {}
        }
    }
}

#[cfg(test)]
mod tests;
