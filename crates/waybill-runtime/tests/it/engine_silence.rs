//! Monitors and spawners that are stopped, and do not answer: nobody waits for ever, and what they guard can end.

use std::{fs, path::Path, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use waybill_runtime::engine::{Engine, EngineError, ExitCause, Patience, Spawner, State};

use crate::lab::{Lab, eventually, exec, variables};

/// Little where nothing is expected to be answered, more where an answer is.
const SHORT: Patience = Patience {
    answer: Duration::from_secs(1),
    work: Duration::from_secs(10),
    recovery: Duration::from_millis(500),
    end: Duration::from_secs(1),
};

/// A lab whose runtime has little patience, with a container whose monitor is stopped.
async fn with_stopped_monitor() -> Option<(Lab, Pid)> {
    let mut lab = Lab::open().await?;
    lab.run("box").await;
    lab.stop_runtime();
    lab.patience = SHORT;
    lab.start_runtime().await;
    let monitor = Pid::from_raw(lab.monitor("box")).unwrap();
    kill_process(monitor, Signal::STOP).unwrap();
    Some((lab, monitor))
}

fn is_silent<T>(result: &Result<T, EngineError>) -> bool {
    matches!(result, Err(EngineError::MonitorSilent { id, .. }) if id == "box")
}

/// Issue: a stopped monitor held up its pod for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_monitor_is_stopped_can_be_ended() {
    let Some((lab, _)) = with_stopped_monitor().await else { return };
    let engine = lab.engine();
    assert!(is_silent(&engine.reopen_log("box").await));
    assert!(is_silent(&engine.signal("box", 15).await));
    assert!(matches!(engine.state("box").unwrap(), State::Running { .. }), "it was left alone");
    engine.kill_all("box").await.unwrap();
    let exit = engine.wait_killed("box").await.unwrap();
    assert_eq!((exit.code, exit.cause), (137, ExitCause::MonitorLost));
    engine.delete("box").await.unwrap();
    lab.close().await;
}

/// What was given up must not happen later, when nobody would know of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_a_stopped_monitor_was_asked_for_never_runs() {
    let Some((lab, monitor)) = with_stopped_monitor().await else { return };
    let engine = lab.engine();
    // More than fits the socket, so that half of it is sent when it is given up.
    let large = "x".repeat(100_000);
    let mut late = exec(&["/bin/mkdir", "/ran"]);
    late.env = variables(&[("A", &large), ("B", &large), ("C", &large), ("D", &large)]);
    assert!(is_silent(&engine.exec("box", late).await));
    kill_process(monitor, Signal::CONT).unwrap();
    assert_eq!(lab.sh("box", "echo here").await.0, "here\n");
    assert!(!lab.rootfs.join("ran").exists());
    lab.kill_and_delete("box").await;
    lab.close().await;
}

/// A runtime that came back once waited for the first word of each monitor, for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_comes_back_counts_a_stopped_monitor_as_lost() {
    let Some((mut lab, _)) = with_stopped_monitor().await else { return };
    lab.stop_runtime();
    lab.start_runtime().await;
    let exit = lab.engine().wait("box").await.unwrap();
    assert_eq!(exit.cause, ExitCause::MonitorLost);
    lab.engine().delete("box").await.unwrap();
    lab.close().await;
}

/// Nor does it keep those waiting whose monitors answer. What is asked of the silent one waits for its first word.
#[tokio::test(flavor = "multi_thread")]
async fn a_monitor_that_hangs_does_not_keep_the_others_from_being_recovered() {
    let Some((mut lab, monitor)) = with_stopped_monitor().await else { return };
    lab.run("other").await;
    lab.stop_runtime();
    lab.patience = Patience { recovery: SHORT.recovery, ..Patience::default() };
    lab.start_runtime().await;
    assert_eq!(lab.engine().state("box").unwrap(), State::Silent);
    assert_eq!(lab.sh("other", "echo here").await.0, "here\n");
    let (asked, ()) = tokio::join!(lab.sh("box", "echo there"), async {
        kill_process(monitor, Signal::CONT).unwrap();
    });
    assert_eq!(asked.0, "there\n");
    for id in ["box", "other"] {
        lab.kill_and_delete(id).await;
    }
    lab.close().await;
}

/// A silent one can be ended, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_monitor_never_said_a_word_can_be_deleted() {
    let Some((mut lab, _)) = with_stopped_monitor().await else { return };
    lab.stop_runtime();
    lab.patience = Patience { work: Duration::from_secs(600), ..SHORT };
    lab.start_runtime().await;
    assert_eq!(lab.engine().state("box").unwrap(), State::Silent);
    lab.engine().delete("box").await.unwrap();
    lab.close().await;
}

/// The spawner that this thread of tests started with `run_dir`: the one that holds its lock.
fn spawner_of(run_dir: &Path) -> Option<Pid> {
    let lock = run_dir.canonicalize().ok()?.join("spawner.lock");
    let holds = |pid: &i32| {
        let named = fs::read_to_string(format!("/proc/{pid}/comm"));
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        named.is_ok_and(|name| name == "waybill-spawner\n")
            && fds.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|file| file == lock))
    };
    let pids = fs::read_dir("/proc").unwrap();
    let mut pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.find(holds).and_then(Pid::from_raw)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_spawner_is_replaced() {
    let Some(mut lab) = Lab::open().await else { return };
    lab.stop_runtime();
    eventually("the first spawner is gone", || spawner_of(&lab.run_dir()).is_none()).await;
    let program = Path::new(env!("CARGO_BIN_EXE_waybill-test-spawner"));
    let spawner = Spawner::start_with_patience(program, Duration::from_secs(5)).unwrap();
    lab.engine = Some(Engine::new(spawner, lab.run_dir()).await.unwrap());
    let stopped = spawner_of(&lab.run_dir()).unwrap();
    kill_process(stopped, Signal::STOP).unwrap();
    let request = || lab.container("box", &["/bin/sleep", "1000"]);
    let refused = lab.engine().create("box", request()).await.unwrap_err();
    assert!(matches!(refused, EngineError::SpawnerLost), "{refused}");
    assert_ne!(spawner_of(&lab.run_dir()), Some(stopped));
    lab.run("box").await;
    lab.kill_and_delete("box").await;
    lab.close().await;
}

/// A runtime could not stop as long as its spawner was stopped.
#[test]
fn a_stopped_spawner_does_not_keep_its_runtime() {
    let program = Path::new(env!("CARGO_BIN_EXE_waybill-test-spawner"));
    let spawner = Spawner::start_with_patience(program, Duration::from_millis(100)).unwrap();
    let own = child_named("waybill-spawner").unwrap();
    kill_process(own, Signal::STOP).unwrap();
    drop(spawner);
    assert_eq!(child_named("waybill-spawner"), None);
}

/// Every test is a process of its own, with at most one spawner.
fn child_named(name: &str) -> Option<Pid> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<i32> = children
        .flat_map(|list| {
            list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()
        })
        .collect();
    let named = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    children.into_iter().find(named).and_then(Pid::from_raw)
}
