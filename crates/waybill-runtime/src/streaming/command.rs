//! A session of exec or attach: a process on one side, a client on the other.
//!
//! The client's pace is the process's: output that the client does not read stays in the pipe, and
//! input that the process does not read stays in the connection.

mod input;
mod output;
mod process;

use tokio_util::sync::CancellationToken;
use waybill_core::chain::Chain;
use waybill_stream::{
    command::{CommandReader, ERROR, Streams},
    outcome::Outcome,
    protocol::Protocol,
    websocket::Role,
};

use self::process::Process;
use super::{
    Limits, Running,
    session::{Client, End, Session, Socket, Words, interruption},
};
use crate::engine::EngineError;

/// What a command's session is like.
pub(super) struct Terms {
    pub(super) protocol: Protocol,
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
    let events = CommandReader::new(terms.protocol, Role::Server);
    let mut session = Session::new(socket, terms.protocol, events, terms.limits);
    let end = tokio::select! {
        end = converse((&session.client, &mut session.words), &terms, start) => end,
        end = interruption(&session.client, &session.traffic, terms.limits, stop) => end,
    };
    session.end(end).await;
}

async fn converse(
    (client, words): (&Client, &mut Words<CommandReader>),
    terms: &Terms,
    start: impl Future<Output = Result<Running, EngineError>>,
) -> End {
    if let Err(error) = client.send_copy(terms.streams.greeting_channel(), b"").await {
        return error.into();
    }
    let process = match start.await {
        Ok(running) => Process::open(running, terms.streams),
        Err(error) => return done(&Outcome::Failure(Chain(&error).to_string()), terms.protocol),
    };
    let mut process = match process {
        Ok(process) => process,
        Err(error) => {
            let reason = format!("the streams of the process cannot be used: {error}");
            return done(&Outcome::Failure(reason), terms.protocol);
        }
    };
    tokio::select! {
        ended = output::watch(&process.output, process.exit, client, terms.limits.drain) => {
            match ended {
                Ok(outcome) => done(&outcome, terms.protocol),
                Err(error) => error.into(),
            }
        }
        end = input::listen(&mut process.input, words, client, terms.limits.sign_of_life) => end,
    }
}

fn done(outcome: &Outcome, protocol: Protocol) -> End {
    End::Done(outcome.to_message(protocol).map(|message| (ERROR, message)))
}
