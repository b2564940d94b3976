//! Pods that take more of the disk than they may.

use std::{fs, path::Path};

use super::*;

const MEBIBYTE: usize = 1 << 20;

/// A pod whose container `a` has a limit of 10Mi, and what the node then says of it.
async fn excess_of(fill: impl FnOnce(&FakeRuntime, &Path)) -> Option<String> {
    let fake = FakeRuntime::start();
    let workers = workers(&fake);
    let resources = json!({ "limits": { "ephemeral-storage": "10Mi" } });
    let pod =
        pod(json!({ "containers": [{ "name": "a", "image": "i:1", "resources": resources }] }));
    workers.set(Arc::clone(&pod));
    fake.until(|state| state.running() == ["a#0"]).await;
    fill(&fake, &fake.directory.path().join("state/pods/uid-1"));
    let excess = workers.0.around.exceeded_storage(&pod).await;
    workers.stop().await;
    excess
}

/// A container once wrote 60 MB to `/`, `/etc/hosts` and `/dev/termination-log` within a limit of 10Mi, and ran on.
#[tokio::test]
async fn all_that_a_container_can_write_counts_against_its_limit() {
    let of_pod = "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ";
    assert_eq!(excess_of(|_, _| {}).await, None);
    let layer = excess_of(|fake, _| {
        fake.state().layers.insert("a", 60 << 20);
    });
    assert_eq!(layer.await.as_deref(), Some(of_pod));
    let file = async |name: &'static str| {
        excess_of(|_, pod| fs::write(pod.join(name), vec![1; 11 * MEBIBYTE]).unwrap()).await
    };
    assert_eq!(file("etc-hosts").await.as_deref(), Some(of_pod));
    assert_eq!(file("containers/a/0").await.as_deref(), Some(of_pod));
    let log = excess_of(|fake, _| {
        let log = fake.directory.path().join("logs/ns_p_uid-1/a/0.log");
        fs::write(log, vec![1; 11 * MEBIBYTE]).unwrap();
    });
    assert_eq!(log.await.as_deref(), Some(of_pod));
    let together = excess_of(|fake, pod| {
        fake.state().layers.insert("a", 6 << 20);
        fs::write(pod.join("etc-hosts"), vec![1; 5 * MEBIBYTE]).unwrap();
    });
    assert_eq!(together.await.as_deref(), Some(of_pod));
}

#[tokio::test]
async fn containers_of_pods_that_ended_go_when_their_room_is_needed_and_others_stay() {
    let fake = FakeRuntime::start();
    let workers = workers(&fake);
    workers.set(pod(json!({ "restartPolicy": "Never" })));
    fake.until(|state| state.running() == ["a#0"]).await;
    crate::worker::eviction::reclaim::reclaim(&workers).await;
    assert_eq!(fake.state().running(), ["a#0"], "the pod has not ended");

    fake.exit("a", 0);
    workers.wake(&uid());
    fake.until(|state| state.calls.contains(&"stop sandbox".to_owned())).await;
    let ended = json!({
        "metadata": { "name": "p", "namespace": "ns", "uid": "uid-1" },
        "spec": { "containers": [{ "name": "a", "image": "i:1" }], "restartPolicy": "Never" },
        "status": { "phase": "Succeeded" },
    });
    workers.set(Arc::new(Pod::from_value(ended, PodOrigin::ApiServer).unwrap()));
    fake.take_calls();
    crate::worker::eviction::reclaim::reclaim(&workers).await;
    let calls = fake.take_calls();
    assert_eq!(calls, ["remove a#0", "stop sandbox", "remove sandbox"]);
    workers.stop().await;
}
