//! Definitions in the dialects of the two OpenAPI versions.

use serde_json::{Map, Value, json};

use super::super::definitions::REF_PREFIX;

/// What stands before the name in a `$ref` of OpenAPI v3.
pub(super) const V3_REF_PREFIX: &str = "#/components/schemas/";

/// Rewrites `schema`, and all below it, as OpenAPI v3 has it.
pub(super) fn to_v3(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    for_each_subschema(fields, to_v3);
    if fields.remove("x-kubernetes-int-or-string").is_some() {
        // Both IntOrString and Quantity; upstream gives the format to the first alone, and readers
        // need it for none.
        fields.insert("oneOf".to_owned(), json!([{"type": "string"}, {"type": "number"}]));
    }
    let name = fields.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix(REF_PREFIX));
    if let Some(name) = name {
        let reference = json!({"$ref": format!("{V3_REF_PREFIX}{name}")});
        fields.remove("$ref");
        // Nothing may stand beside a `$ref`, so what does goes around it.
        if fields.is_empty() {
            *schema = reference;
        } else {
            fields.insert("allOf".to_owned(), json!([reference]));
        }
    }
}

/// Rewrites `schema`, and all below it, as OpenAPI v2 has it.
pub(super) fn to_v2(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    for_each_subschema(fields, to_v2);
    if fields.remove("x-kubernetes-int-or-string").is_some() {
        fields.insert("type".to_owned(), "string".into());
        fields.insert("format".to_owned(), "int-or-string".into());
    }
}

/// The nesting is that of our own definitions, so the recursion is bounded.
fn for_each_subschema(fields: &mut Map<String, Value>, visit: fn(&mut Value)) {
    for key in ["items", "additionalProperties"] {
        if let Some(subschema) = fields.get_mut(key) {
            visit(subschema);
        }
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(visit);
    }
}
