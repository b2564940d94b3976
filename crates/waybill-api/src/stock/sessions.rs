//! What gate tells of sessions: its own records, those of nodes, and what is missing of them.

use serde::{Deserialize, Serialize};

use super::{SessionId, SessionRecord, StockKind};

/// How long a token counts with which gate asks nodes and other gates for records, in seconds.
pub const RECORDS_SECONDS: i64 = 60;

/// The key of a node's ConfigMap that says where its agent serves records.
pub const NODE_RECORDS_KEY: &str = "records";

/// For whom a token is that gates show to one another; the others are for nodes, by their names, which have no slash.
pub const GATES: &str = "/gates";

/// One session that gate saw, or one that it refused. No value and no command is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateRecord {
    /// 1.
    pub version: u32,
    /// [`GateRecord::RECORD`], to tell these lines from others.
    pub record: String,
    /// Seconds since 1970.
    pub time: i64,
    /// None was made for what was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// What was asked for.
    pub kind: StockKind,
    /// What became of it.
    pub verdict: GateVerdict,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The namespace of the pod.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The life of the pod; empty if it was refused before anybody looked.
    pub uid: String,
    /// The container; empty if it was refused before anybody looked.
    pub container: String,
    /// The node of the pod; empty if it was on none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Whether a terminal was asked for.
    pub tty: bool,
    /// Who asked.
    pub user: RecordedUser,
    /// The names of the client's variables.
    pub variables: Vec<String>,
}

impl GateRecord {
    /// The version that is written here.
    pub const VERSION: u32 = 1;
    /// What the lines are called.
    pub const RECORD: &'static str = "waybill-gate-session";
}

/// What became of a request for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GateVerdict {
    /// The node can tell that gate saw it.
    Signed,
    /// It begins, and its node cannot tell.
    Recorded,
    /// It does not begin.
    Refused,
}

/// Who asked, as the API server says, bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedUser {
    /// The name.
    pub username: String,
    /// What tells users of one name apart.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Their groups.
    #[serde(default)]
    pub groups: Vec<String>,
    /// What names their credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_id: Option<String>,
}

/// One record of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSession {
    /// Whose agent told it. An agent is believed for its own node alone.
    #[serde(default)]
    pub node: String,
    /// What the wrapper wrote, and the agent beside it.
    #[serde(flatten)]
    pub record: SessionRecord,
    /// What runs in its cgroup now; cut where it is long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<SessionProcess>,
}

/// A process of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionProcess {
    /// Its number on the node.
    pub pid: u32,
    /// Its command line, cut as [`cut_argv`](super::cut_argv) does; empty if it has none.
    pub argv: Vec<String>,
}

/// The answer of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSessions {
    /// The newest, oldest first.
    pub sessions: Vec<NodeSession>,
    /// Whether older ones were left out for want of room.
    #[serde(default)]
    pub truncated: bool,
}

/// The answer of gate: records are joined by whoever asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionList {
    /// Of gates, oldest first.
    pub items: Vec<GateRecord>,
    /// Of nodes, in no order.
    #[serde(default)]
    pub node_records: Vec<NodeSession>,
    /// What should be here and is not.
    #[serde(default)]
    pub missing: Vec<MissingRecords>,
}

/// Records that could not be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingRecords {
    /// Whose.
    pub of: String,
    /// Why.
    pub why: String,
}

/// Where the agent of a node serves records, in its ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsEndpoint {
    /// An address and a port.
    pub address: String,
    /// The certificate that it shows, in base64url of DER. Nothing else is believed there.
    pub certificate: String,
}

/// The claims of a token with which a gate asks for records, signed as those of sessions are. None of a session is one of these, and
/// the other way round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsClaims {
    /// The node that is asked, or [`GATES`].
    #[serde(rename = "aud")]
    pub audience: String,
    /// When it was signed, in seconds since 1970.
    #[serde(rename = "iat")]
    pub issued_at: i64,
    /// When it ends, in seconds since 1970.
    #[serde(rename = "exp")]
    pub expires_at: i64,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::{
        super::{StockClaims, Verdict},
        *,
    };

    #[test]
    fn the_answer_of_gate_has_these_names() {
        let json = json!({
            "items": [{"version": 1, "record": "waybill-gate-session", "time": 7, "session": "0".repeat(32),
                "kind": "exec", "verdict": "signed", "namespace": "ns", "pod": "web", "uid": "u", "container": "main",
                "node": "n", "tty": false, "user": {"username": "ann", "uid": "1", "groups": ["dev"],
                "credentialId": "JTI=x"}, "variables": ["A"]}],
            "nodeRecords": [{"node": "n", "version": 1, "session": null, "kind": "debug", "namespace": "ns", "pod": "web",
                "uid": "u", "container": "dbg", "containerId": "c", "argv": [], "cgroup": "", "cgroupId": 0, "startedNs": 1,
                "tty": true, "verdict": "attributed", "privileged": false, "endedNs": 9, "exitCode": 3,
                "processes": [{"pid": 4, "argv": ["sh"]}]}],
            "missing": [{"of": "node m", "why": "it does not answer"}],
        });
        let list: SessionList = from_value(json.clone()).unwrap();
        assert_eq!(list.node_records[0].record.verdict, Verdict::Attributed);
        assert_eq!(list.node_records[0].record.exit_code, Some(3));
        assert_eq!(to_value(&list).unwrap(), json);
    }

    /// A record of a gate of the release before has no node.
    #[test]
    fn a_line_of_an_older_gate_is_understood() {
        let json = json!({"version": 1, "record": "waybill-gate-session", "time": 7, "kind": "attach",
            "verdict": "refused", "reason": "no", "namespace": "ns", "pod": "web", "uid": "", "container": "",
            "tty": false, "user": {"username": "ann", "groups": []}, "variables": []});
        let record: GateRecord = from_value(json.clone()).unwrap();
        assert_eq!(to_value(&record).unwrap(), json);
    }

    /// Whoever gets one of the two from a node's port or a process's arguments can do nothing else with it.
    #[test]
    fn a_token_for_records_begins_no_session_and_none_of_a_session_reads_records() {
        let records = json!({"aud": "n", "iat": 1, "exp": 61});
        assert_eq!(
            to_value(from_value::<RecordsClaims>(records.clone()).unwrap()).unwrap(),
            records
        );
        assert!(from_value::<StockClaims>(records).is_err());
        let session = json!({"jti": "0".repeat(32), "iat": 1, "exp": 121, "kind": "exec", "namespace": "ns",
            "pod": "web", "uid": "u", "container": "main", "tty": true, "words": "w"});
        assert!(from_value::<StockClaims>(session.clone()).is_ok());
        assert!(from_value::<RecordsClaims>(session).is_err());
    }
}
