//! A pod that forks without end takes its own processes, and nobody else's.

use std::{
    fs,
    path::{Path, PathBuf},
};

use waybill_testkit::{
    hostile::hostile,
    stack::{IMAGE, Setup, Stack},
};

use crate::{BINARY, on_containerd_with};

const LIMIT: &str = "--node-flag=--pod-max-pids=100";
const ATTACK: [&str; 3] = ["/attack/waybill-hostile", "fork-until-refused", "300"];

fn start(stack: &Stack, name: &str) {
    stack.kubectl().apply(&manifest(name)).succeeds();
    stack.kubectl().wait_until_ready(name);
}

fn manifest(name: &str) -> String {
    let folder = hostile().parent().and_then(|it| it.canonicalize().ok());
    let folder = folder.expect("a program is in a folder");
    let folder = folder.display();
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{
        terminationGracePeriodSeconds: 0,
        volumes: [{{name: attack, hostPath: {{path: '{folder}'}}}}],
        containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600'],
          volumeMounts: [{{name: attack, mountPath: /attack, readOnly: true}}]}}]}}}}"
    )
}

/// One session in a default pod once took every process of a machine, and the node panicked for want of a thread.
fn attack(stack: Stack) {
    let kubectl = stack.kubectl();
    start(&stack, "greedy");
    start(&stack, "calm");
    let arguments = ["exec", "-i", "greedy", "--"].into_iter().chain(ATTACK);
    let session = kubectl.follow(&arguments.collect::<Vec<_>>());
    let told = session.wait_for("of 300 processes run");
    let running: u32 = told.split(' ').next().and_then(|number| number.parse().ok()).unwrap();
    assert!((50..100).contains(&running), "{told}");

    kubectl.run(&["exec", "calm", "--", "sh", "-c", "echo here | cat"]).prints("here");
    start(&stack, "late");
    kubectl.line("exec late -- true").succeeds();

    assert_eq!(session.ends(), Some(1), "the attack was not refused");
    kubectl.run(&["exec", "greedy", "--", "sh", "-c", "echo again | cat"]).prints("again");
    kubectl.line("delete pod greedy calm late").succeeds();
    stack.stop();
}

#[test]
fn a_pod_that_forks_without_end_meets_its_own_limit() {
    let Some(stack) = Setup::new(BINARY).flag(LIMIT).start() else { return };
    attack(stack);
}

#[test]
fn a_pod_on_containerd_that_forks_without_end_meets_its_own_limit() {
    let Some((containerd, stack)) = on_containerd_with(&[LIMIT.to_owned()]) else { return };
    attack(stack);
    drop(containerd);
}

/// The negative control: without a limit nothing stops the same attack.
#[test]
fn without_a_limit_the_attack_works() {
    let setup = Setup::new(BINARY).flag("--node-flag=--pod-max-pids=-1");
    let Some(stack) = setup.start() else { return };
    start(&stack, "greedy");
    let arguments = ["exec", "greedy", "--"].into_iter().chain(ATTACK);
    let ran = stack.kubectl().run(&arguments.collect::<Vec<_>>());
    ran.shows(&["300 of 300 processes run"]);
    stack.kubectl().line("delete pod greedy").succeeds();
    stack.stop();
}

/// Where a process may have no more threads than it has.
struct NoMoreThreads(PathBuf);

impl NoMoreThreads {
    fn of(process: u32) -> Self {
        let root = Path::new("/sys/fs/cgroup");
        let root = if root.join("pids").is_dir() { root.join("pids") } else { root.to_owned() };
        let cgroup = Self(root.join(format!("waybill-test-threads-{process}")));
        fs::create_dir(&cgroup.0).unwrap();
        fs::write(cgroup.0.join("cgroup.procs"), process.to_string()).unwrap();
        // The count of threads that are there does not matter: there is no room for a further one.
        fs::write(cgroup.0.join("pids.max"), "1").unwrap();
        cgroup
    }
}

impl Drop for NoMoreThreads {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("pids.max"), "max");
    }
}

/// Its workers panicked where they asked for a thread.
#[test]
fn a_node_that_gets_no_threads_goes_on() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let cgroup = NoMoreThreads::of(stack.role("node"));
    start(&stack, "slow");
    stack.kubectl().line("exec slow -- true").succeeds();
    stack.kubectl().line("logs slow").succeeds();
    stack.kubectl().line("delete pod slow").succeeds();
    let said = fs::read_to_string(stack.state().join("logs/node.log")).unwrap();
    assert!(!said.contains("panicked"), "{said}");
    let directory = cgroup.0.clone();
    drop(cgroup);
    stack.stop();
    fs::remove_dir(directory).unwrap();
}

/// It panicked where it asked for a thread: pods could be neither made nor ended.
#[test]
fn a_runtime_that_gets_no_threads_refuses_new_pods_and_ends_old_ones() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let kubectl = stack.kubectl();
    start(&stack, "old");
    let cgroup = NoMoreThreads::of(stack.role("runtime"));
    kubectl.line("exec old -- true").succeeds();
    kubectl.apply(&manifest("new")).succeeds();
    kubectl.eventually_shows("get events", "the machine gives the runtime no thread");
    kubectl.line("delete pod old").succeeds();
    let directory = cgroup.0.clone();
    drop(cgroup);
    kubectl.wait_until_ready("new");
    kubectl.line("delete pod new").succeeds();
    let said = fs::read_to_string(stack.state().join("logs/runtime.log")).unwrap();
    assert!(!said.contains("panicked"), "{said}");
    stack.stop();
    fs::remove_dir(directory).unwrap();
}
