//! Signing and verifying JSON Web Tokens: ES256, and RS256 for keys that a user brings along.
//!
//! Only signatures are judged here. Times, audiences and issuers are the caller's, since the clock
//! and the rules are. A key is bound to one algorithm, so a header cannot choose another; errors
//! carry no part of a token.

use std::{sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use jiff::Timestamp;
use jsonwebtoken::{
    Algorithm, DecodingKey, EncodingKey, Header, Validation,
    jwk::{Jwk, PublicKeyUse},
};
use rcgen::{KeyPair, PublicKeyData};
use rustls_pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer, pem::PemObject};
use serde::{Serialize, de::DeserializeOwned};
use waybill_core::secret::SecretBytes;
use x509_parser::{prelude::FromDer, public_key::PublicKey, x509::SubjectPublicKeyInfo};

use super::{cache::TokenCache, digest::Digest};

/// Longer tokens are refused unread; ours have about 1 KiB.
const MAX_TOKEN: usize = 16 * 1024;
const CACHE_CAPACITY: usize = 8192;
const CACHE_LIFETIME: Duration = Duration::from_secs(10);

/// A private key that signs tokens.
pub(crate) struct SigningKey {
    key: EncodingKey,
    public: VerifyingKey,
}

impl SigningKey {
    /// A new ES256 key that lives in memory only.
    pub(crate) fn generate() -> Result<Self, KeyError> {
        let key = KeyPair::generate().map_err(|_| KeyError::Private)?;
        Self::from_pem(&SecretBytes::from(key.serialize_pem().into_bytes()))
    }

    /// Reads a P-256 key (PKCS #8) or an RSA key (PKCS #8 or PKCS #1).
    pub(crate) fn from_pem(pem: &SecretBytes) -> Result<Self, KeyError> {
        let der = PrivateKeyDer::from_pem_slice(pem.expose()).map_err(|_| KeyError::Private)?;
        let pair = KeyPair::try_from(&der).map_err(|_| KeyError::Private)?;
        let public = VerifyingKey::from_spki(&pair.subject_public_key_info())?;
        let key = match public.algorithm {
            Algorithm::ES256 => EncodingKey::from_ec_pem(pem.expose()),
            _ => EncodingKey::from_rsa_pem(pem.expose()),
        };
        let signing = Self { key: key.map_err(|_| KeyError::Private)?, public };
        // Formats that only fail on use fail here instead.
        signing.sign(&()).map_err(|_| KeyError::Private)?;
        Ok(signing)
    }

    /// Signs `claims`.
    pub(crate) fn sign<C: Serialize>(&self, claims: &C) -> Result<SecretBytes, JwtError> {
        let mut header = Header::new(self.public.algorithm);
        header.kid = Some(self.public.id.clone());
        // Upstream's tokens carry no `typ`.
        header.typ = None;
        jsonwebtoken::encode(&header, claims, &self.key)
            .map(|token| SecretBytes::from(token.into_bytes()))
            .map_err(|_| JwtError::Signing)
    }

    /// The key that verifies what this one signs.
    pub(crate) fn public(&self) -> &VerifyingKey {
        &self.public
    }
}

/// A public key and the one algorithm that it is used with.
#[derive(Clone)]
pub(crate) struct VerifyingKey {
    id: String,
    algorithm: Algorithm,
    key: DecodingKey,
}

impl VerifyingKey {
    /// Reads a `PUBLIC KEY` of P-256 or RSA.
    pub(crate) fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).map_err(|_| KeyError::Public)?;
        Self::from_spki(&der)
    }

    /// The key as others read it, with its name.
    pub(crate) fn jwk(&self) -> Result<Jwk, KeyError> {
        let mut jwk = Jwk::from_decoding_key(&self.key, Some(self.algorithm))
            .map_err(|_| KeyError::Public)?;
        jwk.common.key_id = Some(self.id.clone());
        jwk.common.public_key_use = Some(PublicKeyUse::Signature);
        Ok(jwk)
    }

    fn from_spki(der: &[u8]) -> Result<Self, KeyError> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|_| KeyError::Public)?;
        let bits = info.subject_public_key.data.as_ref();
        let (algorithm, key) = match info.parsed().map_err(|_| KeyError::Public)? {
            PublicKey::EC(point) if point.key_size() == 256 => {
                (Algorithm::ES256, DecodingKey::from_ec_der(bits))
            }
            PublicKey::RSA(_) => (Algorithm::RS256, DecodingKey::from_rsa_der(bits)),
            _ => return Err(KeyError::Kind),
        };
        // The same key id that upstream computes, so tokens survive a move of the key.
        let id = BASE64_URL_SAFE_NO_PAD.encode(Digest::of(der).bytes());
        Ok(Self { id, algorithm, key })
    }
}

/// Why a key cannot be used for tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("keys for tokens must be ECDSA P-256 or RSA")]
    Kind,
    #[error("not a usable private key; expected PEM, PKCS #8 (`openssl pkcs8 -topk8 -nocrypt`)")]
    Private,
    #[error("not a usable public key; expected PEM, `BEGIN PUBLIC KEY`")]
    Public,
}

/// Verifies tokens against a set of keys and hands out their claims.
pub(super) struct Verifier<C> {
    keys: Vec<VerifyingKey>,
    cache: TokenCache<C>,
}

impl<C: DeserializeOwned> Verifier<C> {
    /// Believes tokens signed by any of `keys`.
    pub(super) fn new(keys: Vec<VerifyingKey>) -> Self {
        Self { keys, cache: TokenCache::new(CACHE_CAPACITY, CACHE_LIFETIME) }
    }

    /// The claims of `token`, whose signature is good; whether they hold now is not checked.
    pub(super) fn claims(&self, token: &str, now: Timestamp) -> Result<Arc<C>, JwtError> {
        if token.len() > MAX_TOKEN {
            return Err(JwtError::Malformed);
        }
        let digest = Digest::of(token.as_bytes());
        if let Some(claims) = self.cache.find(digest, now) {
            return Ok(claims);
        }
        let claims = Arc::new(self.verify(token)?);
        self.cache.insert(digest, Arc::clone(&claims), now);
        Ok(claims)
    }

    fn verify(&self, token: &str) -> Result<C, JwtError> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| JwtError::Malformed)?;
        let named = |key: &&VerifyingKey| header.kid.as_ref().is_none_or(|kid| *kid == key.id);
        let mut outcome = Err(JwtError::UnknownKey);
        for key in self.keys.iter().filter(named) {
            outcome = key.verify(token);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}

impl VerifyingKey {
    fn verify<C: DeserializeOwned>(&self, token: &str) -> Result<C, JwtError> {
        let mut rules = Validation::new(self.algorithm);
        // The library would read the wall clock.
        rules.validate_exp = false;
        rules.validate_aud = false;
        rules.required_spec_claims.clear();
        match jsonwebtoken::decode(token, &self.key, &rules) {
            Ok(data) => Ok(data.claims),
            Err(error) => Err(match error.kind() {
                jsonwebtoken::errors::ErrorKind::Json(_) => JwtError::Claims,
                _ => JwtError::Signature,
            }),
        }
    }
}

/// Why a token is not believed; never says anything about its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JwtError {
    #[error("token has unexpected claims")]
    Claims,
    #[error("token is malformed")]
    Malformed,
    #[error("token signature is invalid")]
    Signature,
    #[error("signing the token failed")]
    Signing,
    #[error("token was signed by an unknown key")]
    UnknownKey,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn text(token: &SecretBytes) -> String {
        String::from_utf8(token.expose().to_vec()).unwrap()
    }

    fn forged(header: &Value, claims: &Value, signature: &[u8]) -> String {
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.{}", part(header), part(claims), BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    #[track_caller]
    fn check(key: &SigningKey, token: &str, expected: Result<&Value, JwtError>) {
        let verifier = Verifier::<Value>::new(vec![key.public().clone()]);
        let found = verifier.claims(token, NOW);
        assert_eq!(found.as_deref().map_err(|error| *error), expected);
    }

    #[test]
    fn a_signed_token_is_believed_and_a_changed_one_is_not() {
        let key = SigningKey::generate().unwrap();
        let claims = json!({"sub": "me"});
        let token = text(&key.sign(&claims).unwrap());
        check(&key, &token, Ok(&claims));
        let parts: Vec<_> = token.split('.').collect();
        let payload = BASE64_URL_SAFE_NO_PAD.encode(r#"{"sub":"root"}"#);
        let tampered = format!("{}.{payload}.{}", parts[0], parts[2]);
        check(&key, &tampered, Err(JwtError::Signature));
        let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#);
        let other_header = format!("{header}.{}.{}", parts[1], parts[2]);
        check(&key, &other_header, Err(JwtError::Signature));
    }

    #[test]
    fn the_header_cannot_choose_the_algorithm() {
        let key = SigningKey::generate().unwrap();
        let claims = json!({"sub": "root"});
        for alg in ["none", "None", "", "HS256", "RS256", "ES384", "EdDSA"] {
            let token = forged(&json!({"alg": alg}), &claims, b"");
            let expected = match alg {
                "none" | "None" | "" => JwtError::Malformed,
                _ => JwtError::Signature,
            };
            check(&key, &token, Err(expected));
        }
        // The classic confusion: the public key used as an HMAC secret.
        let secret = EncodingKey::from_secret(key.public().key.try_get_as_bytes().unwrap());
        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some(key.public().id.clone());
        let token = jsonwebtoken::encode(&header, &claims, &secret).unwrap();
        check(&key, &token, Err(JwtError::Signature));
    }

    #[test]
    fn keys_are_told_apart() {
        let (key, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let token = text(&other.sign(&json!({})).unwrap());
        check(&key, &token, Err(JwtError::UnknownKey));
        let both = vec![key.public().clone(), other.public().clone()];
        assert!(Verifier::<Value>::new(both).claims(&token, NOW).is_ok());
        // A key id of ours on a foreign signature does not help.
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(key.public().id.clone());
        let lie = jsonwebtoken::encode(&header, &json!({}), &other.key).unwrap();
        check(&key, &lie, Err(JwtError::Signature));
    }

    #[test]
    fn rsa_keys_of_the_user_sign_and_verify() {
        let pair = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048);
        let pair = pair.unwrap();
        let pem = SecretBytes::from(pair.serialize_pem().into_bytes());
        let key = SigningKey::from_pem(&pem).unwrap();
        let token = text(&key.sign(&json!({"a": 1})).unwrap());
        check(&key, &token, Ok(&json!({"a": 1})));
        let public = VerifyingKey::from_pem(pair.public_key_pem().as_bytes()).unwrap();
        assert_eq!(public.id, key.public().id);
        assert!(Verifier::<Value>::new(vec![public]).claims(&token, NOW).is_ok());
    }

    #[test]
    fn other_keys_are_refused() {
        let p384 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let pem = SecretBytes::from(p384.serialize_pem().into_bytes());
        assert_eq!(SigningKey::from_pem(&pem).err(), Some(KeyError::Kind));
        assert_eq!(
            SigningKey::from_pem(&SecretBytes::copy_of(b"hello")).err(),
            Some(KeyError::Private)
        );
        assert_eq!(VerifyingKey::from_pem(b"hello").err(), Some(KeyError::Public));
    }

    #[test]
    fn rubbish_is_refused() {
        let key = SigningKey::generate().unwrap();
        for token in ["", ".", "..", "a.b", "a.b.c", "a.b.c.d", "{}", "\u{0}"] {
            check(&key, token, Err(JwtError::Malformed));
        }
        check(&key, &"x".repeat(MAX_TOKEN + 1), Err(JwtError::Malformed));
    }
}
