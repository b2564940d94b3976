//! Connections and requests: each opens one stream, or is told why not.

use std::{convert::Infallible, sync::Arc};

use http::{Method, Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn, upgrade};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use waybill_stream::{
    forward::most_ports,
    open_connections::{ACCEPT_PAUSE, AcceptTrouble, OpenConnection, OpenConnections},
};

use super::{
    Backend, Parked, ParkedCommand, Streaming,
    answer::{Answer, ForwardWire, Refusal, switch_command, switch_forward},
    command, forward,
    session::Socket,
};

/// Accepts connections until `stop`, and returns when the last session has ended.
pub(super) async fn serve<B: Backend>(streaming: Arc<Streaming<B>>, stop: CancellationToken) {
    let (tasks, mut trouble) = (TaskTracker::new(), AcceptTrouble::default());
    let connections = OpenConnections::new(streaming.limits.connections);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = streaming.listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let server = Server {
                    streaming: Arc::clone(&streaming),
                    tasks: tasks.clone(),
                    stop: stop.clone(),
                    open: Arc::new(connections.open()),
                };
                tasks.spawn(server.connection(stream));
            }
            Err(error) => {
                if let Some(times) = trouble.count(std::time::Instant::now()) {
                    tracing::warn!(%error, times, "streaming connections could not be accepted");
                }
                connections.make_room();
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    tasks.close();
    tasks.wait().await;
}

struct Server<B> {
    streaming: Arc<Streaming<B>>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Counts as long as the connection, or the session that it becomes, lasts.
    open: Arc<OpenConnection>,
}

impl<B: Backend> Server<B> {
    async fn connection(self, stream: TcpStream) {
        // Keys are typed one at a time; without it they are only slower.
        let _ = stream.set_nodelay(true);
        let service = service_fn(async |request| Ok::<_, Infallible>(self.answer(request)));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.streaming.limits.headers)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = self.open.pushed_out() => {}
            ended = connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a streaming connection broke");
                }
            }
        }
    }

    fn answer(&self, request: Request<Incoming>) -> Answer {
        self.open(request).unwrap_or_else(|refusal| refusal.answer())
    }

    fn open(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let (kind, token) = route(request.uri().path()).ok_or(Refusal::NoSuchPath)?;
        if request.method() != Method::GET && request.method() != Method::POST {
            return Err(Refusal::Method);
        }
        // Whatever the request is, its token is used.
        let parked = self.streaming.tokens.take(token, Instant::now());
        let parked = parked.filter(|parked| parked.kind() == kind).ok_or(Refusal::Token)?;
        if !self.open.note_known() {
            return Err(Refusal::TooMany);
        }
        match parked {
            Parked::Forward { sandbox, ports } => self.forward(request, sandbox, ports),
            Parked::Command(parked) => self.command(request, parked),
        }
    }

    fn command(
        &self,
        mut request: Request<Incoming>,
        parked: ParkedCommand,
    ) -> Result<Answer, Refusal> {
        let (wire, answer) = switch_command(request.method(), request.headers())?;
        let terms =
            command::Terms { wire, streams: parked.streams(), limits: self.streaming.limits };
        let upgrade = upgrade::on(&mut request);
        let (streaming, stop) = (Arc::clone(&self.streaming), self.stop.clone());
        let open = Arc::clone(&self.open);
        self.tasks.spawn(async move {
            let _open = open;
            let Some(socket) = Socket::upgraded(upgrade).await else { return };
            let start = parked.start(&streaming.backend);
            command::run(socket, terms, start, &stop).await;
        });
        Ok(answer)
    }

    fn forward(
        &self,
        mut request: Request<Incoming>,
        sandbox: String,
        ports: Vec<u16>,
    ) -> Result<Answer, Refusal> {
        let (wire, answer) = switch_forward(request.method(), request.headers())?;
        if let ForwardWire::Channels(protocol) = wire {
            check_ports(&ports, most_ports(protocol))?;
        }
        let terms = forward::Terms { wire, sandbox, ports, limits: self.streaming.limits };
        let upgrade = upgrade::on(&mut request);
        let (streaming, stop) = (Arc::clone(&self.streaming), self.stop.clone());
        let open = Arc::clone(&self.open);
        self.tasks.spawn(async move {
            let _open = open;
            let Some(socket) = Socket::upgraded(upgrade).await else { return };
            forward::run(socket, terms, streaming, &stop).await;
        });
        Ok(answer)
    }
}

/// Channels are given to ports beforehand; with SPDY a client opens streams for ports as it likes.
fn check_ports(ports: &[u16], most: u8) -> Result<(), Refusal> {
    if ports.is_empty() {
        return Err(Refusal::NoPort);
    }
    if ports.len() > usize::from(most) {
        return Err(Refusal::Ports { asked: ports.len(), most });
    }
    Ok(())
}

/// The kind of stream and the token in a path.
fn route(path: &str) -> Option<(&str, &str)> {
    let (kind, token) = path.strip_prefix('/')?.split_once('/')?;
    let is_known = matches!(kind, "exec" | "attach" | "portforward");
    (is_known && !token.is_empty() && !token.contains('/')).then_some((kind, token))
}
