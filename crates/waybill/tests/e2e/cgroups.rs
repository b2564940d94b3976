//! Pods as a whole have the limits of their containers, and no cgroup outlives its pod.

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

use crate::{BINARY, on_containerd};

/// Two containers with these resources each.
fn manifest(name: &str, resources: &str) -> String {
    let container = |name: &str| {
        format!(
            "{{name: {name}, image: '{IMAGE}', command: [sleep, '3600'], resources: {resources}}}"
        )
    };
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{
        terminationGracePeriodSeconds: 1, containers: [{}, {}]}}}}",
        container("a"),
        container("b")
    )
}

fn start(stack: &Stack, name: &str, resources: &str) -> String {
    let kubectl = stack.kubectl();
    kubectl.apply(&manifest(name, resources)).succeeds();
    kubectl.wait_until_ready(name);
    let uid = kubectl.line(&format!("get pod {name} -o jsonpath={{.metadata.uid}}"));
    uid.succeeds().stdout.clone()
}

/// The content of a file of a cgroup, whichever version the machine has it in.
fn read(stack: &Stack, cgroup: &str, file: [&str; 2]) -> String {
    let places = stack.cgroups().into_iter().map(|root| root.join(cgroup));
    let mut files = places.flat_map(|place| file.map(|name| place.join(name)));
    let text = files.find_map(|file| fs::read_to_string(file).ok());
    text.unwrap_or_else(|| panic!("no {file:?} of {cgroup}")).trim().to_owned()
}

const SHARES: [&str; 2] = ["cpu.shares", "cpu.weight"];
const QUOTA: [&str; 2] = ["cpu.cfs_quota_us", "cpu.max"];
const PIDS: [&str; 2] = ["pids.max", "pids.max"];
const MEMORY: [&str; 2] = ["memory.limit_in_bytes", "memory.max"];

#[track_caller]
fn check(stack: &Stack, cgroup: &str, file: [&str; 2], expected: [&str; 2]) {
    let found = read(stack, cgroup, file);
    assert!(expected.contains(&found.as_str()), "{cgroup} {file:?}: {found}, not {expected:?}");
}

/// Pods that have a cgroup, or something in one.
fn pods(stack: &Stack) -> Vec<PathBuf> {
    let classes = stack
        .cgroups()
        .into_iter()
        .flat_map(|root| [root.join("burstable"), root.join("besteffort"), root]);
    let all = classes.flat_map(|class| fs::read_dir(class).into_iter().flatten().flatten());
    let all = all.filter(|entry| entry.file_name().to_string_lossy().starts_with("pod"));
    all.map(|entry| entry.path()).collect()
}

fn limits(stack: Stack) {
    let whole = start(&stack, "whole", "{limits: {cpu: 250m, memory: 32Mi}}");
    let part = start(&stack, "part", "{requests: {cpu: 250m}, limits: {cpu: 500m}}");
    let none = start(&stack, "none", "{}");

    let whole = format!("pod{whole}");
    check(&stack, &whole, SHARES, ["512", "20"]);
    check(&stack, &whole, QUOTA, ["50000", "50000 100000"]);
    check(&stack, &whole, MEMORY, ["67108864", "67108864"]);
    let part = format!("burstable/pod{part}");
    check(&stack, &part, SHARES, ["512", "20"]);
    check(&stack, &part, QUOTA, ["100000", "100000 100000"]);
    assert!(!["67108864", "0"].contains(&read(&stack, &part, MEMORY).as_str()));
    let none = format!("besteffort/pod{none}");
    check(&stack, &none, SHARES, ["2", "1"]);
    check(&stack, &none, QUOTA, ["-1", "max 100000"]);
    check(&stack, &none, PIDS, ["4096", "4096"]);
    check(&stack, "besteffort", SHARES, ["2", "1"]);

    let start = Instant::now();
    while !["512", "20"].contains(&read(&stack, "burstable", SHARES).as_str()) {
        assert!(start.elapsed() < PATIENCE, "burstable pods have no share");
        thread::sleep(Duration::from_millis(100));
    }
    stack.kubectl().line("delete pods --all --wait=true --grace-period=1").succeeds();
    stack.stop();
}

#[test]
fn a_pod_has_the_limits_of_its_containers_together() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    limits(stack);
}

#[test]
fn a_pod_on_containerd_has_the_limits_of_its_containers_together() {
    let Some((containerd, stack)) = on_containerd() else { return };
    limits(stack);
    drop(containerd);
}

/// At every moment of their lives, from before their sandbox on.
fn force(stack: Stack) {
    let kubectl = stack.kubectl();
    for round in 0..16 {
        let name = format!("short-{round}");
        kubectl.apply(&manifest(&name, "{requests: {cpu: 1m}}")).succeeds();
        thread::sleep(Duration::from_millis(round * 40));
        kubectl.line(&format!("delete pod {name} --force --grace-period=0")).succeeds();
    }
    let start = Instant::now();
    let left = || {
        let directories = fs::read_dir(stack.state().join("node/pods")).into_iter().flatten();
        let directories = directories.flatten().map(|entry| entry.path());
        pods(&stack).into_iter().chain(directories).collect::<Vec<_>>()
    };
    while !left().is_empty() {
        assert!(start.elapsed() < PATIENCE, "left: {:#?}", left());
        thread::sleep(Duration::from_millis(100));
    }
    stack.stop();
}

#[test]
fn a_pod_that_is_deleted_by_force_leaves_no_cgroup() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    force(stack);
}

#[test]
fn a_pod_that_is_deleted_by_force_on_containerd_leaves_no_cgroup() {
    let Some((containerd, stack)) = on_containerd() else { return };
    force(stack);
    drop(containerd);
}
