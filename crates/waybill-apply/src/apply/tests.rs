//! What becomes of an object that managers apply.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fixtures::{Things, any_config, fields, shown, thing, tracker};

fn apply(manager: &str, live: Option<&Value>, config: &Value) -> Result<Value, ApplyError> {
    tracker(&Things::main(), manager, "t1").apply(live, config, false)
}

fn force(manager: &str, live: &Value, config: &Value) -> Value {
    tracker(&Things::main(), manager, "t1").apply(Some(live), config, true).unwrap()
}

fn update(manager: &str, live: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut new = live.clone();
    change(&mut new);
    tracker(&Things::main(), manager, "t2").track(Some(live), &mut new);
    new
}

#[track_caller]
fn check_conflict(result: Result<Value, ApplyError>, message: &str) {
    match result {
        Err(ApplyError::Conflicts(conflicts)) => assert_eq!(conflicts.to_string(), message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_applies_manages_what_it_mentions_and_not_its_parents() {
    let config = thing(json!({
        "replicas": 1, "containers": [{"name": "c", "env": []}], "probe": {"exec": {"command": []}},
        "open": {"a": {"b": [1]}},
    }));
    let live = apply("m", None, &config).unwrap();
    assert_eq!(shown(&live), config);
    assert_eq!(
        live["metadata"]["managedFields"],
        json!([{"manager": "m", "operation": "Apply", "apiVersion": "v1", "time": "t1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {
            "f:containers": {r#"k:{"name":"c"}"#: {".": {}, "f:name": {}}},
            "f:open": {"f:a": {".": {}, "f:b": {}}},
            "f:probe": {"f:exec": {"f:command": {}}},
            "f:replicas": {},
        }}}])
    );
}

#[test]
fn changing_what_others_manage_is_a_conflict_unless_forced() {
    let live = apply("a", None, &thing(json!({"replicas": 1, "args": ["x"]}))).unwrap();
    let wish = thing(json!({"replicas": 2}));
    check_conflict(
        apply("b", Some(&live), &wish),
        "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas",
    );
    let new = force("b", &live, &wish);
    assert_eq!(new["spec"], json!({"replicas": 2, "args": ["x"]}));
    assert_eq!(fields(&new, "a"), json!({"f:spec": {"f:args": {}}}));
    assert_eq!(fields(&new, "b"), json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn conflicts_are_told_by_manager_in_upstreams_words() {
    let mut live = thing(json!({"replicas": 1, "containers": [{"name": "c", "image": "i"}]}));
    tracker(&Things::main(), "kubectl-edit", "t0").track(None, &mut live);
    let live = force("a", &live, &thing(json!({"args": ["x"], "nodeSelector": {"a": "b"}})));
    let wish = thing(json!({
        "replicas": 2, "containers": [{"name": "c", "image": "j"}], "args": ["y"],
    }));
    check_conflict(
        apply("b", Some(&live), &wish),
        "Apply failed with 3 conflicts: conflicts with \"a\":\n- .spec.args\n\
         conflicts with \"kubectl-edit\" using v1:\n- .spec.replicas\n\
         - .spec.containers[name=\"c\"].image",
    );
}

#[test]
fn the_same_value_is_shared() {
    let config = thing(json!({"replicas": 1}));
    let live = apply("a", None, &config).unwrap();
    let new = apply("b", Some(&live), &config).unwrap();
    assert_eq!(fields(&new, "a"), fields(&new, "b"));
    check_conflict(
        apply("a", Some(&new), &thing(json!({"replicas": 2}))),
        "Apply failed with 1 conflict: conflict with \"b\": .spec.replicas",
    );
    // It stays while somebody wants it.
    let new = apply("a", Some(&new), &thing(json!({}))).unwrap();
    assert_eq!(new["spec"], json!({"replicas": 1}));
    let new = apply("b", Some(&new), &thing(json!({}))).unwrap();
    assert_eq!(new.get("spec").unwrap_or(&json!({})), &json!({}));
}

#[test]
fn what_is_no_longer_applied_goes_with_all_that_was_below_it() {
    let config = thing(json!({"containers": [
        {"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "B"}]},
        {"name": "d", "image": "i"},
    ], "nodeSelector": {"a": "b"}, "replicas": 1}));
    let live = apply("a", None, &config).unwrap();
    let wish = thing(json!({"containers": [{"name": "c", "image": "i", "env": [{"name": "B"}]}]}));
    let new = apply("a", Some(&live), &wish).unwrap();
    assert_eq!(shown(&new), wish);
}

#[test]
fn what_others_set_beside_it_stays() {
    let config = thing(json!({"containers": [{"name": "c", "image": "i"}]}));
    let live = apply("a", None, &config).unwrap();
    let live = update("hpa", &live, |new| {
        new["spec"]["replicas"] = json!(3);
        new["spec"]["containers"][0]["env"] = json!([{"name": "X"}]);
    });
    // The container goes by its last applier, and with it what somebody set in it; the rest stays.
    let new = apply("a", Some(&live), &thing(json!({"args": ["x"]}))).unwrap();
    assert_eq!(new["spec"]["replicas"], 3);
    assert_eq!(new["spec"].get("containers"), None);
    assert_eq!(fields(&new, "hpa"), json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn configurations_order_what_they_mention() {
    let names = |object: &Value| -> String {
        let items = object["spec"]["containers"].as_array().unwrap();
        items.iter().map(|item| item["name"].as_str().unwrap()).collect()
    };
    let list = |names: &str| -> Value {
        thing(
            json!({"containers": names.chars().map(|name| json!({"name": name})).collect::<Vec<_>>()}),
        )
    };
    for (live, config, expected) in [
        ("abc", "abc", "abc"),
        ("abc", "cba", "cba"),
        ("abc", "d", "abcd"),
        ("abc", "bd", "abcd"),
        ("abcd", "db", "acdb"),
        ("abc", "bax", "bcax"),
        ("ab", "xb", "axb"),
    ] {
        let mut live = list(live);
        tracker(&Things::main(), "u", "t0").track(None, &mut live);
        let new = apply("a", Some(&live), &list(config)).unwrap();
        assert_eq!(names(&new), expected, "{config} over {}", names(&live));
    }
}

#[test]
fn sets_keep_what_others_put_in() {
    let finalizers = |items: &[&str]| {
        let mut thing = thing(json!({}));
        thing["metadata"]["finalizers"] = json!(items);
        thing
    };
    let live = apply("a", None, &finalizers(&["f/1", "f/2"])).unwrap();
    let live = apply("b", Some(&live), &finalizers(&["f/3"])).unwrap();
    assert_eq!(live["metadata"]["finalizers"], json!(["f/1", "f/2", "f/3"]));
    let new = apply("a", Some(&live), &finalizers(&["f/2"])).unwrap();
    assert_eq!(new["metadata"]["finalizers"], json!(["f/2", "f/3"]));
}

#[test]
fn ports_without_a_protocol_are_those_of_tcp() {
    let ports = |ports: Value| thing(json!({"containers": [{"name": "c", "ports": ports}]}));
    let live = apply("a", None, &ports(json!([{"containerPort": 80, "protocol": "TCP"}]))).unwrap();
    let new =
        apply("a", Some(&live), &ports(json!([{"containerPort": 80, "name": "web"}]))).unwrap();
    assert_eq!(
        new["spec"]["containers"][0]["ports"],
        json!([{"containerPort": 80, "name": "web"}])
    );
}

#[test]
fn what_was_there_before_the_first_apply_has_a_manager_of_its_own() {
    let live = thing(json!({"replicas": 1, "args": ["x"]}));
    check_conflict(
        apply("a", Some(&live), &thing(json!({"replicas": 2}))),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .spec.replicas",
    );
    let new = apply("a", Some(&live), &thing(json!({"replicas": 1}))).unwrap();
    assert_eq!(
        fields(&new, "before-first-apply"),
        json!({"f:spec": {"f:args": {}, "f:replicas": {}}})
    );
}

#[test]
fn applying_the_same_again_changes_nothing() {
    let config = thing(json!({"replicas": 1}));
    let live = apply("a", None, &config).unwrap();
    let again = tracker(&Things::main(), "a", "t9").apply(Some(&live), &config, false).unwrap();
    assert_eq!(again, live);
}

#[test]
fn configurations_that_do_not_fit_the_kind_are_refused() {
    let refused = |spec: Value| apply("a", None, &thing(spec)).unwrap_err().to_string();
    assert_eq!(refused(json!({"colour": 1})), ".spec.colour: field not declared in schema");
    assert_eq!(
        refused(json!({"containers": [{"name": "c"}, {"name": "c"}]})),
        ".spec.containers: duplicate entries for key [name=\"c\"]"
    );
    assert_eq!(
        refused(json!({"containers": [{"image": "c"}]})),
        ".spec.containers: element 0: associative list with keys has an element that omits all key fields"
    );
}

#[test]
fn kubectl_takes_over_what_it_applied_from_the_client() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let config = thing(json!({"replicas": 1, "args": ["x"]}));
    let mut live = config.clone();
    live["metadata"]["annotations"] = json!({annotation: config.to_string()});
    tracker(&Things::main(), "kubectl-client-side-apply", "t0").track(None, &mut live);
    let wish = thing(json!({"replicas": 2, "args": ["x"]}));
    check_conflict(
        apply("other", Some(&live), &wish),
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: \
         .spec.replicas",
    );
    let new = apply("kubectl", Some(&live), &wish).unwrap();
    assert_eq!(new["spec"]["replicas"], 2);
    assert_eq!(
        new["metadata"]["annotations"][annotation],
        format!("{wish}\n"),
        "the annotation is kept up to date"
    );
    // What somebody else changed since is a conflict.
    let live = update("edit", &live, |new| new["spec"]["replicas"] = json!(7));
    check_conflict(
        apply("kubectl", Some(&live), &wish),
        "Apply failed with 1 conflict: conflict with \"edit\" using v1: .spec.replicas",
    );
}

#[test]
fn managers_of_other_versions_conflict_too() {
    let live = apply("a", None, &thing(json!({"replicas": 1}))).unwrap();
    let mut wish = thing(json!({"replicas": 2}));
    wish["apiVersion"] = json!("v2");
    let things = Things::main();
    let newer = Tracker { api_version: "v2", ..tracker(&things, "b", "t1") };
    check_conflict(
        newer.apply(Some(&live), &wish, false),
        "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas",
    );
    let newer = Tracker { api_version: "v2", ..tracker(&things, "a", "t1") };
    let new = newer.apply(Some(&live), &wish, false).unwrap();
    assert_eq!(new["metadata"]["managedFields"].as_array().unwrap().len(), 1);
    assert_eq!(new["metadata"]["managedFields"][0]["apiVersion"], "v2");
}

#[test]
fn managers_that_cannot_be_read_are_told() {
    let mut live = thing(json!({}));
    live["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    let error = apply("a", Some(&live), &thing(json!({}))).unwrap_err();
    assert!(matches!(error, ApplyError::Managed(ManagedFieldsError::Operation)));
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(a in any_config(), b in any_config()) {
        let live = force("b", &apply("a", None, &a).unwrap(), &b);
        let again = tracker(&Things::main(), "b", "t9").apply(Some(&live), &b, false).unwrap();
        prop_assert_eq!(again, live);
    }

    /// What one manager applies and then no longer applies leaves no trace in what another one applied.
    #[test]
    fn what_is_applied_and_withdrawn_is_gone(a in any_config(), b in any_config()) {
        let before = apply("a", None, &a).unwrap();
        let Ok(both) = apply("b", Some(&before), &b) else { return Ok(()) };
        let mut nothing = thing(json!({}));
        nothing.as_object_mut().unwrap().remove("spec");
        let after = apply("b", Some(&both), &nothing).unwrap();
        prop_assert_eq!(fields(&after, "b"), json!(null));
        let schema = &crate::fixtures::SCHEMA;
        let all = |object: &Value| {
            let mut object = shown(object);
            // An empty object may be left, or may go.
            if object["spec"] == json!({}) {
                object.as_object_mut().unwrap().remove("spec");
            }
            fields_of(schema, &object, &FieldSet::new())
        };
        prop_assert_eq!(all(&after), all(&before));
    }

    #[test]
    fn what_is_applied_is_there(a in any_config(), b in any_config()) {
        let live = force("b", &apply("a", None, &a).unwrap(), &b);
        let schema = &crate::fixtures::SCHEMA;
        let merged = merge(schema, &shown(&live), &b).unwrap();
        prop_assert_eq!(merged, shown(&live));
    }
}
