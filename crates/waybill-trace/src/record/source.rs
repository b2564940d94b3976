//! Where sessions and programs are read from: a node's own record, or one behind an API server.

use std::{error::Error, fmt};

use futures_util::{future::BoxFuture, stream::BoxStream};
use serde::{Deserialize, Serialize};

use super::{Coverage, ProcessQuery, RecordedProcess, RecordedSession, SessionQuery};

/// A record that can be asked. Many may ask at once.
pub trait TraceSource: Send + Sync {
    /// The sessions that are wanted, oldest first.
    fn sessions<'a>(
        &'a self,
        query: &'a SessionQuery,
    ) -> BoxFuture<'a, Result<SessionList, TraceSourceError>>;

    /// The programs that are wanted, oldest first.
    fn processes<'a>(
        &'a self,
        query: &'a ProcessQuery,
    ) -> BoxFuture<'a, Result<Vec<RecordedProcess>, TraceSourceError>>;

    /// What changes from now on. Each change has the whole new state of its session or program, which replaces what was
    /// known under that name; counts of a session come at most once a second. A reader that is too slow gets [`Change::Missed`] and asks again.
    fn changes(&self) -> BoxStream<'static, Change>;
}

/// Sessions, and how complete the record is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionList {
    /// Oldest first.
    pub sessions: Vec<RecordedSession>,
    /// Whether older ones were left out because of a limit.
    pub more: bool,
    /// About the whole record.
    pub coverage: Coverage,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type", content = "object")]
pub enum Change {
    /// A session began, ended, or is known better.
    Session(Box<RecordedSession>),
    /// A program began or ended.
    Process(Box<RecordedProcess>),
    /// The record itself changed: its source, or something was lost.
    Coverage(Coverage),
    /// There were changes that this reader did not take in time.
    Missed,
}

/// Why a record cannot be read.
#[derive(Debug)]
pub struct TraceSourceError {
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl TraceSourceError {
    /// `what` could not be done, because of `source`.
    pub fn new(what: &str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { what: what.to_owned(), source: Some(source.into()) }
    }
}

impl fmt::Display for TraceSourceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl Error for TraceSourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
