//! Logs that grow are rotated, and who reads them does not notice.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use waybill_testkit::{
    kubectl::{PATIENCE, Running},
    stack::{IMAGE, Setup, Stack},
};

use crate::{BINARY, on_containerd_with};

const FLAGS: [&str; 2] =
    ["--node-flag=--container-log-max-size=4Ki", "--node-flag=--container-log-max-files=3"];

/// Counts aloud, a hundred lines a second.
const SCRIPT: &str = "i=0; while true; do i=$((i+1)); echo line $i; sleep 0.01; done";

fn start(stack: &Stack) {
    stack
        .kubectl()
        .apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: talker}}, spec: {{
            terminationGracePeriodSeconds: 1,
            containers: [{{name: main, image: '{IMAGE}', command: [sh, -c, '{SCRIPT}']}}]}}}}"
        ))
        .succeeds();
    stack.kubectl().wait_until_ready("talker");
}

/// The files of the container's log, by name.
fn files(stack: &Stack) -> Vec<PathBuf> {
    let pods = fs::read_dir(stack.state().join("logs/pods")).into_iter().flatten().flatten();
    let files = pods.flat_map(|pod| fs::read_dir(pod.path().join("main")).into_iter().flatten());
    let mut files: Vec<_> = files.flatten().map(|file| file.path()).collect();
    files.sort();
    files
}

fn has(stack: &Stack, holds: impl Fn(&str) -> bool) -> bool {
    files(stack).iter().any(|file| holds(&file.display().to_string()))
}

#[track_caller]
fn until(stack: &Stack, what: &str, holds: impl Fn(&Stack) -> bool) {
    let start = Instant::now();
    while !holds(stack) {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}: {:#?}", files(stack));
        thread::sleep(Duration::from_millis(100));
    }
}

/// Reads until line `last`, and sees that none before it is missing or there twice.
#[track_caller]
fn read_on(following: &Running, next: &mut u64, last: u64) {
    while *next <= last {
        assert_eq!(following.wait_for(""), format!("line {next}"));
        *next += 1;
    }
}

/// The first line that a command prints. Right after a rotation there is none yet.
#[track_caller]
fn first_line(stack: &Stack, command: &str) -> u64 {
    let start = Instant::now();
    loop {
        let ran = stack.kubectl().line(command);
        if let Some(line) = ran.succeeds().stdout.lines().next() {
            let number = line.strip_prefix("line ").and_then(|number| number.parse().ok());
            return number.unwrap_or_else(|| panic!("no line of the script: {line}"));
        }
        assert!(start.elapsed() < PATIENCE, "nothing is logged any more");
    }
}

fn check(stack: Stack) {
    start(&stack);
    let kubectl = stack.kubectl();
    let following = kubectl.follow(&["logs", "-f", "talker"]);
    let mut next = 1;
    until(&stack, "the log is rotated", |it| files(it).len() > 1);
    until(&stack, "an older file is compressed", |it| has(it, |name| name.ends_with(".gz")));
    // What is said now comes after all of that.
    read_on(&following, &mut next, first_line(&stack, "logs talker --tail=1"));

    assert!(first_line(&stack, "logs talker") > 1, "only the file that is written is read");
    let oldest = files(&stack);
    until(&stack, "the oldest file is removed", |it| !files(it).contains(&oldest[1]));
    assert!(files(&stack).len() <= 4, "{:#?}", files(&stack));
    read_on(&following, &mut next, first_line(&stack, "logs talker --tail=1"));
    drop(following);
    kubectl.line("delete pod talker").succeeds();
    until(&stack, "the logs go with the pod", |it| files(it).is_empty());
    stack.stop();
}

#[test]
fn a_log_that_grows_is_rotated_under_its_readers() {
    let setup = FLAGS.into_iter().fold(Setup::new(BINARY), Setup::flag);
    let Some(stack) = setup.start() else { return };
    check(stack);
}

#[test]
fn a_log_of_containerd_is_rotated_under_its_readers() {
    let Some((containerd, stack)) = on_containerd_with(&FLAGS.map(str::to_owned)) else { return };
    check(stack);
    drop(containerd);
}
