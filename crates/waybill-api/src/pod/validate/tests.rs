//! The rules for variables, their sources and `envFrom`, as tables.

use serde_json::{Value, json};

use super::{
    testing::{check_source, errors_under},
    *,
};
use crate::{
    gates::{FeatureGate, FeatureGates, KubeVersion},
    pod::{ContainerKind, drop_disabled_fields, pod_spec_path, pod_spec_pointer},
};

const STRICT: &str = "a valid environment variable name must consist of alphabetic characters, \
    digits, '_', '-', or '.', and must not start with a digit (e.g. 'my.env-name',  or \
    'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is '[-._a-zA-Z][-._a-zA-Z0-9]*')";
const RELAXED: &str = "a valid environment variable name must consist only of printable ASCII \
    characters other than '='";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn at(version: &str) -> FeatureGates {
    FeatureGates::new(KubeVersion::parse(version).unwrap())
}

fn strict() -> EnvRules {
    EnvRules::for_create(&at("1.30"))
}

fn all_on() -> EnvRules {
    EnvRules::for_create(&FeatureGates::all_on())
}

/// Checks a name as variable and as prefix; both have the same faults.
#[track_caller]
fn check_name(rules: &EnvRules, name: &str, faults: &[&str]) {
    let whole = json!({"name": "s"});
    let spec = json!({"containers": [{
        "env": [{"name": name}],
        "envFrom": [{"prefix": name, "secretRef": whole}],
    }]});
    let expected: Vec<_> = ["env[0].name", "envFrom[0].prefix"]
        .iter()
        .flat_map(|field| {
            faults.iter().map(move |fault| {
                format!("spec.containers[0].{field}: Invalid value: \"{name}\": {fault}")
            })
        })
        .collect();
    assert_eq!(errors_under(rules, &spec), expected);
}

/// NAME-05, NAME-06
#[test]
fn names_and_prefixes_follow_the_rule_of_the_object_name_05_name_06() {
    check_name(&strict(), "FINE", &[]);
    check_name(&strict(), "a:b", &[STRICT]);
    check_name(&strict(), "1a", &[STRICT]);
    check_name(&strict(), ".", &["must not be '.'"]);
    check_name(&strict(), "..", &["must not be '..'"]);
    check_name(&strict(), "..a", &["must not start with '..'"]);
    check_name(&strict(), "..=", &[STRICT, "must not start with '..'"]);
    for fine in ["FINE", "a:b", "1a", ".", "..", " ", "!#$%&'()"] {
        check_name(&all_on(), fine, &[]);
    }
    check_name(&all_on(), "a=b", &[RELAXED]);
    check_name(&all_on(), "Ç", &[RELAXED]);
}

/// NAME-04
#[test]
fn a_missing_name_is_required_and_a_missing_prefix_is_not_name_04() {
    for rules in [strict(), all_on()] {
        let spec = json!({"containers": [{
            "env": [{"value": "x"}],
            "envFrom": [{"prefix": "", "secretRef": {"name": "s"}}],
        }]});
        assert_eq!(errors_under(&rules, &spec), ["spec.containers[0].env[0].name: Required value"]);
    }
}

/// NAME-05, FILE-01, CSI-12
#[test]
fn every_kind_of_container_is_judged_name_05_file_01_csi_12() {
    for kind in ContainerKind::ALL {
        let spec = json!({kind.field(): [
            {"env": [{"name": "A"}]},
            {
                "env": [{"name": "a=b", "valueFrom": {"csiSecretRef": {
                    "driver": "d", "providerClassName": "c"}}}],
                "envFrom": [{}],
            },
        ]});
        let path = format!("spec.{}[1]", kind.field());
        assert_eq!(
            errors_under(&all_on(), &spec),
            [
                format!("{path}.env[0].name: Invalid value: \"a=b\": {RELAXED}"),
                format!(
                    "{path}.env[0].valueFrom.csiSecretRef.key: Required value: key is required"
                ),
                format!(
                    "{path}.envFrom[0]: Invalid value: \"\": must specify one of: `configMapRef` or \
                 `secretRef`"
                ),
            ]
        );
    }
}

/// NAME-05
#[test]
fn every_kind_of_object_is_judged_at_its_own_path_name_05() {
    for (group, kind, path) in [
        ("", "Pod", "spec"),
        ("", "PodTemplate", "template.spec"),
        ("", "ReplicationController", "spec.template.spec"),
        ("apps", "DaemonSet", "spec.template.spec"),
        ("apps", "Deployment", "spec.template.spec"),
        ("apps", "ReplicaSet", "spec.template.spec"),
        ("apps", "StatefulSet", "spec.template.spec"),
        ("batch", "Job", "spec.template.spec"),
        ("batch", "CronJob", "spec.jobTemplate.spec.template.spec"),
    ] {
        let pointer = pod_spec_pointer(group, kind).unwrap();
        let spec = json!({"containers": [{"env": [{"name": "a:b"}]}]});
        let object = pointer.rsplit('/').filter(|field| !field.is_empty());
        let object = object.fold(spec, |inner, field| json!({field: inner}));
        let view = PodEnvSpec::from_value(object.pointer(pointer).unwrap()).unwrap();
        let errors = validate(&view, &pod_spec_path(group, kind).unwrap(), &strict());
        assert_eq!(errors[0].path().to_string(), format!("{path}.containers[0].env[0].name"));
    }
}

#[track_caller]
fn check_count(rules: &EnvRules, variable: &Value, expected: &str) {
    let spec = json!({
        "containers": [{"env": [variable]}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    });
    let expected = format!("spec.containers[0].env[0].valueFrom: Invalid value: \"\": {expected}");
    assert_eq!(errors_under(rules, &spec), [expected]);
}

/// Each source, complete.
fn sources() -> Vec<(&'static str, Value)> {
    vec![
        ("fieldRef", json!({"fieldPath": "metadata.name"})),
        ("resourceFieldRef", json!({"resource": "limits.cpu"})),
        ("configMapKeyRef", json!({"name": "c", "key": "k"})),
        ("secretKeyRef", json!({"name": "s", "key": "k"})),
        ("fileKeyRef", json!({"volumeName": "v", "path": "p", "key": "k"})),
        ("csiSecretRef", json!({"driver": "d", "providerClassName": "c", "key": "k"})),
    ]
}

/// FILE-07
#[test]
fn without_a_source_the_message_lists_what_the_gates_allow_file_07() {
    let empty = json!({"name": "A", "valueFrom": {}});
    let base = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`";
    let csi_only = at("1.36").with(FeatureGate::EnvFiles, false).unwrap();
    let csi_only = csi_only.with(FeatureGate::CsiDirectEnvInjection, true).unwrap();
    for (gates, tail) in [
        (at("1.30"), " or `secretKeyRef`"),
        (at("1.35"), ", `secretKeyRef` or `fileKeyRef`"),
        (csi_only, ", `secretKeyRef` or `csiSecretRef`"),
        (FeatureGates::all_on(), ", `secretKeyRef`, `fileKeyRef` or `csiSecretRef`"),
    ] {
        check_count(&EnvRules::for_create(&gates), &empty, &format!("{base}{tail}"));
    }
    // An empty value beside it changes nothing, and neither does a full one.
    let full = json!({"name": "A", "value": "x", "valueFrom": {}});
    check_count(&strict(), &full, &format!("{base} or `secretKeyRef`"));
}

/// FILE-07, CSI-12
#[test]
fn exactly_one_source_and_no_value_beside_it_file_07_csi_12() {
    for (first, reference) in sources() {
        check_source(&json!({first: reference}), &[]);
        let mut variable = json!({"name": "A", "value": "x", "valueFrom": {first: reference}});
        check_count(&all_on(), &variable, "may not be specified when `value` is not empty");
        variable["value"] = "".into();
        for (second, other) in sources().into_iter().filter(|(second, _)| *second != first) {
            let mut both = variable.clone();
            both["valueFrom"][second] = other.clone();
            check_count(&all_on(), &both, MORE_THAN_ONE);
            // Upstream reports the value first, and only it.
            both["value"] = "x".into();
            check_count(&all_on(), &both, "may not be specified when `value` is not empty");
        }
    }
}

#[test]
fn a_variable_needs_neither_value_nor_source() {
    let spec = json!({"containers": [{"env": [
        {"name": "A"}, {"name": "B", "value": ""}, {"name": "C", "valueFrom": null}]}]});
    assert_eq!(errors_under(&all_on(), &spec), [""; 0]);
}

/// FILE-09: whether or not the field was dropped, the gate off leaves a variable without a source.
#[test]
fn a_file_reference_with_the_gate_off_is_no_source_file_09() {
    let gates = at("1.34");
    let reference = json!({"volumeName": "v", "path": "p", "key": "k"});
    let spec = json!({"containers": [{"env": [{"name": "A", "valueFrom": {
        "fileKeyRef": reference}}]}]});
    let mut dropped = spec.clone();
    drop_disabled_fields(&mut dropped, None, &gates);
    assert_ne!(dropped, spec);
    for spec in [spec, dropped] {
        assert_eq!(
            errors_under(&EnvRules::for_create(&gates), &spec),
            ["spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of: \
             `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",]
        );
    }
}

#[test]
fn keys_of_config_maps_and_secrets() {
    for field in ["configMapKeyRef", "secretKeyRef"] {
        let check = |name: &str, key: &str, expected: &[String]| {
            let expected: Vec<_> = expected.iter().map(|text| format!("{field}.{text}")).collect();
            let expected: Vec<_> = expected.iter().map(String::as_str).collect();
            check_source(&json!({field: {"name": name, "key": key}}), &expected);
        };
        check("a.b-c", "key.name", &[]);
        check("", "", &["name: Required value".into(), "key: Required value".into()]);
        check("A", "k", &[format!("name: Invalid value: \"A\": {SUBDOMAIN}")]);
        check("a", "..k", &["key: Invalid value: \"..k\": must not start with '..'".into()]);
        check("a", ".", &["key: Invalid value: \".\": must not be '.'".into()]);
        check("a", "..", &["key: Invalid value: \"..\": must not be '..'".into()]);
        check(
            "a",
            "a b",
            &["key: Invalid value: \"a b\": a valid config key must consist of alphanumeric \
               characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', \
               regex used for validation is '[-._a-zA-Z0-9]+')"
                .into()],
        );
        let long = "k".repeat(254);
        let expected = format!("key: Invalid value: \"{long}\": must be no more than 253 bytes");
        check("a", &long, &[expected]);
    }
}

#[test]
fn whole_config_maps_and_secrets() {
    let check = |entry: Value, expected: &[&str]| {
        let errors = errors_under(&all_on(), &json!({"containers": [{"envFrom": [entry]}]}));
        let expected: Vec<_> =
            expected.iter().map(|text| format!("spec.containers[0].envFrom[0]{text}")).collect();
        assert_eq!(errors, expected);
    };
    check(json!({"configMapRef": {"name": "c", "optional": true}}), &[]);
    check(json!({"secretRef": {"name": "s"}, "prefix": "P_"}), &[]);
    check(json!({"configMapRef": {}}), &[".configMapRef.name: Required value"]);
    check(json!({"secretRef": {"name": ""}}), &[".secretRef.name: Required value"]);
    let invalid = format!(".secretRef.name: Invalid value: \"S\": {SUBDOMAIN}");
    check(json!({"secretRef": {"name": "S"}}), &[&invalid]);
    check(
        json!({}),
        &[": Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`"],
    );
    check(
        json!({"configMapRef": {"name": "c"}, "secretRef": {"name": "s"}}),
        &[": Invalid value: \"\": may not have more than one field specified at a time"],
    );
}

#[test]
fn all_faults_are_gathered_in_the_order_of_kubernetes() {
    let spec = json!({
        "initContainers": [{"env": [{}]}],
        "containers": [{
            "env": [
                {"valueFrom": {"secretKeyRef": {}, "fieldRef": {}}},
                {"name": "F", "valueFrom": {"fileKeyRef": {
                    "volumeName": "v", "path": "/p", "key": "k"}}},
            ],
            "envFrom": [{"configMapRef": {}}],
        }],
    });
    assert_eq!(
        errors_under(&all_on(), &spec),
        [
            "spec.containers[0].env[0].name: Required value",
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Required value",
            "spec.containers[0].env[0].valueFrom.secretKeyRef.name: Required value",
            "spec.containers[0].env[0].valueFrom.secretKeyRef.key: Required value",
            "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not have more than one \
         field specified at a time",
            "spec.containers[0].env[1].valueFrom.fileKeyRef.path: Invalid value: \"/p\": must be a \
         relative path",
            "spec.containers[0].envFrom[0].configMapRef.name: Required value",
            "spec.initContainers[0].env[0].name: Required value",
            "spec.containers[0].env[1].valueFrom.fileKeyRef.volumeName: Not found: \"v\"",
        ]
    );
}

/// NAME-21: the life of one pod while the gate is turned off and on again.
/// NAME-08, NAME-15, NAME-16
#[test]
fn create_disable_update_reenable_name_08_name_15_name_16_name_21() {
    let (off, on) = (at("1.30"), at("1.32"));
    let spec = |names: &[&str]| {
        let env: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        PodEnvSpec::from_value(&json!({"containers": [{"env": env}]})).unwrap()
    };
    let accepts = |rules: EnvRules, spec: &PodEnvSpec| {
        validate(spec, &FieldPath::new("spec"), &rules).is_empty()
    };
    let update = |gates, old: &[&str], new: &[&str]| {
        accepts(EnvRules::for_update(gates, &spec(new), &spec(old)), &spec(new))
    };
    let create = |gates, names: &[&str]| accepts(EnvRules::for_create(gates), &spec(names));

    assert!(create(&on, &["a:b"]));
    // Off: the stored pod may be updated elsewhere, cleaned, and even extended (OP-26).
    assert!(!create(&off, &["a:b"]));
    assert!(update(&off, &["a:b"], &["a:b"]));
    assert!(update(&off, &["a:b"], &["a:b", "PLAIN"]));
    assert!(update(&off, &["a:b"], &["a:b", "c:d"]));
    assert!(update(&off, &["a:b"], &["PLAIN"]));
    // But a relaxed name cannot come to an object that keeps none.
    assert!(!update(&off, &["a:b"], &["c:d"]));
    assert!(!update(&off, &["PLAIN"], &["PLAIN", "a:b"]));
    assert!(!update(&off, &["a:b"], &["a:b", "a=b"]));
    // On again: as before.
    assert!(create(&on, &["a:b"]));
    assert!(update(&on, &["PLAIN"], &["a:b"]));
}

/// CSI-10
#[test]
fn an_object_with_csi_references_can_be_updated_with_the_gate_off_csi_10() {
    let spec = PodEnvSpec::from_value(&json!({"containers": [{"env": [{"name": "A", "valueFrom": {
        "csiSecretRef": {"driver": "d", "providerClassName": "c", "key": "k"}}}]}]}))
    .unwrap();
    let off = at("1.37");
    let path = FieldPath::new("spec");
    assert_eq!(validate(&spec, &path, &EnvRules::for_create(&off)).len(), 1);
    let update = EnvRules::for_update(&off, &spec, &spec);
    assert_eq!(validate(&spec, &path, &update), []);
}

#[test]
fn no_error_repeats_a_value() {
    let spec = json!({"containers": [{"env": [
        {"name": "", "value": "hunter2", "valueFrom": {"csiSecretRef": {
            "driver": "-", "parameters": {"token": "hunter2"}}}},
        {"name": "=", "value": "hunter2", "valueFrom": {}},
    ]}]});
    let errors = errors_under(&all_on(), &spec);
    assert!(errors.len() > 4, "{errors:?}");
    assert!(!errors.iter().any(|error| error.contains("hunter2")), "{errors:?}");
}
