//! Short-lived tokens for the users of this machine (DESIGN D8).
//!
//! Whoever connects to the server's Unix socket is known to the kernel by uid; the socket answers with
//! a token for that user. The key lives in memory only, so a restart ends every token, and a client
//! with a credential plugin just asks again.

mod name_service;
pub(crate) mod socket;
pub(crate) mod unix_user;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;
use waybill_core::secret::SecretBytes;

use super::{
    among_all,
    jwt::{JwtError, KeyError, SigningKey, Verifier},
    rfc3339,
};
use crate::request::User;

/// Issuer and audience; no service account token carries it.
const ISSUER: &str = "waybill:local";

/// Issues and verifies local tokens.
pub(crate) struct LocalTokens {
    key: SigningKey,
    verifier: Verifier<Claims>,
    lifetime: Duration,
}

impl LocalTokens {
    /// Tokens that live for `lifetime`, under a new key.
    pub(crate) fn new(lifetime: Duration) -> Result<Self, KeyError> {
        let key = SigningKey::generate()?;
        let verifier = Verifier::new(vec![key.public().clone()]);
        Ok(Self { key, verifier, lifetime })
    }

    /// A token for `user`.
    pub(crate) fn issue(&self, user: &User, now: Timestamp) -> Result<Issued, JwtError> {
        let seconds = now.as_second();
        let exp = seconds.saturating_add_unsigned(self.lifetime.as_secs());
        let claims = Claims {
            aud: ISSUER.to_owned(),
            exp,
            groups: user.groups.clone(),
            iat: seconds,
            iss: ISSUER.to_owned(),
            jti: Uuid::new_v4().to_string(),
            sub: user.name.clone(),
            uid: user.uid.clone(),
            user: OnceLock::new(),
        };
        let token = self.key.sign(&claims)?;
        let expires = Timestamp::from_second(exp).unwrap_or(Timestamp::MAX);
        let credential = json!({
            "kind": "ExecCredential",
            "apiVersion": "client.authentication.k8s.io/v1",
            "status": {
                "expirationTimestamp": rfc3339(expires),
                "token": String::from_utf8_lossy(token.expose()),
            },
        });
        Ok(Issued {
            credential: SecretBytes::from(credential.to_string().into_bytes()),
            user: claims.user(),
            half_life: now.saturating_add(self.lifetime / 2).unwrap_or(Timestamp::MAX),
        })
    }

    /// The user behind `token`; [`JwtError::UnknownKey`] if it is not one of ours.
    pub(crate) fn verify(&self, token: &str, now: Timestamp) -> Result<Arc<User>, LocalTokenError> {
        let claims = self.verifier.claims(token, now)?;
        if now.as_second() >= claims.exp {
            return Err(LocalTokenError::Expired);
        }
        if claims.iss != ISSUER || claims.aud != ISSUER {
            return Err(LocalTokenError::Purpose);
        }
        let user = claims.user.get_or_init(|| Arc::new(among_all(claims.user())));
        Ok(Arc::clone(user))
    }
}

/// A token that was made.
pub(crate) struct Issued {
    /// Wrapped as credential plugins answer: one `ExecCredential`.
    pub(crate) credential: SecretBytes,
    /// As whom it will be known, with the number of the token.
    pub(crate) user: User,
    /// Until then it may be given again.
    pub(crate) half_life: Timestamp,
}

impl Issued {
    /// Whether it is still a token of `user`, whose name or groups may have changed.
    fn is_of(&self, user: &User) -> bool {
        self.user.name == user.name && self.user.uid == user.uid && self.user.groups == user.groups
    }
}

/// Why a local token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LocalTokenError {
    #[error("local token has expired; run `waybill login` again")]
    Expired,
    #[error(transparent)]
    Jwt(#[from] JwtError),
    #[error("local token was made for another purpose")]
    Purpose,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    aud: String,
    exp: i64,
    groups: Vec<String>,
    iat: i64,
    iss: String,
    jti: String,
    sub: String,
    uid: String,
    /// Who it is, once somebody wanted to know.
    #[serde(skip)]
    user: OnceLock<Arc<User>>,
}

impl Claims {
    fn user(&self) -> User {
        let id = vec![format!("JTI={}", self.jti)];
        User {
            name: self.sub.clone(),
            uid: self.uid.clone(),
            groups: self.groups.clone(),
            extra: [(super::CREDENTIAL_ID.to_owned(), id)].into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn alice() -> User {
        let groups = vec!["unix".to_owned()];
        User { name: "unix:alice".into(), uid: "1000".into(), groups, ..User::default() }
    }

    fn token(tokens: &LocalTokens) -> String {
        let issued = tokens.issue(&alice(), at(NOW)).unwrap();
        let value: Value = serde_json::from_slice(issued.credential.expose()).unwrap();
        assert_eq!(value["kind"], "ExecCredential");
        assert_eq!(value["apiVersion"], "client.authentication.k8s.io/v1");
        assert_eq!(value["status"]["expirationTimestamp"], "2023-11-14T22:23:20Z");
        value["status"]["token"].as_str().unwrap().to_owned()
    }

    #[test]
    fn tokens_hold_for_their_lifetime() {
        let tokens = LocalTokens::new(Duration::from_secs(600)).unwrap();
        let token = token(&tokens);
        let user = tokens.verify(&token, at(NOW + 599)).unwrap();
        let groups = vec!["unix".to_owned(), "system:authenticated".to_owned()];
        let expected = User { groups, ..alice() };
        assert_eq!(User { extra: Default::default(), ..User::clone(&user) }, expected);
        assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("JTI="));
        assert_eq!(tokens.verify(&token, at(NOW + 600)), Err(LocalTokenError::Expired));
    }

    #[test]
    fn a_restart_ends_them() {
        let (before, after) = (
            LocalTokens::new(Duration::from_secs(600)),
            LocalTokens::new(Duration::from_secs(600)),
        );
        let token = token(&before.unwrap());
        let error = after.unwrap().verify(&token, at(NOW)).unwrap_err();
        assert_eq!(error, LocalTokenError::Jwt(JwtError::UnknownKey));
    }
}
