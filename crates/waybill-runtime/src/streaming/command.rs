//! A session of exec or attach: a process on one side, a client on the other.
//!
//! The client's pace is the process's: output that the client does not read stays in the pipe, and
//! input that the process does not read stays in the connection.

mod input;
mod output;
mod process;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use waybill_core::chain::Chain;
use waybill_stream::{
    command::{CommandEvent, CommandReader, ERROR, Streams},
    connection::EventReader,
    outcome::Outcome,
    protocol::Protocol,
    spdy::{
        self, SpdyError,
        command::{ChannelStreams, Gathering, SpdyCommandReader, SpdyVersion},
        read::{SpdyEvent, SpdyReader},
    },
    websocket::{Close, Role},
};

use self::process::Process;
use super::{
    Limits, Running,
    answer::CommandWire,
    session::{Client, End, Session, Socket, Words, interruption},
};
use crate::engine::EngineError;

/// What a command's session is like.
pub(super) struct Terms {
    pub(super) wire: CommandWire,
    pub(super) streams: Streams,
    pub(super) limits: Limits,
}

/// Runs a session to its end. The process is started once the client is there.
pub(super) async fn run(
    socket: Socket,
    terms: Terms,
    start: impl Future<Output = Result<Running, EngineError>>,
    stop: &CancellationToken,
) {
    match terms.wire {
        CommandWire::Channels(protocol) => {
            let events = CommandReader::new(protocol, Role::Server);
            let session = Session::channels(socket, protocol, events, terms.limits);
            let greeting = session.client.send_copy(terms.streams.greeting_channel(), b"").await;
            if greeting.is_ok() {
                serve(session, protocol, terms.streams, start, stop).await;
            }
        }
        CommandWire::Spdy(version) => {
            let mut session = Session::spdy(socket, terms.limits);
            let gathering = gather(&mut session, terms.streams, version);
            match timeout(terms.limits.streams, gathering).await {
                Ok(Ok(streams)) => {
                    session.client.set_channels(streams);
                    let session = session.map(|frames| SpdyCommandReader::new(frames, streams));
                    serve(session, version.protocol(), terms.streams, start, stop).await;
                }
                Ok(Err(end)) => session.end(end).await,
                Err(_) => session.end(End::Closed(Close::normal())).await,
            }
        }
    }
}

/// Waits until the client has opened the streams that it asked for.
async fn gather(
    session: &mut Session<SpdyReader>,
    streams: Streams,
    version: SpdyVersion,
) -> Result<ChannelStreams, End> {
    let mut gathering = Gathering::new(streams, version);
    let mut is_first = true;
    loop {
        match session.words.next().await? {
            SpdyEvent::Opened { stream, headers } => {
                gathering.add(stream, &headers)?;
                session.client.send_frame(&spdy::write::reply(stream, is_first)).await?;
                is_first = false;
                if let Some(streams) = gathering.complete() {
                    return Ok(streams);
                }
            }
            SpdyEvent::Ping(number) if number % 2 == 1 => {
                session.client.send_frame(&spdy::write::ping(number)).await?;
            }
            SpdyEvent::GoAway => return Err(End::Left(None)),
            SpdyEvent::Data { .. } => return Err(SpdyError::Early.into()),
            // A client that has no use for a stream that it needs will not get far.
            SpdyEvent::Ping(_) | SpdyEvent::Finished(_) | SpdyEvent::Reset(_) => {}
        }
    }
}

/// Runs a session whose client is ready.
async fn serve<E: EventReader<Event = CommandEvent>>(
    mut session: Session<E>,
    protocol: Protocol,
    streams: Streams,
    start: impl Future<Output = Result<Running, EngineError>>,
    stop: &CancellationToken,
) {
    let limits = session.limits;
    let end = tokio::select! {
        end = converse((&session.client, &mut session.words), (protocol, streams), start, limits) => end,
        end = interruption(&session.client, &session.traffic, limits, stop) => end,
    };
    session.end(end).await;
}

async fn converse<E: EventReader<Event = CommandEvent>>(
    (client, words): (&Client, &mut Words<E>),
    (protocol, streams): (Protocol, Streams),
    start: impl Future<Output = Result<Running, EngineError>>,
    limits: Limits,
) -> End {
    let process = match start.await {
        Ok(running) => Process::open(running, streams),
        Err(error) => return done(&Outcome::Failure(Chain(&error).to_string()), protocol),
    };
    let mut process = match process {
        Ok(process) => process,
        Err(error) => {
            let reason = format!("the streams of the process cannot be used: {error}");
            return done(&Outcome::Failure(reason), protocol);
        }
    };
    tokio::select! {
        ended = output::watch(&process.output, process.exit, client, limits.drain) => {
            match ended {
                Ok(outcome) => done(&outcome, protocol),
                Err(error) => error.into(),
            }
        }
        end = input::listen(&mut process.input, words, client, limits.sign_of_life) => end,
    }
}

fn done(outcome: &Outcome, protocol: Protocol) -> End {
    End::Done(outcome.to_message(protocol).map(|message| (ERROR, message)))
}
