//! The record of this machine, read: its files, and what the runtime and the audit log tell now.
//!
//! The files are read once and then only what is new of them. Who asks often shares one reader, which looks a few times a second while
//! somebody wants to hear of changes.

mod index;
mod live;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream, stream::BoxStream};
use tokio::sync::{Mutex, broadcast};

pub(crate) use self::index::Index;
pub use self::live::{LiveSource, View};
use crate::{
    collector::{is_recorded, wall},
    record::{
        Change, ProcessQuery, RecordedProcess, SessionList, SessionQuery, TraceSource,
        TraceSourceError,
    },
};

/// How often is looked for changes.
const LOOK: Duration = Duration::from_millis(500);

/// How many changes a reader may be behind.
const BEHIND: usize = 4096;

/// The record of this machine.
#[derive(Clone)]
pub struct LocalRecord {
    shared: Arc<Shared>,
}

struct Shared {
    directory: PathBuf,
    state: Mutex<State>,
    changes: broadcast::Sender<Change>,
}

struct State {
    index: Index,
    live: Option<LiveSource>,
}

impl LocalRecord {
    /// The record in `directory`, and what is known now, if `live` can be asked.
    pub fn new(directory: &Path, live: Option<LiveSource>) -> Self {
        let (changes, _) = broadcast::channel(BEHIND);
        let state = State { index: Index::new(directory), live };
        let directory = directory.to_owned();
        Self { shared: Arc::new(Shared { directory, state: Mutex::new(state), changes }) }
    }

    /// Looks for changes for as long as the future is polled; [`changes`](TraceSource::changes) tells them. Never ends.
    pub async fn watch(&self) {
        loop {
            if let Err(error) = self.shared.look().await {
                tracing::debug!(%error, "the record cannot be read for now");
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Shared {
    /// Reads what is new, and tells it.
    async fn look(&self) -> Result<(), TraceSourceError> {
        let mut state = self.state.lock().await;
        let State { index, live } = &mut *state;
        let failed = |error| TraceSourceError::new("cannot read the record", error);
        let mut changes = index.refresh().map_err(failed)?;
        let now = wall();
        index.set_recorded(is_recorded(&self.directory, now));
        if let Some(live) = live {
            changes.extend(index.merge(live.look(now).await?));
        }
        for change in changes {
            // Nobody may be listening.
            let _ = self.changes.send(change);
        }
        Ok(())
    }
}

impl TraceSource for LocalRecord {
    fn sessions<'a>(
        &'a self,
        query: &'a SessionQuery,
    ) -> BoxFuture<'a, Result<SessionList, TraceSourceError>> {
        Box::pin(async move {
            self.shared.look().await?;
            Ok(self.shared.state.lock().await.index.sessions(query))
        })
    }

    fn processes<'a>(
        &'a self,
        query: &'a ProcessQuery,
    ) -> BoxFuture<'a, Result<Vec<RecordedProcess>, TraceSourceError>> {
        Box::pin(async move {
            self.shared.look().await?;
            Ok(self.shared.state.lock().await.index.processes(query))
        })
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        let receiver = self.shared.changes.subscribe();
        let next = |mut receiver: broadcast::Receiver<Change>| async move {
            match receiver.recv().await {
                Ok(change) => Some((change, receiver)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((Change::Missed, receiver)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        };
        stream::unfold(receiver, next).boxed()
    }
}
