//! Signs exec sessions as an API server does.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::{
    Algorithm, DecodingKey, EncodingKey, Header, encode,
    jwk::{Jwk, JwkSet},
};
use rcgen::KeyPair;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;
use waybill_api::exec::{SessionClaims, SessionKind};

pub(in crate::server) struct Signer {
    id: String,
    key: EncodingKey,
}

impl Signer {
    pub(in crate::server) fn new() -> Self {
        let pem = KeyPair::generate().unwrap().serialize_pem();
        let key = EncodingKey::from_ec_pem(pem.as_bytes()).unwrap();
        Self { id: Uuid::new_v4().to_string(), key }
    }

    pub(in crate::server) fn id(&self) -> &str {
        &self.id
    }

    pub(in crate::server) fn public(&self) -> DecodingKey {
        DecodingKey::from_jwk(&self.jwk()).unwrap()
    }

    /// What the API server publishes.
    pub(in crate::server) fn key_set(&self) -> Value {
        json!({"keys": JwkSet { keys: vec![self.jwk()] }.keys, "sessions": SessionKind::ALL})
    }

    /// Of a session in the container `main` of the pod of the tests, with an ID of its own.
    pub(in crate::server) fn claims(&self, query: &str) -> SessionClaims {
        SessionClaims {
            audit_id: Uuid::new_v4().to_string(),
            issued_at: 0,
            expires_at: 60,
            kind: SessionKind::Exec,
            namespace: "default".to_owned(),
            pod: "web".to_owned(),
            uid: "u-1".to_owned(),
            container: "main".to_owned(),
            query: BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(query.as_bytes())),
        }
    }

    pub(in crate::server) fn sign(&self, claims: &SessionClaims) -> String {
        let header = Header { kid: Some(self.id.clone()), ..Header::new(Algorithm::ES256) };
        encode(&header, claims, &self.key).unwrap()
    }

    fn jwk(&self) -> Jwk {
        let mut jwk = Jwk::from_encoding_key(&self.key, Algorithm::ES256).unwrap();
        jwk.common.key_id = Some(self.id.clone());
        jwk
    }
}
