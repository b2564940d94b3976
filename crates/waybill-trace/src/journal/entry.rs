//! What lines say.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{ChainHead, LogName};
use crate::{
    join::Trace,
    membership::MoveReason,
    record::{EventSource, GapReason, Whose},
};

/// The version of the format that we write; D15: a newer one is left alone.
pub(super) const VERSION: u32 = 1;

/// What one line says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Entry {
    /// The first line of a file.
    File {
        /// Of the format.
        version: u32,
        /// Which log it belongs to.
        log: LogName,
        /// Where the file before it ended.
        previous: ChainHead,
        /// When it was begun.
        #[serde(with = "crate::time")]
        at: Timestamp,
    },
    /// A collector began to record.
    Start {
        /// When.
        #[serde(with = "crate::time::micros")]
        at: Timestamp,
        /// Where its events come from.
        source: EventSource,
        /// Why from nowhere better.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why_not_better: Option<String>,
        /// The last moment that was recorded before, unless the record begins here.
        #[serde(default, with = "crate::time::optional_micros")]
        after: Option<Timestamp>,
        /// Whether the collector before it had time to write everything down.
        clean: bool,
        /// How many bytes of a line that was half written were cut off.
        #[serde(default)]
        cut: u64,
        /// The boot of the machine, by the kernel's name for it.
        boot: String,
    },
    /// A collector ended, and wrote everything down.
    Stop {
        /// When.
        #[serde(with = "crate::time::micros")]
        at: Timestamp,
    },
    /// A session, as it is known from now on.
    Session(Box<SessionEntry>),
    /// A program began.
    Program(Box<ProgramEntry>),
    /// A program ended.
    Exit(ExitEntry),
    /// Events were lost.
    Lost {
        /// The last moment before.
        #[serde(with = "crate::time::micros")]
        from: Timestamp,
        /// When it was noticed.
        #[serde(with = "crate::time::micros")]
        until: Timestamp,
        /// Why.
        reason: GapReason,
        /// How many.
        events: u64,
        /// Whose sessions they are, if they are that and nobody else's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        whose: Option<Whose>,
    },
    /// Old files were removed, because of their age or size.
    Removed {
        /// Of which log.
        log: LogName,
        /// The last line of them.
        through: ChainHead,
        /// When.
        #[serde(with = "crate::time")]
        at: Timestamp,
    },
    /// Where the other log stood.
    Head {
        /// Which.
        log: LogName,
        /// Its last line.
        head: ChainHead,
    },
}

/// A session, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionEntry {
    /// Names it.
    pub id: String,
    /// What it is; without the processes that ran at some moment.
    #[serde(flatten)]
    pub trace: Trace,
    /// Which words of the command are hidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden_at: Vec<u32>,
    /// Where its programs are known from.
    pub event_source: Option<EventSource>,
    /// How many programs it ran so far.
    pub programs: u64,
    /// How many of them are counted here and not kept one by one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_kept: u64,
}

/// A program that began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgramEntry {
    /// Its session's id.
    pub session: String,
    /// As the machine counts.
    pub pid: u32,
    /// Its parent, as the machine counts.
    pub parent: u32,
    /// The nearest process above it that ran a program of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_program: Option<u32>,
    /// The user id, as the machine counts.
    pub uid: u32,
    /// The file.
    pub program: String,
    /// Its arguments, without what looks like a secret.
    pub arguments: Vec<String>,
    /// Whether there are more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Which of them are hidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden_at: Vec<u32>,
    /// When it began.
    #[serde(with = "crate::time::micros")]
    pub started: Timestamp,
    /// What gives away that its process did not begin in this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<MoveReason>,
    /// Where this is known from.
    pub source: EventSource,
}

/// A program that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitEntry {
    /// Its session's id.
    pub session: String,
    /// As the machine counts.
    pub pid: u32,
    /// When it began.
    #[serde(with = "crate::time::micros")]
    pub started: Timestamp,
    /// When it ended; absent if that is not known, only that it does not run any more.
    #[serde(
        default,
        with = "crate::time::optional_micros",
        skip_serializing_if = "Option::is_none"
    )]
    pub ended: Option<Timestamp>,
    /// Its exit code, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal, if one ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How long a text is in a line, with its quotes and a comma.
pub(crate) fn json_length(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    3 + text.bytes().map(escaped).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{TraceKind, empty};

    /// A session has a kind itself.
    #[test]
    fn a_session_is_read_as_it_was_written() {
        let started = Timestamp::from_second(1_800_000_000).unwrap();
        let entry = Entry::Session(Box::new(SessionEntry {
            id: "s1".to_owned(),
            trace: empty(TraceKind::Debug, started, crate::Container::default()),
            hidden_at: vec![2],
            event_source: Some(EventSource::Ebpf),
            programs: 3,
            not_kept: 1,
        }));
        let line = ChainHead::default().seal(&serde_json::to_string(&entry).unwrap());
        let read: Entry = serde_json::from_str(&line).unwrap();
        assert_eq!(read, entry);
    }
}
