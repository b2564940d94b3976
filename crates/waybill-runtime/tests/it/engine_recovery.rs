//! What survives the death of a runtime or a monitor.

use std::{fs, sync::Arc, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use waybill_runtime::engine::{ExitCause, SessionFilter, State};

use crate::lab::{Lab, eventually, exec, unified, variables};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_runtime_finds_containers_that_run_and_exits_that_it_missed() {
    let Some(mut lab) = Lab::open().await else { return };
    lab.run("stays").await;
    let request = lab.container("ends", &["/bin/sh", "-c", "sleep 0.2; echo late; exit 5"]);
    lab.engine().create("ends", request).await.unwrap();
    lab.engine().start("ends").await.unwrap();
    lab.engine().create("idle", lab.container("idle", &["/bin/true"])).await.unwrap();
    let before = lab.engine().state("stays").unwrap();
    lab.stop_runtime();
    let exit_file = lab.run_dir().join("containers/ends/exit.json");
    eventually("the container ends", || exit_file.exists()).await;
    lab.start_runtime().await;
    let engine = lab.engine();
    assert_eq!(engine.state("stays").unwrap(), before);
    assert_eq!(engine.state("idle").unwrap(), State::Created);
    let State::Exited(exit) = engine.state("ends").unwrap() else { panic!() };
    assert_eq!((exit.code, exit.cause), (5, ExitCause::Own));
    assert_eq!(lab.logged("ends"), ["stdout F late"]);
    // The baseline is still there: it lives in the monitor.
    assert_eq!(lab.sh("stays", "echo $BASE").await.0, "line\n");
    engine.start("idle").await.unwrap();
    assert_eq!(engine.wait("idle").await.unwrap().code, 0);
    lab.kill_and_delete("stays").await;
    for id in ["ends", "idle"] {
        engine.delete(id).await.unwrap();
    }
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_monitor_is_reported_and_its_container_dies() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let session = lab.engine().exec("box", exec(&["/bin/sleep", "1000"])).await.unwrap();
    let mut exits = lab.engine().exits();
    kill_process(Pid::from_raw(lab.monitor("box")).unwrap(), Signal::KILL).unwrap();
    let exit = lab.engine().wait("box").await.unwrap();
    assert_eq!((exit.code, exit.cause), (137, ExitCause::MonitorLost));
    assert_eq!(exits.recv().await.unwrap(), ("box".to_owned(), exit));
    assert_eq!(session.wait().await.unwrap().cause, ExitCause::MonitorLost);
    lab.engine().delete("box").await.unwrap();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_monitor_that_died_with_the_runtime_is_reported_to_the_next() {
    let Some(mut lab) = Lab::open().await else { return };
    lab.run("box").await;
    let monitor = lab.monitor("box");
    lab.stop_runtime();
    kill_process(Pid::from_raw(monitor).unwrap(), Signal::KILL).unwrap();
    lab.start_runtime().await;
    let State::Exited(exit) = lab.engine().state("box").unwrap() else { panic!() };
    assert_eq!(exit.cause, ExitCause::MonitorLost);
    lab.engine().delete("box").await.unwrap();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_sessions_survive_the_runtime_and_hold_no_value() {
    let Some(mut lab) = Lab::open().await else { return };
    lab.run("box").await;
    let mut request = exec(&["/bin/sleep", "1000"]);
    request.env = variables(&[("KUBERNETES_EXEC_AUDIT_ID", "5c1e-0f"), ("TOKEN", "canary-91")]);
    let running = lab.engine().exec("box", request).await.unwrap();
    let (_, exit) = lab.sh("box", "exit 4").await;
    let before = lab.engine().sessions(&SessionFilter::default());
    assert_eq!(before.len(), 2);
    assert_eq!(before[0].pid, running.process.pid());
    assert_eq!(before[0].audit_id.as_ref().unwrap().as_str(), "5c1e-0f");
    let names: Vec<String> = before[0].injected.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["KUBERNETES_EXEC_AUDIT_ID", "TOKEN"]);
    assert_eq!(before[1].exit, Some(exit));
    let file = lab.run_dir().join(format!("sessions/{}.json", running.process.id()));
    assert!(!fs::read_to_string(file).unwrap().contains("canary"));
    drop(running);
    lab.stop_runtime();
    lab.start_runtime().await;
    assert_eq!(lab.engine().sessions(&SessionFilter::default()), before);
    let filter = SessionFilter {
        container: Some("box".to_owned()),
        running: true,
        ..SessionFilter::default()
    };
    assert_eq!(lab.engine().sessions(&filter), before[..1]);
    lab.kill_and_delete("box").await;
    assert!(lab.engine().sessions(&filter).is_empty());
    lab.close().await;
}

/// kill -9 of monitors while containers are made, start, exec and end.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn monitors_that_die_at_any_moment_leave_nothing() {
    let Some(lab) = Lab::open().await else { return };
    let lab = Arc::new(lab);
    for round in 0..20_u64 {
        let id = format!("m{round}");
        let life = tokio::spawn({
            let (lab, id) = (lab.clone(), id.clone());
            async move {
                let engine = lab.engine();
                let script = ["/bin/sh", "-c", "sleep 0.05; exit 6"];
                engine.create(&id, lab.container(&id, &script)).await?;
                engine.start(&id).await?;
                engine.exec(&id, exec(&["/bin/sleep", "1000"])).await?.wait().await?;
                engine.wait(&id).await
            }
        });
        tokio::time::sleep(Duration::from_millis(round * 5)).await;
        let killed = lab
            .find_monitor(&id)
            .and_then(Pid::from_raw)
            .map(|monitor| kill_process(monitor, Signal::KILL));
        match life.await.unwrap() {
            Ok(exit) if exit.cause == ExitCause::Own => assert_eq!(exit.code, 6),
            Ok(exit) => assert_eq!(exit.cause, ExitCause::MonitorLost),
            Err(error) => assert!(killed.is_some(), "{error}"),
        }
        if lab.engine().state(&id).is_ok() {
            lab.engine().wait(&id).await.unwrap();
        }
        lab.engine().delete(&id).await.unwrap();
    }
    Arc::into_inner(lab).unwrap().close().await;
}

/// kill -9 of the runtime at random moments, again and again: no exit is lost and nothing is left.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn runtimes_that_die_at_any_moment_leave_nothing() {
    let Some(mut lab) = Lab::open().await else { return };
    for round in 0..12_u64 {
        let id = format!("r{round}");
        let engine = lab.engine().clone();
        let request = lab.container(&id, &["/bin/sh", "-c", "sleep 0.05; exit 6"]);
        let started = tokio::spawn({
            let (engine, id) = (engine.clone(), id.clone());
            async move {
                engine.create(&id, request).await?;
                engine.start(&id).await
            }
        });
        tokio::time::sleep(Duration::from_millis(round * 7)).await;
        started.abort();
        let _ = started.await;
        drop(engine);
        lab.stop_runtime();
        lab.start_runtime().await;
        let engine = lab.engine();
        match engine.state(&id) {
            // Its start may be on the way.
            Ok(State::Created | State::Silent) => {
                engine.kill_all(&id).await.unwrap();
                engine.wait(&id).await.unwrap();
            }
            Ok(State::Running { .. }) => assert_eq!(engine.wait(&id).await.unwrap().code, 6),
            Ok(State::Exited(_)) | Err(_) => {}
            Ok(State::Unknown { reason }) => panic!("{reason}"),
        }
        engine.delete(&id).await.unwrap();
    }
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_comes_back_during_a_start_hears_that_it_happened() {
    let Some(mut lab) = Lab::open().await else { return };
    lab.engine().create("box", lab.container("box", &["/bin/sleep", "1000"])).await.unwrap();
    let cgroup = unified().join(lab.cgroup.strip_prefix("/").unwrap()).join("box/processes");
    let processes = || fs::read_to_string(cgroup.join("cgroup.procs")).unwrap();
    eventually("who made it is gone", || processes().lines().count() == 1).await;
    let first = Pid::from_raw(processes().trim().parse().unwrap()).unwrap();
    // It cannot run the program until we let it.
    kill_process(first, Signal::STOP).unwrap();
    let engine = Arc::clone(lab.engine());
    tokio::select! {
        biased;
        started = engine.start("box") => panic!("{started:?}"),
        // Sent after the start, so that one was heard when this is answered.
        reopened = engine.reopen_log("box") => reopened.unwrap(),
    }
    drop(engine);
    lab.stop_runtime();
    lab.start_runtime().await;
    assert_eq!(lab.engine().state("box").unwrap(), State::Created);
    kill_process(first, Signal::CONT).unwrap();
    let runs = || matches!(lab.engine().state("box").unwrap(), State::Running { .. });
    eventually("the runtime hears of the start", runs).await;
    lab.kill_and_delete("box").await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_written_records_of_the_dead_are_cleared_away() {
    let Some(mut lab) = Lab::open().await else { return };
    lab.stop_runtime();
    let run = lab.run_dir();
    let (container, sandbox) = (run.join("containers/c"), run.join("sandboxes/s"));
    for directory in [&container, &sandbox] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("record.json.new"), "{").unwrap();
    }
    let session = run.join("sessions/s.json.new");
    fs::write(&session, "{").unwrap();
    lab.start_runtime().await;
    assert!(!container.exists() && !session.exists());
    // A sandbox is cleared away by whoever asked for it.
    lab.engine().remove_sandbox("s").await.unwrap();
    assert!(!sandbox.exists());
    lab.run("box").await;
    fs::write(run.join("containers/box/exit.json.new"), "{").unwrap();
    lab.kill_and_delete("box").await;
    lab.close().await;
}

/// A runtime that came back found a sandbox that the spawner of the one before was still making: what that made afterwards, a
/// process in a cgroup of its own, was left behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_comes_back_waits_until_the_spawner_before_it_is_gone() {
    let Some(mut lab) = Lab::open().await else { return };
    lab.stop_runtime();
    // As a spawner that still lives.
    let lock = fs::File::options().write(true).open(lab.run_dir().join("spawner.lock")).unwrap();
    lock.lock().unwrap();
    let early = tokio::time::timeout(Duration::from_millis(300), lab.start_runtime());
    assert!(early.await.is_err(), "it did not wait");
    drop(lock);
    lab.start_runtime().await;
    lab.run("box").await;
    lab.kill_and_delete("box").await;
    lab.close().await;
}
