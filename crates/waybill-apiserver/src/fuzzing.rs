//! Doors for the fuzzers: parsers of what peers and files say, and what must hold of them.
//!
//! Nothing else uses them, and they do nothing that a request could not.

use std::sync::OnceLock;

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use jiff::Timestamp;
use serde_json::Value;
use waybill_core::secret::SecretBytes;

use crate::{
    audit::Policy,
    authn::{
        bearer::token,
        jwt::SigningKey,
        service_account::{Existing, ExistingPod, Objects, ServiceAccountTokens},
        token_file::TokenFile,
    },
    kinds::pod::PODS,
    patch::{PatchType, apply_bytes},
    protobuf,
    query::Query,
    read::From,
    schema::{FieldValidation, KindSchema, lookup},
    selector::{field::FieldSelector, label::LabelSelector},
};

/// An object, a zero byte, and a patch of each kind for it.
pub fn patch(data: &[u8]) {
    for kind in [PatchType::Json, PatchType::Merge, PatchType::Strategic] {
        let _ = apply_bytes(kind, data, PODS.patch);
    }
}

/// A selector, which must print as it reads.
pub fn selectors(text: &str) {
    if let Ok(selector) = LabelSelector::parse(text) {
        assert_eq!(LabelSelector::parse(&selector.to_string()).ok(), Some(selector));
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        assert_eq!(FieldSelector::parse(&selector.to_string()).ok(), Some(selector));
    }
}

/// The query of a list or watch.
pub fn query(text: &str) {
    let query = Query::parse(text);
    let _ = (From::parse_get(&query), From::parse_list(&query), From::parse_watch(&query));
}

/// A body in protobuf; an object that its schema takes must be one that it takes again.
pub fn protobuf(body: &[u8]) {
    let Ok(document) = protobuf::decode(body) else { return };
    let said = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = said("apiVersion").rsplit_once('/').unwrap_or(("", said("apiVersion")));
    if let Some(schema) = lookup(group, version, said("kind")) {
        stays(schema, document.clone());
    }
}

/// A body in YAML; an object that its schema takes must be one that it takes again.
pub fn yaml(body: &[u8]) {
    for kind in ["ConfigMap", "Pod"] {
        let Some(schema) = lookup("", "v1", kind) else { continue };
        let strict = schema.decode_yaml(body, FieldValidation::Strict);
        let loose = schema.decode_yaml(body, FieldValidation::Warn);
        assert!(loose.is_ok() || strict.is_err());
        if let Ok(decoded) = loose {
            assert_eq!(decoded.warnings.is_empty(), strict.is_ok());
            stays(schema, decoded.object);
        }
    }
}

/// What decoding makes of `document` is in order, and stays as it is.
fn stays(schema: &KindSchema, document: Value) {
    if let Ok(once) = schema.check(document, FieldValidation::Ignore) {
        let again = schema.check(once.object.clone(), FieldValidation::Strict);
        assert_eq!(again.ok().map(|decoded| decoded.object), Some(once.object));
    }
}

/// An `Authorization` header: what nobody signed is not believed, and signing does not make claims
/// true.
pub fn tokens(text: &str) {
    static TOKENS: OnceLock<(SigningKey, ServiceAccountTokens)> = OnceLock::new();
    let (key, tokens) = TOKENS.get_or_init(|| {
        let key = || SigningKey::generate().expect("keys are made in memory");
        let (own, other) = (key(), key());
        let believed = vec![other.public().clone()];
        (other, ServiceAccountTokens::new("issuer".into(), vec!["api".into()], own, believed))
    });
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(AUTHORIZATION, value);
    }
    let found = token(&headers).ok().flatten();
    for text in [Some(text), found].into_iter().flatten() {
        assert!(verify(tokens, text).is_none(), "nobody signed it");
    }
    if let Ok(claims) = serde_json::from_str::<Value>(text)
        && let Ok(signed) = key.sign(&claims)
        && let Ok(signed) = std::str::from_utf8(signed.expose())
        && let Some(name) = verify(tokens, signed)
    {
        assert_eq!(name, "system:serviceaccount:ns:name");
    }
}

fn verify(tokens: &ServiceAccountTokens, token: &str) -> Option<String> {
    let audiences = ["api".to_owned()];
    let verified = tokens.verify(token, &audiences, &OneAccount, Timestamp::UNIX_EPOCH);
    verified.ok().map(|(user, _)| user.name.clone())
}

/// A cluster with the service account `ns/name` and nothing else.
struct OneAccount;

impl Objects for OneAccount {
    fn service_account(&self, namespace: &str, name: &str) -> Option<Existing> {
        (namespace == "ns" && name == "name")
            .then(|| Existing { uid: "uid".to_owned(), deleted: None })
    }

    fn pod(&self, _: &str, _: &str) -> Option<ExistingPod> {
        None
    }

    fn secret(&self, _: &str, _: &str) -> Option<Existing> {
        None
    }

    fn node(&self, _: &str) -> Option<Existing> {
        None
    }
}

/// A token file; what it refuses it refuses without showing it.
pub fn token_file(content: &[u8]) {
    match TokenFile::parse(&SecretBytes::copy_of(content)) {
        Ok(file) => assert!(file.find("").is_none(), "nobody has an empty token"),
        Err(error) => assert!(error.to_string().starts_with("line ")),
    }
}

/// An audit policy.
pub fn audit_policy(text: &str) {
    let _ = Policy::parse(text);
}
