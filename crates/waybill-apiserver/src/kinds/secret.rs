//! Secrets. No error of theirs repeats a value.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::Value;
use waybill_api::field::{ErrorList, FieldError};

use super::{
    Context, Kind, Shape,
    config_map::{MAX_BYTES, REDACTED, check_immutable, check_key, decoded_len},
    document::{Field, fill_text, object_mut, put},
};

use crate::{
    protobuf::tables,
    registry::Resource,
    schema::{self, KindSchema},
    selector::supported::{self, Source},
    table::{
        Table, cells,
        columns::{self, Column},
        read,
    },
};

static SECRETS_SCHEMAS: [KindSchema; 2] = schema::of::<k8s_openapi::api::core::v1::Secret>();

pub(crate) static SECRETS: Resource = Resource {
    plural: "secrets",
    singular: "secret",
    kind: "Secret",
    schemas: &SECRETS_SCHEMAS,
    protobuf: Some(&tables::core_v1::SECRET),
    rules: Some(&Secret),
    table: Table {
        columns: &[
            columns::NAME,
            Column::new("Type", "What the secret is for."),
            Column::new("Data", "Number of entries."),
            columns::AGE,
        ],
        cells: row,
        ..Table::PLAIN
    },
    fields: &[supported::NAME, supported::NAMESPACE, ("type", Source::Text(&["/type"]))],
    ..Resource::BASE
};

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    let entries = read::size(object, "/data");
    vec![
        cells::name(object),
        read::text(object, "/type").into(),
        entries.into(),
        cells::age(object, now),
    ]
}

pub(super) struct Secret;

impl Kind for Secret {
    fn shape(&self) -> Shape {
        Shape::NAMESPACED
    }

    fn default(&self, object: &mut Value) {
        fill_text(object, "type", "Opaque");
        encode_string_data(object);
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        let data = object.get("data");
        let mut bytes = 0_usize;
        for (key, value) in data.entries() {
            check_key(key, value, errors);
            bytes = bytes.saturating_add(decoded_len(value, errors));
        }
        if bytes > MAX_BYTES {
            errors.push(FieldError::too_long(data.path(), MAX_BYTES));
        }
        check_type(object, errors);
    }

    fn check_change(&self, new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
        let kind = new.get("type");
        if kind.text() != old.get("type").text() {
            errors.push(kind.invalid_text("field is immutable"));
        }
        check_immutable(new, old, &["data"], errors);
    }
}

/// Moves `stringData`, which is only ever written, into `data`; it wins over what stands there.
fn encode_string_data(object: &mut Value) {
    let Value::Object(fields) = object else { return };
    let Some(Value::Object(texts)) = fields.remove("stringData") else { return };
    if texts.is_empty() {
        return;
    }
    let Some(data) = object_mut(object, "data") else { return };
    for (key, text) in texts {
        put(data, &key, STANDARD.encode(text.as_str().unwrap_or_default()));
    }
}

/// What each type of secret needs.
fn check_type(secret: Field<'_, '_>, errors: &mut ErrorList) {
    match secret.get("type").text() {
        "kubernetes.io/service-account-token" => {
            let (metadata, name) = (secret.get("metadata"), "kubernetes.io/service-account.name");
            let annotations = metadata.get("annotations");
            if annotations.get(name).is_empty() {
                errors.push(FieldError::required(annotations.path().key(name), ""));
            }
        }
        "kubernetes.io/dockercfg" => check_json(secret, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => check_json(secret, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" => {
            let data = secret.get("data");
            if !data.get("username").is_set() && !data.get("password").is_set() {
                errors.extend(missing_key(secret, "username"));
                errors.extend(missing_key(secret, "password"));
            }
        }
        "kubernetes.io/ssh-auth" => {
            let empty = secret.get("data").get("ssh-privatekey").is_empty();
            errors.extend(empty.then(|| required_key(secret, "ssh-privatekey")));
        }
        "kubernetes.io/tls" => {
            errors.extend(missing_key(secret, "tls.crt"));
            errors.extend(missing_key(secret, "tls.key"));
        }
        _ => {}
    }
}

fn check_json(secret: Field<'_, '_>, key: &str, errors: &mut ErrorList) {
    let data = secret.get("data");
    let value = data.get(key);
    if !value.is_set() {
        errors.push(required_key(secret, key));
        return;
    }
    let content = STANDARD.decode(value.text()).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&content) {
        // The position is safe to show, serde's own text might not be.
        let detail = format!("not JSON at line {} column {}", error.line(), error.column());
        errors.push(FieldError::invalid(data.path().key(key), REDACTED, detail));
    }
}

fn missing_key(secret: Field<'_, '_>, key: &str) -> Option<FieldError> {
    (!secret.get("data").get(key).is_set()).then(|| required_key(secret, key))
}

fn required_key(secret: Field<'_, '_>, key: &str) -> FieldError {
    FieldError::required(secret.get("data").path().key(key), "")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{check_create, check_update, context, defaulted};

    fn secret(kind: &str, data: &Value) -> Value {
        json!({"metadata": {"name": "a", "namespace": "n"}, "type": kind, "data": data})
    }

    #[track_caller]
    fn check(kind: &str, data: &Value, expected: &[&str]) {
        check_create(&Secret, &secret(kind, data), expected);
    }

    #[test]
    fn string_data_becomes_data() {
        let object = json!({"data": {"a": "eA==", "b": "eA=="}, "stringData": {"b": "y", "c": ""}});
        assert_eq!(
            defaulted(&Secret, &object),
            json!({"type": "Opaque", "data": {"a": "eA==", "b": "eQ==", "c": ""}})
        );
        assert_eq!(defaulted(&Secret, &json!({"stringData": null})), json!({"type": "Opaque"}));
    }

    #[test]
    fn types_need_their_keys() {
        check("", &json!({}), &[]);
        check("example.com/any", &json!({}), &[]);
        check("kubernetes.io/tls", &json!({"tls.crt": "", "tls.key": ""}), &[]);
        check(
            "kubernetes.io/tls",
            &json!(null),
            &["data[tls.crt]: Required value", "data[tls.key]: Required value"],
        );
        check("kubernetes.io/basic-auth", &json!({"password": "eA=="}), &[]);
        check(
            "kubernetes.io/basic-auth",
            &json!({}),
            &["data[username]: Required value", "data[password]: Required value"],
        );
        check("kubernetes.io/ssh-auth", &json!({}), &["data[ssh-privatekey]: Required value"]);
        check("kubernetes.io/dockerconfigjson", &json!({".dockerconfigjson": "e30="}), &[]);
        check(
            "kubernetes.io/dockerconfigjson",
            &json!({}),
            &["data[.dockerconfigjson]: Required value"],
        );
        check(
            "kubernetes.io/service-account-token",
            &json!({}),
            &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        );
    }

    #[test]
    fn errors_never_show_a_value() {
        let kind = "kubernetes.io/dockerconfigjson";
        let object = secret(
            kind,
            &json!({".dockerconfigjson": STANDARD.encode("hunter2"),
            "bad": "hunter2!"}),
        );
        for error in Secret.validate_create(&object, &context()) {
            let text = error.to_string();
            assert!(!text.contains("hunter2") && text.contains(REDACTED), "{text}");
        }
    }

    #[test]
    fn the_type_never_changes_and_immutable_is_for_good() {
        let old = secret("Opaque", &json!({}));
        check_update(
            &Secret,
            &secret("a/b", &json!({})),
            &old,
            &["type: Invalid value: \"a/b\": field is immutable"],
        );
        let mut fixed = old.clone();
        fixed["immutable"] = true.into();
        let mut changed = fixed.clone();
        changed["stringData"] = json!({"a": "b"});
        let detail = "data: Forbidden: field is immutable when `immutable` is set";
        check_update(&Secret, &changed, &fixed, &[detail]);
    }
}
