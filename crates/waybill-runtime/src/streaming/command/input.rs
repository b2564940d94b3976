//! From the client to the process.

use std::{io, time::Duration};

use bytes::{Buf, Bytes};
use tokio::time::sleep;
use waybill_stream::command::{CommandEvent, CommandReader};

use super::{
    super::{
        fds::Stream,
        session::{Client, End, Words},
    },
    process::{Input, Stdin},
};

/// How often a client that waits for the process to read gets a sign of life; as often as it asks.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// Does what the client says, until it says nothing more.
pub(super) async fn listen(
    input: &mut Input,
    words: &mut Words<CommandReader>,
    client: &Client,
) -> End {
    loop {
        match words.next().await {
            Ok(CommandEvent::Stdin(payload)) => {
                input.stdin.feed(payload.into_bytes(), client).await;
            }
            Ok(CommandEvent::StdinEnd) => input.stdin.end(client).await,
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

impl Stdin {
    /// Writes all of `bytes`, at the process's pace.
    async fn feed(&mut self, bytes: Bytes, client: &Client) {
        let written = match self {
            Self::None => return,
            Self::Pipe(pipe) => write(pipe, bytes, client).await,
            Self::Terminal(terminal) => write(terminal, bytes, client).await,
        };
        if written.is_err() {
            // The process has closed its end, as it may. What follows is dropped.
            *self = Self::None;
        }
    }

    /// The client has no more.
    async fn end(&mut self, client: &Client) {
        if let Self::Terminal(terminal) = self
            && let Some(end) = terminal.end_of_input()
        {
            let _ = write(terminal, Bytes::copy_from_slice(&[end]), client).await;
        }
        *self = Self::None;
    }
}

/// While the process does not read, nothing that the client sends is read either, its pings included.
/// So it gets pongs without asking, and if it is gone they fail and end the session.
async fn write(stream: &Stream, mut bytes: Bytes, client: &Client) -> io::Result<()> {
    while !bytes.is_empty() {
        tokio::select! {
            biased;
            written = stream.write(&bytes) => bytes.advance(written?),
            () = sleep(SIGN_OF_LIFE) => client.pong(Bytes::new()),
        }
    }
    Ok(())
}
