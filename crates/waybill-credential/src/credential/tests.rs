//! Answers of plugins, good and bad.

use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2030-01-01T00:00:00Z";

fn parse(status: &Value) -> Result<Credential, PluginError> {
    let answer = json!({
        "apiVersion": ApiVersion::V1.as_str(), "kind": "ExecCredential", "status": status,
    });
    let stdout = SecretBytes::from(answer.to_string().into_bytes());
    Credential::from_answer(&stdout, ApiVersion::V1, NOW.parse().unwrap())
}

#[track_caller]
fn refused(status: &Value, expected: &str) {
    assert_eq!(parse(status).unwrap_err().to_string(), expected);
}

fn pair() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(Vec::new()).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// CRED-22
#[test]
fn incomplete_answers_are_refused_cred_22_23_24() {
    let (certificate, key) = pair();
    let (_, other) = pair();
    refused(&json!({}), "exec plugin didn't return a token or cert/key pair");
    refused(&json!({"token": null}), "exec plugin didn't return a token or cert/key pair");
    let half = "exec plugin returned only certificate or key, not both";
    refused(&json!({"token": "t", "clientCertificateData": certificate}), half);
    refused(&json!({"clientKeyData": key}), half);
    for (certificate, key, reason) in [
        (certificate.as_str(), other.as_str(), "private key does not match public key"),
        ("CANARY", &key, "no certificate in PEM form in clientCertificateData"),
        (&certificate, "CANARY", "no private key in PEM form in clientKeyData"),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            &key,
            "clientCertificateData does not begin with an X.509 certificate",
        ),
        (
            &certificate,
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "clientKeyData is no private key that TLS can use",
        ),
    ] {
        refused(
            &json!({"clientCertificateData": certificate, "clientKeyData": key}),
            &format!("failed parsing client key/certificate: {reason}"),
        );
    }
    let bad = "decoding stdout: status.expirationTimestamp is not a time as in RFC 3339";
    for time in ["tomorrow", "2030-01-01", "2030-01-01 00:00:00Z", "", "1893456000"] {
        refused(&json!({"token": "t", "expirationTimestamp": time}), bad);
    }
    refused(
        &json!({"token": "CANARY\n"}),
        "decoding stdout: status.token has line breaks or other characters that no HTTP header can carry",
    );
}

/// CRED-25
#[test]
fn token_and_pair_are_both_used_cred_25() {
    let (certificate, key) = pair();
    let both = json!({"token": "t", "clientCertificateData": certificate, "clientKeyData": key});
    let credential = parse(&both).unwrap();
    let header = credential.authorization().unwrap();
    assert_eq!(header, "Bearer t");
    assert!(header.is_sensitive() && credential.certificate().is_some());
}

/// CRED-24
#[test]
fn expiry_is_what_the_plugin_says_and_nothing_else_cred_24_30() {
    let now: Timestamp = NOW.parse().unwrap();
    let forever = parse(&json!({"token": "t"})).unwrap();
    assert!(forever.expires().is_none() && !forever.is_expired(Timestamp::MAX));

    let (certificate, key) = pair();
    let short = json!({"clientCertificateData": certificate, "clientKeyData": key,
                       "expirationTimestamp": "2030-01-01T01:00:00+00:30"});
    let short = parse(&short).unwrap();
    let end = now + Duration::from_mins(30);
    assert!(!short.is_expired(end) && short.is_expired(end + Duration::from_nanos(1)));
    assert!(short.certificate().unwrap().not_after() > end, "which counts for nothing");
}

/// CRED-24: as plugins in Go write that there is no end, and as people do.
#[test]
fn a_time_that_never_comes_is_no_fault_cred_24() {
    let expires = |text: &str| {
        parse(&json!({"token": "t", "expirationTimestamp": text})).map(|it| it.expires())
    };
    assert_eq!(expires("0001-01-01T00:00:00Z").unwrap(), None);
    assert_eq!(expires("9999-12-31T23:59:59Z").unwrap(), Some(Timestamp::MAX));
    for bad in ["9999-13-01T00:00:00Z", "9999-12-31 23:59:59Z", "10000-01-01T00:00:00Z"] {
        assert!(expires(bad).is_err(), "{bad}");
    }
}

/// CRED-48
#[test]
fn renewal_begins_when_one_per_cent_is_left_cred_48() {
    for (life, early) in [
        (Duration::from_hours(1), Duration::from_secs(36)),
        (Duration::from_mins(5), Duration::from_secs(5)),
        (Duration::from_secs(10), Duration::from_secs(1)),
        (Duration::from_hours(24 * 365), Duration::from_mins(5)),
    ] {
        let now: Timestamp = NOW.parse().unwrap();
        assert_eq!(due(now, now + life), now + life - early, "{life:?}");
    }
}

/// CRED-26
#[test]
fn debug_output_shows_no_token_and_no_key_cred_26() {
    let (certificate, key) = pair();
    let both =
        json!({"token": "CANARY", "clientCertificateData": certificate, "clientKeyData": key});
    let credential = parse(&both).unwrap();
    let shown = format!("{credential:?} {:?}", credential.authorization());
    assert!(!shown.contains("CANARY") && !shown.contains("PRIVATE"), "{shown}");
}
