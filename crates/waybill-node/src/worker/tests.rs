//! Workers against a runtime on paper: which calls they make, and in which order.

mod eviction;
mod extremes;
mod resizes;
mod room;
mod runtime;
mod starts;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use waybill_api::gates::FeatureGates;

use self::runtime::FakeRuntime;
use super::{users::UserRanges, *};
use crate::{
    cri::{Runtime, labels, sandbox::Machine},
    directories::Directories,
    environment::{NodeFacts, Provenance, Resolver},
    event::Recorder,
    image_collection::{ImageCollector, ImageLimits},
    objects::{NoObjects, ObjectSource},
    pod::PodOrigin,
    pressure::{EvictionLimits, EvictionThresholds, Pressure},
    probe::Prober,
    server::Metrics,
    status::Writer,
    volume::Volumes,
};

fn workers(fake: &FakeRuntime) -> Workers {
    workers_by(fake, Arc::new(Timestamp::now))
}

fn workers_by(fake: &FakeRuntime, clock: crate::Clock) -> Workers {
    workers_with(fake, clock, NodeFacts::default())
}

fn workers_on(fake: &FakeRuntime, node: NodeFacts) -> Workers {
    workers_with(fake, Arc::new(Timestamp::now), node)
}

fn workers_with(fake: &FakeRuntime, clock: crate::Clock, node: NodeFacts) -> Workers {
    let directory = fake.directory.path();
    let directories = Directories { state: directory.join("state"), logs: directory.join("logs") };
    let runtime = Runtime::at(&fake.socket()).unwrap();
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let recorder = Recorder::start(None, "n", Arc::clone(&clock), &tasks, &stop);
    let objects: Arc<dyn ObjectSource> = Arc::new(NoObjects);
    let node = Arc::new(node);
    Workers::new(Surroundings {
        runtime_name: "paper".to_owned(),
        machine: Machine {
            node: "n".to_owned(),
            directories: directories.clone(),
            cgroup_root: "/waybill-test-of-workers".to_owned(),
            memory: 1 << 30,
        },
        host_ip: "192.0.2.1".to_owned(),
        resolver: Resolver {
            objects: Arc::clone(&objects),
            directories: directories.clone(),
            gates: FeatureGates::all_on(),
            node: Arc::clone(&node),
            csi: Arc::new(crate::csi::testing::standalone(directory)),
        },
        provenance: Arc::new(Provenance::new(directories.clone())),
        cgroups: Cgroups::at(&directory.join("cgroup"), "/waybill-test-of-workers"),
        making: Making::default(),
        volumes: Volumes::new(directories.clone(), objects, node, Arc::clone(&clock)),
        images: Images::default(),
        prober: Prober::new(
            runtime.clone(),
            recorder.clone(),
            "192.0.2.1",
            Arc::clone(&clock),
            Arc::new(|_| {}),
            &tasks,
            &stop,
        ),
        recorder: recorder.clone(),
        writer: Writer::new(None, &tasks, &stop),
        metrics: Arc::new(Metrics::new(FeatureGates::all_on())),
        sysctls: SysctlPolicy::default(),
        users: Arc::new(UserRanges::new(&directories, 110)),
        pressure: Pressure::new(
            EvictionLimits {
                // Whatever this machine is short of.
                thresholds: EvictionThresholds::parse("").unwrap(),
                ..EvictionLimits::default()
            },
            directory.to_owned(),
        ),
        collector: Arc::new(ImageCollector::new(
            runtime.clone(),
            ImageLimits { high_percent: 100, low_percent: 99, least_age: Duration::ZERO },
            recorder.clone(),
            Arc::clone(&clock),
            Box::new(BTreeSet::new),
        )),
        runtime,
        directories,
        clock,
    })
}

fn pod_with(metadata: Value, spec: Value) -> Arc<Pod> {
    let mut object = json!({
        "metadata": { "name": "p", "namespace": "ns", "uid": "uid-1" },
        "spec": { "containers": [{ "name": "a", "image": "i:1" }], "terminationGracePeriodSeconds": 30 },
    });
    for (part, fields) in [("metadata", metadata), ("spec", spec)] {
        for (field, value) in fields.as_object().unwrap() {
            object[part][field] = value.clone();
        }
    }
    Arc::new(Pod::from_value(object, PodOrigin::ApiServer).unwrap())
}

fn pod(spec: Value) -> Arc<Pod> {
    pod_with(json!({}), spec)
}

fn deleted(grace: i64, spec: Value) -> Arc<Pod> {
    let metadata = json!({
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": grace,
    });
    pod_with(metadata, spec)
}

fn uid() -> PodUid {
    PodUid::parse("uid-1").unwrap()
}

#[tokio::test]
async fn a_pod_comes_to_be_and_is_found_again() {
    let fake = FakeRuntime::start();
    let first = workers(&fake);
    let spec = json!({ "containers": [
        {
            "name": "a",
            "image": "i:1",
            "args": ["$(WHO)", "$(NOBODY)"],
            "env": [{ "name": "WHO", "value": "you" }],
        },
        { "name": "b", "image": "i:1" },
    ]});
    first.set(pod(spec.clone()));
    fake.until(|state| state.running() == ["a#0", "b#0"]).await;
    assert_eq!(
        fake.take_calls(),
        ["run sandbox 0", "create a#0", "start a#0", "create b#0", "start b#0"]
    );
    {
        let state = fake.state();
        let config = &state.configs[0];
        assert_eq!(config.args, ["you", "$(NOBODY)"]);
        assert_eq!(config.labels[labels::POD_UID], "uid-1");
        assert_eq!(config.annotations[labels::RESTART_COUNT], "0");
        assert_eq!(config.log_path, "a/0.log");
        let mounts: Vec<_> = config.mounts.iter().map(|it| it.container_path.as_str()).collect();
        assert_eq!(mounts, ["/dev/termination-log", "/etc/hosts"]);
        assert_eq!(state.sandboxes[0].annotations[labels::NODE], "n");
    }
    first.stop().await;

    // Another node, which knows nothing but what the runtime has.
    let second = workers(&fake);
    second.set(pod(spec));
    fake.exit("a", 1);
    second.wake(&uid());
    fake.until(|state| state.running() == ["b#0", "a#1"]).await;
    assert_eq!(fake.take_calls(), ["create a#1", "start a#1"]);
    assert_eq!(fake.state().configs[2].annotations[labels::RESTART_COUNT], "1");
    second.stop().await;
    assert_eq!(fake.state().running(), ["b#0", "a#1"]);
}

#[tokio::test]
async fn a_deleted_pod_ends_in_order_and_leaves_nothing() {
    let fake = FakeRuntime::start();
    let workers = workers(&fake);
    let spec = json!({
        "initContainers": [
            { "name": "s", "image": "i:1", "restartPolicy": "Always" },
            { "name": "t", "image": "i:1", "restartPolicy": "Always" },
        ],
        "containers": [{
            "name": "a",
            "image": "i:1",
            "lifecycle": { "preStop": { "exec": { "command": ["bye"] } } },
        }],
    });
    workers.set(pod(spec.clone()));
    fake.until(|state| state.running() == ["s#0", "t#0", "a#0"]).await;
    fake.take_calls();
    workers.set(deleted(7, spec));
    fake.until(|state| state.sandboxes.is_empty()).await;
    assert_eq!(
        fake.take_calls(),
        [
            "exec bye",
            "stop a#0 7",
            "stop t#0 7",
            "stop s#0 7",
            "stop sandbox",
            "remove a#0",
            "remove t#0",
            "remove s#0",
            "remove sandbox",
        ]
    );
    // It is known until its object is gone.
    assert!(workers.find("ns", "p", None).is_some());
    workers.gone(&uid());
    workers.0.tasks.close();
    workers.0.tasks.wait().await;
    assert!(workers.all().is_empty());
    assert!(!fake.directory.path().join("state/pods/uid-1").exists());
    assert!(!fake.directory.path().join("logs/ns_p_uid-1").exists());
}

#[tokio::test]
async fn whoever_deletes_again_may_shorten_the_grace() {
    let fake = FakeRuntime::start();
    let workers = workers(&fake);
    workers.set(pod(json!({})));
    fake.until(|state| state.running() == ["a#0"]).await;
    fake.take_calls();
    fake.state().stubborn = Some(10);
    workers.set(deleted(30, json!({})));
    fake.until(|state| state.calls == ["stop a#0 30"]).await;
    workers.set(deleted(60, json!({})));
    workers.set(deleted(3, json!({})));
    fake.until(|state| state.sandboxes.is_empty()).await;
    assert_eq!(fake.take_calls()[..2], ["stop a#0 30", "stop a#0 3"]);
}

#[tokio::test]
async fn a_pod_that_has_done_its_work_is_stopped_and_kept() {
    let fake = FakeRuntime::start();
    let workers = workers(&fake);
    workers.set(pod(json!({ "restartPolicy": "Never" })));
    fake.until(|state| state.running() == ["a#0"]).await;
    fake.take_calls();
    fake.exit("a", 0);
    workers.wake(&uid());
    fake.until(|state| !state.calls.is_empty()).await;
    workers.stop().await;
    assert_eq!(fake.take_calls(), ["stop sandbox"]);
    assert_eq!(fake.state().containers.len(), 1);
}

#[tokio::test]
async fn another_image_replaces_the_container() {
    let fake = FakeRuntime::start();
    let workers = workers(&fake);
    let with = |image| json!({ "restartPolicy": "Never", "containers": [{ "name": "a", "image": image }] });
    workers.set(pod(with("i:1")));
    fake.until(|state| state.running() == ["a#0"]).await;
    fake.take_calls();
    workers.set(pod(with("i:2")));
    fake.until(|state| state.running() == ["a#1"]).await;
    assert_eq!(fake.take_calls(), ["stop a#0 30", "create a#1", "start a#1"]);
    assert_eq!(fake.state().configs[1].image.as_ref().unwrap().user_specified_image, "i:2");
}

#[tokio::test]
async fn what_keeps_one_container_from_starting_does_not_keep_others() {
    let fake = FakeRuntime::start();
    let workers = workers(&fake);
    let secret = json!({ "secretKeyRef": { "name": "s", "key": "k" } });
    workers.set(pod(json!({ "containers": [
        { "name": "a", "image": "missing:1", "imagePullPolicy": "Never" },
        { "name": "b", "image": "i:1", "env": [{ "name": "V", "valueFrom": secret }] },
        { "name": "c", "image": "Not A Name" },
        { "name": "d", "image": "i:1" },
    ]})));
    fake.until(|state| state.running() == ["d#0"]).await;
    assert_eq!(fake.take_calls(), ["run sandbox 0", "create d#0", "start d#0"]);
    // A change of the spec is tried at once.
    workers.set(pod_with(
        json!({ "generation": 2 }),
        json!({ "containers": [
            { "name": "a", "image": "i:1", "imagePullPolicy": "Never" },
            { "name": "d", "image": "i:1" },
        ]}),
    ));
    fake.until(|state| state.running() == ["d#0", "a#0"]).await;
}

#[tokio::test]
async fn pods_of_this_node_that_nobody_wants_are_removed() {
    let fake = FakeRuntime::start();
    let first = workers(&fake);
    first.set(pod(json!({ "terminationGracePeriodSeconds": 4 })));
    fake.until(|state| state.running() == ["a#0"]).await;
    first.stop().await;
    fake.take_calls();

    let second = workers(&fake);
    second.seen([uid()]);
    // Nothing is known to be unwanted before all sources have spoken.
    assert!(fake.take_calls().is_empty());
    second.synced();
    second.seen([uid()]);
    fake.until(|state| state.sandboxes.is_empty()).await;
    assert_eq!(fake.take_calls(), ["stop a#0 4", "stop sandbox", "remove a#0", "remove sandbox"]);
    second.stop().await;
}

#[tokio::test]
async fn a_drained_node_has_nothing_running() {
    let fake = FakeRuntime::start();
    let workers = workers(&fake);
    workers.set(pod(json!({})));
    fake.until(|state| state.running() == ["a#0"]).await;
    fake.take_calls();
    workers.drain(Duration::from_secs(5)).await;
    assert_eq!(fake.take_calls(), ["stop a#0 5", "stop sandbox", "remove a#0", "remove sandbox"]);
}

/// What a node before this one asked for is waited for, and no failure of anybody.
#[tokio::test]
async fn a_sandbox_that_is_being_made_is_found_later() {
    let fake = FakeRuntime::start();
    let workers = workers(&fake);
    fake.state().taken.insert("RunPodSandbox");
    workers.set(pod(json!({})));
    fake.until(|state| state.calls == ["taken RunPodSandbox"]).await;
    fake.state().taken.clear();
    fake.until(|state| state.running() == ["a#0"]).await;
}

/// The end of a pod finds what was being made when it came.
#[tokio::test]
async fn a_pod_that_goes_while_it_is_made_leaves_nothing() {
    let fake = FakeRuntime::start();
    let workers = workers(&fake);
    let held = fake.hold("RunPodSandbox");
    workers.set(pod(json!({})));
    fake.until(|state| state.calls == ["hold RunPodSandbox"]).await;
    workers.gone(&uid());
    drop(held);
    workers.0.tasks.close();
    workers.0.tasks.wait().await;
    assert_eq!(
        fake.take_calls(),
        ["hold RunPodSandbox", "run sandbox 0", "stop sandbox", "remove sandbox"]
    );
    assert!(fake.state().sandboxes.is_empty());
}
