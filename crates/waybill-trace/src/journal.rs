//! The record that lasts: lines of JSON in files below the state directory, each chained by SHA-256 to the one before.
//!
//! There are two logs, so that a storm of programs pushes out no session: `sessions-*.jsonl` has who asked, for what and until when,
//! and what happened to the record itself; `programs-*.jsonl` has what ran. A line reads
//!
//! ```text
//! {"n":7,"entry":"program",…,"hash":"<64 hex digits>"}
//! ```
//!
//! where `hash` is the SHA-256 of the hash before it, in hex, and of the line up to the comma before `"hash"`. The first line of a file
//! has the version of the format, and where the file before it ended. So whoever takes away, changes or swaps a line breaks the chain
//! ([`verify()`]). Each log notes now and then where the other one stands, so that both must be cut to hide that one was.

mod chain;
mod entry;
mod files;
mod reader;
mod verify;
mod writer;

pub use self::{
    chain::{ChainHead, START},
    entry::{Entry, ExitEntry, ProgramEntry, SessionEntry},
    files::{JournalFile, LogName, files},
    reader::{JournalReader, ReadLine},
    verify::{Finding, LogReport, Report, verify},
    writer::{JournalWriter, Limits, Opened},
};
pub(crate) use self::{entry::json_length, reader::parse as parse_line};
