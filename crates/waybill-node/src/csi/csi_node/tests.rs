//! The object, against an API server on paper that judges changes as the real one does.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use serde_json::Value;

use super::*;
use crate::{
    csi::drivers::Drivers,
    fake_api::{FakeApi, Reply},
};

fn registered(node_id: &str) -> Registered {
    Registered {
        endpoint: PathBuf::new(),
        by: PathBuf::from("/a"),
        version: (1, 0, 0),
        node_id: node_id.to_owned(),
        topology_keys: Vec::new(),
        injects: true,
    }
}

/// OP-43: an entry cannot change, so it goes and comes again; the others stay all the while.
#[tokio::test]
async fn a_driver_with_another_node_id_is_removed_and_added_op_43() {
    let entry = |name: &str, id: &str| json!({"name": name, "nodeID": id});
    let before = json!({
        "metadata": {"name": "node-1"},
        "spec": {"drivers": [entry("a.csi", "old"), entry("b.csi", "n1")]},
    });
    let stored = Arc::new(Mutex::new(before));
    let answering = Arc::clone(&stored);
    let mut api = FakeApi::start(move |call| {
        let mut stored = answering.lock().unwrap();
        if call.method != http::Method::PATCH {
            return Reply::ok(stored.clone());
        }
        let new = call.body["spec"]["drivers"].as_array().unwrap();
        let old = stored["spec"]["drivers"].as_array().unwrap();
        let changed = |new: &Value| old.iter().any(|old| old["name"] == new["name"] && old != new);
        if new.iter().any(changed) {
            return Reply::refuse(422, "Invalid");
        }
        stored["spec"]["drivers"] = call.body["spec"]["drivers"].clone();
        Reply::ok(stored.clone())
    })
    .await;
    let drivers = Drivers::new(PathBuf::new());
    for (name, id) in [("a.csi", "new"), ("b.csi", "n1")] {
        drivers.register(&DriverName::parse(name).unwrap(), registered(id)).unwrap();
    }
    let keeper = CsiNodeKeeper::new(api.client.clone(), "node-1", drivers.registered(), LOOK);
    api.tasks.spawn(api.stop.clone().run_until_cancelled_owned(keeper.run()));
    let mut patches = Vec::new();
    while patches.len() < 3 {
        let call = api.next().await;
        if call.method == http::Method::PATCH {
            patches.push(call.body["spec"]["drivers"].clone());
        }
    }
    let wanted = json!([entry("a.csi", "new"), entry("b.csi", "n1")]);
    assert_eq!(patches, [wanted.clone(), json!([entry("b.csi", "n1")]), wanted]);
}

/// OP-43: whoever deletes the object, or what is in it, has it back.
#[tokio::test]
async fn an_object_that_is_deleted_or_changed_is_written_again_op_43() {
    let stored = Arc::new(Mutex::new(Value::Null));
    let answering = Arc::clone(&stored);
    let mut api = FakeApi::start(move |call| {
        let mut stored = answering.lock().unwrap();
        match (call.method.as_str(), call.path.as_str()) {
            ("GET", "/api/v1/nodes/node-1") => Reply::ok(json!({"metadata": {"uid": "u"}})),
            ("POST", _) => {
                *stored = call.body.clone();
                Reply::Json(201, stored.clone())
            }
            (_, _) if stored.is_null() => Reply::refuse(404, "NotFound"),
            ("GET", _) => Reply::ok(stored.clone()),
            _ => {
                stored["spec"] = call.body["spec"].clone();
                stored["metadata"]["annotations"] = call.body["metadata"]["annotations"].clone();
                Reply::ok(stored.clone())
            }
        }
    })
    .await;
    let drivers = Drivers::new(PathBuf::new());
    drivers.register(&DriverName::parse("a.csi").unwrap(), registered("n1")).unwrap();
    let quick = Duration::from_millis(5);
    let keeper = CsiNodeKeeper::new(api.client.clone(), "node-1", drivers.registered(), quick);
    api.tasks.spawn(api.stop.clone().run_until_cancelled_owned(keeper.run()));
    let spoil: [fn(&mut Value); 3] = [
        |object| *object = Value::Null,
        |object| object["spec"]["drivers"] = json!([]),
        |object| object["metadata"]["annotations"] = json!({}),
    ];
    let whole = |object: &Value| {
        object["spec"]["drivers"][0]["name"] == "a.csi"
            && object["metadata"]["annotations"][ENV_DRIVERS] == "a.csi"
            && object["metadata"]["ownerReferences"][0]["uid"] == "u"
    };
    for spoil in spoil {
        while !whole(&stored.lock().unwrap()) {
            api.next().await;
        }
        spoil(&mut stored.lock().unwrap());
    }
    while !whole(&stored.lock().unwrap()) {
        api.next().await;
    }
}
