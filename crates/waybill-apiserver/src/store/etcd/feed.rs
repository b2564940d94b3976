//! Keeps the history filled from one watch of etcd, over lost connections.
//!
//! One watch covers all our keys, so every reader learns how far the store has come, and etcd sends
//! each change once. After a loss the watch goes on where the history ends. If etcd no longer has
//! what came next, the history begins anew and its watchers are told to list again.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use tokio::time::{sleep, timeout};
use tonic::Streaming;
use waybill_core::{chain::Chain, id::ResourceVersion};

use super::{
    client::{CallError, Client, range_of},
    message::{EventType, KeyEvent, WatchCreateRequest, WatchResponse},
    newest_revision, revision_of,
};
use crate::store::{Change, StoreError, history::History};

/// The pause after the first failure in a row; it doubles up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What the feed works with.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) client: Client,
    pub(super) history: Arc<History>,
    /// Of all our keys in etcd.
    pub(super) prefix: String,
    /// For the first answer to a watch.
    pub(super) timeout: Duration,
}

impl Feed {
    /// Runs until it is dropped.
    pub(super) async fn run(self) {
        let mut pause = PAUSE;
        loop {
            let before = self.history.newest();
            let error = match self.follow().await {
                Ok(Ended::Compacted) => match self.begin_anew().await {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                Ok(Ended::Closed) => StoreError::Closed,
                Err(error) => error,
            };
            if self.history.newest() > before {
                pause = PAUSE;
            }
            tracing::warn!(error = %Chain(&error), "the watch of etcd was lost");
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Watches from the end of the history, until the stream ends.
    async fn follow(&self) -> Result<Ended, StoreError> {
        let mut responses = match self.client.watch(self.request()).await {
            Ok(responses) => responses,
            Err(CallError::Compacted) => return Ok(Ended::Compacted),
            Err(error) => return Err(error.into_store("watch")),
        };
        let created = timeout(self.timeout, next(&mut responses)).await;
        let mut response = created.map_err(|_| StoreError::Timeout { call: "watch" })??;
        let mut events = Vec::new();
        while let Some(WatchResponse { compact_revision, canceled, fragment, .. }) = response {
            if compact_revision != 0 {
                return Ok(Ended::Compacted);
            }
            let WatchResponse { header, created, events: piece, .. } =
                response.take().unwrap_or_default();
            if canceled {
                return Ok(Ended::Closed);
            }
            let quiet = !created && piece.is_empty() && events.is_empty();
            events.extend(piece);
            if quiet {
                let header = header.unwrap_or_default();
                self.history.advance(revision_of(header.revision));
            } else if !fragment && self.publish(std::mem::take(&mut events)).is_err() {
                return Ok(Ended::Compacted);
            }
            response = next(&mut responses).await?;
        }
        Ok(Ended::Closed)
    }

    /// Adds the events that are new to the history; fails if one has lost what was before it.
    fn publish(&self, events: Vec<KeyEvent>) -> Result<(), Incomplete> {
        let newest = self.history.newest();
        let new = events.into_iter().filter_map(|event| change(event, &self.prefix, newest));
        let changes = new.collect::<Result<Vec<_>, _>>()?;
        if !changes.is_empty() {
            self.history.extend(changes);
        }
        Ok(())
    }

    async fn begin_anew(&self) -> Result<(), StoreError> {
        let newest = newest_revision(&self.client, &self.prefix).await?;
        tracing::warn!(revision = newest.get(), "etcd has compacted changes that we have not seen");
        self.history.restart(newest);
        Ok(())
    }

    /// Asks from the newest revision that is known, not from the one after it: a start at the
    /// compacted revision itself may miss a deletion there (etcd issue 18089), while a start before
    /// it is refused. [`Self::publish`] leaves out what is known.
    fn request(&self) -> WatchCreateRequest {
        let (key, range_end) = range_of(self.prefix.as_bytes());
        let newest = self.history.newest().get().max(1);
        WatchCreateRequest {
            key,
            range_end,
            start_revision: i64::try_from(newest).unwrap_or(i64::MAX),
            progress_notify: true,
            prev_kv: true,
            fragment: true,
        }
    }
}

/// Why a watch is over.
enum Ended {
    Closed,
    Compacted,
}

async fn next(
    responses: &mut Streaming<WatchResponse>,
) -> Result<Option<WatchResponse>, StoreError> {
    let failed = |status| StoreError::Call { call: "watch", source: Box::new(status) };
    responses.next().await.transpose().map_err(failed)
}

/// An event whose previous value is compacted already (etcd issue 10681).
struct Incomplete;

/// The change that `event` tells of; `None` if it is not later than `newest` or its key not ours.
fn change(
    event: KeyEvent,
    prefix: &str,
    newest: ResourceVersion,
) -> Option<Result<Change, Incomplete>> {
    let deleted = event.r#type == i32::from(EventType::Delete);
    let kv = event.kv?;
    let revision = revision_of(kv.mod_revision);
    if revision <= newest {
        return None;
    }
    let key = str::from_utf8(&kv.key).ok()?.strip_prefix(prefix)?.to_owned();
    let previous = event.prev_kv.map(|kv| kv.value);
    // The first write after a creation has version 1 and nothing before it.
    if previous.is_none() && (deleted || kv.version > 1) {
        return Some(Err(Incomplete));
    }
    let value = (!deleted).then_some(kv.value);
    Some(Ok(Change { key, revision, value, previous }))
}
