//! Steps of the scheduler as pods and nodes come and go.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn node(name: &str, cpu: i64, pods: i64) -> Value {
    json!({
        "metadata": {"name": name},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": cpu.to_string(), "pods": pods},
        },
    })
}

/// A pod of this name, with its CPU request and whatever else the specification says.
fn pod(name: &str, cpu: i64, rest: Value) -> Value {
    let mut spec = json!({"containers": [{"resources": {"requests": {"cpu": cpu.to_string()}}}]});
    if let (Value::Object(spec), Value::Object(rest)) = (&mut spec, rest) {
        spec.extend(rest);
    }
    let metadata = json!({"namespace": "d", "name": name, "uid": format!("uid-{name}")});
    json!({"metadata": metadata, "spec": spec})
}

fn scheduler(objects: &[Value]) -> Scheduler {
    let mut scheduler = Scheduler::default();
    for object in objects {
        match object.get("status") {
            Some(_) => scheduler.node_changed(object).unwrap(),
            None => scheduler.pod_changed(object).unwrap(),
        }
    }
    scheduler
}

fn key(name: &str) -> PodKey {
    PodKey { namespace: "d".to_owned(), name: name.to_owned() }
}

fn pod_ref(name: &str) -> PodRef {
    PodRef { key: key(name), uid: format!("uid-{name}") }
}

/// What a step decides, as `pod -> node` or `pod: message`.
fn step(scheduler: &mut Scheduler, second: i64) -> Vec<String> {
    let text = |decision: Decision| match decision {
        Decision::Bind { pod, node } => format!("{} -> {node}", pod.key.name),
        Decision::Unschedulable { pod, message } => format!("{}: {message}", pod.key.name),
        Decision::Gated { pod } => format!("{}: gated", pod.key.name),
    };
    scheduler.step(at(second)).into_iter().map(text).collect()
}

#[test]
fn pods_spread_over_the_nodes_with_the_fewest_and_ties_go_by_name() {
    let mut scheduler = scheduler(&[
        node("n2", 4, 9),
        node("n1", 4, 9),
        pod("bound", 1, json!({"nodeName": "n1"})),
        pod("a", 1, json!({})),
        pod("b", 1, json!({})),
        pod("c", 1, json!({})),
    ]);
    assert_eq!(step(&mut scheduler, 0), ["a -> n2", "b -> n1", "c -> n2"]);
    assert!(step(&mut scheduler, 1).is_empty());
}

/// OP-43
#[test]
fn a_pod_waits_for_a_node_with_its_driver_op_43() {
    let env = json!([{"name": "A", "valueFrom": {"csiSecretRef": {
        "driver": "d", "providerClassName": "c", "key": "k"}}}]);
    let csi = pod("a", 0, json!({"containers": [{"env": env}]}));
    let mut scheduler = scheduler(&[node("n1", 4, 9), node("n2", 4, 9), csi]);
    assert_eq!(
        step(&mut scheduler, 0),
        ["a: 0/2 nodes are available: 2 node(s) did not have CSI driver \"d\" for csiSecretRef."]
    );
    assert!(step(&mut scheduler, 1).is_empty());
    let csi_node = |able: &str| {
        json!({"metadata": {"name": "n2", "annotations": {"csi.waybill.dev/env-drivers": able}},
            "spec": {"drivers": [{"name": "d"}]}})
    };
    scheduler.drivers_changed(&csi_node(""));
    assert!(step(&mut scheduler, 2).is_empty());
    scheduler.drivers_changed(&csi_node("d"));
    assert_eq!(step(&mut scheduler, 3), ["a -> n2"]);

    scheduler.drivers_deleted("n2");
    scheduler.bind_failed(&pod_ref("a"), at(4));
    assert_eq!(step(&mut scheduler, 9).len(), 1);
}

#[test]
fn priority_goes_before_age_and_age_before_name() {
    let mut old = pod("z", 1, json!({}));
    old["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut young = pod("a", 1, json!({}));
    young["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:01Z");
    let mut urgent = pod("m", 1, json!({"priority": 10}));
    urgent["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:02Z");
    let mut scheduler = scheduler(&[node("n1", 2, 9), young, old, urgent]);
    assert_eq!(
        step(&mut scheduler, 0),
        ["m -> n1", "z -> n1", "a: 0/1 nodes are available: 1 Insufficient cpu."]
    );
}

#[test]
fn a_pod_that_fits_nowhere_is_told_once_and_tried_after_every_change() {
    let mut scheduler = scheduler(&[pod("a", 2, json!({}))]);
    assert_eq!(step(&mut scheduler, 0), ["a: no nodes available to schedule pods"]);
    assert!(step(&mut scheduler, 1).is_empty());
    scheduler.node_changed(&node("n1", 1, 9)).unwrap();
    assert_eq!(step(&mut scheduler, 2), ["a: 0/1 nodes are available: 1 Insufficient cpu."]);
    scheduler.node_changed(&node("n1", 1, 8)).unwrap();
    assert!(step(&mut scheduler, 3).is_empty());
    scheduler.node_changed(&node("n1", 2, 9)).unwrap();
    assert_eq!(step(&mut scheduler, 4), ["a -> n1"]);
}

#[test]
fn room_that_a_pod_leaves_is_used() {
    let mut scheduler = scheduler(&[
        node("n1", 1, 9),
        pod("old", 1, json!({"nodeName": "n1"})),
        pod("new", 1, json!({})),
    ]);
    assert_eq!(step(&mut scheduler, 0), ["new: 0/1 nodes are available: 1 Insufficient cpu."]);
    let mut ended = pod("old", 1, json!({"nodeName": "n1"}));
    ended["status"] = json!({"phase": "Succeeded"});
    scheduler.pod_changed(&ended).unwrap();
    assert_eq!(step(&mut scheduler, 1), ["new -> n1"]);
    scheduler.pod_deleted(&key("new"));
    assert!(scheduler.usage.is_empty());
}

#[test]
fn a_decision_counts_before_the_store_knows_it() {
    let mut scheduler = scheduler(&[node("n1", 1, 9), pod("a", 1, json!({}))]);
    assert_eq!(step(&mut scheduler, 0), ["a -> n1"]);
    // Late news of the pod as it was.
    scheduler.pod_changed(&pod("a", 1, json!({}))).unwrap();
    scheduler.pod_changed(&pod("b", 1, json!({}))).unwrap();
    assert_eq!(step(&mut scheduler, 1), ["b: 0/1 nodes are available: 1 Insufficient cpu."]);
    scheduler.pod_changed(&pod("a", 1, json!({"nodeName": "n1"}))).unwrap();
    assert_eq!(scheduler.usage["n1"].pods, 1);
    // A failure that is reported after the confirmation is wrong.
    scheduler.bind_failed(&pod_ref("a"), at(2));
    assert_eq!(scheduler.usage["n1"].pods, 1);
}

#[test]
fn a_failed_binding_is_tried_again_after_a_growing_while() {
    let mut scheduler = scheduler(&[node("n1", 1, 9), pod("a", 1, json!({}))]);
    let mut now = 0;
    for wait in [1, 2, 4, 8, 16, 16] {
        assert_eq!(step(&mut scheduler, now), ["a -> n1"]);
        scheduler.bind_failed(&pod_ref("a"), at(now));
        assert!(step(&mut scheduler, now + wait - 1).is_empty());
        now += wait;
        assert_eq!(scheduler.next_step(), Some(at(now)));
    }
    assert_eq!(step(&mut scheduler, now), ["a -> n1"]);
    assert_eq!(scheduler.next_step(), None);
}

#[test]
fn a_successor_of_the_same_name_is_another_pod() {
    let mut scheduler = scheduler(&[node("n1", 1, 9), pod("a", 1, json!({}))]);
    assert_eq!(step(&mut scheduler, 0), ["a -> n1"]);
    let mut successor = pod("a", 1, json!({}));
    successor["metadata"]["uid"] = json!("other");
    scheduler.pod_changed(&successor).unwrap();
    scheduler.bind_failed(&pod_ref("a"), at(1));
    assert_eq!(step(&mut scheduler, 1), ["a -> n1"]);
}

#[test]
fn gates_hold_a_pod_back_until_they_are_gone() {
    let gated = pod("a", 1, json!({"schedulingGates": [{"name": "g"}]}));
    let mut scheduler = scheduler(&[node("n1", 1, 9), gated]);
    assert_eq!(step(&mut scheduler, 0), ["a: gated"]);
    scheduler.node_changed(&node("n2", 1, 9)).unwrap();
    assert!(step(&mut scheduler, 1).is_empty());
    scheduler.pod_changed(&pod("a", 1, json!({"schedulingGates": []}))).unwrap();
    assert_eq!(step(&mut scheduler, 2), ["a -> n1"]);
}

#[test]
fn discouraged_nodes_come_last() {
    let mut unwelcome = node("n1", 1, 9);
    unwelcome["spec"] = json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]});
    let mut scheduler = scheduler(&[
        unwelcome,
        node("n2", 9, 9),
        pod("x", 1, json!({"nodeName": "n2"})),
        pod("a", 1, json!({})),
        pod("b", 1, json!({"tolerations": [{"operator": "Exists"}]})),
    ]);
    assert_eq!(step(&mut scheduler, 0), ["a -> n2", "b -> n1"]);
}

#[test]
fn heartbeats_and_status_changes_do_not_wake_waiting_pods() {
    let bound = || pod("x", 1, json!({"nodeName": "n1"}));
    let mut scheduler = scheduler(&[node("n1", 1, 9), bound(), pod("a", 1, json!({}))]);
    step(&mut scheduler, 0);
    let changes = scheduler.changes;
    let mut heartbeat = node("n1", 1, 9);
    heartbeat["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:00:00Z");
    scheduler.node_changed(&heartbeat).unwrap();
    scheduler.pod_changed(&bound()).unwrap();
    assert_eq!(scheduler.changes, changes);
}

#[test]
fn objects_that_cannot_be_read_change_nothing() {
    let mut scheduler = scheduler(&[node("n1", 1, 9)]);
    assert!(scheduler.pod_changed(&json!({"spec": 1})).is_err());
    assert!(scheduler.node_changed(&json!({"status": {"capacity": {"cpu": "x"}}})).is_err());
    assert!(step(&mut scheduler, 0).is_empty());
}

/// Something that happens to a cluster of few nodes and pods.
#[derive(Clone, Debug)]
enum Happening {
    Node { name: usize, cpu: i64, pods: i64 },
    NodeGone(usize),
    Pod { name: usize, cpu: i64, priority: i32 },
    PodGone(usize),
    Confirm(usize),
    BindFailed(usize),
    Step,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        2 => (0..3_usize, 1..6_i64, 1..5_i64)
            .prop_map(|(name, cpu, pods)| Happening::Node { name, cpu, pods }),
        1 => (0..3_usize).prop_map(Happening::NodeGone),
        6 => (0..9_usize, 0..4_i64, 0..3)
            .prop_map(|(name, cpu, priority)| Happening::Pod { name, cpu, priority }),
        2 => (0..9_usize).prop_map(Happening::PodGone),
        2 => (0..9_usize).prop_map(Happening::Confirm),
        1 => (0..9_usize).prop_map(Happening::BindFailed),
        4 => Just(Happening::Step),
    ]
}

fn history() -> impl Strategy<Value = Vec<Happening>> {
    proptest::collection::vec(happening(), 1..60)
}

/// Plays the store: pods as they were created, with the node they were given.
#[derive(Default)]
struct World {
    scheduler: Scheduler,
    pods: HashMap<usize, Value>,
    decided: HashMap<usize, String>,
}

impl World {
    fn play(&mut self, now: i64, happening: &Happening) -> Vec<Decision> {
        match happening {
            Happening::Node { name, cpu, pods } => {
                self.scheduler.node_changed(&node(&format!("n{name}"), *cpu, *pods)).unwrap();
            }
            Happening::NodeGone(name) => self.scheduler.node_deleted(&format!("n{name}")),
            Happening::Pod { name, cpu, priority } => {
                let object = pod(&format!("p{name}"), *cpu, json!({"priority": priority}));
                let object = self.pods.entry(*name).or_insert(object);
                self.scheduler.pod_changed(object).unwrap();
            }
            Happening::PodGone(name) => {
                self.pods.remove(name);
                self.decided.remove(name);
                self.scheduler.pod_deleted(&key(&format!("p{name}")));
            }
            Happening::Confirm(name) => {
                if let (Some(pod), Some(node)) = (self.pods.get_mut(name), self.decided.get(name)) {
                    pod["spec"]["nodeName"] = json!(node);
                    self.scheduler.pod_changed(pod).unwrap();
                }
            }
            Happening::BindFailed(name) => {
                self.scheduler.bind_failed(&pod_ref(&format!("p{name}")), at(now));
            }
            Happening::Step => return self.step(now),
        }
        Vec::new()
    }

    fn step(&mut self, now: i64) -> Vec<Decision> {
        let decisions = self.scheduler.step(at(now));
        for decision in &decisions {
            if let Decision::Bind { pod, node } = decision {
                let name = pod.key.name.trim_start_matches('p').parse().unwrap();
                self.decided.insert(name, node.clone());
            }
        }
        decisions
    }

    /// What is in use on `node`, counted anew.
    fn count(&self, node: &str) -> (i64, i64) {
        let there = self.scheduler.placed.values().filter(|placed| placed.node == node);
        there.fold((0, 0), |(cpu, pods), placed| (cpu + placed.pod.requests.get("cpu"), pods + 1))
    }
}

proptest! {
    #[test]
    fn no_decision_over_commits_a_node(happenings in history()) {
        let mut world = World::default();
        for (now, happening) in (0..).zip(&happenings) {
            for decision in world.play(now, happening) {
                let Decision::Bind { pod, node } = decision else { continue };
                let (cpu, pods) = world.count(&node);
                let allocatable = &world.scheduler.nodes[&node].allocatable;
                prop_assert!(pods <= allocatable.get("pods"));
                // A node may have shrunk under its pods; then only one that asks for nothing comes.
                let asked = world.scheduler.placed[&pod.key].pod.requests.get("cpu");
                prop_assert!(asked == 0 || cpu <= allocatable.get("cpu"));
            }
            for (node, usage) in &world.scheduler.usage {
                let (cpu, pods) = world.count(node);
                prop_assert_eq!(usage.requested("cpu"), i128::from(cpu));
                prop_assert_eq!(i64::try_from(usage.pods).unwrap(), pods);
            }
        }
    }

    #[test]
    fn the_same_history_leads_to_the_same_decisions(happenings in history()) {
        let (mut one, mut other) = (World::default(), World::default());
        for (now, happening) in (0..).zip(&happenings) {
            prop_assert_eq!(one.play(now, happening), other.play(now, happening));
        }
    }

    #[test]
    fn no_pod_that_fits_is_left_waiting(happenings in history()) {
        let mut world = World::default();
        for (now, happening) in (0..).zip(&happenings) {
            world.play(now, happening);
        }
        // Later than every wait after a failed binding.
        world.step(1000);
        for waiting in world.scheduler.waiting.values() {
            prop_assert_eq!(world.scheduler.best_node(&waiting.pod), None);
        }
    }
}
