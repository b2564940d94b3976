//! Pods for which the node has no room.

use super::*;

/// A node with two processors.
fn small(fake: &FakeRuntime) -> Workers {
    let cpu = waybill_core::quantity::Quantity::parse("2").unwrap();
    let allocatable = BTreeMap::from([("cpu".to_owned(), cpu)]);
    workers_on(fake, NodeFacts { allocatable, ..NodeFacts::default() })
}

fn asking(uid: &str, cpu: &str) -> Arc<Pod> {
    let resources = json!({ "requests": { "cpu": cpu } });
    pod_with(
        json!({ "name": uid, "uid": uid }),
        json!({ "containers": [{ "name": uid, "image": "i:1", "resources": resources }] }),
    )
}

#[tokio::test]
async fn of_pods_that_come_at_once_those_run_for_which_there_is_room() {
    let fake = FakeRuntime::start();
    let workers = small(&fake);
    workers.set(asking("too-large", "3"));
    workers.set(asking("a", "1500m"));
    fake.until(|state| state.running() == ["a#0"]).await;
    workers.set(asking("b", "1"));
    workers.set(asking("c", "500m"));
    fake.until(|state| state.running() == ["a#0", "c#0"]).await;
    let refused = workers.take(&asking("b", "1")).unwrap_err();
    let message =
        "Node didn't have enough resource: cpu, requested: 1000, used: 2000, capacity: 2000";
    assert_eq!(refused, ("OutOfcpu", message.to_owned()));
    assert_eq!(workers.take(&asking("a", "1500m")), Ok(()), "it has its own room");
    // The room of a pod that is gone is there for another at once.
    workers.gone(&PodUid::parse("a").unwrap());
    workers.set(asking("d", "1500m"));
    fake.until(|state| state.running() == ["c#0", "d#0"]).await;
    workers.stop().await;
}

#[tokio::test]
async fn what_the_node_cannot_do_without_has_room_always() {
    let fake = FakeRuntime::start();
    let workers = small(&fake);
    let resources = json!({ "requests": { "cpu": "3" } });
    workers.set(pod(json!({
        "priority": 2_000_000_000,
        "containers": [{ "name": "a", "image": "i:1", "resources": resources }],
    })));
    fake.until(|state| state.running() == ["a#0"]).await;
    workers.stop().await;
}

/// Static pods have objects that never say how they fare.
#[tokio::test]
async fn a_pod_that_has_ended_gives_its_room_back() {
    let fake = FakeRuntime::start();
    let workers = small(&fake);
    let resources = json!({ "requests": { "cpu": "2" } });
    workers.set(pod(json!({
        "restartPolicy": "Never",
        "containers": [{ "name": "a", "image": "i:1", "resources": resources }],
    })));
    fake.until(|state| state.running() == ["a#0"]).await;
    assert_eq!(workers.take(&asking("b", "1")).unwrap_err().0, "OutOfcpu");
    fake.exit("a", 0);
    workers.wake(&uid());
    while workers.take(&asking("b", "1")).is_err() {
        tokio::task::yield_now().await;
    }
    workers.stop().await;
}

#[tokio::test]
async fn pods_that_ran_before_the_node_started_anew_have_their_room() {
    let fake = FakeRuntime::start();
    let workers = small(&fake);
    let before = |phase: &str| {
        let resources = json!({ "requests": { "cpu": "1500m" } });
        let object = json!({
            "metadata": { "name": "a", "namespace": "ns", "uid": "a" },
            "spec": { "containers": [{ "name": "a", "image": "i:1", "resources": resources }] },
            "status": { "phase": phase, "startTime": "2026-01-01T00:00:00Z" },
        });
        Arc::new(Pod::from_value(object, PodOrigin::ApiServer).unwrap())
    };
    workers.set(before("Running"));
    assert_eq!(workers.take(&asking("b", "1")).unwrap_err().0, "OutOfcpu");
    workers.set(before("Succeeded"));
    assert_eq!(workers.take(&asking("b", "1")), Ok(()));
    workers.stop().await;
}
