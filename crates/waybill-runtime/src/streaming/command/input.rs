//! From the client to the process.

use std::time::Duration;

use bytes::Bytes;
use waybill_stream::{command::CommandEvent, connection::EventReader};

use super::{
    super::{
        fds::end_of_input,
        session::{Client, End, Words, feed},
    },
    process::{Input, Stdin},
};

/// Does what the client says, until it says nothing more.
pub(super) async fn listen<E: EventReader<Event = CommandEvent>>(
    input: &mut Input,
    words: &mut Words<E>,
    client: &Client,
    sign_of_life: Duration,
) -> End {
    loop {
        match words.next().await {
            Ok(CommandEvent::Stdin(payload)) => {
                input.feed(payload.into_bytes(), client, sign_of_life).await;
            }
            Ok(CommandEvent::StdinEnd) => input.end(client, sign_of_life).await,
            Ok(CommandEvent::Resize(size)) => input.resize(size),
            Ok(CommandEvent::Ping(payload)) => client.pong(payload),
            Ok(CommandEvent::Close(close)) => return End::Left(close),
            // These only come to clients.
            Ok(CommandEvent::Stdout(_) | CommandEvent::Stderr(_) | CommandEvent::Ended(_)) => {}
            Ok(CommandEvent::Pong) => {}
            Err(error) => return error.into(),
        }
    }
}

impl Input {
    /// Writes all of `bytes`, at the process's pace.
    async fn feed(&mut self, bytes: Bytes, client: &Client, sign_of_life: Duration) {
        let Some(stdin) = &mut self.stdin else { return };
        if feed(bytes, &mut stdin.sink, client, sign_of_life).await.is_err() {
            // The process has closed its end, as it may. What follows is dropped.
            self.stdin = None;
        }
    }

    /// The client has no more.
    async fn end(&mut self, client: &Client, sign_of_life: Duration) {
        if let Some(Stdin { sink, is_terminal: true }) = &self.stdin
            && let Some(end) = end_of_input(sink)
        {
            self.feed(Bytes::copy_from_slice(&[end]), client, sign_of_life).await;
        }
        self.stdin = None;
    }
}
