//! What a file may say, and what becomes of it.

use std::sync::Arc;

use jiff::Timestamp;

use super::*;

fn rules() -> Rules {
    Rules {
        node: "Node".to_owned(),
        gates: FeatureGates::all_on(),
        clock: Arc::new(|| Timestamp::UNIX_EPOCH),
    }
}

fn pod(spec: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {spec}\n")
}

const PLAIN: &str = "{containers: [{name: a, image: img}]}";

#[track_caller]
fn check_refused(content: &str, expected: &str) {
    let error = read(content.as_bytes(), "f", &rules()).err().unwrap();
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn what_a_file_leaves_out_is_filled_in() {
    let read = read(pod(PLAIN).as_bytes(), "f", &rules()).unwrap();
    let object = &read.object;
    assert_eq!(object["metadata"]["name"], "web-node");
    assert_eq!(object["metadata"]["namespace"], "default");
    assert_eq!(object["spec"]["nodeName"], "Node");
    assert_eq!(object["spec"]["restartPolicy"], "Always");
    assert_eq!(object["spec"]["terminationGracePeriodSeconds"], 30);
    let container = &object["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(read.pod.origin(), PodOrigin::File);
    let annotations = read.pod.object().metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations[CONFIG_HASH], read.pod.uid().as_str());
}

#[test]
fn json_is_read_as_well() {
    let json = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "ns"},
        "spec": {"containers": [{"name": "a", "image": "img:1"}], "restartPolicy": "Never"},
    });
    let read = read(json.to_string().as_bytes(), "f", &rules()).unwrap();
    assert_eq!(read.pod.namespace(), "ns");
    assert_eq!(read.pod.spec().restart_policy.as_deref(), Some("Never"));
    let policy = read.pod.spec().containers[0].image_pull_policy.as_deref();
    assert_eq!(policy, Some("IfNotPresent"));
}

#[test]
fn the_uid_depends_on_content_file_and_node_and_on_nothing_else() {
    let uid = |content: &str, path: &str, node: &str| {
        let rules = Rules { node: node.to_owned(), ..rules() };
        read(content.as_bytes(), path, &rules).unwrap().pod.uid().clone()
    };
    let (plain, other) = (pod(PLAIN), pod("{containers: [{name: b, image: img}]}"));
    let first = uid(&plain, "f", "n");
    assert_eq!(uid(&plain, "f", "n"), first);
    for another in [uid(&other, "f", "n"), uid(&plain, "g", "n"), uid(&plain, "f", "m")] {
        assert_ne!(another, first);
    }
}

#[test]
fn images_that_move_are_pulled_each_time() {
    for image in ["a", "a:latest", "r:5000/a", "r:5000/a:latest"] {
        assert!(is_latest(image), "{image}");
    }
    for image in ["a:1", "r:5000/a:1", "a@sha256:0"] {
        assert!(!is_latest(image), "{image}");
    }
}

#[test]
fn what_is_no_pod_is_refused_with_the_reason() {
    check_refused("kind: [", "line ");
    check_refused("kind: Pod\nkind: Pod\n", "not one YAML or JSON document");
    check_refused("apiVersion: v1\nkind: ConfigMap\n", "kind Pod");
    check_refused("apiVersion: v1\nkind: Pod\n", "kind Pod");
    check_refused(&pod("{containers: []}"), "at least one container");
    check_refused(&pod("{containers: [{name: A}]}"), "spec.containers[0].name: ");
    check_refused(&pod("{containers: [{name: ../x}]}"), "spec.containers[0].name: ");
    check_refused(&pod("{containers: [{name: a}, {name: a}]}"), "spec.containers[1].name: it is");
    let twice = "{initContainers: [{name: a}], containers: [{name: a}]}";
    check_refused(&pod(twice), "spec.containers[0].name: it is used twice");
    let volume = "{containers: [{name: a}], volumes: [{name: ../../etc}]}";
    check_refused(&pod(volume), "spec.volumes[0].name: ");
    let dots = pod(PLAIN).replace("{name: web}", "{name: web, namespace: ../x}");
    check_refused(&dots, "metadata.namespace: ");
    let env = "{containers: [{name: a, env: [{name: '', value: v}]}]}";
    check_refused(&pod(env), "spec.containers[0].env[0].name");
    assert!(matches!(read(b"\xff", "f", &rules()), Err(ManifestError::NotText)));
}

#[test]
fn errors_show_no_values() {
    let env = "{containers: [{name: a, env: [{name: X, value: {secret: canary}}]}]}";
    let error = read(pod(env).as_bytes(), "f", &rules()).err().unwrap();
    assert!(!error.to_string().contains("canary"), "{error}");
    let error = read(b"a: 'canary\nb: [", "f", &rules()).err().unwrap();
    assert!(!error.to_string().contains("canary"), "{error}");
}
