//! Properties that hold for every document.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{validate, warnings};
use crate::{
    field::FieldPath,
    gates::{FeatureGates, KubeVersion},
    pod::{ContainerKind, EnvOptions, EnvRules, PodEnvSpec, drop_disabled_fields},
};

/// The fields that the views read, so that random documents reach deep into them.
const FIELDS: &[&str] = &[
    "apiVersion",
    "configMapKeyRef",
    "configMapRef",
    "containers",
    "csiSecretRef",
    "divisor",
    "driver",
    "emptyDir",
    "env",
    "envFrom",
    "ephemeralContainers",
    "fieldPath",
    "fieldRef",
    "fileKeyRef",
    "initContainers",
    "key",
    "name",
    "optional",
    "parameters",
    "path",
    "prefix",
    "providerClassName",
    "resource",
    "resourceFieldRef",
    "secretKeyRef",
    "secretRef",
    "value",
    "valueFrom",
    "volumeMounts",
    "volumeName",
    "volumes",
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a-z:=.]{0,6}",
        proptest::sample::select(vec![
            "",
            "v",
            "..",
            "../x",
            "/x",
            "a:b",
            "1Mi",
            "limits.cpu",
            "metadata.name",
            "metadata.labels['é']",
            "']",
            "['",
            "v1",
        ])
        .prop_map(str::to_owned),
    ]
}

/// Any JSON whose field names are mostly those of a pod spec.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(8, 128, 8, |inner| {
        let field = proptest::sample::select(FIELDS).prop_map(str::to_owned);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((field, inner), 0..8)
                .prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

/// A document of the right shape with arbitrary texts, which always has a view.
fn spec() -> impl Strategy<Value = Value> {
    let containers = || proptest::collection::vec(container(), 0..3);
    (containers(), containers(), containers(), text()).prop_map(|(regular, init, debug, volume)| {
        json!({
            "containers": regular,
            "initContainers": init,
            "ephemeralContainers": debug,
            "volumes": [{"name": volume, "emptyDir": {}}],
        })
    })
}

fn container() -> impl Strategy<Value = Value> {
    let variable = (text(), text(), proptest::option::of(source())).prop_map(
        |(name, value, source)| json!({"name": name, "value": value, "valueFrom": source}),
    );
    let env_from = (text(), text())
        .prop_map(|(prefix, name)| json!({"prefix": prefix, "secretRef": {"name": name}}));
    let env = proptest::collection::vec(variable, 0..4);
    let env_from = proptest::collection::vec(env_from, 0..3);
    (env, env_from, text()).prop_map(|(env, env_from, mount)| {
        json!({"env": env, "envFrom": env_from, "volumeMounts": [{"name": mount}]})
    })
}

fn source() -> impl Strategy<Value = Value> {
    (0..7_usize, text(), text(), text()).prop_map(|(kind, a, b, c)| match kind {
        0 => json!({"fieldRef": {"apiVersion": a, "fieldPath": b}}),
        1 => json!({"resourceFieldRef": {"resource": a}}),
        2 => json!({"configMapKeyRef": {"name": a, "key": b}}),
        3 => json!({"secretKeyRef": {"name": a, "key": b}}),
        4 => json!({"fileKeyRef": {"volumeName": a, "path": b, "key": c}}),
        5 => json!({"csiSecretRef": {"driver": a, "providerClassName": b, "key": c}}),
        _ => json!({}),
    })
}

/// A document that is accepted with every gate on.
fn accepted() -> impl Strategy<Value = Value> {
    let source = proptest::sample::select(vec![
        json!(null),
        json!({"secretKeyRef": {"name": "s", "key": "k"}}),
        json!({"fileKeyRef": {"volumeName": "v", "path": "p", "key": "a:b"}}),
        json!({"csiSecretRef": {"driver": "d", "providerClassName": "c", "key": "k"}}),
        json!({"csiSecretRef": {
            "driver": "d", "providerClassName": "c", "key": "k", "optional": true}}),
    ]);
    let variable = ("[ -<>-~]{1,3}", source)
        .prop_map(|(name, source)| json!({"name": name, "valueFrom": source}));
    let env = proptest::collection::vec(variable, 0..4);
    let kind = proptest::sample::select(&ContainerKind::ALL);
    (kind, env).prop_map(|(kind, env)| {
        json!({
            kind.field(): [{"env": env, "volumeMounts": [{"name": "v"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        })
    })
}

fn at(version: &str) -> FeatureGates {
    FeatureGates::new(KubeVersion::parse(version).unwrap())
}

/// Runs everything that takes `new` and `old`.
fn judge(new: &Value, old: &Value) {
    let path = FieldPath::new("spec");
    for gates in [at("1.30"), at("1.37"), FeatureGates::all_on()] {
        let mut kept = new.clone();
        drop_disabled_fields(&mut kept, Some(old), &gates);
        let (Ok(new), Ok(old)) = (PodEnvSpec::from_value(&kept), PodEnvSpec::from_value(old))
        else {
            continue;
        };
        let strict = EnvOptions { strict_env_file_mounts: true, csi_env_optional: true };
        for rules in [EnvRules::for_create(&gates), EnvRules::for_update(&gates, &new, &old)] {
            for rules in [rules, rules.with_options(strict)] {
                validate(&new, &path, &rules);
                warnings(&new, &path, &rules);
            }
        }
    }
}

/// A spec with only names in it.
fn named(names: &[String]) -> PodEnvSpec {
    let env: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
    let prefixes: Vec<_> =
        names.iter().map(|name| json!({"prefix": name, "secretRef": {"name": "s"}})).collect();
    PodEnvSpec::from_value(&json!({
        "containers": [{"env": env}],
        "initContainers": [{"envFrom": prefixes}],
    }))
    .unwrap()
}

proptest! {
    #[test]
    fn nothing_panics_on_any_document(new in document(), old in document()) {
        judge(&new, &old);
        judge(&json!({"containers": [new]}), &json!({"initContainers": [{"env": [old]}]}));
    }

    #[test]
    fn nothing_panics_on_any_text(new in spec(), old in spec()) {
        prop_assert!(PodEnvSpec::from_value(&new).is_ok());
        judge(&new, &old);
    }

    /// Turning the gate on never refuses what was accepted before, on create and on update.
    /// NAME-06, NAME-07
    #[test]
    fn the_relaxed_gate_only_widens_name_06_name_07(
        new in proptest::collection::vec("[ -~]{0,3}|[A-Z]{1,3}", 0..4),
        old in proptest::collection::vec("[ -~]{0,3}|[A-Z]{1,3}", 0..4),
    ) {
        let (new, old) = (named(&new), named(&old));
        let (off, on) = (at("1.30"), at("1.32"));
        let accepts = |rules| validate(&new, &FieldPath::new("spec"), &rules).is_empty();
        let pairs = [
            (EnvRules::for_create(&off), EnvRules::for_create(&on)),
            (EnvRules::for_update(&off, &new, &old), EnvRules::for_update(&on, &new, &old)),
            (EnvRules::for_create(&off), EnvRules::for_update(&off, &new, &old)),
        ];
        for (narrow, wide) in pairs {
            prop_assert!(!accepts(narrow) || accepts(wide));
        }
    }

    /// What is stored can always be stored again, whatever became of the gates.
    /// NAME-08, CSI-10, FILE-09
    #[test]
    fn an_accepted_object_survives_any_change_of_gates_name_08_csi_10_file_09(
        stored in accepted(),
    ) {
        let view = PodEnvSpec::from_value(&stored).unwrap();
        let path = FieldPath::new("spec");
        let create = EnvRules::for_create(&FeatureGates::all_on());
        prop_assert_eq!(validate(&view, &path, &create), []);
        for gates in [at("1.30"), at("1.33"), at("1.35"), at("1.37")] {
            let mut kept = stored.clone();
            drop_disabled_fields(&mut kept, Some(&stored), &gates);
            prop_assert_eq!(&kept, &stored);
            let strict = EnvOptions { strict_env_file_mounts: true, ..EnvOptions::default() };
            let rules = EnvRules::for_update(&gates, &view, &view).with_options(strict);
            prop_assert_eq!(validate(&view, &path, &rules), []);
        }
    }
}
