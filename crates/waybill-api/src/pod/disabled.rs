//! Fields of features that are off, removed before anything is stored.
//!
//! `csiSecretRef` is not among them: its gate refuses instead of dropping (CSI-10).

use serde_json::{Map, Value};

use super::ContainerKind;
use crate::gates::{FeatureGate, FeatureGates};

/// Removes `fileKeyRef` from every variable of the pod spec `new` while its gate is off, unless
/// `old`, the stored spec, already uses it somewhere (FILE-09).
///
/// What is left is `valueFrom: {}`, which validation then refuses: a variable never loses its
/// source in silence.
pub fn drop_disabled_fields(new: &mut Value, old: Option<&Value>, gates: &FeatureGates) {
    if gates.enabled(FeatureGate::EnvFiles) || old.is_some_and(uses_file_key_ref) {
        return;
    }
    for kind in ContainerKind::ALL {
        let containers = items_mut(new.get_mut(kind.field()));
        let variables = containers.flat_map(|container| items_mut(container.get_mut("env")));
        for source in variables.filter_map(source_mut) {
            source.remove(FIELD);
        }
    }
}

const FIELD: &str = "fileKeyRef";

fn uses_file_key_ref(spec: &Value) -> bool {
    ContainerKind::ALL
        .iter()
        .flat_map(|kind| items(spec.get(kind.field())))
        .flat_map(|container| items(container.get("env")))
        .filter_map(|variable| variable.get("valueFrom")?.get(FIELD))
        .any(|reference| !reference.is_null())
}

fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

fn items_mut(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

fn source_mut(variable: &mut Value) -> Option<&mut Map<String, Value>> {
    variable.get_mut("valueFrom")?.as_object_mut()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gates::KubeVersion;

    fn gates(env_files: bool) -> FeatureGates {
        FeatureGates::new(KubeVersion::NEWEST).with(FeatureGate::EnvFiles, env_files).unwrap()
    }

    fn using(kind: ContainerKind) -> Value {
        json!({kind.field(): [{"name": "c", "image": "i", "env": [
            {"name": "PLAIN", "value": "x"},
            {"name": "FILE", "valueFrom": {"fileKeyRef": {
                "volumeName": "v", "path": "p", "key": "k"}}},
        ]}]})
    }

    fn dropped(kind: ContainerKind) -> Value {
        json!({kind.field(): [{"name": "c", "image": "i", "env": [
            {"name": "PLAIN", "value": "x"},
            {"name": "FILE", "valueFrom": {}},
        ]}]})
    }

    #[track_caller]
    fn check(new: &Value, old: Option<&Value>, env_files: bool, expected: &Value) {
        let mut result = new.clone();
        drop_disabled_fields(&mut result, old, &gates(env_files));
        assert_eq!(&result, expected);
    }

    /// FILE-09, FILE-43
    #[test]
    fn the_field_is_dropped_only_if_the_gate_is_off_and_nothing_stored_uses_it_file_09() {
        let unused = json!({"containers": [{"name": "c", "env": [{"name": "A"}]}]});
        let empty = json!({"containers": [{"env": [{"valueFrom": {"fileKeyRef": null}}]}]});
        for kind in ContainerKind::ALL {
            let (new, gone) = (using(kind), dropped(kind));
            check(&new, None, true, &new);
            check(&new, Some(&unused), true, &new);
            check(&new, None, false, &gone);
            check(&new, Some(&unused), false, &gone);
            check(&new, Some(&empty), false, &gone);
            check(&new, Some(&gone), false, &gone);
            // In use anywhere means kept everywhere.
            for stored in ContainerKind::ALL {
                check(&new, Some(&using(stored)), false, &new);
            }
        }
    }

    #[test]
    fn other_sources_stay() {
        let spec = json!({"containers": [{"env": [
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "C", "valueFrom": {"csiSecretRef": {"driver": "d"}}},
        ]}]});
        check(&spec, None, false, &spec);
    }

    #[test]
    fn documents_of_the_wrong_shape_pass_untouched() {
        for odd in [
            json!(null),
            json!([]),
            json!({"containers": {"env": []}}),
            json!({"containers": [null, 5, {"env": "x"}, {"env": [5, {"valueFrom": []}]}]}),
        ] {
            check(&odd, Some(&odd), false, &odd);
        }
    }
}
