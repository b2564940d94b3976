//! Keeps the history filled from one watch of etcd, over lost connections.
//!
//! One watch covers all our keys, so every reader learns how far the store has come, and etcd sends
//! each change once. After a loss the watch goes on where the history ends. If etcd no longer has
//! what came next, the history begins anew and its watchers are told to list again.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use tokio::time::{sleep, timeout};
use tonic::{Status, Streaming};
use waybill_core::{chain::Chain, id::ResourceVersion};

use super::{
    client::{CallError, Client, range_of},
    message::{EventType, KeyEvent, ResponseHeader, WatchCreateRequest, WatchResponse},
    newest_revision, own, revision_of,
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
        while let Some(mut piece) = response {
            events.append(&mut piece.events);
            if piece.compact_revision != 0 {
                return Ok(Ended::Compacted);
            }
            if piece.canceled {
                tracing::warn!(reason = piece.cancel_reason, "etcd canceled the watch");
                return Ok(Ended::Closed);
            }
            if !piece.created && !piece.fragment {
                let header = piece.header.unwrap_or_default();
                if self.publish(std::mem::take(&mut events), header).is_err() {
                    return Ok(Ended::Compacted);
                }
            }
            response = next(&mut responses).await?;
        }
        Ok(Ended::Closed)
    }

    /// Adds the events that are new to the history; fails if one has lost what was before it. A
    /// response without events says that there are none up to its revision.
    fn publish(&self, events: Vec<KeyEvent>, header: ResponseHeader) -> Result<(), Incomplete> {
        if events.is_empty() {
            self.history.advance(revision_of(header.revision));
            return Ok(());
        }
        let newest = self.history.newest();
        let new = events.into_iter().filter_map(|event| change(event, &self.prefix, newest));
        self.history.extend(new.collect::<Result<Vec<_>, _>>()?);
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
    let failed = |status: Status| StoreError::Call { call: "watch", source: status.into() };
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
    let previous = event.prev_kv.map(|kv| own(&kv.value));
    // The first write after a creation has version 1 and nothing before it.
    if previous.is_none() && (deleted || kv.version > 1) {
        return Some(Err(Incomplete));
    }
    let value = (!deleted).then(|| own(&kv.value));
    Some(Ok(Change { key, revision, value, previous }))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::task::JoinSet;

    use super::*;
    use crate::store::{
        Expected, Store, WatchError, Write, contract, etcd, etcd::message::KeyValue,
        history::Limits,
    };

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_compacted_while_we_were_away_ends_the_watches_and_not_the_feed() {
        let Some((store, server)) = etcd::open_for_tests().await else { return };
        let start = store.list("").await.unwrap().revision;
        let create = |key: &str| {
            let value = Some(Bytes::from_static(b"x"));
            Write { key: key.into(), expected: Expected::Absent, value }
        };
        store.write(create("/1")).await.unwrap();
        let newest = store.write(create("/2")).await.unwrap();
        store.compact(newest).await.unwrap();

        let mut config = etcd::server::config(&server, "/test");
        let history = Arc::new(History::after(start, Limits::default()));
        let mut behind = history.watch("", start).unwrap();
        let feed = Feed {
            client: Client::new(&mut config).unwrap(),
            history: Arc::clone(&history),
            prefix: config.prefix,
            timeout: config.timeout,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(feed.run());
        let ended = behind.next().await.unwrap();
        assert!(matches!(ended, Err(WatchError::Compacted(_))), "{ended:?}");
        let mut watch = history.watch("", newest).unwrap();
        store.write(create("/3")).await.unwrap();
        assert_eq!(contract::changes(&mut watch, 1).await[0].key, "/3");
    }

    #[test]
    fn an_event_without_its_previous_value_is_incomplete_unless_it_is_known() {
        let event = |r#type: EventType, version, prev_kv| KeyEvent {
            r#type: r#type.into(),
            kv: Some(KeyValue {
                key: Bytes::from_static(b"/p/k"),
                mod_revision: 5,
                version,
                ..KeyValue::default()
            }),
            prev_kv,
        };
        let check = |event: KeyEvent, newest: u64, expected: Option<bool>| {
            let found = change(event, "/p", newest.into()).map(|change| change.is_ok());
            assert_eq!(found, expected);
        };
        check(event(EventType::Put, 1, None), 4, Some(true));
        check(event(EventType::Put, 2, None), 4, Some(false));
        check(event(EventType::Delete, 0, None), 4, Some(false));
        check(event(EventType::Delete, 0, Some(KeyValue::default())), 4, Some(true));
        check(event(EventType::Delete, 0, None), 5, None);
    }
}
