//! From the process to the client, and its end.

use std::{pin::pin, time::Duration};

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use waybill_core::chain::Chain;
use waybill_stream::{channel::Outgoing, connection::SendError, outcome::Outcome};

use super::{
    super::{ExitFuture, session::Client},
    process::{Heard, Output},
};

/// Read at once; as much as a pipe holds.
const CHUNK: usize = 64 * 1024;

/// What may be left in a pipe when its process has ended: the largest size that users can give one.
const LEFT_OVER: usize = 1024 * 1024;

/// Passes everything on until the process has ended and the client has what it wrote.
///
/// A child of the process may hold the pipe for ever, so the end of the process counts, not that of
/// the pipe: what stood in it then is delivered, and what follows only for as long as `drain`. Sessions
/// that end with their output succeed then.
pub(super) async fn watch(
    output: &Output,
    exit: ExitFuture,
    client: &Client,
    drain: Duration,
) -> Result<Outcome, SendError> {
    let enough = CancellationToken::new();
    let mut copies = pin!(async {
        tokio::try_join!(
            copy(output.stdout.as_ref(), client, &enough),
            copy(output.stderr.as_ref(), client, &enough),
        )
    });
    let mut copied = false;
    let mut exit = exit;
    let ended = loop {
        tokio::select! {
            ended = &mut exit => break ended,
            result = &mut copies, if !copied => {
                result?;
                copied = true;
                if output.ends_session {
                    break Ok(0);
                }
            }
        }
    };
    if !copied {
        match timeout(drain, &mut copies).await {
            Ok(result) => result?,
            Err(_) => {
                enough.cancel();
                copies.await?
            }
        };
    }
    Ok(match ended {
        Ok(code) => Outcome::exited(code),
        Err(error) => Outcome::Failure(Chain(&error).to_string()),
    })
}

/// Sends what is heard, until it ends or it is `enough`.
async fn copy(
    heard: Option<&Heard>,
    client: &Client,
    enough: &CancellationToken,
) -> Result<(), SendError> {
    let Some(heard) = heard else { return Ok(()) };
    let mut outgoing = Outgoing::with_capacity(CHUNK);
    let mut enough = pin!(enough.cancelled());
    loop {
        let read = tokio::select! {
            biased;
            () = &mut enough => break,
            read = heard.source.read(outgoing.space()) => read,
        };
        match read {
            Ok(0) => return Ok(()),
            Ok(length) => heard.send(&mut outgoing, length, client).await?,
            Err(error) => {
                tracing::debug!(%error, "a stream of a process cannot be read");
                return Ok(());
            }
        }
    }
    let mut left = LEFT_OVER;
    while left > 0 {
        let length = heard.source.read_now(outgoing.space());
        if length == 0 {
            break;
        }
        heard.send(&mut outgoing, length, client).await?;
        left = left.saturating_sub(length);
    }
    Ok(())
}

impl Heard {
    async fn send(
        &self,
        outgoing: &mut Outgoing,
        length: usize,
        client: &Client,
    ) -> Result<(), SendError> {
        match self.channel {
            Some(channel) => client.send(channel, outgoing, length).await,
            None => Ok(()),
        }
    }
}
