//! What is in an answer of the KV engine.

use serde::Deserialize;
use waybill_core::secret::SecretBytes;

use super::class::{KvVersion, VaultQuery};
use crate::{
    driver::{Answer, FetchError},
    drivers::fields::{FIELD, Fields, named, names},
};

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default)]
    lease_id: String,
    #[serde(borrow)]
    data: Option<Fields<'a>>,
}

/// What KV version 2 puts around a secret.
#[derive(Deserialize)]
struct Metadata {
    version: u64,
}

/// The value that `query` asks for.
pub(super) fn select(body: &SecretBytes, query: &VaultQuery, kv: Option<KvVersion>) -> Answer {
    let key = &query.path.key;
    let unreadable =
        || FetchError::backend(format!("Vault's answer for {key} is not that of a KV engine"));
    let envelope: Envelope<'_> = serde_json::from_slice(body.expose()).map_err(|_| unreadable())?;
    if !envelope.lease_id.is_empty() {
        // Each read makes another credential, and reads are repeated (CSI-08).
        return Err(FetchError::invalid(format!(
            "{key} is not in a KV engine: reading it issues a credential"
        )));
    }
    let data = envelope.data.ok_or_else(unreadable)?;
    let versioned = versioned(&data);
    // Nothing but a secret of version 2 has its form.
    if versioned.is_none() && query.path.may_be_own() {
        return Err(FetchError::denied(format!(
            "key {key:?} is not in a secrets engine, or in one of KV version 1, where a path with \
             auth, cubbyhole, identity or sys is not read"
        )));
    }
    let fields = match (versioned, kv) {
        (Some(inner), None | Some(KvVersion::Two)) => inner?,
        (None, Some(KvVersion::Two)) => return Err(unreadable()),
        (_, Some(KvVersion::One)) | (None, None) if query.path.version.is_some() => {
            return Err(FetchError::invalid(format!(
                "{key} is of KV version 1, which keeps no versions"
            )));
        }
        (_, Some(KvVersion::One)) | (None, None) => data,
    };
    match (&query.field, fields.keys().collect::<Vec<_>>().as_slice()) {
        (Some(field), _) => named(&fields, field, key),
        (None, [only]) => named(&fields, only, key),
        (None, _) => Err(FetchError::invalid(format!(
            "{key} has the fields {}; say which with the parameter {FIELD}",
            names(&fields)
        ))),
    }
}

/// The secret inside an answer of version 2; `None` if it looks like one of version 1.
fn versioned<'a>(data: &Fields<'a>) -> Option<Result<Fields<'a>, FetchError>> {
    let (inner, metadata) = (data.get("data")?, data.get("metadata")?);
    let Metadata { version } = serde_json::from_str(metadata.get()).ok()?;
    let deleted = || FetchError::not_found(format!("version {version} of the secret is deleted"));
    let inner: Option<Fields<'a>> = serde_json::from_str(inner.get()).ok()?;
    Some(inner.ok_or_else(deleted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver::FailureKind, drivers::vault::class::SecretPath};

    const V1: &str =
        r#"{"lease_id":"","data":{"user":"u","password":"a\"b\n","port":5432,"none":null}}"#;
    const V2: &str = r#"{"data":{"data":{"password":"s"},"metadata":{"version":2}}}"#;

    fn query(field: Option<&str>, version: Option<u64>) -> VaultQuery {
        let path = SecretPath { key: "secret/data/db".into(), version };
        VaultQuery { path, field: field.map(Into::into) }
    }

    #[track_caller]
    fn check(body: &str, query: &VaultQuery, kv: Option<KvVersion>, expected: Result<&str, &str>) {
        let body = SecretBytes::copy_of(body.as_bytes());
        let selected = select(&body, query, kv);
        let selected = selected.as_ref().map(|value| str::from_utf8(value.expose()).unwrap());
        assert_eq!(selected.map_err(|error| error.message.as_str()), expected);
    }

    #[test]
    fn a_string_is_unquoted_and_anything_else_is_json() {
        check(V1, &query(Some("password"), None), None, Ok("a\"b\n"));
        check(V1, &query(Some("port"), None), None, Ok("5432"));
        let nested = r#"{"data":{"tree":{"a":[1, 2]}}}"#;
        check(nested, &query(None, None), None, Ok(r#"{"a":[1, 2]}"#));
        let null = Err("the field \"none\" of secret/data/db is null");
        check(V1, &query(Some("none"), None), None, null);
    }

    /// CSI-49
    #[test]
    fn the_only_field_needs_no_name_and_errors_name_fields_without_values_csi_49() {
        check(V2, &query(None, None), None, Ok("s"));
        check(V2, &query(None, Some(2)), None, Ok("s"));
        let which = "secret/data/db has the fields none, password, port, user; say which with the \
                     parameter field";
        check(V1, &query(None, None), None, Err(which));
        let absent = "secret/data/db has no field \"pass\"; it has password";
        check(V2, &query(Some("pass"), None), None, Err(absent));
    }

    #[test]
    fn a_class_may_say_which_version_the_engine_has() {
        let whole = r#"{"password":"s"}"#;
        check(V2, &query(Some("data"), None), Some(KvVersion::One), Ok(whole));
        let not_two = "Vault's answer for secret/data/db is not that of a KV engine";
        check(V1, &query(Some("user"), None), Some(KvVersion::Two), Err(not_two));
        let unversioned = "secret/data/db is of KV version 1, which keeps no versions";
        check(V1, &query(Some("user"), Some(1)), None, Err(unversioned));
    }

    /// CSI-08
    #[test]
    fn a_path_that_issues_credentials_is_not_read_csi_08() {
        let body = r#"{"lease_id":"database/creds/r/1","data":{"password":"s"}}"#;
        let selected = select(&SecretBytes::copy_of(body.as_bytes()), &query(None, None), None);
        assert_eq!(selected.err().unwrap().kind, FailureKind::Invalid);
    }

    /// CSI-49
    #[test]
    fn what_is_no_secret_is_an_error_without_its_text_csi_49() {
        for body in ["", "s3cret", "[]", r#"{"data":"s3cret"}"#, r#"{"data":null}"#] {
            let body = SecretBytes::copy_of(body.as_bytes());
            let error = select(&body, &query(None, None), None).err().unwrap();
            assert!(!error.message.contains("s3cret"), "{error}");
        }
    }
}
