//! Whether an exec session was opened by the API server, which signs a token for each.
//!
//! Without this, whoever may use `nodes/proxy` or reaches the node could start processes that no audit
//! record names. A token is for one pod, container and query, for a minute, and for one use. Attach,
//! port-forward and logs start nothing and need none.

mod keys;
mod token;
mod used;

use http::HeaderMap;
use kube::Client;
use waybill_api::exec::SESSION_HEADER;

use self::{
    keys::{Keys, Published},
    token::Asked,
    used::UsedIds,
};
use super::{answer::Refusal, route::ContainerPath};
use crate::Clock;

/// Which exec sessions the node serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecSessionPolicy {
    /// Those with a token, as soon as the API server publishes keys for them; otherwise all.
    #[default]
    Auto,
    /// All. Tokens are not looked at.
    Ignore,
    /// Those with a token.
    Require,
}

/// Judges exec sessions.
pub(super) struct Sessions {
    policy: ExecSessionPolicy,
    /// Without an API server there are none.
    keys: Option<Keys>,
    used: UsedIds,
    clock: Clock,
}

impl Sessions {
    pub(super) fn new(policy: ExecSessionPolicy, cluster: Option<Client>, clock: Clock) -> Self {
        let keys = cluster.map(|client| Keys::new(client, Clock::clone(&clock)));
        Self { policy, keys, used: UsedIds::default(), clock }
    }

    /// Asks for the keys, so that the first session does not have to wait for them.
    pub(super) async fn prepare(&self) {
        if let (ExecSessionPolicy::Auto | ExecSessionPolicy::Require, Some(keys)) =
            (self.policy, &self.keys)
        {
            keys.recent().await;
        }
    }

    /// Whether the session with these headers may begin.
    pub(super) async fn admit(
        &self,
        headers: &HeaderMap,
        path: &ContainerPath,
        query: &str,
    ) -> Result<Admitted, Refusal> {
        if self.policy == ExecSessionPolicy::Ignore {
            return Ok(Admitted::Unsigned);
        }
        match token(headers)? {
            Some(token) => self.judge(token, &Asked { path, query }).await,
            None => self.judge_unsigned().await,
        }
    }

    async fn judge(&self, token: &str, asked: &Asked<'_>) -> Result<Admitted, Refusal> {
        let id = token::key_id(token)?;
        let keys = self.keys.as_ref().ok_or(SessionFault::UnknownKey)?;
        let key = match keys.find(&id) {
            Some(key) => key,
            None => match (keys.recent().await, self.policy) {
                (Published::Keys(keys), _) => {
                    keys.get(&id).cloned().ok_or(SessionFault::UnknownKey)?
                }
                // Nobody can judge it, and without it the session would be served as well. So it is
                // while only some of several API servers know of tokens.
                (Published::Nothing, ExecSessionPolicy::Auto | ExecSessionPolicy::Ignore) => {
                    return Ok(Admitted::Unsigned);
                }
                (Published::Nothing, ExecSessionPolicy::Require) => {
                    return Err(SessionFault::UnknownKey.into());
                }
                (Published::Unknown(fault), _) => {
                    let what = "the API server could not be asked for the keys of exec sessions";
                    return Err(Refusal::Review { what, fault: fault.to_string() });
                }
            },
        };
        let now = (self.clock)().as_second();
        let claims = token::verify(token, &key, asked, now)?;
        self.used.take(&claims.audit_id, now)?;
        Ok(Admitted::Signed { uid: claims.uid })
    }

    async fn judge_unsigned(&self) -> Result<Admitted, Refusal> {
        match (self.policy, &self.keys) {
            (ExecSessionPolicy::Auto, None) => Ok(Admitted::Unsigned),
            (ExecSessionPolicy::Auto, Some(keys)) => match keys.recent().await {
                Published::Nothing => Ok(Admitted::Unsigned),
                Published::Keys(_) | Published::Unknown(_) => Err(SessionFault::Missing.into()),
            },
            (ExecSessionPolicy::Ignore | ExecSessionPolicy::Require, _) => {
                Err(SessionFault::Missing.into())
            }
        }
    }
}

/// A session that may begin.
#[derive(Debug)]
pub(super) enum Admitted {
    /// In this life of the pod.
    Signed {
        uid: String,
    },
    Unsigned,
}

/// Why a session may not begin. No text holds a part of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SessionFault {
    #[error("{TOKEN} has ended, or the clocks of API server and node differ; {REMEDY}")]
    Expired,
    #[error("{TOKEN} is malformed; {REMEDY}")]
    Malformed,
    #[error(
        "exec is only served to sessions that the API server opened, and this request has no token \
         of one: use pods/exec (kubectl exec, waybill exec) in place of nodes/proxy or the node's \
         own address"
    )]
    Missing,
    #[error("{TOKEN} is from the future: the clocks of API server and node differ")]
    NotYet,
    #[error("{TOKEN} is for another container; {REMEDY}")]
    OtherContainer,
    #[error("{TOKEN} is for another pod, or for an earlier one of the same name; {REMEDY}")]
    OtherPod,
    #[error("{TOKEN} is for another command, or for other streams or variables; {REMEDY}")]
    OtherQuery,
    #[error("{TOKEN} has a wrong signature; {REMEDY}")]
    Signature,
    #[error("too many exec sessions began within a minute; try again later")]
    TooMany,
    #[error("{TOKEN} was signed with a key that the API server does not publish; {REMEDY}")]
    UnknownKey,
    #[error("{TOKEN} has been used before; {REMEDY}")]
    Used,
}

const TOKEN: &str = "the token of this exec session";
const REMEDY: &str = "begin sessions with pods/exec";

impl SessionFault {
    /// A word for metrics.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Malformed => "malformed",
            Self::Missing => "missing",
            Self::NotYet => "not_yet",
            Self::OtherContainer => "other_container",
            Self::OtherPod => "other_pod",
            Self::OtherQuery => "other_query",
            Self::Signature => "signature",
            Self::TooMany => "too_many",
            Self::UnknownKey => "unknown_key",
            Self::Used => "used",
        }
    }
}

/// The token, if there is one; two of them are none.
fn token(headers: &HeaderMap) -> Result<Option<&str>, SessionFault> {
    let mut values = headers.get_all(SESSION_HEADER).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(token), None) => token.to_str().map(Some).map_err(|_| SessionFault::Malformed),
        (Some(_), Some(_)) => Err(SessionFault::Malformed),
    }
}
