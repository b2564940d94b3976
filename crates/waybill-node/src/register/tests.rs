//! The node as the API server sees it.

use std::sync::Arc;

use http::Method;
use tempfile::TempDir;
use waybill_proto::cri::{
    RuntimeFeatures, RuntimeHandler, RuntimeHandlerFeatures, RuntimeStatus, StatusResponse,
};

use super::*;
use crate::{
    fake_api::{Call, FakeApi, Reply},
    pressure::{Conditions, EvictionLimits},
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn registrar(api: &FakeApi, state: &TempDir) -> Registrar {
    let clock: Clock = Arc::new(|| at(60));
    let recorder = Recorder::start(None, "n", Arc::clone(&clock), &api.tasks, &api.stop);
    let options = Options {
        name: "n".to_owned(),
        address: "192.0.2.1".parse().unwrap(),
        port: 10250,
        labels: BTreeMap::from([("zone".to_owned(), "z".to_owned())]),
        max_pods: 110,
        state: state.path().to_owned(),
        runtime: Runtime::at(&state.path().join("no.sock")).unwrap(),
        client: Some(api.client.clone()),
        pressure: Pressure::new(EvictionLimits::default(), state.path().to_owned()),
        recorder,
        clock,
    };
    let machine = Machine::read(state.path()).unwrap();
    let facts = Facts {
        runtime_name: "waybill".to_owned(),
        runtime_version: "0.1.0".to_owned(),
        capacity: machine.capacity(110),
        allocatable: machine.allocatable(110, options.pressure.thresholds()),
        ips: vec![options.address],
    };
    Registrar {
        nodes: Api::all(api.client.clone()),
        lease: LeaseKeeper::new(api.client.clone(), "n"),
        description: Description::new(&options, &facts, &machine),
        options,
        sent: None,
        images: Vec::new(),
        abilities: Abilities::default(),
    }
}

fn healthy() -> Health {
    let condition = |kind: &str| waybill_proto::cri::RuntimeCondition {
        r#type: kind.to_owned(),
        status: true,
        ..Default::default()
    };
    let conditions = vec![condition("RuntimeReady"), condition("NetworkReady")];
    Health {
        runtime: RuntimeHealth::Up(StatusResponse {
            status: Some(RuntimeStatus { conditions }),
            features: Some(RuntimeFeatures {
                supplemental_groups_policy: true,
                ..RuntimeFeatures::default()
            }),
            runtime_handlers: vec![RuntimeHandler {
                name: "waybill".to_owned(),
                features: Some(RuntimeHandlerFeatures {
                    recursive_read_only_mounts: true,
                    user_namespaces: false,
                }),
            }],
            ..StatusResponse::default()
        }),
        pressure: Conditions::default(),
    }
}

/// There is nothing at first, and everything is taken.
fn empty(call: &Call) -> Reply {
    if call.method == Method::GET {
        return Reply::refuse(404, "NotFound");
    }
    let mut object = call.body.clone();
    object["metadata"]["uid"] = "node-uid".into();
    object["metadata"]["name"] = "n".into();
    Reply::Json(201, object)
}

async fn calls(api: &mut FakeApi, count: usize) -> Vec<Call> {
    let mut calls = Vec::new();
    for _ in 0..count {
        calls.push(api.next().await);
    }
    calls
}

fn lines(calls: &[Call]) -> Vec<String> {
    calls.iter().map(Call::line).collect()
}

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

#[tokio::test]
async fn a_new_node_is_made_with_all_that_is_known() {
    let mut api = FakeApi::start(empty).await;
    let state = TempDir::new().unwrap();
    registrar(&api, &state).beat(&healthy()).await.unwrap();
    let calls = calls(&mut api, 5).await;
    assert_eq!(
        lines(&calls),
        [
            "GET /api/v1/nodes/n".to_owned(),
            "POST /api/v1/nodes".to_owned(),
            format!("GET {LEASE}/n"),
            format!("POST {LEASE}"),
            "PATCH /api/v1/nodes/n/status".to_owned(),
        ]
    );
    let node = &calls[1].body;
    let labels = &node["metadata"]["labels"];
    assert_eq!(labels["kubernetes.io/hostname"], "n");
    assert_eq!(labels["kubernetes.io/os"], "linux");
    assert_eq!(labels["zone"], "z");
    let status = &node["status"];
    assert_eq!(status["capacity"]["pods"], "110");
    assert_eq!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250);
    assert_eq!(status["nodeInfo"]["containerRuntimeVersion"], "waybill://0.1.0");
    assert_eq!(status["nodeInfo"]["kubeletVersion"], "v1.37.0+waybill");
    assert!(status["nodeInfo"]["swap"]["capacity"] != 0, "other API servers refuse that");
    assert_eq!(
        status["addresses"],
        json!([
            {"type": "InternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": "n"},
        ])
    );
    assert_eq!(status["features"], json!({"supplementalGroupsPolicy": true}));
    assert_eq!(
        status["runtimeHandlers"],
        json!([{"name": "waybill", "features": {
            "recursiveReadOnlyMounts": true, "userNamespaces": false,
        }}])
    );
    let lease = &calls[3].body;
    assert_eq!(lease["spec"]["holderIdentity"], "n");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    assert_eq!(lease["spec"]["renewTime"], "1970-01-01T00:01:00.000000Z");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], "node-uid");
    let ready = calls[4].body["status"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!((&ready["type"], &ready["status"]), (&"Ready".into(), &"True".into()));
    assert!(calls[4].body.get("spec").is_none(), "taints are left alone");
}

#[tokio::test]
async fn a_status_is_sent_when_it_changes() {
    let mut api = FakeApi::start(empty).await;
    let state = TempDir::new().unwrap();
    let mut registrar = registrar(&api, &state);
    registrar.beat(&healthy()).await.unwrap();
    calls(&mut api, 5).await;
    registrar.beat(&healthy()).await.unwrap();
    assert_eq!(lines(&calls(&mut api, 1).await), [format!("PUT {LEASE}/n")]);
    assert!(api.seen().is_none());
    let down = Health { runtime: RuntimeHealth::Down("gone".to_owned()), ..healthy() };
    registrar.beat(&down).await.unwrap();
    let sent = calls(&mut api, 2).await;
    assert_eq!(sent[1].line(), "PATCH /api/v1/nodes/n/status");
    let ready = sent[1].body["status"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(ready["status"], "False");
    assert_eq!(ready["message"], "container runtime is down: gone");
}

#[tokio::test]
async fn a_node_that_is_there_keeps_what_others_wrote() {
    let mut api = FakeApi::start(|call| match call.line().as_str() {
        "GET /api/v1/nodes/n" => Reply::ok(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "uid": "node-uid", "labels": {"zone": "old", "mine": "x"}},
            "status": {"conditions": [{
                "type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:01Z",
            }]},
        })),
        _ => empty(call),
    })
    .await;
    let state = TempDir::new().unwrap();
    registrar(&api, &state).beat(&healthy()).await.unwrap();
    let calls = calls(&mut api, 5).await;
    assert_eq!(calls[1].line(), "PATCH /api/v1/nodes/n");
    let labels = calls[1].body["metadata"]["labels"].as_object().unwrap();
    assert_eq!(labels["zone"], "z");
    assert!(!labels.contains_key("mine"));
    let ready = calls[4].body["status"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(ready["lastTransitionTime"], "1970-01-01T00:00:01Z");
}

#[tokio::test]
async fn a_node_that_was_deleted_comes_again() {
    let mut api = FakeApi::start(|call| match call.line().as_str() {
        "PATCH /api/v1/nodes/n/status" => Reply::refuse(404, "NotFound"),
        _ => empty(call),
    })
    .await;
    let state = TempDir::new().unwrap();
    let mut registrar = registrar(&api, &state);
    assert!(registrar.beat(&healthy()).await.is_err());
    calls(&mut api, 5).await;
    assert!(registrar.beat(&healthy()).await.is_err());
    assert_eq!(lines(&calls(&mut api, 2).await)[1], "POST /api/v1/nodes");
}

#[tokio::test]
async fn a_lost_lease_is_read_again() {
    let mut api = FakeApi::start(|call| match call.method {
        Method::PUT => Reply::refuse(409, "Conflict"),
        _ => empty(call),
    })
    .await;
    let mut lease = LeaseKeeper::new(api.client.clone(), "n");
    lease.renew(at(1), "u").await.unwrap();
    assert!(lease.renew(at(2), "u").await.is_err());
    lease.renew(at(3), "u").await.unwrap();
    let methods: Vec<_> =
        calls(&mut api, 5).await.iter().map(|call| call.method.to_string()).collect();
    assert_eq!(methods, ["GET", "POST", "PUT", "GET", "POST"]);
}
