//! Helpers of the tests in this folder.

use serde_json::{Value, json};

use super::validate;
use crate::{
    field::FieldPath,
    gates::FeatureGates,
    pod::{EnvRules, PodEnvSpec},
};

/// The errors of a pod whose spec is `spec`, as texts.
pub(super) fn errors_under(rules: &EnvRules, spec: &Value) -> Vec<String> {
    let view = PodEnvSpec::from_value(spec).unwrap();
    let errors = validate(&view, &FieldPath::new("spec"), rules);
    errors.iter().map(ToString::to_string).collect()
}

/// Checks one `valueFrom` with every gate on; paths in `expected` start below `valueFrom`.
#[track_caller]
pub(super) fn check_source(source: &Value, expected: &[&str]) {
    check_source_under(&EnvRules::for_create(&FeatureGates::all_on()), source, expected);
}

/// As [`check_source`], under `rules`. The pod has one `emptyDir` volume, named `v`.
#[track_caller]
pub(super) fn check_source_under(rules: &EnvRules, source: &Value, expected: &[&str]) {
    let errors = errors_under(
        rules,
        &json!({
            "containers": [{"env": [{"name": "A", "valueFrom": source}]}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        }),
    );
    let at = "spec.containers[0].env[0].valueFrom.";
    let relative: Vec<_> = errors.iter().map(|error| error.trim_start_matches(at)).collect();
    assert_eq!(relative, expected, "{source}");
}
