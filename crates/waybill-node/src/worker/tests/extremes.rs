//! Numbers of pods that no clock can hold.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// Everything that an `int64` of a pod may be, and that a clock may not.
const EXTREMES: [i64; 6] = [i64::MIN, -1, 0, 1 << 62, i64::MAX - 1_000_000, i64::MAX];

/// The containers of a pod with a grace period near 2^63 used to outlive it: its worker panicked.
#[tokio::test]
async fn a_pod_ends_whatever_its_grace_period_is() {
    for grace in EXTREMES {
        let sleeps = json!({ "preStop": { "sleep": { "seconds": grace.min(0) } } });
        let spec = json!({
            "terminationGracePeriodSeconds": grace,
            "containers": [{ "name": "a", "image": "i:1", "lifecycle": sleeps }],
        });
        for deleted in [deleted(grace, spec.clone()), deleted(0, spec.clone())] {
            let fake = FakeRuntime::start();
            let workers = workers(&fake);
            workers.set(pod(spec.clone()));
            fake.until(|state| state.running() == ["a#0"]).await;
            workers.set(deleted);
            fake.until(|state| state.sandboxes.is_empty()).await;
            workers.stop().await;
        }
    }
}

/// `kubectl delete --force`: the object is gone at once, and its container must be soon.
#[tokio::test]
async fn no_container_outlives_an_object_that_was_deleted_by_force() {
    for grace in EXTREMES {
        let spec = json!({ "terminationGracePeriodSeconds": grace });
        let fake = FakeRuntime::start();
        // It never ends by itself.
        fake.state().stubborn = Some(31);
        let workers = workers(&fake);
        workers.set(pod(spec.clone()));
        fake.until(|state| state.running() == ["a#0"]).await;
        fake.take_calls();
        workers.set(deleted(i64::MAX, spec));
        fake.until(|state| !state.calls.is_empty()).await;
        workers.gone(&uid());
        fake.until(|state| state.sandboxes.is_empty()).await;
        workers.0.tasks.close();
        workers.0.tasks.wait().await;
    }
}

/// The same if the node was away meanwhile, and finds the container without an object.
#[tokio::test]
async fn no_container_is_left_to_itself_for_longer_than_a_moment() {
    for grace in EXTREMES {
        let fake = FakeRuntime::start();
        fake.state().stubborn = Some(31);
        let first = workers(&fake);
        first.set(pod(json!({ "terminationGracePeriodSeconds": grace })));
        fake.until(|state| state.running() == ["a#0"]).await;
        first.stop().await;
        let second = workers(&fake);
        second.synced();
        second.seen([uid()]);
        fake.until(|state| state.sandboxes.is_empty()).await;
        second.stop().await;
    }
}

/// Containers fail their probes, run out of time and are hooked with any number, too.
#[tokio::test]
async fn a_pod_with_extreme_numbers_runs_and_ends() {
    for number in EXTREMES {
        let small = i32::try_from(number).unwrap_or(i32::MAX);
        let probe = json!({
            "exec": { "command": ["true"] },
            "initialDelaySeconds": small,
            "periodSeconds": small,
            "timeoutSeconds": small,
            "failureThreshold": small,
            "terminationGracePeriodSeconds": number,
        });
        let spec = json!({
            "activeDeadlineSeconds": number.max(1),
            "tolerations": [{ "operator": "Exists", "tolerationSeconds": number }],
            "containers": [{
                "name": "a",
                "image": "i:1",
                "livenessProbe": probe,
                "readinessProbe": probe,
                "startupProbe": probe,
                "lifecycle": { "postStart": { "sleep": { "seconds": number.min(0) } } },
                "resources": { "requests": { "memory": number.to_string() } },
            }],
        });
        let fake = FakeRuntime::start();
        let workers = workers(&fake);
        workers.set(pod(spec.clone()));
        fake.until(|state| state.running() == ["a#0"]).await;
        workers.set(deleted(1, spec));
        fake.until(|state| state.sandboxes.is_empty()).await;
        workers.stop().await;
    }
}

/// Whatever the next such number is: a panic costs a pod a moment, and not its end.
#[tokio::test]
async fn a_worker_that_panics_begins_again() {
    let fake = FakeRuntime::start();
    let panics = AtomicU32::new(1);
    let workers = workers_by(
        &fake,
        Arc::new(move || {
            let left =
                panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
            assert!(left.is_err(), "a bug");
            Timestamp::now()
        }),
    );
    workers.set(pod(json!({})));
    fake.until(|state| state.running() == ["a#0"]).await;
    workers.set(deleted(1, json!({})));
    fake.until(|state| state.sandboxes.is_empty()).await;
    workers.stop().await;
}
