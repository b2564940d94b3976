//! Service account tokens: what they claim, how they are issued and when they hold.
//!
//! A token holds while its signature, times, audience and issuer are good **and** the objects that it
//! is bound to still exist. Signatures are cached; everything else is checked on every request, so
//! deleting a pod ends its tokens at once.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;
use waybill_core::secret::SecretBytes;

use super::{
    among_all, go_list,
    jwt::{JwtError, SigningKey, Verifier, VerifyingKey},
};
use crate::request::User;

/// How far the clock of another API server may be ahead.
const LEEWAY: i64 = 10;

/// An object on its way out counts as present for this long after its deletion time, as upstream.
const DELETION_GRACE: i64 = 60;

/// Issues and verifies the tokens of service accounts.
pub(crate) struct ServiceAccountTokens {
    issuer: String,
    audiences: Arc<[String]>,
    key: SigningKey,
    verifier: Verifier<Claims>,
}

impl ServiceAccountTokens {
    /// Tokens by `issuer` for the API `audiences`, signed by `key`; `further` keys are believed too.
    pub(crate) fn new(
        issuer: String,
        audiences: Vec<String>,
        key: SigningKey,
        further: Vec<VerifyingKey>,
    ) -> Self {
        let mut keys = vec![key.public().clone()];
        keys.extend(further);
        Self { issuer, audiences: audiences.into(), key, verifier: Verifier::new(keys) }
    }

    /// The audiences that mean this API server.
    pub(crate) fn audiences(&self) -> &Arc<[String]> {
        &self.audiences
    }

    /// A token for `account`; no audiences means the API server.
    pub(crate) fn issue(
        &self,
        account: Binding,
        audiences: &[String],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<IssuedToken, JwtError> {
        let audiences = if audiences.is_empty() { &self.audiences } else { audiences };
        let now = now.as_second();
        let expires = now.saturating_add_unsigned(lifetime.as_secs());
        let claims = Claims {
            aud: audiences.into(),
            exp: expires,
            iat: now,
            iss: self.issuer.clone(),
            jti: Uuid::new_v4().to_string(),
            sub: user_name(&account.namespace, &account.serviceaccount.name),
            kubernetes: account,
            nbf: now,
            user: OnceLock::new(),
        };
        let expires = Timestamp::from_second(expires).unwrap_or(Timestamp::MAX);
        Ok(IssuedToken { token: self.key.sign(&claims)?, expires, id: claims.jti })
    }

    /// The account behind `token`, which must be meant for one of `audiences`.
    pub(crate) fn verify(
        &self,
        token: &str,
        audiences: &[String],
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Result<(Arc<User>, Arc<[String]>), TokenError> {
        let claims = self.verifier.claims(token, now)?;
        if claims.iss != self.issuer {
            return Err(TokenError::Issuer { found: claims.iss.clone() });
        }
        let accepted = accepted(&claims.aud, audiences)?;
        claims.hold_at(now)?;
        claims.kubernetes.exists(objects, now)?;
        let user = claims.user.get_or_init(|| Arc::new(among_all(claims.user())));
        Ok((Arc::clone(user), accepted))
    }
}

/// Those of the audiences that a credential is meant for that are asked for; an error if there are none.
pub(super) fn accepted(
    meant: &Arc<[String]>,
    wanted: &[String],
) -> Result<Arc<[String]>, TokenError> {
    let is_wanted = |audience: &&String| wanted.contains(audience);
    if meant.iter().all(|audience| is_wanted(&audience)) && !meant.is_empty() {
        return Ok(Arc::clone(meant));
    }
    let some: Arc<[String]> = meant.iter().filter(is_wanted).cloned().collect();
    if some.is_empty() {
        return Err(TokenError::Audience { found: meant.to_vec(), wanted: wanted.to_vec() });
    }
    Ok(some)
}

/// A token and what may be said about it.
pub(crate) struct IssuedToken {
    pub(crate) token: SecretBytes,
    pub(crate) expires: Timestamp,
    /// Its `jti`, which ties uses in the audit log to the issuing.
    pub(crate) id: String,
}

/// What tokens are bound to, as the API server sees it now; answered from memory.
pub(crate) trait Objects: Send + Sync {
    /// The service account, if it exists.
    fn service_account(&self, namespace: &str, name: &str) -> Option<Existing>;
    /// The pod, if it exists.
    fn pod(&self, namespace: &str, name: &str) -> Option<ExistingPod>;
    /// The secret, if it exists.
    fn secret(&self, namespace: &str, name: &str) -> Option<Existing>;
    /// The node, if it exists.
    fn node(&self, name: &str) -> Option<Existing>;
}

/// An object that exists, perhaps not for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Existing {
    pub(crate) uid: String,
    /// Its `metadata.deletionTimestamp`.
    pub(crate) deleted: Option<Timestamp>,
}

/// A pod, and what its tokens say beyond its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExistingPod {
    pub(crate) existing: Existing,
    pub(crate) service_account: String,
    /// Empty while it is not scheduled.
    pub(crate) node: String,
}

/// The account of a token and the objects whose end is the end of the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Binding {
    pub(crate) namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Reference>,
    pub(crate) serviceaccount: Reference,
}

/// One object by name and uid: a namesake is another object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    pub(crate) name: String,
    /// Empty only for a node that was not registered when the token was made.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

impl Binding {
    fn exists(&self, objects: &dyn Objects, now: Timestamp) -> Result<(), TokenError> {
        let Reference { name, uid } = &self.serviceaccount;
        let account = objects
            .service_account(&self.namespace, name)
            .ok_or_else(|| TokenError::NoAccount { name: name.clone() })?;
        if gone(&account, now) {
            let (namespace, name) = (self.namespace.clone(), name.clone());
            return Err(TokenError::AccountDeleted { namespace, name });
        }
        if account.uid != *uid {
            return Err(TokenError::AccountUid { found: account.uid, claimed: uid.clone() });
        }
        if let Some(secret) = &self.secret {
            let found = objects.secret(&self.namespace, &secret.name);
            secret.matches(found, "secret", "secret ref", now)?;
        }
        if let Some(pod) = &self.pod {
            let found = objects.pod(&self.namespace, &pod.name).map(|pod| pod.existing);
            return pod.matches(found, "pod", "pod ref", now);
        }
        // The node of a bound pod is information; the pod's own life is what counts.
        if let Some(node) = &self.node {
            node.matches(objects.node(&node.name), "node", "node ref", now)?;
        }
        Ok(())
    }
}

impl Reference {
    fn matches(
        &self,
        found: Option<Existing>,
        kind: &'static str,
        claim: &'static str,
        now: Timestamp,
    ) -> Result<(), TokenError> {
        let found = found.filter(|found| !gone(found, now)).ok_or(TokenError::Invalidated)?;
        if found.uid != self.uid {
            let (found, claimed) = (found.uid, self.uid.clone());
            return Err(TokenError::BoundUid { kind, claim, found, claimed });
        }
        Ok(())
    }
}

/// Why a service account token is refused; texts are upstream's where it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("service account {namespace}/{name} has been deleted")]
    AccountDeleted { namespace: String, name: String },
    #[error("service account UID ({found}) does not match claim ({claimed})")]
    AccountUid { found: String, claimed: String },
    #[error(
        "token audiences {} is invalid for the target audiences {}",
        go_list(found),
        go_list(wanted)
    )]
    Audience { found: Vec<String>, wanted: Vec<String> },
    #[error("{kind} UID ({found}) does not match service account {claim} claim ({claimed})")]
    BoundUid { kind: &'static str, claim: &'static str, found: String, claimed: String },
    #[error("service account token has expired")]
    Expired,
    #[error("service account token has been invalidated")]
    Invalidated,
    #[error("token issuer {found:?} is invalid")]
    Issuer { found: String },
    #[error(transparent)]
    Jwt(#[from] JwtError),
    #[error("serviceaccounts {name:?} not found")]
    NoAccount { name: String },
    #[error("service account token is not valid yet")]
    NotYet,
    #[error("service account token names another subject than it is bound to")]
    Subject,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Claims {
    #[serde(deserialize_with = "one_or_many", serialize_with = "as_list")]
    aud: Arc<[String]>,
    exp: i64,
    iat: i64,
    iss: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    jti: String,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Binding,
    nbf: i64,
    sub: String,
    /// Who it is, once somebody wanted to know.
    #[serde(skip)]
    user: OnceLock<Arc<User>>,
}

impl Claims {
    fn hold_at(&self, now: Timestamp) -> Result<(), TokenError> {
        let now = now.as_second();
        if now >= self.exp {
            return Err(TokenError::Expired);
        }
        if self.nbf.max(self.iat) > now.saturating_add(LEEWAY) {
            return Err(TokenError::NotYet);
        }
        let Binding { namespace, serviceaccount, .. } = &self.kubernetes;
        if self.sub != user_name(namespace, &serviceaccount.name) {
            return Err(TokenError::Subject);
        }
        Ok(())
    }

    fn user(&self) -> User {
        let Binding { namespace, node, pod, serviceaccount, .. } = &self.kubernetes;
        let mut extra = BTreeMap::new();
        let mut say = |key: &str, value: &str| {
            if !value.is_empty() {
                extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
            }
        };
        if !self.jti.is_empty() {
            say("credential-id", &format!("JTI={}", self.jti));
        }
        for (kind, reference) in [("pod", pod), ("node", node)] {
            if let Some(Reference { name, uid }) = reference {
                say(&format!("{kind}-name"), name);
                say(&format!("{kind}-uid"), uid);
            }
        }
        User {
            name: self.sub.clone(),
            uid: serviceaccount.uid.clone(),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ],
            extra,
        }
    }
}

fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

fn gone(existing: &Existing, now: Timestamp) -> bool {
    existing
        .deleted
        .is_some_and(|deleted| deleted.as_second() < now.as_second().saturating_sub(DELETION_GRACE))
}

fn as_list<S: Serializer>(audiences: &Arc<[String]>, serializer: S) -> Result<S::Ok, S::Error> {
    audiences[..].serialize(serializer)
}

/// `aud` may be one string or a list of them (RFC 7519, section 4.1.3).
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[String]>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Form::deserialize(deserializer)? {
        Form::One(audience) => [audience].into(),
        Form::Many(audiences) => audiences.into(),
    })
}

#[cfg(test)]
mod tests;
