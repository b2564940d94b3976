//! `kill -9` of the collector while sessions run programs: the record stays whole, says what is missing, and goes on with what still runs.

use std::fs;

use serde_json::Value;
use waybill_testkit::stack::{Setup, Stack};

use super::{BINARY, POD, eventually, programs, run_pod, trace};

const KILLS: usize = 5;

/// The numbers of the programs that are on record from the kernel, in order. A collector that begins finds some more by looking at what runs.
fn numbers(stack: &Stack) -> Vec<u64> {
    let programs = programs(stack, "mark-");
    let programs = programs.iter().filter(|it| it["waybill"]["eventSource"] == "ebpf");
    let marks = programs.map(|it| it["process"]["args"][2].as_str().unwrap().to_owned());
    let mut numbers: Vec<u64> = marks.map(|it| it["mark-".len()..].parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

/// Everything that stands in the files of a log.
fn written(stack: &Stack, log: &str) -> Vec<Value> {
    let mut files: Vec<_> = fs::read_dir(stack.state().join("trace"))
        .unwrap()
        .map(|it| it.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(log))
        .collect();
    files.sort();
    let text: String = files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_collector_that_is_killed_again_and_again_loses_its_last_batch_and_says_so() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    run_pod(&stack);
    let script = "i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); /bin/busybox true mark-$i; usleep 5000; done; exit 7";
    let session = stack.kubectl().follow(&["exec", POD, "--", "sh", "-c", script]);
    for _ in 0..KILLS {
        // Under load, and with something of this collector on record.
        let before = numbers(&stack).last().copied().unwrap_or(0);
        eventually(|| numbers(&stack).last().copied(), |last| last.unwrap_or(0) > before);
        stack.kill_role("collector");
    }
    // The session of before belongs to the new collector: what it begins now is on record, and its end.
    let last = numbers(&stack).last().copied().unwrap();
    eventually(|| numbers(&stack).last().copied().unwrap(), |now| *now > last + 20);
    stack.kubectl().line(&format!("exec {POD} -- touch /tmp/stop")).succeeds();
    assert_eq!(session.ends(), Some(7));
    let is_end = |it: &Value| {
        it["entry"] == "session" && it["end"]["state"] == "exited" && it["end"]["code"] == 7
    };
    let ends = || written(&stack, "sessions").iter().filter(|it| is_end(it)).count();
    eventually(ends, |found| *found >= 1);
    // Whole, whatever was being written.
    let verified = trace(&stack, &["verify"]).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    // Each kill made one hole at most, and each is on record with its time.
    let numbers = numbers(&stack);
    let holes = numbers.windows(2).filter(|pair| pair[1] > pair[0] + 1).count();
    assert!(holes <= KILLS, "{holes} holes");
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "nothing is told twice");
    let begun = written(&stack, "sessions").into_iter().filter(|it| it["entry"] == "start");
    let after_kill = begun.filter(|it| it["clean"] == false && it["after"].is_string()).count();
    assert_eq!(after_kill, KILLS);
    // All of it is one session, which is told to be incomplete.
    let sessions = trace(&stack, &["--command", "mark-1", "-o", "json"]).output().unwrap();
    let notes = String::from_utf8(sessions.stderr).unwrap();
    let sessions: Value = serde_json::from_slice(&sessions.stdout).unwrap();
    assert_eq!(sessions.as_array().unwrap().len(), 1, "{sessions}");
    assert_eq!(sessions[0]["complete"], false, "{sessions}");
    assert_eq!(notes.matches("nobody recorded what ran").count(), KILLS, "{notes}");
    stack.kubectl().line(&format!("delete pod {POD}")).succeeds();
    stack.stop();
}
