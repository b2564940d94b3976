//! Starts that fail are counted, so that a roll-out which breaks them shows in a graph.

use super::*;

fn count(workers: &Workers, line: &str) -> u64 {
    let text = workers.0.around.metrics.text(0);
    let found = text.lines().find_map(|found| found.strip_prefix(line));
    found.map_or(0, |count| count.trim().parse().unwrap())
}

/// FILE-39
#[tokio::test]
async fn a_container_without_its_env_file_is_counted_file_39() {
    let fake = FakeRuntime::start();
    let workers = workers(&fake);
    let missing = json!({ "fileKeyRef": { "volumeName": "v", "path": "app.env", "key": "K" } });
    workers.set(pod(json!({
        "volumes": [{ "name": "v", "emptyDir": {} }],
        "containers": [
            { "name": "a", "image": "i:1", "env": [{ "name": "V", "valueFrom": missing }] },
            { "name": "d", "image": "i:1" },
        ],
    })));
    fake.until(|state| state.running() == ["d#0"]).await;
    assert_eq!(fake.take_calls(), ["run sandbox 0", "create d#0", "start d#0"]);
    let errors = "kubelet_started_containers_errors_total\
                  {container_type=\"container\",code=\"CreateContainerConfigError\"}";
    assert!(count(&workers, errors) >= 1);
    let all = "kubelet_started_containers_total{container_type=\"container\"}";
    assert!(count(&workers, all) >= 2);
    assert_eq!(count(&workers, "kubelet_started_pods_total"), 1);
    assert_eq!(count(&workers, "kubelet_started_pods_errors_total"), 0);
}

/// FILE-39
#[tokio::test]
async fn a_sandbox_that_cannot_be_made_is_counted_and_tried_again_file_39() {
    let fake = FakeRuntime::start();
    let workers = workers(&fake);
    fake.state().fail.insert("RunPodSandbox", "no network");
    workers.set(pod(json!({})));
    fake.until(|state| state.calls == ["fail RunPodSandbox"]).await;
    fake.state().fail.clear();
    fake.until(|state| state.running() == ["a#0"]).await;
    assert_eq!(count(&workers, "kubelet_started_pods_errors_total"), 1);
    assert_eq!(count(&workers, "kubelet_started_pods_total"), 2);
}
