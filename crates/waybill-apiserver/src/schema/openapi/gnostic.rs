//! OpenAPI v2 as protobuf, the only form in which `kubectl` takes it.
//!
//! `kubectl` asks for it before it creates kinds that have no PATCH, such as reviews, and refuses to
//! go on without an answer. The messages are those of gnostic's `OpenAPIv2.proto`, as far as
//! definitions need them; paths are left out, since everything that reads paths reads v3.

use prost::Message;
use serde_json::{Map, Value};

/// Encodes the definitions of a document of OpenAPI v2.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let text = |pointer| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let definitions = document.get("definitions").and_then(Value::as_object);
    let message = Document {
        swagger: text("/swagger").to_owned(),
        info: Some(Info {
            title: text("/info/title").to_owned(),
            version: text("/info/version").to_owned(),
        }),
        paths: Some(Paths {}),
        definitions: definitions.map(NamedSchemas::from),
    };
    message.encode_to_vec()
}

#[derive(PartialEq, Message)]
struct Document {
    #[prost(string, tag = "1")]
    swagger: String,
    #[prost(message, optional, tag = "2")]
    info: Option<Info>,
    #[prost(message, optional, tag = "8")]
    paths: Option<Paths>,
    #[prost(message, optional, tag = "9")]
    definitions: Option<NamedSchemas>,
}

#[derive(PartialEq, Message)]
struct Info {
    #[prost(string, tag = "1")]
    title: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(PartialEq, Message)]
struct Paths {}

/// Both `Definitions` and `Properties`, which look alike.
#[derive(PartialEq, Message)]
struct NamedSchemas {
    #[prost(message, repeated, tag = "1")]
    additional_properties: Vec<NamedSchema>,
}

impl From<&Map<String, Value>> for NamedSchemas {
    fn from(schemas: &Map<String, Value>) -> Self {
        let named = |(name, value): (&String, &Value)| NamedSchema {
            name: name.clone(),
            value: Some(Schema::from(value)),
        };
        Self { additional_properties: schemas.iter().map(named).collect() }
    }
}

#[derive(PartialEq, Message)]
struct NamedSchema {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Schema>,
}

#[derive(PartialEq, Message)]
struct Schema {
    #[prost(string, tag = "1")]
    reference: String,
    #[prost(string, tag = "2")]
    format: String,
    #[prost(string, tag = "4")]
    description: String,
    #[prost(string, repeated, tag = "19")]
    required: Vec<String>,
    #[prost(message, optional, boxed, tag = "21")]
    additional_properties: Option<Box<AdditionalPropertiesItem>>,
    #[prost(message, optional, tag = "22")]
    r#type: Option<TypeItem>,
    #[prost(message, optional, tag = "23")]
    items: Option<ItemsItem>,
    #[prost(message, optional, tag = "25")]
    properties: Option<NamedSchemas>,
    #[prost(message, repeated, tag = "31")]
    vendor_extension: Vec<NamedAny>,
}

/// The nesting is that of our own definitions, so the recursion is bounded.
impl From<&Value> for Schema {
    fn from(schema: &Value) -> Self {
        let text = |key| schema.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let subschema = |key| schema.get(key).map(Self::from);
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let extensions = schema.as_object().into_iter().flatten();
        Self {
            reference: text("$ref"),
            format: text("format"),
            description: text("description"),
            required: required.filter_map(Value::as_str).map(str::to_owned).collect(),
            additional_properties: subschema("additionalProperties")
                .map(|schema| Box::new(AdditionalPropertiesItem { schema: Some(schema) })),
            r#type: Some(text("type"))
                .filter(|name| !name.is_empty())
                .map(|name| TypeItem { value: vec![name] }),
            items: subschema("items").map(|schema| ItemsItem { schema: vec![schema] }),
            properties: schema.get("properties").and_then(Value::as_object).map(NamedSchemas::from),
            vendor_extension: extensions
                .filter(|(name, _)| name.starts_with("x-"))
                .map(NamedAny::from)
                .collect(),
        }
    }
}

#[derive(PartialEq, Message)]
struct AdditionalPropertiesItem {
    #[prost(message, optional, tag = "1")]
    schema: Option<Schema>,
}

#[derive(PartialEq, Message)]
struct TypeItem {
    #[prost(string, repeated, tag = "1")]
    value: Vec<String>,
}

#[derive(PartialEq, Message)]
struct ItemsItem {
    #[prost(message, repeated, tag = "1")]
    schema: Vec<Schema>,
}

#[derive(PartialEq, Message)]
struct NamedAny {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Any>,
}

impl From<(&String, &Value)> for NamedAny {
    fn from((name, value): (&String, &Value)) -> Self {
        // JSON is YAML.
        Self { name: name.clone(), value: Some(Any { yaml: value.to_string() }) }
    }
}

#[derive(PartialEq, Message)]
struct Any {
    #[prost(string, tag = "2")]
    yaml: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn definitions_survive_with_their_extensions() {
        let pod = json!({
            "description": "d",
            "type": "object",
            "required": ["spec"],
            "properties": {
                "spec": {"$ref": "#/definitions/Spec"},
                "list": {"type": "array", "items": {"type": "integer", "format": "int32"}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
            },
            "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}],
        });
        let document = json!({
            "swagger": "2.0",
            "info": {"title": "t", "version": "v"},
            "definitions": {"Pod": pod},
        });
        let read = Document::decode(encode(&document).as_slice()).unwrap();
        assert_eq!(read.swagger, "2.0");
        let named = &read.definitions.unwrap().additional_properties[0];
        assert_eq!(named.name, "Pod");
        let schema = named.value.as_ref().unwrap();
        assert_eq!(*schema, Schema::from(&pod));
        assert_eq!(schema.required, ["spec"]);
        let extension = schema.vendor_extension[0].value.as_ref().unwrap();
        assert_eq!(extension.yaml, r#"[{"group":"","kind":"Pod","version":"v1"}]"#);
        let properties = &schema.properties.as_ref().unwrap().additional_properties;
        let names: Vec<_> = properties.iter().map(|property| &*property.name).collect();
        assert_eq!(names, ["list", "map", "spec"]);
        let spec = properties[2].value.as_ref().unwrap();
        assert_eq!(spec.reference, "#/definitions/Spec");
    }
}
