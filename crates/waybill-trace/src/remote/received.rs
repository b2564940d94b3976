//! Records that came over the wire, of one node or of several, and can be asked like a node's own.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, ready},
    stream::{self, BoxStream},
};
use tokio::sync::broadcast;

use super::wire::{MARK, WireLine};
use crate::{
    journal::{ReadLine, parse_line},
    local::{Index, View},
    record::{
        Change, Coverage, ProcessQuery, RecordedProcess, RecordedSession, SessionList,
        SessionQuery, TraceSource, TraceSourceError,
    },
};

/// How many changes a reader may be behind.
const BEHIND: usize = 4096;

/// What came so far, in one part for each node.
#[derive(Clone)]
pub struct ReceivedRecord {
    shared: Arc<Shared>,
}

struct Shared {
    parts: Mutex<Vec<Part>>,
    changes: broadcast::Sender<Change>,
}

struct Part {
    index: Index,
    beside: HashSet<String>,
}

/// What a line was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// There may be more.
    Something,
    /// This was everything until now.
    End,
}

/// A line that nobody understands.
#[derive(Debug, thiserror::Error)]
#[error("a line of the record is not understood; the node may be of a newer version")]
pub struct WireError;

impl ReceivedRecord {
    /// Nothing yet, from so many nodes.
    pub fn new(nodes: usize) -> Self {
        let part = || {
            let mut index = Index::received();
            // Whoever hands it out is its collector.
            index.set_recorded(true);
            Part { index, beside: HashSet::new() }
        };
        let parts = std::iter::repeat_with(part).take(nodes).collect();
        let (changes, _) = broadcast::channel(BEHIND);
        Self { shared: Arc::new(Shared { parts: Mutex::new(parts), changes }) }
    }

    /// Takes a line, without its end, of one of the nodes.
    pub fn hear(&self, node: usize, line: &[u8]) -> Result<Heard, WireError> {
        // Nothing is said by an empty line but that somebody is there.
        if line.is_empty() {
            return Ok(Heard::Something);
        }
        let mut parts = self.shared.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(part) = parts.get_mut(node) else { return Err(WireError) };
        let changes = if line.starts_with(MARK) {
            match serde_json::from_slice(line).map_err(|_| WireError)? {
                WireLine::End => return Ok(Heard::End),
                WireLine::Beside { sessions } => {
                    part.beside.extend(sessions);
                    Vec::new()
                }
                WireLine::Live { traces } => part.index.merge(View { traces, ..View::default() }),
            }
        } else {
            match parse_line(line) {
                ReadLine::Entry(_, entry) => part.index.hear([*entry]),
                ReadLine::Newer(_) | ReadLine::Unreadable => return Err(WireError),
            }
        };
        for change in changes {
            // Nobody may be listening.
            let _ = self.shared.changes.send(change);
        }
        Ok(Heard::Something)
    }

    /// What was asked for, and what was in the same containers; oldest first.
    pub fn with_beside(&self) -> Vec<RecordedSession> {
        let all = SessionQuery { probes: true, ..SessionQuery::default() };
        self.list(&all, |_, _| true).sessions
    }

    fn list(&self, query: &SessionQuery, is_wanted: impl Fn(&Part, &str) -> bool) -> SessionList {
        let parts = self.shared.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let unlimited = SessionQuery { limit: None, ..query.clone() };
        let mut all = SessionList::default();
        for (at, part) in parts.iter().enumerate() {
            let SessionList { sessions, coverage, .. } = part.index.sessions(&unlimited);
            all.sessions.extend(sessions.into_iter().filter(|it| is_wanted(part, &it.id)));
            all.coverage =
                if at == 0 { coverage } else { both(std::mem::take(&mut all.coverage), coverage) };
        }
        all.sessions.sort_by(|one, other| {
            (one.trace.started, &one.id).cmp(&(other.trace.started, &other.id))
        });
        let surplus = query.limit.map_or(0, |limit| all.sessions.len().saturating_sub(limit));
        all.sessions.drain(..surplus);
        all.more = surplus > 0;
        all
    }

    fn programs(&self, query: &ProcessQuery) -> Vec<RecordedProcess> {
        let parts = self.shared.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let all = ProcessQuery { offset: 0, limit: None, ..query.clone() };
        let mut found: Vec<_> = parts.iter().flat_map(|part| part.index.processes(&all)).collect();
        if parts.len() > 1 {
            found.sort_by_key(|process| process.started);
        }
        let found = found.into_iter().skip(query.offset);
        found.take(query.limit.unwrap_or(usize::MAX)).collect()
    }
}

/// Of two nodes together: the lesser source, and what is missing on either.
fn both(one: Coverage, other: Coverage) -> Coverage {
    let source = match (one.source, other.source) {
        (Some(one), Some(other)) => Some(one.max(other)),
        _ => None,
    };
    let mut gaps = one.gaps;
    gaps.extend(other.gaps);
    gaps.sort_by_key(|gap| gap.from);
    Coverage {
        source,
        why_not_better: one.why_not_better.or(other.why_not_better),
        lost: one.lost.saturating_add(other.lost),
        gaps,
        since: one.since.into_iter().chain(other.since).min(),
    }
}

impl TraceSource for ReceivedRecord {
    fn sessions<'a>(
        &'a self,
        query: &'a SessionQuery,
    ) -> BoxFuture<'a, Result<SessionList, TraceSourceError>> {
        ready(Ok(self.list(query, |part, id| !part.beside.contains(id)))).boxed()
    }

    fn processes<'a>(
        &'a self,
        query: &'a ProcessQuery,
    ) -> BoxFuture<'a, Result<Vec<RecordedProcess>, TraceSourceError>> {
        ready(Ok(self.programs(query))).boxed()
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
