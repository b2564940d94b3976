//! Many users at once in one container, and every process of theirs is theirs.

mod frame;

use std::{collections::HashMap, fs, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use waybill_api::exec::PodExecOptions;
use waybill_client::{
    ActingAs, Options,
    exec::{ExecSession, Executor},
};
use waybill_testkit::stack::{IMAGE, Setup, Stack};

use crate::BINARY;

const USERS: usize = 20;
const SESSIONS: usize = 50;

/// Each session has so many processes: its shell, one with a session of its own, one whose parent is gone, and one
/// without any environment.
const PROCESSES: usize = 4;

/// A session's processes sleep for as many seconds above this as its number says, which tells them apart however they
/// hide.
const MARK: usize = 1_000_000;

/// EXEC-21, EXEC-48: 20 users with 50 sessions each, all at the same time.
#[test]
fn a_thousand_overlapping_sessions_and_all_their_processes_are_attributed() {
    // More processes than a pod has by default.
    let setup = Setup::new(BINARY).flag("--node-flag=--pod-max-pids=8192");
    let Some(stack) = setup.start() else { return };
    stack
        .kubectl()
        .apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: crowd}}, spec: {{
            terminationGracePeriodSeconds: 0,
            containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600']}}]}}}}"
        ))
        .succeeds();
    stack.kubectl().wait_until_ready("crowd");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let sessions = runtime.block_on(begin(&stack));
    assert_eq!(sessions.len(), USERS * SESSIONS);
    wait_for_processes();
    let traces = trace(&stack, &[]);
    let traces = traces.as_array().unwrap();
    let running: Vec<_> = traces.iter().filter(|it| it["end"]["state"] == "running").collect();
    assert_eq!(running.len(), USERS * SESSIONS);
    let owners = owners(&running);
    assert_eq!(owners.len(), USERS * SESSIONS * PROCESSES);
    for (pid, mark) in marked() {
        let expected = user(mark / SESSIONS);
        assert_eq!(owners.get(&pid), Some(&expected.as_str()), "process {pid} of session {mark}");
    }
    let (pid, mark) = marked().pop().unwrap();
    let one = trace(&stack, &["--pid", &pid.to_string()]);
    assert_eq!(one[0]["user"], user(mark / SESSIONS));
    drop(sessions);
    stack.kubectl().line("delete pod crowd").succeeds();
    stack.stop();
}

fn user(number: usize) -> String {
    format!("user-{number}")
}

/// Starts all of them; they last until they are dropped, and their processes longer.
async fn begin(stack: &Stack) -> Vec<ExecSession> {
    let executors = (0..USERS).map(async |number| {
        let acting_as = ActingAs { user: user(number), groups: vec!["system:masters".to_owned()] };
        let kubeconfig = stack.state().join("kubeconfig");
        let options = Options { kubeconfig, acting_as: Some(acting_as), ..Options::default() };
        Executor::new(&options).await.unwrap()
    });
    let executors: Vec<_> = stream::iter(executors).buffered(2).collect().await;
    // User after user, and round again, so that sessions of different users begin side by side.
    let numbers = (0..SESSIONS).flat_map(|at| (0..USERS).map(move |user| (user, at)));
    let sessions = stream::iter(numbers).map(|(user, at)| {
        let executor = &executors[user];
        async move {
            let options = command(user * SESSIONS + at);
            executor.start("default", "crowd", &options).await
        }
    });
    sessions.buffer_unordered(20).try_collect().await.unwrap()
}

fn command(number: usize) -> PodExecOptions {
    let seconds = MARK + number;
    let script = format!(
        "setsid sleep {seconds} & (sleep {seconds} &) ; env -i sleep {seconds} & exec sleep {seconds}"
    );
    PodExecOptions {
        stdout: true,
        command: ["sh", "-c", &script].map(str::to_owned).to_vec(),
        ..PodExecOptions::default()
    }
}

fn wait_for_processes() {
    for _ in 0..600 {
        if marked().len() == USERS * SESSIONS * PROCESSES {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{} processes sleep", marked().len());
}

/// Every process that sleeps for a session, and the session's number.
fn marked() -> Vec<(u64, usize)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let marked = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        let seconds = command.strip_prefix(b"sleep\0")?.strip_suffix(b"\0")?;
        let seconds: usize = std::str::from_utf8(seconds).ok()?.parse().ok()?;
        Some((pid, seconds.checked_sub(MARK)?))
    });
    marked.collect()
}

/// The user of each process, as the traces say.
fn owners<'a>(traces: &[&'a Value]) -> HashMap<u64, &'a str> {
    let mut owners = HashMap::new();
    for trace in traces {
        let user = trace["user"].as_str().unwrap();
        for process in trace["processes"].as_array().unwrap() {
            let before = owners.insert(process["pid"].as_u64().unwrap(), user);
            assert_eq!(before, None, "a process is in one session only");
        }
    }
    owners
}

fn trace(stack: &Stack, flags: &[&str]) -> Value {
    let state = stack.state();
    let mut command = stack.waybill();
    command.args(["trace", "-o", "json", "--state-dir"]).arg(state).args(flags);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}
