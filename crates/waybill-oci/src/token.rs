//! Whether gate signed a token, and for this exec.

use p256::ecdsa::{Signature, VerifyingKey, signature::Verifier};
use serde::Deserialize;
use waybill_api::stock::{KeySet, Refusal, STOCK_SECONDS, StockClaims, decode_base64url};

/// How far the clocks of gate and node may be apart, in seconds.
const SKEW: i64 = 10;

/// The claims of a token that a key of this cluster signed. Nothing of them is judged yet.
pub(crate) fn signed_claims(token: &str, keys: &KeySet) -> Result<StockClaims, Refusal> {
    claims(token, keys).ok_or(Refusal::NotSigned)
}

/// Whether they count at this time.
pub(crate) fn check_time(claims: &StockClaims, now: i64) -> Result<(), Refusal> {
    let ended = now > claims.expires_at.saturating_add(SKEW);
    let not_begun = claims.issued_at > now.saturating_add(SKEW);
    // Gate signs for no longer, so a longer one is not from it as we know it.
    let too_long = claims.expires_at.saturating_sub(claims.issued_at) > STOCK_SECONDS;
    if ended || not_begun || too_long { Err(Refusal::Expired) } else { Ok(()) }
}

fn claims(token: &str, keys: &KeySet) -> Option<StockClaims> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, payload) = signed.split_once('.')?;
    let header: Header = serde_json::from_slice(&decode_base64url(header).ok()?).ok()?;
    // What the header says about keys and kinds of signatures is never more than a name.
    if header.alg != "ES256" {
        return None;
    }
    let point = keys.find(&header.kid)?.sec1()?;
    let key = VerifyingKey::from_sec1_bytes(&point).ok()?;
    let signature = Signature::from_slice(&decode_base64url(signature).ok()?).ok()?;
    key.verify(signed.as_bytes(), &signature).ok()?;
    serde_json::from_slice(&decode_base64url(payload).ok()?).ok()
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: String,
}

#[cfg(test)]
mod tests {
    use p256::ecdsa::{SigningKey, signature::Signer};
    use serde_json::{Value, json};
    use waybill_api::stock::{PublicKey, encode_base64url};

    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_slice(&[seed; 32]).unwrap()
    }

    fn keys() -> KeySet {
        let point = key(1).verifying_key().to_sec1_point(false);
        let half = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).unwrap();
        let (x, y) = (half(point.x().unwrap()), half(point.y().unwrap()));
        KeySet { keys: vec![PublicKey::es256("k1", &x, &y)] }
    }

    fn payload() -> Value {
        json!({"jti": "0".repeat(32), "iat": 1000, "exp": 1120, "kind": "exec", "namespace": "ns", "pod": "p",
            "uid": "u", "container": "c", "tty": false, "words": ""})
    }

    fn sign(header: &Value, payload: &Value, key: &SigningKey) -> String {
        let part = |json: &Value| encode_base64url(json.to_string().as_bytes());
        let signed = format!("{}.{}", part(header), part(payload));
        let signature: Signature = key.sign(signed.as_bytes());
        format!("{signed}.{}", encode_base64url(&signature.to_bytes()))
    }

    #[test]
    fn only_a_key_of_the_cluster_signs() {
        let header = json!({"alg": "ES256", "kid": "k1"});
        let good = sign(&header, &payload(), &key(1));
        assert_eq!(signed_claims(&good, &keys()).unwrap().expires_at, 1120);
        let mut changed = payload();
        changed["uid"] = "other".into();
        let other = sign(&header, &changed, &key(1));
        let parts: Vec<_> = good.split('.').collect();
        let moved: Vec<_> = other.split('.').collect();
        let forged = [
            sign(&header, &payload(), &key(2)),
            sign(&json!({"alg": "ES256", "kid": "k2"}), &payload(), &key(1)),
            sign(&json!({"alg": "none", "kid": "k1"}), &payload(), &key(1)),
            sign(&json!({"alg": "HS256", "kid": "k1"}), &payload(), &key(1)),
            sign(&header, &json!({}), &key(1)),
            format!("{}.{}.{}", parts[0], moved[1], parts[2]),
            format!("{}.{}.", parts[0], parts[1]),
            format!("{}.{}", parts[0], parts[1]),
            format!("{good}A"),
            format!(".{good}"),
            String::new(),
            "..".to_owned(),
        ];
        for token in forged {
            assert_eq!(signed_claims(&token, &keys()), Err(Refusal::NotSigned), "{token}");
        }
        assert_eq!(signed_claims(&good, &KeySet::default()), Err(Refusal::NotSigned));
    }

    #[test]
    fn a_token_counts_for_two_minutes_and_a_little_skew() {
        let claims: StockClaims = serde_json::from_value(payload()).unwrap();
        for (now, good) in [
            (1000, true),
            (990, true),
            (989, false),
            (1130, true),
            (1131, false),
            (i64::MAX, false),
            (i64::MIN, false),
        ] {
            assert_eq!(check_time(&claims, now).is_ok(), good, "{now}");
        }
        let long = StockClaims { expires_at: 2000, ..claims.clone() };
        assert!(check_time(&long, 1000).is_err());
        let hostile = StockClaims { issued_at: i64::MIN, expires_at: i64::MAX, ..claims };
        assert!(check_time(&hostile, 1000).is_err());
    }
}
