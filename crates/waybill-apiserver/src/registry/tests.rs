//! What every descriptor must have, so that nobody registers half a resource.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::{patch::schema::Rule, schema};

/// Of Kubernetes' own kinds; ours have no numbers in protobuf.
fn has_numbers(resource: &Resource) -> bool {
    resource.kind != "ProviderClass"
}

#[test]
fn every_resource_has_all_its_parts() {
    for resource in RESOURCES {
        let kinds: Vec<_> = resource.schemas.iter().map(KindSchema::kind).collect();
        let list = format!("{}List", resource.kind);
        assert_eq!(resource.rules.is_some(), resource.is_stored(), "{resource:?}: rules");
        if resource.is_stored() {
            assert_eq!(kinds, [resource.kind, &list], "{resource:?}: schemas");
        } else {
            assert_eq!(kinds, [resource.kind], "{resource:?}: schemas");
        }
        for known in resource.schemas {
            assert_eq!(known.api_version(), resource.api_version(), "{resource:?}: schemas");
        }
        assert_eq!(resource.protobuf.is_some(), has_numbers(resource), "{resource:?}: protobuf");
        assert!(!resource.singular.is_empty() && !resource.verbs.is_empty(), "{resource:?}: names");
        if !resource.fields.is_empty() {
            let offers = |name| resource.fields.iter().any(|(field, _)| *field == name);
            assert!(offers("metadata.name"), "{resource:?}: fields");
            assert_eq!(
                offers("metadata.namespace"),
                resource.is_namespaced(),
                "{resource:?}: fields"
            );
        }
    }
}

/// The rules of strategic merge patch are those that the schema tells clients, by which they compute patches.
#[test]
fn patches_merge_what_the_schema_says() {
    let definitions = schema::all_definitions();
    for resource in
        RESOURCES.iter().filter(|resource| resource.is_stored() && has_numbers(resource))
    {
        let name = resource.schema().unwrap().definition();
        let ours = told(resource.patch);
        assert_eq!(ours, expected(&definitions, &definitions[&*name]), "{resource:?}: patch");
    }
}

/// The rules as a document: an object of rules, with the key of a list or `*` for a set before what is in it.
fn told(fields: Fields) -> Value {
    let rule = |rule: Rule| match rule {
        Rule::Object(fields) => told(fields),
        Rule::Keyed(key, fields) => json!([key, told(fields)]),
        Rule::Set => json!(["*"]),
    };
    fields.iter().map(|&(name, of)| (name, rule(of))).collect()
}

fn expected(definitions: &serde_json::Map<String, Value>, schema: &Value) -> Value {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => &definitions[reference.trim_start_matches("#/definitions/")],
        None => schema,
    };
    let mut rules = BTreeMap::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let strategy = field["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
        let rule = match (field["type"] == "array", strategy.starts_with("merge")) {
            (true, false) => continue,
            (true, true) => match &field["x-kubernetes-patch-merge-key"] {
                Value::Null => json!(["*"]),
                key => json!([key, expected(definitions, &field["items"])]),
            },
            (false, _) => match expected(definitions, field) {
                Value::Object(rules) if rules.is_empty() => continue,
                rules => rules,
            },
        };
        rules.insert(name.clone(), rule);
    }
    json!(rules)
}
