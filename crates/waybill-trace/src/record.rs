//! What the record of a node tells: sessions, the programs that ran in them, and how far it is complete.
//!
//! The same JSON is on the lasting record's readers, on the wire and on the page. No value of a variable is in it, and
//! arguments that look like secrets are hidden before anything gets here.

mod companions;
mod coverage;
mod process;
mod query;
mod session;
mod source;

pub use self::{
    companions::companions,
    coverage::{Coverage, EventSource, Gap, GapReason, Whose},
    process::{ProcessState, RecordedProcess},
    query::{ProcessQuery, SessionQuery},
    session::RecordedSession,
    source::{Change, SessionList, TraceSource, TraceSourceError},
};
