//! How much of what ran a record can tell, and where it comes from.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Where the events of processes come from, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventSource {
    /// The kernel told of every program as it was started (eBPF).
    Ebpf,
    /// The kernel told of every program, and what it was had to be looked up: short ones may be missing (proc connector).
    Connector,
    /// Processes were looked for now and then: whatever began and ended between two looks is missing.
    Scan,
}

/// What is known about the whole record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Coverage {
    /// Where events come from now; absent while nothing collects them.
    pub source: Option<EventSource>,
    /// Why it is not a better one, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not_better: Option<String>,
    /// How many events are known to be lost, over the whole record.
    pub lost: u64,
    /// Times of which events are missing, oldest first.
    pub gaps: Vec<Gap>,
    /// The oldest that is still kept.
    #[serde(with = "crate::time::optional")]
    pub since: Option<Timestamp>,
}

/// A time of which events are missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// The last moment that was recorded before.
    #[serde(with = "crate::time")]
    pub from: Timestamp,
    /// When events were recorded again; absent while they are not.
    #[serde(with = "crate::time::optional")]
    pub until: Option<Timestamp>,
    /// Why.
    pub reason: GapReason,
    /// How many events are missing, if that is known.
    pub events: Option<u64>,
}

/// Why events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GapReason {
    /// Nobody collected them: the collector was stopped, was killed, or the machine was off.
    NotRunning,
    /// The kernel had more than the collector took from it.
    TooMany,
    /// They could not be written, such as to a full disk.
    NotWritten,
}
