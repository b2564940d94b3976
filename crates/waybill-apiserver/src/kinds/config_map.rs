//! ConfigMaps.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::Value;
use waybill_api::{
    field::{ErrorList, FieldError, FieldPath},
    names::config_map_key_faults,
};

use super::{Context, Kind, Shape, document::Field};

use crate::{
    protobuf::tables,
    registry::Resource,
    schema::{self, KindSchema},
    table::{
        Table, cells,
        columns::{self, Column},
        read,
    },
};

static CONFIG_MAPS_SCHEMAS: [KindSchema; 2] = schema::of::<k8s_openapi::api::core::v1::ConfigMap>();

pub(crate) static CONFIG_MAPS: Resource = Resource {
    plural: "configmaps",
    singular: "configmap",
    kind: "ConfigMap",
    short_names: &["cm"],
    schemas: &CONFIG_MAPS_SCHEMAS,
    protobuf: Some(&tables::core_v1::CONFIG_MAP),
    rules: Some(&ConfigMap),
    table: Table {
        columns: &[columns::NAME, Column::new("Data", "Number of entries."), columns::AGE],
        cells: row,
        ..Table::PLAIN
    },
    ..Resource::BASE
};

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    let entries = read::size(object, "/data") + read::size(object, "/binaryData");
    vec![cells::name(object), entries.into(), cells::age(object, now)]
}

pub(super) struct ConfigMap;

impl Kind for ConfigMap {
    fn shape(&self) -> Shape {
        Shape::NAMESPACED
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        let (data, binary) = (object.get("data"), object.get("binaryData"));
        let mut bytes = 0_usize;
        for (key, value) in data.entries() {
            check_key(key, value, errors);
            if binary.get(key).is_set() {
                errors.push(value.invalid_as(key, "duplicate of key present in binaryData"));
            }
            bytes = bytes.saturating_add(value.text().len());
        }
        for (key, value) in binary.entries() {
            check_key(key, value, errors);
            if data.get(key).is_set() {
                errors.push(value.invalid_as(key, "duplicate of key present in data"));
            }
            bytes = bytes.saturating_add(decoded_len(value, errors));
        }
        if bytes > MAX_BYTES {
            // The place is the whole object, which upstream prints so.
            errors.push(FieldError::too_long(FieldPath::new("[]"), MAX_BYTES));
        }
    }

    fn check_change(&self, new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
        check_immutable(new, old, &["data", "binaryData"], errors);
    }
}

/// What the data of a ConfigMap or a Secret may have in all.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// The key of the entry `value`.
pub(super) fn check_key(key: &str, value: Field<'_, '_>, errors: &mut ErrorList) {
    for fault in config_map_key_faults(key) {
        errors.push(value.invalid_as(key, fault));
    }
}

/// How many bytes the base64 text `value` stands for; it is at fault if it is none.
pub(super) fn decoded_len(value: Field<'_, '_>, errors: &mut ErrorList) -> usize {
    match STANDARD.decode(value.text()) {
        Ok(bytes) => bytes.len(),
        Err(_) => {
            errors.push(value.invalid_as(REDACTED, "must be base64 with padding"));
            0
        }
    }
}

/// Stands in errors where a value would; the text is upstream's.
pub(super) const REDACTED: &str = "<secret contents redacted>";

/// What was made `immutable` stays so, and so do its `fields`.
pub(super) fn check_immutable(
    new: Field<'_, '_>,
    old: Field<'_, '_>,
    fields: &[&str],
    errors: &mut ErrorList,
) {
    if !old.get("immutable").is_true() {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if !new.get("immutable").is_true() {
        errors.push(new.get("immutable").forbidden(detail));
    }
    for field in fields {
        if entries(new.get(field).value()) != entries(old.get(field).value()) {
            errors.push(new.get(field).forbidden(detail));
        }
    }
}

/// An empty value differs from none here, while an empty map does not.
fn entries(map: &Value) -> BTreeMap<&String, &Value> {
    map.as_object().into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{check_create, check_update};

    fn map(fields: &Value) -> Value {
        let mut object = json!({"metadata": {"name": "a", "namespace": "n"}});
        for (key, value) in fields.as_object().unwrap() {
            object[key] = value.clone();
        }
        object
    }

    #[track_caller]
    fn check(fields: &Value, expected: &[&str]) {
        check_create(&ConfigMap, &map(fields), expected);
    }

    #[test]
    fn keys_are_file_names_and_stand_in_one_map_only() {
        check(&json!({}), &[]);
        check(&json!({"data": {"a.b": "x"}, "binaryData": {"c": "AAE="}}), &[]);
        check(
            &json!({"data": {"a/b": "x"}}),
            &["data[a/b]: Invalid value: \"a/b\": a valid config"],
        );
        check(
            &json!({"data": {"..": "x"}}),
            &["data[..]: Invalid value: \"..\": must not be '..'"],
        );
        check(
            &json!({"data": {"a": "x"}, "binaryData": {"a": ""}}),
            &[
                "data[a]: Invalid value: \"a\": duplicate of key present in binaryData",
                "binaryData[a]: Invalid value: \"a\": duplicate of key present in data",
            ],
        );
        check(&json!({"binaryData": {"a": "?"}}), &["binaryData[a]: Invalid value: \"<secret "]);
    }

    #[test]
    fn a_mebibyte_is_the_limit() {
        check(&json!({"data": {"a": "x".repeat(1 << 20)}}), &[]);
        check(
            &json!({"data": {"a": "x".repeat(1 << 20)}, "binaryData": {"b": "AA=="}}),
            &["[]: Too long: may not be more than 1048576 bytes"],
        );
    }

    #[test]
    fn immutable_is_for_good() {
        let fixed = map(&json!({"immutable": true, "data": {"a": "1"}}));
        let change = |new: &Value, expected: &[&str]| {
            check_update(&ConfigMap, &map(new), &fixed, expected);
        };
        let detail = "Forbidden: field is immutable when `immutable` is set";
        change(&json!({"immutable": true, "data": {"a": "1"}, "binaryData": {}}), &[]);
        change(&json!({"data": {"a": "1"}}), &[&format!("immutable: {detail}")]);
        change(
            &json!({"immutable": true, "data": {"a": "1", "b": ""}}),
            &[&format!("data: {detail}")],
        );
        check_update(&ConfigMap, &fixed, &map(&json!({"data": {}})), &[]);
    }
}
