//! What ran inside of sessions: recorded from the kernel, and read on the machine and from elsewhere.

mod killed;
mod remote;
mod sources;

use std::{
    collections::HashMap,
    process::Command,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use serde_json::Value;
use waybill_api::exec::PodExecOptions;
use waybill_client::{
    ActingAs, Options,
    exec::{Executor, Local},
};
use waybill_testkit::stack::{IMAGE, Setup, Stack};

use crate::BINARY;

/// What is waited for comes within a second or two; a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

const POD: &str = "crowd";

/// A pod that sleeps.
fn run_pod(stack: &Stack) {
    let pod = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {POD}}}, spec: {{terminationGracePeriodSeconds: 0,
        containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600']}}]}}}}"
    );
    stack.kubectl().apply(&pod).succeeds();
    stack.kubectl().wait_until_ready(POD);
}

/// `waybill trace` on the machine.
fn trace(stack: &Stack, flags: &[&str]) -> Command {
    let mut command = stack.waybill();
    command.arg("trace").args(flags).arg("--state-dir").arg(stack.state());
    command
}

fn lines(mut command: Command) -> Vec<Value> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Every program on record whose first argument after its name begins with `mark`, and whose session's user is known.
fn programs(stack: &Stack, mark: &str) -> Vec<Value> {
    let all = lines(trace(stack, &["export"])).into_iter();
    all.filter(|event| {
        let argument = event["process"]["args"][2].as_str();
        event["event"]["category"][0] == "process"
            && argument.is_some_and(|it| it.starts_with(mark))
    })
    .collect()
}

/// Waits for what is `found` to be `enough`.
#[track_caller]
fn eventually<T: std::fmt::Debug>(found: impl Fn() -> T, enough: impl Fn(&T) -> bool) -> T {
    let begin = Instant::now();
    loop {
        let found = found();
        if enough(&found) {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "there is only {found:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

const USERS: usize = 4;
const SESSIONS: usize = 5;
const PROGRAMS: usize = 20;

/// Each user's sessions at the same time, and every program of each in the record under the right user and session, exactly once.
/// `cargo bench -p waybill --bench trace` does it with a thousand sessions.
#[test]
fn every_program_of_overlapping_sessions_is_attributed() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    run_pod(&stack);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(run_scripts(&stack));
    let expected = USERS * SESSIONS * PROGRAMS;
    let found = eventually(|| programs(&stack, "mark-"), |found| found.len() >= expected);
    let mut sessions: HashMap<String, String> = HashMap::new();
    let mut marks = HashMap::new();
    for program in &found {
        // mark-USER-SESSION-PROGRAM
        let mark = program["process"]["args"][2].as_str().unwrap();
        let parts: Vec<_> = mark.split('-').collect();
        assert_eq!(program["user"]["name"], format!("user-{}", parts[1]), "{program}");
        assert_eq!(program["waybill"]["eventSource"], "ebpf", "{program}");
        assert_eq!(program["process"]["exit_code"], 0, "{program}");
        let session = program["waybill"]["session"].as_str().unwrap().to_owned();
        let of = format!("{}-{}", parts[1], parts[2]);
        assert_eq!(sessions.entry(session).or_insert_with(|| of.clone()), &of, "{program}");
        *marks.entry(mark.to_owned()).or_insert(0) += 1;
    }
    assert_eq!((found.len(), marks.len(), sessions.len()), (expected, expected, USERS * SESSIONS));
    let verified = trace(&stack, &["verify"]).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
    let status =
        stack.waybill().arg("status").arg("--state-dir").arg(stack.state()).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains("collector") && status.contains("from the kernel (eBPF)"), "{status}");
    stack.kubectl().line(&format!("delete pod {POD}")).succeeds();
    stack.stop();
}

async fn run_scripts(stack: &Stack) {
    let executors = (0..USERS).map(async |user| {
        let groups = vec!["system:masters".to_owned()];
        let acting_as = Some(ActingAs { user: format!("user-{user}"), groups });
        let kubeconfig = stack.state().join("kubeconfig");
        Executor::new(&Options { kubeconfig, acting_as, ..Options::default() }).await.unwrap()
    });
    let executors: Vec<_> = stream::iter(executors).buffered(2).collect().await;
    let all = (0..SESSIONS).flat_map(|at| (0..USERS).map(move |user| (user, at)));
    let sessions = stream::iter(all).map(|(user, at)| {
        let executor = &executors[user];
        async move {
            let script = format!(
                "i=0; while [ $i -lt {PROGRAMS} ]; do /bin/busybox true mark-{user}-{at}-$i; i=$((i+1)); done"
            );
            let command = ["sh", "-c", &script].map(str::to_owned).to_vec();
            let options = PodExecOptions { stdout: true, command, ..PodExecOptions::default() };
            let session = executor.start("default", POD, &options).await.unwrap();
            let local = Local {
                stdin: None::<tokio::io::Empty>,
                stdout: tokio::io::sink(),
                stderr: tokio::io::sink(),
                sizes: None,
            };
            session.run(local).await.unwrap()
        }
    });
    let ended: Vec<_> = sessions.buffer_unordered(USERS * SESSIONS).collect().await;
    assert_eq!(ended.len(), USERS * SESSIONS);
}
