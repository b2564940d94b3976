//! A session of port-forward: connections on one side, a client on the other.

mod channels;
mod streams;
mod tunnel;

use std::sync::Arc;

use tokio::{net::TcpStream, time::timeout};
use tokio_util::sync::CancellationToken;
use waybill_core::chain::Chain;

use super::{
    Backend, Limits, Streaming,
    answer::ForwardWire,
    session::{Session, Socket},
};

/// Read from a port at once.
const CHUNK: usize = 64 * 1024;

/// What a port-forward session is like.
pub(super) struct Terms {
    pub(super) wire: ForwardWire,
    pub(super) sandbox: String,
    pub(super) ports: Vec<u16>,
    pub(super) limits: Limits,
}

/// Runs a session to its end.
pub(super) async fn run<B: Backend>(
    socket: Socket,
    terms: Terms,
    streaming: Arc<Streaming<B>>,
    stop: &CancellationToken,
) {
    match terms.wire {
        ForwardWire::Channels(protocol) => {
            channels::run(socket, (protocol, &terms), &streaming.backend, stop).await;
        }
        ForwardWire::Spdy => {
            let session = Session::spdy(socket, terms.limits);
            streams::run(session, terms, streaming, stop).await;
        }
        ForwardWire::Tunnel => {
            let (outside, inside) = tunnel::open(socket);
            let (read, write) = tokio::io::split(inside);
            let session = Session::spdy_over((read, &[]), write, terms.limits);
            tokio::join!(outside, streams::run(session, terms, streaming, stop));
        }
    }
}

/// Connects to a port, or says why not.
async fn dial<B: Backend>(backend: &B, terms: &Terms, port: u16) -> Result<TcpStream, String> {
    match timeout(terms.limits.dial, backend.dial(&terms.sandbox, port)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(Chain(&error).to_string()),
        Err(_) => Err("it does not answer".to_owned()),
    }
}

/// What a client is told about a port.
fn failure(port: u16, reason: &str) -> String {
    format!("port {port} cannot be forwarded: {reason}")
}
