//! Who may read records: a gate, by a token that it signed for exactly whom it asks.
//!
//! Agents and gates listen where all pods of a cluster reach them. The keys that check these tokens are the ones that check sessions,
//! so that there is one place to keep in order.

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use waybill_api::stock::{KeySet, RECORDS_SECONDS, RecordsClaims};

/// Clocks of machines may be this much apart, in seconds.
const SKEW: i64 = 10;

/// The name of the key that a token says it was signed with.
pub(crate) fn key_of(token: &str) -> Option<String> {
    decode_header(token).ok()?.kid
}

/// Whether `token` lets its bearer read records of `audience` at the time `now`.
pub(crate) fn may_read(token: &str, keys: &KeySet, audience: &str, now: i64) -> bool {
    let Some(claims) = signed(token, keys) else { return false };
    let RecordsClaims { audience: named, issued_at, expires_at } = claims;
    named == audience
        && now <= expires_at.saturating_add(SKEW)
        && issued_at <= now.saturating_add(SKEW)
        && expires_at.saturating_sub(issued_at) <= RECORDS_SECONDS
}

fn signed(token: &str, keys: &KeySet) -> Option<RecordsClaims> {
    let key = keys.find(&key_of(token)?)?;
    let key = DecodingKey::from_ec_components(&key.x, &key.y).ok()?;
    let mut rules = Validation::new(Algorithm::ES256);
    // Times and audience are judged above, with our own clock.
    (rules.validate_exp, rules.validate_aud) = (false, false);
    rules.required_spec_claims.clear();
    decode(token, &key, &rules).ok().map(|found| found.claims)
}

#[cfg(test)]
mod tests {
    use waybill_api::stock::{EXEC_PREFIX, GATES, StockKind};

    use super::*;
    use crate::gate::signer::{Place, Signer, claims, session_id};

    #[test]
    fn a_token_is_for_one_reader_one_owner_and_one_minute() {
        let (signer, other) = (Signer::generate().unwrap(), Signer::generate().unwrap());
        let keys = KeySet { keys: vec![signer.public().clone()] };
        let token = signer.records_token("n1", 1_000).unwrap();
        for (audience, now, good) in [
            ("n1", 1_000, true),
            ("n1", 1_070, true),
            ("n1", 1_071, false),
            ("n1", 989, false),
            ("n2", 1_000, false),
            (GATES, 1_000, false),
        ] {
            assert_eq!(may_read(&token, &keys, audience, now), good, "{audience} at {now}");
        }
        assert!(!may_read(&other.records_token("n1", 1_000).unwrap(), &keys, "n1", 1_000));
        assert!(!may_read("", &keys, "n1", 1_000) && !may_read("a.b.c", &keys, "n1", 1_000));
    }

    /// Everybody who sees a process's arguments on its way sees the token of its session.
    #[test]
    fn the_token_of_a_session_reads_nothing() {
        let signer = Signer::generate().unwrap();
        let keys = KeySet { keys: vec![signer.public().clone()] };
        let place = Place { namespace: "ns", pod: "web", uid: "u", container: "c" };
        let claims = claims(session_id().unwrap(), StockKind::Exec, place, false, &[], 1_000);
        let word = signer.word(&claims).unwrap();
        assert!(!may_read(word.strip_prefix(EXEC_PREFIX).unwrap(), &keys, "n1", 1_000));
    }
}
