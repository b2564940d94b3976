//! One session, and how much is known of what ran in it.

use serde::{Deserialize, Serialize};

use super::EventSource;
use crate::join::Trace;

/// A session with what the record adds to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedSession {
    /// Names it in the record: the runtime's name, or else the audit ID after `audit:`.
    pub id: String,
    /// The session itself.
    #[serde(flatten)]
    pub trace: Trace,
    /// Where its programs are known from; absent if nothing was collected while it ran. (`source` is where who asked came from.)
    pub event_source: Option<EventSource>,
    /// How many programs it ran, those included that are counted but not kept one by one.
    pub programs: u64,
    /// How many of its programs are counted but not kept, and how many events of any session were lost while it ran.
    pub lost: u64,
    /// Whether every program that it ran is in the record, as far as the record can tell.
    pub complete: bool,
}

impl RecordedSession {
    /// The name of a session in the record.
    pub fn id_of(trace: &Trace) -> String {
        match (&trace.session, &trace.audit_id) {
            (Some(session), _) => session.clone(),
            (None, Some(audit_id)) => format!("audit:{audit_id}"),
            (None, None) => format!("container:{}", trace.container_id.as_deref().unwrap_or("?")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_again_with_and_without_who_asked() {
        let mut session = json!({
            "id": "s1", "kind": "exec", "auditID": "a", "session": "s1",
            "user": "anna", "uid": "", "impersonator": null, "groups": ["dev"], "source": ["10.0.0.9"],
            "namespace": "shop", "pod": "web", "container": "app", "containerID": "c1",
            "command": ["sh"], "variables": ["LEVEL"], "started": "2026-01-02T03:04:05Z",
            "end": {"state": "exited", "at": "2026-01-02T03:04:06Z", "code": 1},
            "processes": [], "moved": [],
            "eventSource": "ebpf", "programs": 2, "lost": 0, "complete": true,
        });
        for user in [Some("anna"), None] {
            let read: RecordedSession = serde_json::from_value(session.clone()).unwrap();
            assert_eq!(read.trace.user(), user);
            assert_eq!(serde_json::to_value(&read).unwrap(), session);
            let members = session.as_object_mut().unwrap();
            for caller in ["user", "uid", "impersonator", "groups", "source"] {
                members.remove(caller);
            }
        }
    }
}
