//! The client of an exec session, over WebSocket straight to the runtime's streaming server.

use http::{Request, Uri, header::SEC_WEBSOCKET_PROTOCOL};
use http_body_util::Empty;
use hyper::{body::Bytes, client::conn::http1, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use waybill_core::chain::Chain;
use waybill_stream::{
    command::{CommandEvent, CommandReader},
    connection::{Receiver, Traffic},
    outcome::Outcome,
    protocol::{self, Protocol},
    websocket::{Role, handshake::ClientHandshake},
};

/// What a runtime behind a stock kubelet must speak.
const OFFERED: &[Protocol] = &[Protocol::V4];

/// What the process of a session printed.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Runs the session that waits at `url` to its end. An exit code other than 0 is an error.
pub(super) async fn run(url: &str) -> Result<Output, String> {
    let (io, protocol) = connect(url).await?;
    let reader = CommandReader::new(protocol, Role::Client);
    let mut receiver = Receiver::new(TokioIo::new(io), reader, &[], Traffic::default());
    let mut output = Output::default();
    loop {
        match receiver.next().await.map_err(told)? {
            CommandEvent::Stdout(piece) => output.stdout.extend_from_slice(&piece.into_bytes()),
            CommandEvent::Stderr(piece) => output.stderr.extend_from_slice(&piece.into_bytes()),
            CommandEvent::Ended(Outcome::Success) => return Ok(output),
            CommandEvent::Ended(Outcome::Exit(code)) => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                return Err(format!("the command ended with {code}: {}", stderr.trim()));
            }
            CommandEvent::Ended(Outcome::Failure(message)) => return Err(message),
            CommandEvent::Close(_) => return Err("the stream ended without a status".to_owned()),
            _ => {}
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "it ends with the session, whose other half it is")]
async fn connect(url: &str) -> Result<(Upgraded, Protocol), String> {
    let url: Uri = url.parse().map_err(told)?;
    let authority = url.authority().ok_or("the streaming address names no host")?.as_str();
    let stream = TcpStream::connect(authority).await.map_err(told)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(told)?;
    tokio::spawn(connection.with_upgrades());

    let handshake = ClientHandshake::new().map_err(told)?;
    let mut request = Request::get(url.path())
        .header("Host", authority)
        .header(SEC_WEBSOCKET_PROTOCOL, protocol::names(OFFERED))
        .body(Empty::<Bytes>::new())
        .map_err(told)?;
    request.headers_mut().extend(handshake.headers());
    let response = sender.send_request(request).await.map_err(told)?;
    let chosen = handshake.finish(response.status(), response.headers()).map_err(told)?;
    let protocol = Protocol::chosen(chosen, OFFERED).map_err(told)?;
    Ok((hyper::upgrade::on(response).await.map_err(told)?, protocol))
}

fn told(error: impl std::error::Error + 'static) -> String {
    Chain(&error).to_string()
}
