//! What it costs to keep track of who manages what: for a pod that is created, for one whose status is
//! written again and again, and for a lease.

use std::{borrow::Cow, hint::black_box};

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use waybill_apply::{FieldSet, Schema, Tracker, Versions};

struct Pods {
    schema: Schema,
    unmanaged: FieldSet,
}

impl Versions for Pods {
    fn schema(&self, _: &str) -> Option<&Schema> {
        Some(&self.schema)
    }

    fn convert<'o>(&self, object: &'o Value, _: &str) -> Option<Cow<'o, Value>> {
        Some(Cow::Borrowed(object))
    }

    fn unmanaged(&self, _: &str) -> &FieldSet {
        &self.unmanaged
    }
}

fn pods(left_alone: &str) -> Pods {
    let text = json!({"type": "string"});
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let list = |items: &str, keys: &[&str]| {
        json!({"type": "array", "items": {"$ref": format!("#/definitions/{items}")},
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys})
    };
    let definitions = json!({
        "Pod": {"type": "object", "properties": {
            "metadata": {"$ref": "#/definitions/Meta", "default": {}},
            "spec": {"$ref": "#/definitions/Spec", "default": {}},
            "status": {"$ref": "#/definitions/Status", "default": {}}}},
        "Meta": {"type": "object", "properties": {"labels": map, "annotations": map}},
        "Spec": {"type": "object", "properties": {
            "containers": list("Container", &["name"]), "dnsPolicy": text}},
        "Container": {"type": "object", "properties": {
            "name": text, "image": text, "env": list("Env", &["name"]),
            "ports": list("Port", &["containerPort", "protocol"])}},
        "Env": {"type": "object", "properties": {"name": text, "value": text}},
        "Port": {"type": "object", "properties": {
            "containerPort": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}}},
        "Status": {"type": "object", "properties": {
            "phase": text, "conditions": list("Condition", &["type"])}},
        "Condition": {"type": "object", "properties": {
            "type": text, "status": text, "lastProbeTime": text, "lastTransitionTime": text}},
    });
    let definitions = definitions.as_object().cloned().unwrap_or_default();
    let fields: &[&[&str]] = &[
        &[left_alone],
        &["apiVersion"],
        &["kind"],
        &["metadata", "name"],
        &["metadata", "managedFields"],
    ];
    Pods { schema: Schema::new(&definitions, "Pod"), unmanaged: FieldSet::of_fields(fields) }
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web", "tier": "front"}},
        "spec": {
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "securityContext": {}, "terminationGracePeriodSeconds": 30, "enableServiceLinks": true,
            "containers": [{
                "name": "web", "image": "web:1", "imagePullPolicy": "IfNotPresent", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
            }],
        },
    })
}

/// Puts a status into `pod`.
fn report(pod: &mut Value, heartbeat: &str) {
    let conditions: Vec<_> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|name| {
            json!({"type": name, "status": "True", "lastProbeTime": heartbeat,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
        })
        .collect();
    let status = json!({"phase": "Running", "conditions": conditions});
    if let Some(pod) = pod.as_object_mut() {
        pod.insert("status".to_owned(), status);
    }
}

fn track(criterion: &mut Criterion) {
    let (main, part) = (pods("status"), pods("spec"));
    let creator = Tracker {
        versions: &main,
        api_version: "v1",
        manager: "kubectl-create",
        subresource: "",
        now: "2026-01-01T00:00:00Z",
    };
    let kubelet = Tracker { versions: &part, manager: "kubelet", subresource: "status", ..creator };
    criterion.bench_function("clone a pod", |bencher| {
        let pod = pod();
        bencher.iter(|| black_box(pod.clone()));
    });
    criterion.bench_function("create a pod", |bencher| {
        let pod = pod();
        bencher.iter(|| {
            let mut pod = pod.clone();
            creator.track(None, &mut pod);
            black_box(pod)
        });
    });
    let mut live = pod();
    creator.track(None, &mut live);
    let before = live.clone();
    report(&mut live, "2026-01-01T00:00:00Z");
    kubelet.track(Some(&before), &mut live);
    let mut next = live.clone();
    report(&mut next, "2026-01-01T00:00:10Z");
    criterion.bench_function("clone a pod with managers", |bencher| {
        bencher.iter(|| black_box(next.clone()));
    });
    criterion.bench_function("write a status again", |bencher| {
        bencher.iter(|| {
            let mut next = next.clone();
            kubelet.track(Some(&live), &mut next);
            black_box(next)
        });
    });
    let bytes = live.to_string();
    let bare = pod().to_string();
    criterion.bench_function("parse a pod", |bencher| {
        bencher.iter(|| black_box(serde_json::from_str::<Value>(&bare)));
    });
    criterion.bench_function("parse a pod with managers", |bencher| {
        bencher.iter(|| black_box(serde_json::from_str::<Value>(&bytes)));
    });
}

criterion_group!(benches, track);
criterion_main!(benches);
