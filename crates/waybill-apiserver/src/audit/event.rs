//! `audit.k8s.io/v1` `Event`: what is known about a request at one stage.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use waybill_api::status::{Status, StatusDetails};

use crate::request::{ResourceTarget, User};

/// One line of the audit log. Fields are in upstream's order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) api_version: EventVersion,
    pub(crate) level: Level,
    #[serde(rename = "auditID")]
    pub(crate) audit_id: String,
    pub(crate) stage: Stage,
    /// As the client sent it; below level `Request` with the values of variables masked.
    #[serde(rename = "requestURI")]
    pub(crate) request_uri: String,
    pub(crate) verb: String,
    pub(crate) user: UserInfo,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) impersonated_user: Option<UserInfo>,
    /// From the client to the last proxy; only the last was seen by this server.
    #[serde(rename = "sourceIPs", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) source_ips: Vec<IpAddr>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) user_agent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) object_ref: Option<ObjectReference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) response_status: Option<ResponseStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request_object: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) response_object: Option<Value>,
    pub(crate) request_received_timestamp: MicroTime,
    pub(crate) stage_timestamp: MicroTime,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// The kind of an [`Event`], which is always `Event`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EventKind {
    #[default]
    Event,
}

/// The version of an [`Event`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EventVersion {
    #[default]
    #[serde(rename = "audit.k8s.io/v1")]
    V1,
}

/// How much is recorded; each level holds what the one before it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Level {
    None,
    /// Who, what, when, and with which result.
    Metadata,
    /// Also the object that was sent.
    Request,
    /// Also the object that was answered.
    RequestResponse,
}

/// How far the request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Stage {
    RequestReceived,
    /// The headers are sent and the body will go on for long; watches and sessions only.
    ResponseStarted,
    ResponseComplete,
    Panic,
}

/// `authentication.k8s.io/v1` `UserInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UserInfo {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) username: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl From<&User> for UserInfo {
    fn from(user: &User) -> Self {
        Self {
            username: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        }
    }
}

/// The object of the request; what does not apply is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) subresource: String,
}

impl From<&ResourceTarget> for ObjectReference {
    fn from(target: &ResourceTarget) -> Self {
        Self {
            resource: target.resource.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            api_group: target.group.clone(),
            api_version: target.version.clone(),
            subresource: target.subresource.clone(),
            ..Self::default()
        }
    }
}

/// How the request was answered: a `v1.Status` of which a success fills only the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResponseStatus {
    /// Upstream writes the empty list metadata of every `Status`.
    metadata: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<StatusDetails>,
    pub(crate) code: u16,
}

impl ResponseStatus {
    /// An answer that says all by its code.
    pub(crate) fn code(code: u16) -> Self {
        Self {
            metadata: BTreeMap::new(),
            status: String::new(),
            message: String::new(),
            reason: String::new(),
            details: None,
            code,
        }
    }

    /// A refusal that no `Status` object was made for.
    pub(crate) fn failure(code: u16, reason: &str, message: &str) -> Self {
        Self {
            status: "Failure".to_owned(),
            message: message.to_owned(),
            reason: reason.to_owned(),
            ..Self::code(code)
        }
    }
}

impl From<&Status> for ResponseStatus {
    fn from(status: &Status) -> Self {
        Self {
            details: status.details().cloned(),
            ..Self::failure(status.code(), status.reason(), status.message())
        }
    }
}

/// A time with six digits after the second, as `v1.MicroTime` writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MicroTime(pub(crate) Timestamp);

impl fmt::Display for MicroTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.0)
    }
}

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MicroTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_six_digits() {
        let time = |nanoseconds| MicroTime(Timestamp::from_nanosecond(nanoseconds).unwrap());
        assert_eq!(time(0).to_string(), "1970-01-01T00:00:00.000000Z");
        assert_eq!(time(1_700_000_000_123_456_789).to_string(), "2023-11-14T22:13:20.123456Z");
    }

    #[test]
    fn levels_are_ordered() {
        assert!(Level::None < Level::Metadata);
        assert!(Level::Metadata < Level::Request && Level::Request < Level::RequestResponse);
    }

    #[test]
    fn refusals_keep_reason_message_and_causes() {
        let status = ResponseStatus::from(&Status::bad_request("no"));
        assert_eq!(
            serde_json::to_string(&status).unwrap(),
            r#"{"metadata":{},"status":"Failure","message":"no","reason":"BadRequest","code":400}"#
        );
    }
}
