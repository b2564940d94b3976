//! What a session token must be: signed with a key of the API server, of now, and for this request.
//!
//! The clock is the caller's. The algorithm is fixed, so a header cannot choose another.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header, errors::ErrorKind};
use sha2::{Digest, Sha256};
use waybill_api::exec::{SESSION_SECONDS, SessionClaims, SessionKind};
use waybill_core::id::AuditId;

use super::SessionFault;
use crate::server::route::ContainerPath;

/// Longer tokens are refused unread; ours have about 500 bytes.
const LONGEST: usize = 4 * 1024;

/// How much the clocks of two machines may differ, in seconds.
pub(super) const CLOCK_SKEW: i64 = 30;

/// What the request with the token asks for.
pub(in crate::server) struct Asked<'a> {
    pub(in crate::server) kind: SessionKind,
    pub(in crate::server) path: &'a ContainerPath,
    /// As it came.
    pub(in crate::server) query: &'a str,
}

/// The name of the key that the token claims to be signed with.
pub(super) fn key_id(token: &str) -> Result<String, SessionFault> {
    if token.len() > LONGEST {
        return Err(SessionFault::Malformed);
    }
    let header = decode_header(token).map_err(|_| SessionFault::Malformed)?;
    header.kid.ok_or(SessionFault::Malformed)
}

/// The claims of a token that is good for what is asked at `now`, in seconds since 1970, and the audit ID
/// among them. Which life of the pod is meant is left to the caller.
pub(super) fn verify(
    token: &str,
    key: &DecodingKey,
    asked: &Asked<'_>,
    now: i64,
) -> Result<(SessionClaims, AuditId), SessionFault> {
    let mut rules = Validation::new(Algorithm::ES256);
    // The library would read the wall clock.
    rules.validate_exp = false;
    rules.required_spec_claims.clear();
    let decoded = decode::<SessionClaims>(token, key, &rules);
    let decoded = decoded.map_err(|error| match error.kind() {
        ErrorKind::InvalidSignature | ErrorKind::InvalidAlgorithm => SessionFault::Signature,
        _ => SessionFault::Malformed,
    })?;
    let claims = decoded.claims;
    check_times(&claims, now)?;
    if claims.kind != asked.kind {
        return Err(SessionFault::OtherKind);
    }
    let ContainerPath { pod, container } = asked.path;
    if (&claims.namespace, &claims.pod) != (&pod.namespace, &pod.name) {
        return Err(SessionFault::OtherPod);
    }
    if claims.container != *container {
        return Err(SessionFault::OtherContainer);
    }
    if claims.query != BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(asked.query.as_bytes())) {
        return Err(SessionFault::OtherQuery);
    }
    let audit_id = AuditId::parse(&claims.audit_id).map_err(|_| SessionFault::Malformed)?;
    Ok((claims, audit_id))
}

fn check_times(claims: &SessionClaims, now: i64) -> Result<(), SessionFault> {
    // One that lasts longer could be forgotten before it ends, and be used again.
    let lifetime = claims.expires_at.checked_sub(claims.issued_at);
    if !lifetime.is_some_and(|lifetime| (0..=SESSION_SECONDS).contains(&lifetime)) {
        return Err(SessionFault::Malformed);
    }
    if claims.issued_at > now.saturating_add(CLOCK_SKEW) {
        return Err(SessionFault::NotYet);
    }
    if claims.expires_at.saturating_add(CLOCK_SKEW) < now {
        return Err(SessionFault::Expired);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::server::{route::PodPath, tests::signer::Signer};

    const QUERY: &str = "command=id&output=1&env=A=b";

    fn path() -> ContainerPath {
        let pod = PodPath { namespace: "default".to_owned(), name: "web".to_owned(), uid: None };
        ContainerPath { pod, container: "main".to_owned() }
    }

    fn judge(token: &str, signer: &Signer, query: &str, now: i64) -> Result<(), SessionFault> {
        judge_kind(SessionKind::Exec, token, signer, query, now)
    }

    fn judge_kind(
        kind: SessionKind,
        token: &str,
        signer: &Signer,
        query: &str,
        now: i64,
    ) -> Result<(), SessionFault> {
        let path = path();
        verify(token, &signer.public(), &Asked { kind, path: &path, query }, now).map(drop)
    }

    fn changed(change: impl FnOnce(&mut SessionClaims)) -> Result<(), SessionFault> {
        let signer = Signer::new();
        let mut claims = signer.claims(QUERY);
        change(&mut claims);
        judge(&signer.sign(&claims), &signer, QUERY, 0)
    }

    #[test]
    fn a_token_is_for_one_request() {
        assert_eq!(changed(|_| ()), Ok(()));
        let other = || "other".to_owned();
        assert_eq!(changed(|claims| claims.namespace = other()), Err(SessionFault::OtherPod));
        assert_eq!(changed(|claims| claims.pod = other()), Err(SessionFault::OtherPod));
        let container = changed(|claims| claims.container = other());
        assert_eq!(container, Err(SessionFault::OtherContainer));
        assert_eq!(changed(|claims| claims.query = other()), Err(SessionFault::OtherQuery));
        assert_eq!(changed(|claims| claims.audit_id = String::new()), Err(SessionFault::Malformed));
    }

    /// Attach with the right to exec, and the other way round: neither is the other's record.
    #[test]
    fn a_token_for_one_kind_of_session_begins_no_other() {
        let signer = Signer::new();
        for signed in SessionKind::ALL {
            let claims = SessionClaims { kind: signed, ..signer.claims(QUERY) };
            let token = signer.sign(&claims);
            for asked in SessionKind::ALL {
                let found = judge_kind(asked, &token, &signer, QUERY, 0);
                let expected = if asked == signed { Ok(()) } else { Err(SessionFault::OtherKind) };
                assert_eq!(found, expected, "{signed:?} {asked:?}");
            }
        }
    }

    #[test]
    fn not_one_byte_of_the_query_can_be_another() {
        let signer = Signer::new();
        let token = signer.sign(&signer.claims(QUERY));
        for query in ["", "command=id&output=1&env=A=c", "command=id&output=1&env=A=b&", "x"] {
            assert_eq!(judge(&token, &signer, query, 0), Err(SessionFault::OtherQuery), "{query}");
        }
    }

    #[test]
    fn a_token_is_for_a_minute_and_clocks_may_differ_a_little() {
        let signer = Signer::new();
        let mut claims = signer.claims(QUERY);
        (claims.issued_at, claims.expires_at) = (1_000, 1_060);
        let token = signer.sign(&claims);
        for (now, expected) in [
            (969, Err(SessionFault::NotYet)),
            (970, Ok(())),
            (1_000, Ok(())),
            (1_090, Ok(())),
            (1_091, Err(SessionFault::Expired)),
            (i64::MAX, Err(SessionFault::Expired)),
            (i64::MIN, Err(SessionFault::NotYet)),
        ] {
            assert_eq!(judge(&token, &signer, QUERY, now), expected, "{now}");
        }
        for (issued_at, expires_at) in [(0, 61), (10, 9), (i64::MIN, i64::MAX)] {
            let found = changed(|claims| {
                (claims.issued_at, claims.expires_at) = (issued_at, expires_at);
            });
            assert_eq!(found, Err(SessionFault::Malformed), "{issued_at} {expires_at}");
        }
    }

    #[test]
    fn only_the_key_of_the_api_server_counts() {
        let (signer, other) = (Signer::new(), Signer::new());
        let token = signer.sign(&signer.claims(QUERY));
        assert_eq!(judge(&token, &other, QUERY, 0), Err(SessionFault::Signature));
        let (signed, _) = token.rsplit_once('.').unwrap();
        for signature in ["", "AAAA", &"A".repeat(86)] {
            let forged = format!("{signed}.{signature}");
            assert_eq!(judge(&forged, &signer, QUERY, 0), Err(SessionFault::Signature));
        }
    }

    #[test]
    fn the_header_cannot_choose_the_algorithm() {
        let signer = Signer::new();
        let token = signer.sign(&signer.claims(QUERY));
        let rest = token.split_once('.').unwrap().1;
        for algorithm in ["none", "HS256", "RS256", "ES384"] {
            let header = format!(r#"{{"alg":"{algorithm}","kid":"{}"}}"#, signer.id());
            let forged = format!("{}.{rest}", BASE64_URL_SAFE_NO_PAD.encode(header));
            assert!(judge(&forged, &signer, QUERY, 0).is_err(), "{algorithm}");
        }
    }

    #[test]
    fn a_key_has_a_name_and_a_token_is_short() {
        let signer = Signer::new();
        assert_eq!(key_id(&signer.sign(&signer.claims(QUERY))).unwrap(), signer.id());
        for rubbish in ["", ".", "a.b.c", "e30.e30.e30", &"x".repeat(LONGEST + 1)] {
            assert_eq!(key_id(rubbish), Err(SessionFault::Malformed), "{rubbish}");
        }
    }

    proptest! {
        #[test]
        fn no_character_of_a_token_can_be_another(at in any::<prop::sample::Index>(), to in "[A-Za-z0-9_.-]") {
            let signer = Signer::new();
            let token = signer.sign(&signer.claims(QUERY));
            let at = at.index(token.len());
            let changed = format!("{}{to}{}", &token[..at], &token[at + 1..]);
            prop_assert_eq!(judge(&changed, &signer, QUERY, 0).is_ok(), changed == token);
        }

        #[test]
        fn no_text_makes_it_panic(token in "\\PC{0,80}") {
            let _ = key_id(&token);
            prop_assert!(judge(&token, &Signer::new(), QUERY, 0).is_err());
        }
    }
}
