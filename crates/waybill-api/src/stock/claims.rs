//! What gate signs: one exec session of one container, once and soon.

use serde::{Deserialize, Serialize};

/// How long a token of gate is good, in seconds: the way to the node through kubelet and runtime.
pub const STOCK_SECONDS: i64 = 120;

/// The variable that tells a session's processes its ID. The kernel, not this, says whose they are.
pub const SESSION_VARIABLE: &str = "WAYBILL_SESSION_ID";

/// The variable of an ephemeral container that holds its token, as a word with [`EXEC_PREFIX`](super::EXEC_PREFIX). Gate puts it
/// before all others; the claims are of kind [`StockKind::Debug`] with the hash of no words at all. The wrapper takes it out of
/// the environment when it makes the container.
pub const DEBUG_VARIABLE: &str = "WAYBILL_DEBUG_SESSION";

/// How the names of sessions' cgroups begin; the ID follows.
pub const CGROUP_PREFIX: &str = "waybill-";

/// The key of gate's audit annotation, which the API server writes behind the webhook's name.
pub const AUDIT_ANNOTATION: &str = "session";

/// The claims of a token, which is a JSON Web Token signed with ES256. No user is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockClaims {
    /// The session's ID. A token is good once, and this is what is remembered of it.
    #[serde(rename = "jti")]
    pub session: SessionId,
    /// When it was signed, in seconds since 1970.
    #[serde(rename = "iat")]
    pub issued_at: i64,
    /// When it ends, in seconds since 1970.
    #[serde(rename = "exp")]
    pub expires_at: i64,
    /// What may begin with it.
    pub kind: StockKind,
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The life of the pod that is meant.
    pub uid: String,
    /// The container.
    pub container: String,
    /// Whether the process gets a terminal.
    pub tty: bool,
    /// SHA-256 of the framed words after the token, in base64url without padding.
    pub words: String,
}

/// What a session of a stock cluster is. A token for one kind begins none of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StockKind {
    /// A new process in a container.
    Exec,
    /// The streams of a container's own process.
    Attach,
    /// An ephemeral container.
    Debug,
}

/// The ID of a session: 16 random bytes as 32 lower-case hexadecimal digits, fit for a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(Box<str>);

impl SessionId {
    /// The ID that these random bytes make.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Parses the text of an ID.
    pub fn parse(raw: &str) -> Result<Self, SessionIdError> {
        let digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        if raw.len() == 32 && raw.bytes().all(digit) {
            Ok(Self(raw.into()))
        } else {
            Err(SessionIdError)
        }
    }

    /// The ID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the session's cgroup, below that of its container.
    pub fn cgroup_name(&self) -> String {
        format!("{CGROUP_PREFIX}{}", self.0)
    }
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SessionId {
    type Error = SessionIdError;

    fn try_from(raw: String) -> Result<Self, SessionIdError> {
        Self::parse(&raw)
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.0.into()
    }
}

/// A text that is not the ID of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a session ID has 32 lower-case hexadecimal digits")]
pub struct SessionIdError;

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    /// The names are a contract between releases, and none of them is about a user.
    #[test]
    fn claims_have_these_names_and_no_others() {
        let claims = StockClaims {
            session: SessionId::from_random([0xab; 16]),
            issued_at: 1,
            expires_at: 121,
            kind: StockKind::Exec,
            namespace: "ns".to_owned(),
            pod: "web".to_owned(),
            uid: "u".to_owned(),
            container: "main".to_owned(),
            tty: true,
            words: "w".to_owned(),
        };
        let json = json!({
            "jti": "abababababababababababababababab", "iat": 1, "exp": 121, "kind": "exec", "namespace": "ns",
            "pod": "web", "uid": "u", "container": "main", "tty": true, "words": "w",
        });
        assert_eq!(to_value(&claims).unwrap(), json);
        assert_eq!(from_value::<StockClaims>(json.clone()).unwrap(), claims);
        for name in json.as_object().unwrap().keys() {
            let mut lacking = json.clone();
            lacking.as_object_mut().unwrap().remove(name);
            assert!(from_value::<StockClaims>(lacking).is_err(), "{name}");
        }
    }

    #[test]
    fn only_32_small_digits_are_an_id() {
        assert!(SessionId::parse("0123456789abcdef0123456789abcdef").is_ok());
        let wrong =
            ["", "0123", "0123456789ABCDEF0123456789abcdef", "../3456789abcdef0123456789abcdef0"];
        for raw in wrong {
            assert_eq!(SessionId::parse(raw), Err(SessionIdError), "{raw}");
        }
    }

    #[test]
    fn random_bytes_make_an_id() {
        let mut bytes = [0; 16];
        bytes[15] = 7;
        let id = SessionId::from_random(bytes);
        assert_eq!(id.as_str(), "00000000000000000000000000000007");
        assert_eq!(SessionId::parse(id.as_str()), Ok(id.clone()));
        assert_eq!(id.cgroup_name(), "waybill-00000000000000000000000000000007");
    }
}
