//! What the audit log says about itself: events that are missing, and why.
//!
//! A notice is an event of this server like any other, so that every reader of the log sees it. What it
//! says is in annotations below `audit.waybill.dev/`.

use std::{collections::BTreeMap, fmt::Display};

use jiff::Timestamp;

use super::{
    event::{Event, EventKind, EventVersion, Level, MicroTime, ResponseStatus, Stage, UserInfo},
    id::mint_id,
};

/// Something that a reader of the log must know.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notice<'a> {
    /// So many events could not be written and are lost.
    Lost { events: u64, from: Timestamp, to: Timestamp, why: &'a str },
    /// The end of a record that a crash left unfinished was removed.
    Torn { bytes: u64 },
    /// A full file was removed although its records are younger than they should become.
    Dropped { file: &'a str, until: Timestamp },
    /// So many requests are not recorded, because there were too many of them. `who` is a user, or empty for many of them.
    LeftOut { what: Missing, who: &'a str, events: u64, from: Timestamp, to: Timestamp },
}

/// What kind of requests is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// They were refused, or changed nothing.
    OfNoEffect,
    /// They gave a user Secrets that no other record says that they have.
    NewSecrets,
}

impl Missing {
    fn sentence(self) -> &'static str {
        match self {
            Self::OfNoEffect => {
                "requests that were refused or changed nothing are left out, because they are too many"
            }
            Self::NewSecrets => {
                "reads of Secrets that the user had not read before are left out, because they are too many"
            }
        }
    }
}

impl Notice<'_> {
    /// The notice as a line of the log.
    pub(crate) fn line(&self, now: Timestamp) -> Vec<u8> {
        let mut line = serde_json::to_vec(&self.event(now)).expect("all keys of an event are text");
        line.push(b'\n');
        line
    }

    /// The notice as an event.
    pub(crate) fn event(&self, now: Timestamp) -> Event {
        let now = MicroTime(now);
        Event {
            kind: EventKind::Event,
            api_version: EventVersion::V1,
            level: Level::Metadata,
            audit_id: mint_id().to_string(),
            stage: Stage::ResponseComplete,
            request_uri: String::new(),
            verb: "notice".to_owned(),
            user: UserInfo { username: "system:apiserver".to_owned(), ..UserInfo::default() },
            impersonated_user: None,
            source_ips: Vec::new(),
            user_agent: String::new(),
            object_ref: None,
            response_status: Some(ResponseStatus::code(200)),
            request_object: None,
            response_object: None,
            request_received_timestamp: now,
            stage_timestamp: now,
            annotations: self.annotations(),
        }
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let mut said = BTreeMap::new();
        let mut say = |key: &str, value: &dyn Display| {
            said.insert(format!("audit.waybill.dev/{key}"), value.to_string());
        };
        match self {
            Self::Lost { events, from, to, why } => {
                say("notice", &"events are lost, because they could not be written");
                say("events", events);
                say("from", &MicroTime(*from));
                say("to", &MicroTime(*to));
                say("reason", why);
            }
            Self::Dropped { file, until } => {
                say("notice", &"young records were removed, because the log has reached its size");
                say("file", file);
                say("to", &MicroTime(*until));
            }
            Self::LeftOut { what, who, events, from, to } => {
                say("notice", &what.sentence());
                say("user", who);
                say("events", events);
                say("from", &MicroTime(*from));
                say("to", &MicroTime(*to));
            }
            Self::Torn { bytes } => {
                say("notice", &"a record that a crash left unfinished was removed");
                say("bytes", bytes);
            }
        }
        said
    }
}
