//! What a session token says: how a node knows that an exec or attach request came through the API server.
//!
//! The API server signs one for each session and sends it along; the node asks for it, so that neither
//! `nodes/proxy` nor the node's own address is a way around `pods/exec` and `pods/attach` and their audit
//! records. It binds everything that the node is asked for, and names nobody (EXEC-22).

use serde::{Deserialize, Serialize};

/// The header that carries the token from the API server to a node.
pub const SESSION_HEADER: &str = "waybill-exec-session";

/// Where the API server tells nodes the keys that its tokens are signed with, as a JSON Web Key Set.
pub const SESSION_KEYS_PATH: &str = "/waybill/v1/exec-session-keys";

/// The member of that set which lists the kinds of sessions that the API server signs. One that does not
/// say it signs exec alone.
pub const SESSION_KINDS_MEMBER: &str = "sessions";

/// How long a token is good, in seconds: the way to a node and no more.
pub const SESSION_SECONDS: i64 = 60;

/// The annotation of an audit event with the names of the ephemeral containers that the request added, with
/// commas between them.
pub const ADDED_CONTAINERS_ANNOTATION: &str = "pods.waybill.dev/added-ephemeral-containers";

/// The claims of a token, which is a JSON Web Token signed with ES256.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionClaims {
    /// The audit ID of the request. A token is good once, and this is what is remembered of it.
    #[serde(rename = "jti")]
    pub audit_id: String,
    /// When it was signed, in seconds since 1970.
    #[serde(rename = "iat")]
    pub issued_at: i64,
    /// When it ends, in seconds since 1970.
    #[serde(rename = "exp")]
    pub expires_at: i64,
    /// What may begin with it.
    #[serde(default)]
    pub kind: SessionKind,
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The life of the pod that is meant, as its node knows it.
    pub uid: String,
    /// The container.
    pub container: String,
    /// SHA-256 of the query that the node gets, byte for byte, in base64url without padding: command,
    /// streams and variables.
    pub query: String,
}

/// What a session is. A token for one kind begins none of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionKind {
    /// A new process in a container. A token that names no kind is for this.
    #[default]
    Exec,
    /// The streams of a container's own process.
    Attach,
}

impl SessionKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Exec, Self::Attach];

    /// The subresource of pods that opens such a session.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Attach => "attach",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;

    /// EXEC-22: the names are a contract between releases, and none of them is about a user.
    #[test]
    fn claims_have_these_names_and_no_others_exec_22() {
        let claims = SessionClaims {
            audit_id: "a".to_owned(),
            issued_at: 1,
            expires_at: 61,
            kind: SessionKind::Attach,
            namespace: "ns".to_owned(),
            pod: "web".to_owned(),
            uid: "u".to_owned(),
            container: "main".to_owned(),
            query: "q".to_owned(),
        };
        let mut json = json!({
            "jti": "a", "iat": 1, "exp": 61, "kind": "attach", "namespace": "ns", "pod": "web", "uid": "u",
            "container": "main", "query": "q",
        });
        assert_eq!(to_value(&claims).unwrap(), json);
        let read = |json| serde_json::from_value::<SessionClaims>(json);
        assert_eq!(read(json.clone()).unwrap(), claims);
        // As older API servers signed.
        json.as_object_mut().unwrap().remove("kind");
        assert_eq!(read(json.clone()).unwrap().kind, SessionKind::Exec);
        json["kind"] = "portforward".into();
        assert!(read(json).is_err());
    }

    #[test]
    fn a_kind_is_named_as_its_subresource() {
        for kind in SessionKind::ALL {
            assert_eq!(to_value(kind).unwrap(), kind.name());
        }
    }
}
