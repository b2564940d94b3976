//! Pods from files on a node of a cluster: what kubectl sees of them, and that files alone decide.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use waybill_testkit::{
    kubectl::PATIENCE,
    stack::{IMAGE, Setup, Stack},
};

use crate::{BINARY, on_containerd_with};

/// The directory of static pods, which ends with this.
struct Manifests(tempfile::TempDir);

impl Manifests {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("the temporary directory is writable"))
    }

    fn flag(&self) -> String {
        format!("--node-flag=--static-pods={}", self.0.path().display())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("web.yaml")
    }

    /// As careful people write them: a node never sees half of it.
    fn write(&self, says: &str) {
        let new = self.0.path().join(".web.new");
        fs::write(&new, manifest(says)).expect("the directory is ours");
        fs::rename(new, self.path()).expect("the directory is ours");
    }
}

fn manifest(says: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: web, labels: {{from: file}}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, 'echo $SAYS; exec sleep 3600']
    env: [{{name: SAYS, value: {says}}}]
"
    )
}

/// The one pod from a file.
fn seen(stack: &Stack, field: &str) -> String {
    let line = format!("get pods -l from=file -o jsonpath={{.items[0]{field}}}");
    stack.kubectl().line(&line).stdout.clone()
}

#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}

fn check(manifests: &Manifests, stack: Stack) {
    let kubectl = stack.kubectl();
    manifests.write("one");
    until("the mirror is ready", || seen(&stack, ".status.containerStatuses[0].ready") == "true");
    let name = seen(&stack, ".metadata.name");
    let node = seen(&stack, ".spec.nodeName");
    assert_eq!(name, format!("web-{node}"));
    kubectl.line(&format!("get pod {name}")).shows(&[&format!("{name} 1/1 Running 0")]);
    kubectl.line(&format!("logs {name}")).prints("one");
    kubectl.run(&["exec", &name, "--", "sh", "-c", "echo $SAYS"]).prints("one");
    let container = seen(&stack, ".status.containerStatuses[0].containerID");

    // Whoever deletes a mirror deletes what is seen of the pod, and nothing else.
    let mirror = seen(&stack, ".metadata.uid");
    kubectl.line(&format!("delete pod {name}")).succeeds();
    until("the mirror is back", || {
        let other = seen(&stack, ".metadata.uid");
        !other.is_empty() && other != mirror
    });
    until("the mirror has its status", || {
        seen(&stack, ".status.containerStatuses[0].containerID") == container
    });
    kubectl.line(&format!("delete pod {name} --force --grace-period=0")).succeeds();
    until("the mirror is back after force", || {
        seen(&stack, ".status.containerStatuses[0].containerID") == container
    });

    // Neither does a node that is killed.
    stack.kill_role("node");
    kubectl.eventually(&format!("exec {name} -- echo alive"), "alive");
    assert_eq!(seen(&stack, ".status.containerStatuses[0].containerID"), container);
    assert_eq!(seen(&stack, ".status.containerStatuses[0].restartCount"), "0");

    manifests.write("two");
    kubectl.eventually(&format!("logs {name}"), "two");
    until("the new pod is ready", || seen(&stack, ".status.containerStatuses[0].ready") == "true");
    assert_ne!(seen(&stack, ".status.containerStatuses[0].containerID"), container);
    kubectl.line("get pods -l from=file -o name").prints(&format!("pod/{name}"));

    // What cannot be read changes nothing.
    fs::write(manifests.path(), "kind: Nonsense").expect("the directory is ours");
    until("the file is passed over", || {
        let log = fs::read_to_string(stack.state().join("logs/node.log")).unwrap_or_default();
        log.contains("a file was passed over")
    });
    kubectl.run(&["exec", &name, "--", "sh", "-c", "echo $SAYS"]).prints("two");

    fs::remove_file(manifests.path()).expect("the file is there");
    kubectl.eventually("get pods -l from=file -o name", "");
    until("nothing of the pod is left", || {
        fs::read_dir(stack.state().join("node/pods")).is_ok_and(|mut pods| pods.next().is_none())
    });
    stack.stop();
}

#[test]
fn a_static_pod_is_as_its_file_says_whatever_happens_to_its_mirror() {
    let manifests = Manifests::new();
    let Some(stack) = Setup::new(BINARY).flag(manifests.flag()).start() else { return };
    check(&manifests, stack);
}

#[test]
fn a_static_pod_on_containerd_is_as_its_file_says() {
    let manifests = Manifests::new();
    let Some((containerd, stack)) = on_containerd_with(&[manifests.flag()]) else { return };
    check(&manifests, stack);
    drop(containerd);
}
