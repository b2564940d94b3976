//! Other resources for pods that run.

use waybill_proto::cri;

use super::*;

/// A pod that wants so much memory, with what its status says that it has.
fn pod_with_memory(wanted: &str, given: &str, policy: &str) -> Arc<Pod> {
    let resources = |memory: &str| json!({ "limits": { "memory": memory } });
    let object = json!({
        "metadata": { "name": "p", "namespace": "ns", "uid": "uid-1" },
        "spec": { "containers": [{
            "name": "a", "image": "i:1", "resources": resources(wanted),
            "resizePolicy": [{ "resourceName": "memory", "restartPolicy": policy }],
        }] },
        "status": { "containerStatuses": [{
            "name": "a", "image": "i:1", "imageID": "", "ready": true, "restartCount": 0,
            "resources": resources(given),
        }] },
    });
    Arc::new(Pod::from_value(object, PodOrigin::ApiServer).unwrap())
}

/// The pod runs with 1Mi, and wants 2Mi.
async fn resized(policy: &str, until: &str) -> Vec<String> {
    let fake = FakeRuntime::start();
    let workers = workers(&fake);
    workers.set(pod_with_memory("1Mi", "1Mi", policy));
    fake.until(|state| state.running() == ["a#0"]).await;
    let linux = cri::LinuxContainerResources {
        cpu_shares: 2,
        memory_limit_in_bytes: 1 << 20,
        ..Default::default()
    };
    let resources = cri::ContainerResources { linux: Some(linux), windows: None };
    fake.state().containers[0].resources = Some(resources);
    fake.take_calls();
    workers.set(pod_with_memory("2Mi", "1Mi", policy));
    workers.wake(&uid());
    fake.until(|state| state.calls.iter().any(|call| call == until)).await;
    // The API server may take its time to say what was done.
    workers.wake(&uid());
    workers.stop().await;
    fake.take_calls()
}

#[tokio::test]
async fn limits_of_a_container_change_in_place_and_once() {
    let calls = resized("NotRequired", "resize a#0 2097152").await;
    assert_eq!(calls, ["resize a#0 2097152"]);
}

#[tokio::test]
async fn a_container_that_wants_it_is_started_anew_with_them() {
    let calls = resized("RestartContainer", "start a#1").await;
    assert_eq!(calls[0], "stop a#0 30");
    assert!(!calls.iter().any(|call| call.starts_with("resize")), "{calls:?}");
}
