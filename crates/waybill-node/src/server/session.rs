//! Whether an exec or attach session was opened by the API server, which signs a token for each.
//!
//! Without this, whoever may use `nodes/proxy` or reaches the node could start processes, or type into
//! running ones, and no audit record would name them. A token is for one kind of session, one pod,
//! container and query, for a minute, and for one use. Port-forward and logs start nothing and need none.

mod keys;
mod token;
mod used;

use http::HeaderMap;
use kube::Client;
use waybill_api::exec::{SESSION_HEADER, SessionKind};
use waybill_core::id::AuditId;

pub(super) use self::token::Asked;
use self::{
    keys::{Keys, Published},
    used::UsedIds,
};
use super::answer::Refusal;
use crate::Clock;

/// Which exec and attach sessions the node serves.
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

/// Judges sessions.
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
        asked: &Asked<'_>,
    ) -> Result<Admitted, Refusal> {
        if self.policy == ExecSessionPolicy::Ignore {
            return Ok(Admitted::Unsigned);
        }
        match token(headers).map_err(|fault| fault.of(asked.kind))? {
            Some(token) => self.judge(token, asked).await,
            None => self.judge_unsigned(asked.kind).await,
        }
    }

    async fn judge(&self, token: &str, asked: &Asked<'_>) -> Result<Admitted, Refusal> {
        let refused = |fault: SessionFault| fault.of(asked.kind);
        let unknown_key = || refused(SessionFault::UnknownKey);
        let id = token::key_id(token).map_err(refused)?;
        let keys = self.keys.as_ref().ok_or_else(unknown_key)?;
        let key = match keys.find(&id) {
            Some(key) => key,
            None => match (keys.recent().await, self.policy) {
                (Published::Keys(keys), _) => {
                    keys.verifying.get(&id).cloned().ok_or_else(unknown_key)?
                }
                // Nobody can judge it, and without it the session would be served as well. So it is
                // while only some of several API servers know of tokens.
                (Published::Nothing, ExecSessionPolicy::Auto | ExecSessionPolicy::Ignore) => {
                    return Ok(Admitted::Unsigned);
                }
                (Published::Nothing, ExecSessionPolicy::Require) => {
                    return Err(unknown_key().into());
                }
                (Published::Unknown(fault), _) => {
                    let what = match asked.kind {
                        SessionKind::Exec => {
                            "the API server could not be asked for the keys of exec sessions"
                        }
                        SessionKind::Attach => {
                            "the API server could not be asked for the keys of attach sessions"
                        }
                    };
                    return Err(Refusal::Review { what, fault: fault.to_string() });
                }
            },
        };
        let now = (self.clock)().as_second();
        let (claims, audit_id) = token::verify(token, &key, asked, now).map_err(refused)?;
        self.used.take(audit_id.as_str(), now).map_err(refused)?;
        Ok(Admitted::Signed { uid: claims.uid, audit_id })
    }

    async fn judge_unsigned(&self, kind: SessionKind) -> Result<Admitted, Refusal> {
        let missing = || Err(SessionFault::Missing.of(kind).into());
        match (self.policy, &self.keys) {
            (ExecSessionPolicy::Auto, None) => Ok(Admitted::Unsigned),
            (ExecSessionPolicy::Auto, Some(keys)) => match keys.recent().await {
                Published::Nothing => Ok(Admitted::Unsigned),
                // Older API servers sign exec alone.
                Published::Keys(keys) if !keys.signs(kind) => Ok(Admitted::Unsigned),
                Published::Keys(_) | Published::Unknown(_) => missing(),
            },
            (ExecSessionPolicy::Ignore | ExecSessionPolicy::Require, _) => missing(),
        }
    }
}

/// A session that may begin.
#[derive(Debug)]
pub(super) enum Admitted {
    Signed {
        /// In this life of the pod.
        uid: String,
        /// For the request that has this ID in the audit log.
        audit_id: AuditId,
    },
    Unsigned,
}

/// A session that may not begin, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", fault.text(kind.name()))]
pub(super) struct SessionRefusal {
    pub(super) kind: SessionKind,
    pub(super) fault: SessionFault,
}

/// Why a session may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionFault {
    Expired,
    Malformed,
    Missing,
    NotYet,
    OtherContainer,
    OtherKind,
    OtherPod,
    OtherQuery,
    Signature,
    TooMany,
    UnknownKey,
    Used,
}

impl SessionFault {
    /// As the refusal of a session of that kind.
    pub(super) const fn of(self, kind: SessionKind) -> SessionRefusal {
        SessionRefusal { kind, fault: self }
    }

    /// For users, about a session of `kind`. It holds no part of the token.
    fn text(self, kind: &str) -> String {
        let what = match self {
            Self::Expired => "has ended, or the clocks of API server and node differ",
            Self::Malformed => "is malformed",
            Self::Missing => {
                let own = if kind == "exec" { ", waybill exec" } else { "" };
                return format!(
                    "{kind} is only served to sessions that the API server opened, and this request \
                     has no token of one: use pods/{kind} (kubectl {kind}{own}) in place of \
                     nodes/proxy or the node's own address"
                );
            }
            Self::NotYet => "is from the future: the clocks of API server and node differ",
            Self::OtherContainer => "is for another container",
            Self::OtherKind => "is for another kind of session",
            Self::OtherPod => "is for another pod, or for an earlier one of the same name",
            Self::OtherQuery => "is for another command, or for other streams or variables",
            Self::Signature => "has a wrong signature",
            Self::TooMany => {
                return "too many sessions began within a minute; try again later".to_owned();
            }
            Self::UnknownKey => "was signed with a key that the API server does not publish",
            Self::Used => "has been used before",
        };
        format!("the token of this {kind} session {what}; begin sessions with pods/{kind}")
    }

    /// A word for metrics.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Malformed => "malformed",
            Self::Missing => "missing",
            Self::NotYet => "not_yet",
            Self::OtherContainer => "other_container",
            Self::OtherKind => "other_kind",
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
