//! Variables of a pod on a stock cluster, as its spec has them: the wrapper of the node puts values in the place of references.

use serde_json::{Value, json};
use waybill_api::stock::{Reference, literal};

use super::{ImageVariables, Provenance};

/// Whether the wrapper is below the containers of a pod.
pub(super) fn is_guarded(pod: &Value) -> bool {
    pod.pointer("/spec/runtimeClassName").and_then(Value::as_str) == Some("waybill")
}

/// What the spec of a pod says about the variables of a container. Nothing is known of the image's.
pub(super) fn of_spec(pod: &Value, container: &str) -> Provenance {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let all = lists.into_iter().flat_map(|list| items(&pod["spec"], list));
    let found = all.into_iter().find(|found| text(found, "name") == container);
    let env = found.map(|found| items(found, "env")).unwrap_or_default();
    Provenance {
        image_variables: ImageVariables::Unknown,
        variables: env.iter().map(variable).collect(),
        stale: Vec::new(),
        stale_unknown: false,
    }
}

fn variable(variable: &Value) -> Value {
    let (name, value) = (text(variable, "name"), text(variable, "value"));
    let (from, sensitive) = match Reference::parse(value) {
        Ok(Some(reference)) => {
            (format!("reference, class {}, key {}", reference.class(), reference.key()), true)
        }
        _ if literal(value).is_some() => ("value, a literal that was escaped".to_owned(), false),
        _ => match variable.get("valueFrom").and_then(Value::as_object) {
            Some(source) => source.iter().next().map_or(("valueFrom".to_owned(), false), origin),
            None => ("value".to_owned(), false),
        },
    };
    json!({"name": name, "from": from, "sensitive": sensitive})
}

/// What a source of upstream's names.
fn origin((kind, source): (&String, &Value)) -> (String, bool) {
    let (name, key) = (text(source, "name"), text(source, "key"));
    match kind.as_str() {
        "configMapKeyRef" => (format!("ConfigMap {name}, key {key}"), false),
        "secretKeyRef" => (format!("Secret {name}, key {key}"), true),
        "fieldRef" => (format!("field {}", text(source, "fieldPath")), false),
        other => (other.to_owned(), false),
    }
}

fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_shown_by_class_and_key() {
        let env = json!([{"name": "A", "value": "waybill{vault/db/password}"}, {"name": "B", "value": "x"},
            {"name": "C", "value": "waybill{{x}"},
            {"name": "D", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        let pod = json!({"spec": {"runtimeClassName": "waybill", "containers": [{"name": "c", "env": env}]}});
        assert!(is_guarded(&pod));
        let found = of_spec(&pod, "c");
        let from: Vec<_> = found.variables.iter().map(|it| it["from"].as_str().unwrap()).collect();
        assert_eq!(
            from,
            [
                "reference, class vault, key db/password",
                "value",
                "value, a literal that was escaped",
                "Secret s, key k"
            ]
        );
        assert_eq!(found.variables[0]["sensitive"], true);
        assert!(of_spec(&pod, "other").variables.is_empty());
    }
}
