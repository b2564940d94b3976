//! The token by which a node knows that an exec or attach session was opened here.
//!
//! Without it, whoever may use `nodes/proxy` or reaches a node could start processes, or type
//! into running ones, and no audit record would name them. The token binds pod, container and every byte of the query, and says nothing of the
//! user (EXEC-22). Its key is used for nothing else, and nodes read the public half from us.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::HeaderValue;
use jiff::Timestamp;
use serde_json::{Value, json};
use waybill_api::exec::{SESSION_KINDS_MEMBER, SESSION_SECONDS, SessionClaims, SessionKind};
use waybill_core::{id::AuditId, secret::SecretBytes};

use super::target::{NodeTarget, PodPath};
use crate::authn::{
    digest::Digest,
    jwt::{JwtError, KeyError, SigningKey},
};

/// Signs the tokens of sessions.
pub(crate) struct SessionSigner {
    key: SigningKey,
    keys: Value,
}

impl SessionSigner {
    /// Signs with this key, which is PEM.
    pub(crate) fn new(pem: &SecretBytes) -> Result<Self, KeyError> {
        let key = SigningKey::from_pem(pem)?;
        let public = [key.public().jwk()?];
        let keys = json!({"keys": public, (SESSION_KINDS_MEMBER): SessionKind::ALL});
        Ok(Self { key, keys })
    }

    /// The keys that verify what is signed here, as a JSON Web Key Set, and which sessions that is.
    pub(crate) fn keys(&self) -> &Value {
        &self.keys
    }

    /// The token of the session that `target` asks for.
    pub(crate) fn sign(
        &self,
        session: &SessionPlace<'_>,
        target: &NodeTarget,
        audit_id: &AuditId,
        now: Timestamp,
    ) -> Result<HeaderValue, JwtError> {
        let digest = Digest::of(target.query().as_bytes());
        let claims = SessionClaims {
            audit_id: audit_id.to_string(),
            issued_at: now.as_second(),
            expires_at: now.as_second() + SESSION_SECONDS,
            kind: session.kind,
            namespace: session.pod.namespace.to_owned(),
            pod: session.pod.name.to_owned(),
            uid: session.uid.to_owned(),
            container: session.container.to_owned(),
            query: BASE64_URL_SAFE_NO_PAD.encode(digest.bytes()),
        };
        let token = self.key.sign(&claims)?;
        let mut token = HeaderValue::from_bytes(token.expose()).map_err(|_| JwtError::Signing)?;
        token.set_sensitive(true);
        Ok(token)
    }
}

/// What is to begin, and where.
pub(crate) struct SessionPlace<'a> {
    pub(crate) kind: SessionKind,
    pub(crate) pod: PodPath<'a>,
    /// The uid by which its node knows the pod.
    pub(crate) uid: &'a str,
    pub(crate) container: &'a str,
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header, jwk::JwkSet};
    use rcgen::KeyPair;

    use super::*;

    fn signer() -> SessionSigner {
        let pem = KeyPair::generate().unwrap().serialize_pem();
        SessionSigner::new(&SecretBytes::from(pem.into_bytes())).unwrap()
    }

    /// As a node would do it: from the published keys alone.
    fn claims(signer: &SessionSigner, token: &HeaderValue) -> SessionClaims {
        let token = token.to_str().unwrap();
        let keys: JwkSet = serde_json::from_value(signer.keys().clone()).unwrap();
        let kid = decode_header(token).unwrap().kid.unwrap();
        let key = DecodingKey::from_jwk(keys.find(&kid).unwrap()).unwrap();
        let mut rules = Validation::new(Algorithm::ES256);
        rules.validate_exp = false;
        decode(token, &key, &rules).unwrap().claims
    }

    fn session(kind: SessionKind) -> SessionPlace<'static> {
        let pod = PodPath { namespace: "default", name: "web" };
        SessionPlace { kind, pod, uid: "u-1", container: "main" }
    }

    /// EXEC-22
    #[test]
    fn a_token_binds_what_is_asked_for_and_names_nobody_exec_22() {
        let signer = signer();
        let id = AuditId::parse("5c1e-0f2a").unwrap();
        let now = Timestamp::from_second(1_000).unwrap();
        let target = NodeTarget::raw("/exec/default/web/main?abc");
        for kind in SessionKind::ALL {
            let token = signer.sign(&session(kind), &target, &id, now).unwrap();
            assert!(token.is_sensitive());
            assert_eq!(claims(&signer, &token), expected(kind));
        }
    }

    fn expected(kind: SessionKind) -> SessionClaims {
        SessionClaims {
            audit_id: "5c1e-0f2a".to_owned(),
            issued_at: 1_000,
            expires_at: 1_060,
            kind,
            namespace: "default".to_owned(),
            pod: "web".to_owned(),
            uid: "u-1".to_owned(),
            container: "main".to_owned(),
            // FIPS 180: SHA-256 of `abc`.
            query: "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0".to_owned(),
        }
    }

    /// Nodes ask for a token of attach where the API server says that it signs them.
    #[test]
    fn what_is_signed_is_told_with_the_keys() {
        assert_eq!(signer().keys()["sessions"], json!(["exec", "attach"]));
    }

    #[test]
    fn the_published_keys_hold_nothing_private() {
        let keys = signer().keys().clone();
        let key = keys["keys"][0].as_object().unwrap();
        let names: Vec<_> = key.keys().map(String::as_str).collect();
        assert_eq!(names, ["alg", "crv", "kid", "kty", "use", "x", "y"]);
        assert_eq!(
            (&key["kty"], &key["crv"], &key["alg"]),
            (&json!("EC"), &json!("P-256"), &json!("ES256"))
        );
    }
}
