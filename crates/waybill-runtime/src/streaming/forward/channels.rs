//! Ports over the channels of a WebSocket.
//!
//! The protocol has one connection for each port and cannot close one alone, so the session ends when
//! the last of them has.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::{
    io::AsyncReadExt,
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};
use tokio_util::sync::CancellationToken;
use waybill_stream::{
    channel::Outgoing,
    connection::SendError,
    forward::{ForwardEvent, ForwardReader, data_channel, error_channel, port_message},
    protocol::Protocol,
    websocket::Role,
};

use super::{
    super::{
        Backend,
        session::{Client, End, Session, Socket, Words, feed, interruption},
    },
    CHUNK, Terms, dial, failure,
};

/// Runs a session to its end.
pub(super) async fn run<B: Backend>(
    socket: Socket,
    (protocol, terms): (Protocol, &Terms),
    backend: &B,
    stop: &CancellationToken,
) {
    let events = ForwardReader::new(protocol, Role::Server, &terms.ports);
    let mut session = Session::channels(socket, protocol, events, terms.limits);
    let end = tokio::select! {
        end = converse((&session.client, &mut session.words), terms, backend) => end,
        end = interruption(&session.client, &session.traffic, terms.limits, stop) => end,
    };
    session.end(end).await;
}

async fn converse<B: Backend>(
    (client, words): (&Client, &mut Words<ForwardReader>),
    terms: &Terms,
    backend: &B,
) -> End {
    let mut readers = Vec::new();
    let mut writers = Vec::new();
    let ports = (0_u8..).zip(&terms.ports);
    let dialled = join_all(ports.map(async |(at, number)| {
        let connection = dial(backend, terms, *number).await;
        Port { at, number: *number, connection }
    }))
    .await;
    for port in dialled {
        if let Err(error) = greet(client, &port).await {
            return error.into();
        }
        let (at, number) = (port.at, port.number);
        let (reader, writer) = match port.connection {
            Ok(stream) => {
                let (reader, writer) = stream.into_split();
                (Some(Reader { at, number, reader }), Some(writer))
            }
            Err(_) => (None, None),
        };
        readers.extend(reader);
        writers.push(writer);
    }
    tokio::select! {
        copied = try_join_all(readers.into_iter().map(|reader| reader.copy(client))) => match copied {
            Ok(_) => End::Done(None),
            Err(error) => error.into(),
        },
        end = listen(words, client, &mut writers, terms.limits.sign_of_life) => end,
    }
}

/// A port and the connection to it, or why there is none.
struct Port {
    at: u8,
    number: u16,
    connection: Result<TcpStream, String>,
}

/// Tells the client which port the channels belong to, and what is wrong with it.
async fn greet(client: &Client, port: &Port) -> Result<(), SendError> {
    let number = port_message(port.number);
    client.send_copy(data_channel(port.at), &number).await?;
    client.send_copy(error_channel(port.at), &number).await?;
    match &port.connection {
        Ok(_) => Ok(()),
        Err(reason) => fail(client, port.at, port.number, reason).await,
    }
}

async fn fail(client: &Client, at: u8, number: u16, reason: &str) -> Result<(), SendError> {
    client.send_copy(error_channel(at), failure(number, reason).as_bytes()).await
}

/// The half of a connection that is read.
struct Reader {
    at: u8,
    number: u16,
    reader: OwnedReadHalf,
}

impl Reader {
    async fn copy(mut self, client: &Client) -> Result<(), SendError> {
        let mut outgoing = Outgoing::with_capacity(CHUNK);
        loop {
            match self.reader.read(outgoing.space()).await {
                Ok(0) => return Ok(()),
                Ok(length) => client.send(data_channel(self.at), &mut outgoing, length).await?,
                Err(error) => {
                    return fail(client, self.at, self.number, &error.to_string()).await;
                }
            }
        }
    }
}

/// Passes on what the client says, until it says nothing more.
async fn listen(
    words: &mut Words<ForwardReader>,
    client: &Client,
    writers: &mut [Option<OwnedWriteHalf>],
    sign_of_life: Duration,
) -> End {
    loop {
        match words.next().await {
            Ok(ForwardEvent::Data { at, payload }) => {
                let Some(place) = writers.get_mut(usize::from(at)) else { continue };
                let Some(writer) = place else { continue };
                if feed(payload.into_bytes(), writer, client, sign_of_life).await.is_err() {
                    // Nobody listens there any more; what follows for this port is dropped.
                    *place = None;
                }
            }
            Ok(ForwardEvent::Ping(payload)) => client.pong(payload),
            Ok(ForwardEvent::Close(close)) => return End::Left(close),
            Ok(ForwardEvent::Failed { .. } | ForwardEvent::Pong) => {}
            Err(error) => return error.into(),
        }
    }
}
