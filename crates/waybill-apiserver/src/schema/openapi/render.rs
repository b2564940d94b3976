//! Definitions in the dialects of the two OpenAPI versions.

use serde_json::{Map, Value, json};

use super::super::definitions::{INT_OR_STRING, QUANTITY, REF_PREFIX};

/// What stands before the name in a `$ref` of OpenAPI v3.
pub(super) const V3_REF_PREFIX: &str = "#/components/schemas/";

/// Rewrites the definition `name` as OpenAPI v3 has it.
pub(super) fn to_v3(name: &str, definition: &mut Value) {
    either(definition, |fields| match name {
        INT_OR_STRING => {
            fields.insert("format".to_owned(), "int-or-string".into());
            fields.insert("oneOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
        }
        QUANTITY => {
            fields.insert("oneOf".to_owned(), json!([{"type": "string"}, {"type": "number"}]));
        }
        _ => {}
    });
    move_references(definition);
}

/// Rewrites the definition `name` as OpenAPI v2 has it.
pub(super) fn to_v2(name: &str, definition: &mut Value) {
    either(definition, |fields| {
        fields.insert("type".to_owned(), "string".into());
        if name == INT_OR_STRING {
            fields.insert("format".to_owned(), "int-or-string".into());
        }
    });
}

/// Lets `rewrite` say in the words of a dialect that `definition` is a number or a text, if it is.
fn either(definition: &mut Value, rewrite: impl FnOnce(&mut Map<String, Value>)) {
    if let Value::Object(fields) = definition
        && fields.remove("x-kubernetes-int-or-string").is_some()
    {
        rewrite(fields);
    }
}

/// Points every `$ref` to where OpenAPI v3 keeps schemas.
fn move_references(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    for_each_subschema(fields, move_references);
    let reference = fields.get("$ref").and_then(Value::as_str);
    let Some(name) = reference.and_then(|reference| reference.strip_prefix(REF_PREFIX)) else {
        return;
    };
    let reference = json!({"$ref": format!("{V3_REF_PREFIX}{name}")});
    fields.remove("$ref");
    // Nothing may stand beside a `$ref`, so what does goes around it.
    if fields.is_empty() {
        *schema = reference;
    } else {
        fields.insert("allOf".to_owned(), json!([reference]));
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
