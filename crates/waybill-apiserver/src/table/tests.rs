//! Columns and cells of every resource.

mod cells;

use proptest::prelude::*;

use super::*;
use crate::registry::{RESOURCES, named};

fn maker(resource: &'static Resource) -> TableMaker {
    TableMaker {
        resource,
        include: IncludeObject::Metadata,
        meta: MetaVersion::V1,
        now: "2026-01-01T01:00:00Z".parse().unwrap(),
    }
}

fn config_map() -> Value {
    json!({
        "kind": "ConfigMap",
        "metadata": {
            "name": "c",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:58:00Z",
        },
        "data": {"a": "1"},
    })
}

#[test]
fn a_list_becomes_a_table_with_its_metadata() {
    let maker = maker(named("configmaps"));
    let head = maker.head(&json!({"resourceVersion": "9"}));
    let table: Value =
        serde_json::from_str(&format!("{head}{}]}}", maker.row(&config_map()))).unwrap();
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(table["metadata"], json!({"resourceVersion": "9"}));
    assert_eq!(table["columnDefinitions"][0]["format"], "name");
    assert_eq!(
        table["rows"],
        json!([{
            "cells": ["c", 1, "2m"],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": config_map()["metadata"],
            },
        }])
    );
}

#[test]
fn an_object_becomes_a_table_with_its_version() {
    let table = maker(named("configmaps")).object(&config_map());
    assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(table["rows"].as_array().unwrap().len(), 1);
}

#[test]
fn rows_carry_what_was_asked_for() {
    let row = |include| {
        let maker = TableMaker { include, ..maker(named("configmaps")) };
        maker.object(&config_map())["rows"][0].clone()
    };
    assert_eq!(row(IncludeObject::Object)["object"], config_map());
    assert_eq!(row(IncludeObject::None).get("object"), None);
    assert_eq!(IncludeObject::parse(""), Ok(IncludeObject::Metadata));
    assert_eq!(
        IncludeObject::parse("All").unwrap_err().to_string(),
        "unrecognized includeObject value: \"All\""
    );
}

#[test]
fn finished_pods_say_so_in_their_row() {
    let table = maker(named("pods")).object(&json!({"status": {"phase": "Failed"}}));
    assert_eq!(table["rows"][0]["conditions"][0]["reason"], "Failed");
}

#[test]
fn every_row_has_a_cell_per_column() {
    for resource in RESOURCES {
        for object in [json!(null), json!({}), json!({"metadata": {"name": "x"}})] {
            let cells = (resource.table.cells)(&object, maker(resource).now);
            assert_eq!(cells.len(), resource.table.columns.len(), "{resource:?}");
        }
    }
}

fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-zA-Z0-9:-]{0,12}".prop_map(Value::from),
        Just(json!("2026-01-01T00:00:00Z")),
    ];
    let key = prop::sample::select(vec![
        "conditions",
        "containerStatuses",
        "containers",
        "creationTimestamp",
        "data",
        "exitCode",
        "finishedAt",
        "initContainerStatuses",
        "initContainers",
        "involvedObject",
        "kind",
        "labels",
        "lastState",
        "lastTimestamp",
        "metadata",
        "name",
        "parameters",
        "podIPs",
        "ready",
        "restartCount",
        "running",
        "series",
        "spec",
        "state",
        "status",
        "subjects",
        "template",
        "terminated",
        "tokenRequests",
        "type",
        "waiting",
    ]);
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_object_panics(metadata in documents(), spec in documents(), status in documents()) {
        let object = json!({"metadata": metadata, "spec": spec, "status": status, "series": status});
        for resource in RESOURCES {
            maker(resource).object(&object);
        }
    }
}
