//! How much of what ran a record can tell, and where it comes from.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::join::{Trace, TraceKind};

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

/// Times that are told of the same sessions, and are no further apart than this, are one.
const TOGETHER: SignedDuration = SignedDuration::from_mins(5);

impl Coverage {
    /// Something is missing. What is told again and again of one user is one gap.
    pub(crate) fn add(&mut self, gap: Gap) {
        if gap.whose.is_none() {
            self.lost = self.lost.saturating_add(gap.events.unwrap_or(0));
        }
        let before = self.gaps.iter_mut().rev().find(|it| it.whose == gap.whose);
        match (before, &gap.whose) {
            (Some(before), Some(_)) if before.is_close_to(&gap) => before.widen(&gap),
            _ => self.gaps.push(gap),
        }
    }
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
    /// How many events are missing, if that is known; sessions, if they are of somebody alone.
    pub events: Option<u64>,
    /// Whose sessions are missing, if nobody else's are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whose: Option<Whose>,
}

impl Gap {
    fn is_close_to(&self, later: &Self) -> bool {
        self.reason == later.reason
            && self.until.is_some_and(|until| later.from.duration_since(until) <= TOGETHER)
    }

    fn widen(&mut self, other: &Self) {
        self.from = self.from.min(other.from);
        self.until = self.until.max(other.until);
        self.events = Some(self.events.unwrap_or(0).saturating_add(other.events.unwrap_or(0)));
    }
}

/// Whom a part of the record is for: each has a share of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Whose {
    /// A user.
    User(String),
    /// Whoever was in this pod, as `namespace/pod`: nobody knows who asked.
    Pod(String),
    /// The node, which runs probes and hooks.
    Node,
}

impl fmt::Display for Whose {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => formatter.write_str(user),
            Self::Pod(pod) => write!(formatter, "nobody known in pod {pod}"),
            Self::Node => formatter.write_str("the node itself, such as probes,"),
        }
    }
}

impl Whose {
    /// Whose a session is.
    pub fn of(trace: &Trace) -> Self {
        match (&trace.caller, &trace.audit_id) {
            (Some(caller), _) => Self::User(caller.user.clone()),
            (None, None) if trace.kind == TraceKind::Exec => Self::Node,
            (None, _) => Self::Pod(format!("{}/{}", trace.namespace, trace.pod)),
        }
    }
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
    /// There were more than somebody's share of the record; the audit log has who asked for what.
    OverShare,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(from: i64, whose: Option<&str>) -> Gap {
        let time = |second| Timestamp::from_second(second).unwrap();
        Gap {
            from: time(from),
            until: Some(time(from + 60)),
            reason: GapReason::OverShare,
            events: Some(10),
            whose: whose.map(|user| Whose::User(user.to_owned())),
        }
    }

    /// A user who floods a record is told of each minute, for days.
    #[test]
    fn what_is_told_again_and_again_of_a_user_is_one_gap() {
        let mut coverage = Coverage::default();
        for minute in 0..100 {
            coverage.add(gap(minute * 60, Some("mallory")));
            coverage.add(gap(minute * 60, None));
        }
        coverage.add(gap(100_000, Some("mallory")));
        coverage.add(gap(100_000, Some("anna")));
        let of_users: Vec<_> = coverage.gaps.iter().filter(|gap| gap.whose.is_some()).collect();
        let events: Vec<_> = of_users.iter().filter_map(|gap| gap.events).collect();
        assert_eq!(events, [1_000, 10, 10]);
        assert_eq!(of_users[0].until, Timestamp::from_second(6_000).ok());
        assert_eq!((coverage.gaps.len(), coverage.lost), (103, 1_000));
    }

    #[test]
    fn whose_is_read_as_it_was_written() {
        for (whose, text) in [
            (Whose::User("anna".to_owned()), r#"{"user":"anna"}"#),
            (Whose::Pod("shop/web".to_owned()), r#"{"pod":"shop/web"}"#),
            (Whose::Node, r#""node""#),
        ] {
            assert_eq!(serde_json::to_string(&whose).unwrap(), text);
            assert_eq!(serde_json::from_str::<Whose>(text).unwrap(), whose);
        }
    }
}
