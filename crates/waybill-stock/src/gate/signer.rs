//! The key of this replica, which lives in its memory only, and the tokens that it signs.
//!
//! A replica that ends takes its key along; what it has signed stays good for [`STOCK_SECONDS`], since the public
//! half is published for longer than that (`keys.rs`).

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{KeyPair, PublicKeyData};
use serde::Serialize;
use sha2::{Digest, Sha256};
use waybill_api::stock::{
    EXEC_PREFIX, PublicKey, RECORDS_SECONDS, RecordsClaims, STOCK_SECONDS, SessionId, StockClaims,
    StockKind, encode_base64url, framed,
};
use waybill_core::secret::SecretBytes;

/// A key that signs sessions.
pub(crate) struct Signer {
    key: EncodingKey,
    public: PublicKey,
}

impl Signer {
    /// A new key.
    pub(crate) fn generate() -> Result<Self, SignerError> {
        let pair = KeyPair::generate().map_err(|_| SignerError::Key)?;
        let [_, point @ ..] = pair.public_key_raw() else { return Err(SignerError::Key) };
        let (x, y) = point.split_first_chunk::<32>().ok_or(SignerError::Key)?;
        let y = y.try_into().map_err(|_| SignerError::Key)?;
        let id = encode_base64url(&Sha256::digest(pair.subject_public_key_info()));
        let pem = SecretBytes::from(pair.serialize_pem().into_bytes());
        let key = EncodingKey::from_ec_pem(pem.expose()).map_err(|_| SignerError::Key)?;
        Ok(Self { key, public: PublicKey::es256(&id, x, y) })
    }

    /// What verifies its signatures.
    pub(crate) fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The word that stands for a session.
    pub(crate) fn word(&self, claims: &StockClaims) -> Result<String, SignerError> {
        Ok(format!("{EXEC_PREFIX}{}", self.sign(claims)?))
    }

    /// The token with which `audience`, a node or all gates, is asked for records.
    pub(crate) fn records_token(&self, audience: &str, now: i64) -> Result<String, SignerError> {
        self.sign(&RecordsClaims {
            audience: audience.to_owned(),
            issued_at: now,
            expires_at: now.saturating_add(RECORDS_SECONDS),
        })
    }

    fn sign(&self, claims: &impl Serialize) -> Result<String, SignerError> {
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(self.public.kid.clone());
        header.typ = None;
        jsonwebtoken::encode(&header, claims, &self.key).map_err(|_| SignerError::Sign)
    }
}

/// Why nothing is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignerError {
    #[error("no key could be made")]
    Key,
    #[error("no session ID could be made: the system gives no random bytes")]
    Random,
    #[error("the token could not be signed")]
    Sign,
}

/// Where a session is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) pod: &'a str,
    /// As the node knows the pod.
    pub(crate) uid: &'a str,
    pub(crate) container: &'a str,
}

/// The claims of a session that begins now, with `words` after its token.
pub(crate) fn claims(
    session: SessionId,
    kind: StockKind,
    place: Place<'_>,
    tty: bool,
    words: &[String],
    now: i64,
) -> StockClaims {
    StockClaims {
        session,
        issued_at: now,
        expires_at: now.saturating_add(STOCK_SECONDS),
        kind,
        namespace: place.namespace.to_owned(),
        pod: place.pod.to_owned(),
        uid: place.uid.to_owned(),
        container: place.container.to_owned(),
        tty,
        words: encode_base64url(&Sha256::digest(framed(words.iter().map(String::as_bytes)))),
    }
}

/// The ID of a new session.
pub(crate) fn session_id() -> Result<SessionId, SignerError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| SignerError::Random)?;
    Ok(SessionId::from_random(bytes))
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{DecodingKey, Validation, decode, decode_header, jwk::Jwk};

    use super::*;

    const PLACE: Place<'_> = Place { namespace: "ns", pod: "web", uid: "u", container: "c" };

    /// As a node would do it: from the published key alone.
    fn read(word: &str, key: &PublicKey) -> StockClaims {
        let token = word.strip_prefix(EXEC_PREFIX).unwrap();
        assert_eq!(decode_header(token).unwrap().kid.as_deref(), Some(&*key.kid));
        let jwk: Jwk = serde_json::from_value(serde_json::to_value(key).unwrap()).unwrap();
        let mut rules = Validation::new(Algorithm::ES256);
        rules.validate_exp = false;
        decode(token, &DecodingKey::from_jwk(&jwk).unwrap(), &rules).unwrap().claims
    }

    /// EXEC-22
    #[test]
    fn a_token_binds_pod_container_terminal_and_words_and_names_nobody_exec_22() {
        let signer = Signer::generate().unwrap();
        let session = session_id().unwrap();
        let words = ["-".to_owned(), "id".to_owned()];
        let claims = claims(session.clone(), StockKind::Exec, PLACE, true, &words, 1_000);
        assert_eq!(read(&signer.word(&claims).unwrap(), signer.public()), claims);
        assert_eq!((claims.expires_at, claims.tty, &claims.session), (1_120, true, &session));
        let other = super::claims(session, StockKind::Exec, PLACE, true, &words[..1], 1_000);
        assert_ne!(other.words, claims.words);
    }

    #[test]
    fn each_replica_has_its_own_key_and_publishes_nothing_private() {
        let (one, other) = (Signer::generate().unwrap(), Signer::generate().unwrap());
        assert_ne!(one.public().kid, other.public().kid);
        assert!(one.public().sec1().is_some());
        let published = serde_json::to_value(one.public()).unwrap();
        assert!(published.get("d").is_none());
    }
}
