//! Who manages what after writes that are no applies.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fixtures::{Things, any_config, fields, shown, thing, tracker};

fn create(things: &Things, manager: &str, object: Value) -> Value {
    let mut object = object;
    tracker(things, manager, "t1").track(None, &mut object);
    object
}

/// What a manager does to an object without minding who manages it.
fn update(things: &Things, manager: &str, live: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut new = live.clone();
    change(&mut new);
    tracker(things, manager, "t2").track(Some(live), &mut new);
    new
}

#[test]
fn a_creator_manages_all_that_it_said() {
    let spec = json!({
        "replicas": 1,
        "args": ["x"],
        "containers": [{
            "name": "c", "image": "i", "ports": [{"containerPort": 80}], "resources": {},
        }],
        "nodeSelector": {"a": "b"},
        "probe": {"exec": {"command": ["true"]}, "period": 1},
        "selector": {"matchLabels": {"a": "b"}},
    });
    let mut object = thing(spec);
    object["metadata"]["labels"] = json!({"a": "b"});
    object["metadata"]["finalizers"] = json!(["x/y"]);
    object["metadata"]["uid"] = json!("u");
    object["status"] = json!({"phase": "Pending"});
    let object = create(&Things::main(), "m", object);
    assert_eq!(
        object["metadata"]["managedFields"],
        json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "t1",
            "fieldsType": "FieldsV1", "fieldsV1": {
            "f:metadata": {
                "f:finalizers": {".": {}, r#"v:"x/y""#: {}},
                "f:labels": {".": {}, "f:a": {}},
            },
            "f:spec": {
                "f:args": {},
                "f:containers": {".": {}, r#"k:{"name":"c"}"#: {
                    ".": {}, "f:name": {}, "f:image": {}, "f:resources": {},
                    "f:ports": {".": {}, r#"k:{"containerPort":80,"protocol":"TCP"}"#: {
                        ".": {}, "f:containerPort": {},
                    }},
                }},
                "f:nodeSelector": {},
                "f:probe": {".": {}, "f:exec": {".": {}, "f:command": {}}, "f:period": {}},
                "f:replicas": {},
                "f:selector": {},
            },
        }}])
    );
}

#[test]
fn who_changes_a_field_manages_it_from_then_on() {
    let things = Things::main();
    let live = create(&things, "a", thing(json!({"replicas": 1, "args": ["x"]})));
    let new = update(&things, "b", &live, |new| new["spec"]["replicas"] = json!(2));
    assert_eq!(fields(&new, "a"), json!({"f:spec": {"f:args": {}}}));
    assert_eq!(fields(&new, "b"), json!({"f:spec": {"f:replicas": {}}}));
    let new = update(&things, "b", &new, |new| new["spec"]["args"] = json!(["y"]));
    assert_eq!(fields(&new, "a"), json!(null));
    assert_eq!(fields(&new, "b"), json!({"f:spec": {"f:args": {}, "f:replicas": {}}}));
}

#[test]
fn what_is_removed_is_nobodys() {
    let things = Things::main();
    let containers = json!([{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]);
    let live = create(&things, "a", thing(json!({"replicas": 1, "containers": containers})));
    let new = update(&things, "b", &live, |new| {
        new["spec"] = json!({"containers": [{"name": "d", "image": "i"}]});
    });
    let left = json!({"f:spec": {"f:containers": {".": {}, r#"k:{"name":"d"}"#: {
        ".": {}, "f:name": {}, "f:image": {},
    }}}});
    assert_eq!(fields(&new, "a"), left);
    assert_eq!(fields(&new, "b"), json!(null));
}

#[test]
fn a_write_that_changes_nothing_changes_no_manager() {
    let things = Things::main();
    let live = create(&things, "a", thing(json!({"replicas": 1})));
    assert_eq!(update(&things, "b", &live, |_| ()), live);
    // Nor does one that leaves them out, or that writes what cannot be read.
    let forgetful = update(&things, "b", &live, |new| *new = shown(new));
    assert_eq!(forgetful, live);
    let broken = update(&things, "b", &live, |new| {
        new["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    });
    assert_eq!(broken, live);
}

#[test]
fn the_order_of_elements_is_nobodys() {
    let things = Things::main();
    let containers = json!([{"name": "c"}, {"name": "d"}]);
    let live = create(&things, "a", thing(json!({"containers": containers})));
    let new = update(&things, "b", &live, |new| {
        new["spec"]["containers"] = json!([{"name": "d"}, {"name": "c"}]);
    });
    assert_eq!(fields(&new, "b"), json!(null));
    assert_eq!(fields(&new, "a"), fields(&live, "a"));
}

#[test]
fn elements_that_stand_twice_are_managed_as_one() {
    let things = Things::main();
    let twice = json!([{"name": "c", "image": "i"}, {"name": "c", "image": "j"}]);
    let live = create(&things, "a", thing(json!({"containers": twice})));
    let one = r#"k:{"name":"c"}"#;
    assert_eq!(fields(&live, "a"), json!({"f:spec": {"f:containers": {".": {}, one: {}}}}));
    let new = update(&things, "b", &live, |new| {
        new["spec"]["containers"] = json!([{"name": "c", "image": "i"}]);
    });
    assert_eq!(
        fields(&new, "b"),
        json!({"f:spec": {"f:containers": {one: {".": {}, "f:name": {}, "f:image": {}}}}})
    );
}

#[test]
fn parts_that_a_write_leaves_alone_are_not_managed() {
    let (main, status) = (Things::main(), Things::status());
    let live = create(&main, "a", thing(json!({"replicas": 1})));
    let mut new = live.clone();
    new["spec"]["replicas"] = json!(5);
    new["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let kubelet = Tracker { subresource: "status", ..tracker(&status, "kubelet", "t2") };
    kubelet.track(Some(&live), &mut new);
    assert_eq!(
        fields(&new, "kubelet"),
        json!({"f:status": {"f:conditions": {".": {}, r#"k:{"type":"Ready"}"#: {
            ".": {}, "f:type": {}, "f:status": {},
        }}}})
    );
    assert_eq!(new["metadata"]["managedFields"][1]["subresource"], "status");
    assert_eq!(fields(&new, "a"), fields(&live, "a"));
}

#[test]
fn a_subresource_does_not_write_managers() {
    let things = Things::status();
    let live = create(&Things::main(), "a", thing(json!({"replicas": 1})));
    let mut new = live.clone();
    new["metadata"]["managedFields"] = json!([]);
    Tracker { subresource: "status", ..tracker(&things, "b", "t2") }.track(Some(&live), &mut new);
    assert_eq!(new, live);
}

#[test]
fn managers_that_are_forgotten_come_back_with_the_next_apply_only() {
    let things = Things::main();
    let live = create(&things, "a", thing(json!({"replicas": 1})));
    let reset = update(&things, "b", &live, |new| {
        new["metadata"]["managedFields"] = json!([{}]);
    });
    assert_eq!(reset, shown(&live));
    let later = update(&things, "b", &reset, |new| new["spec"]["replicas"] = json!(2));
    assert_eq!(later["metadata"].get("managedFields"), None);
}

#[test]
fn managers_may_be_written_by_hand() {
    let things = Things::main();
    let live = create(&things, "a", thing(json!({"replicas": 1})));
    let new = update(&things, "b", &live, |new| {
        new["metadata"]["managedFields"][0]["manager"] = json!("c");
    });
    assert_eq!(fields(&new, "c"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(fields(&new, "a"), json!(null));
}

#[test]
fn managers_of_versions_that_are_gone_go_too() {
    let things = Things::main();
    let mut live = create(&things, "a", thing(json!({"replicas": 1, "args": ["x"]})));
    live["metadata"]["managedFields"][0]["apiVersion"] = json!("v0");
    let new = update(&things, "b", &live, |new| new["spec"]["replicas"] = json!(2));
    assert_eq!(fields(&new, "a"), json!(null));
    assert_eq!(fields(&new, "b"), json!({"f:spec": {"f:replicas": {}}}));
    live["metadata"]["managedFields"][0]["apiVersion"] = json!("v2");
    let new = update(&things, "b", &live, |new| new["spec"]["replicas"] = json!(2));
    assert_eq!(fields(&new, "a"), json!({"f:spec": {"f:args": {}}}));
}

proptest! {
    /// Every field has one manager, and only fields that are there have one.
    #[test]
    fn updates_partition_the_fields(a in any_config(), b in any_config(), c in any_config()) {
        let things = Things::main();
        // An object without any manager would not be tracked.
        let managed = |mut config: Value| {
            config["data"] = json!({"k": "v"});
            config
        };
        let mut live = create(&things, "a", managed(a));
        for (manager, next) in [("b", managed(b)), ("c", managed(c))] {
            live = update(&things, manager, &live, |new| {
                let managed = new["metadata"]["managedFields"].take();
                *new = next;
                new["metadata"]["managedFields"] = managed;
            });
        }
        let managed = ManagedFields::parse(&live["metadata"]["managedFields"]).unwrap();
        let empty = Value::Object(Map::new());
        let all = tracker(&things, "x", "t").compare(&empty, &live, "v1").unwrap().changed;
        let mut united = FieldSet::new();
        for entry in managed.entries() {
            prop_assert!(united.intersection(&entry.fields).is_empty());
            united.unite(&entry.fields);
        }
        // An empty part of an object may have been left by somebody; nothing else may.
        united.each(|path| assert!(all.contains(path), "{path:?} is not there"));
        all.each(|path| assert!(united.contains(path), "{path:?} is nobody's"));
    }
}
