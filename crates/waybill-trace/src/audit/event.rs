//! Events of the audit log, as far as they are read.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use waybill_api::exec::{ADDED_CONTAINERS_ANNOTATION, PodExecOptions};

use super::{Asked, Refusal};

/// What proxies and our server record for a client that went away.
const CLIENT_LEFT: u16 = 499;

/// Where servers say why somebody may, or may not.
const AUTHORIZATION_REASON: &str = "authorization.k8s.io/reason";

/// How the names of gate's webhooks end.
const GATE: &str = ".gate.waybill.dev";

/// The longest URI of an attach that only says what it must.
const LONGEST_ATTACH: usize = 512;

/// What is read of an `audit.k8s.io/v1` Event, of any API server.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    #[serde(rename = "auditID")]
    pub(super) audit_id: String,
    pub(super) stage: String,
    #[serde(rename = "requestURI", default)]
    pub(super) request_uri: String,
    #[serde(default)]
    pub(super) verb: String,
    #[serde(default)]
    pub(super) user: User,
    #[serde(default)]
    pub(super) impersonated_user: Option<User>,
    #[serde(rename = "sourceIPs", default)]
    pub(super) source_ips: Vec<String>,
    #[serde(default)]
    pub(super) user_agent: String,
    #[serde(default)]
    pub(super) object_ref: Option<ObjectReference>,
    #[serde(default)]
    pub(super) response_status: Option<ResponseStatus>,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(with = "crate::time")]
    pub(super) request_received_timestamp: Timestamp,
    #[serde(with = "crate::time")]
    pub(super) stage_timestamp: Timestamp,
}

impl Event {
    /// Whether the server switched protocols, rather than refuse.
    pub(super) fn is_upgraded(&self) -> bool {
        self.response_status.as_ref().is_some_and(|status| status.code == 101)
    }

    /// Whether the server did what was asked.
    pub(super) fn is_done(&self) -> bool {
        self.response_status.as_ref().is_some_and(|status| (200..300).contains(&status.code))
    }

    /// How the server refused. A client that went away was not refused.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let status = self.response_status.as_ref();
        let status = status.filter(|status| status.code >= 400 && status.code != CLIENT_LEFT)?;
        let known = |annotation: &str| self.annotations.get(annotation).cloned();
        let why = Some(status.message.clone()).filter(|message| !message.is_empty());
        let reason = match (status.reason.as_str(), status.code) {
            ("", 401) => "Unauthorized",
            ("", 403) => "Forbidden",
            ("", 404) => "NotFound",
            ("", 429) => "TooManyRequests",
            ("", _) => "Refused",
            (reason, _) => reason,
        };
        Some(Refusal {
            code: status.code,
            reason: reason.to_owned(),
            message: why.or_else(|| known(AUTHORIZATION_REASON)).unwrap_or_default(),
        })
    }

    /// The sessions that gate of a stock cluster made for the request: the key is the name of one of its webhooks.
    pub(super) fn sessions(&self) -> Vec<String> {
        let is_gates =
            |key: &str| key.strip_suffix("/session").is_some_and(|key| key.ends_with(GATE));
        let mut found = self.annotations.iter().filter(|(key, _)| is_gates(key));
        found.next().map(|(_, ids)| ids.split(',').map(str::to_owned).collect()).unwrap_or_default()
    }

    /// What the request is for, if that is anything of interest here.
    pub(super) fn asked(&self) -> Option<Asked> {
        let target = self.object_ref.as_ref().filter(|target| target.resource == "pods")?;
        match target.subresource.as_str() {
            "exec" => Some(Asked::Exec),
            "attach" => {
                let query = self.request_uri.split_once('?').map_or("", |(_, query)| query);
                // What cannot be read, or was made so long that a server cuts it, may have been anything.
                let options = PodExecOptions::from_query(query).ok();
                let options = options.filter(|_| self.request_uri.len() <= LONGEST_ATTACH);
                Some(Asked::Attach { stdin: options.is_none_or(|options| options.stdin) })
            }
            // Reads, and updates that add nothing, have no such annotation; nor have first stages.
            "ephemeralcontainers" => match self.annotations.get(ADDED_CONTAINERS_ANNOTATION) {
                Some(names) => {
                    Some(Asked::Debug { containers: names.split(',').map(str::to_owned).collect() })
                }
                // Gate of a stock cluster signed them; which ones, it knows.
                None if !self.sessions().is_empty() => {
                    Some(Asked::Debug { containers: Vec::new() })
                }
                // Refused before anybody looked into it.
                None if matches!(self.verb.as_str(), "patch" | "update") => {
                    self.refusal().map(|_| Asked::Debug { containers: Vec::new() })
                }
                None => None,
            },
            _ => None,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct User {
    pub(super) username: String,
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ObjectReference {
    pub(super) resource: String,
    pub(super) subresource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ResponseStatus {
    pub(super) code: u16,
    pub(super) reason: String,
    pub(super) message: String,
}
