//! Records and monitors of a newer runtime, and damaged ones, beside good ones: the good ones go on, the others are left as they
//! are until somebody who understands them is there (D15, ADR 0044).

use std::{fs, io::Write, os::unix::net::UnixListener, path::Path, thread};

use rustix::process::{Pid, test_kill_process};
use serde_json::Value;
use waybill_runtime::engine::{
    EngineError, ExitCause, NamespaceMode, SandboxRequest, SessionFilter, State,
};

use crate::lab::{Lab, eventually, exec};

/// Makes of a record what a newer runtime could have written.
fn make_newer(record: &Path) {
    let mut value: Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    value["version"] = 99.into();
    value["unheard_of"] = serde_json::json!({"of": [1, 2]});
    fs::write(record, serde_json::to_vec(&value).unwrap()).unwrap();
}

fn make_garbage(record: &Path) {
    fs::write(record, "{\"version\":1,\"cgr").unwrap();
}

fn pid_of(lab: &Lab, id: &str) -> Pid {
    let State::Running { pid, .. } = lab.engine().state(id).unwrap() else { panic!() };
    Pid::from_raw(pid).unwrap()
}

fn is_unknown<T>(result: &Result<T, EngineError>) -> bool {
    matches!(result, Err(EngineError::Unknown { .. }))
}

/// Nothing that can be asked touches the container.
async fn is_left_alone(lab: &Lab, id: &str) {
    let engine = lab.engine();
    let state = engine.state(id).unwrap();
    assert!(matches!(state, State::Unknown { .. }), "{id}: {state:?}");
    assert!(is_unknown(&engine.kill_all(id).await));
    assert!(is_unknown(&engine.signal(id, 15).await));
    assert!(is_unknown(&engine.start(id).await));
    assert!(is_unknown(&engine.exec(id, exec(&["/bin/true"])).await));
    assert!(is_unknown(&engine.wait(id).await));
    assert!(is_unknown(&engine.delete(id).await));
    let again = engine.create(id, lab.container(id, &["/bin/true"])).await;
    assert!(matches!(again, Err(EngineError::AlreadyExists { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_tomorrow_are_left_running_and_good_ones_go_on() {
    let Some(mut lab) = Lab::open().await else { return };
    for id in ["good", "newer", "broken"] {
        lab.run(id).await;
    }
    let before: Vec<_> = ["newer", "broken"].map(|id| (id, pid_of(&lab, id))).into();
    lab.stop_runtime();
    let record = |id: &str| lab.run_dir().join("containers").join(id).join("record.json");
    let saved: Vec<_> = before.iter().map(|(id, _)| fs::read(record(id)).unwrap()).collect();
    make_newer(&record("newer"));
    make_garbage(&record("broken"));
    lab.start_runtime().await;
    assert_eq!(lab.sh("good", "echo here").await.0, "here\n");
    for (id, pid) in &before {
        is_left_alone(&lab, id).await;
        test_kill_process(*pid).unwrap();
    }
    // Whoever understands them takes them over.
    lab.stop_runtime();
    let record = |id: &str| lab.run_dir().join("containers").join(id).join("record.json");
    for ((id, _), text) in before.iter().zip(saved) {
        fs::write(record(id), text).unwrap();
    }
    lab.start_runtime().await;
    for (id, pid) in before {
        assert_eq!(pid_of(&lab, id), pid);
        lab.kill_and_delete(id).await;
    }
    lab.kill_and_delete("good").await;
    lab.close().await;
}

/// Answers at a container's socket in place of its monitor.
fn answer(lab: &Lab, id: &str, words: Vec<u8>) {
    // The path may be too long for a socket's address.
    let directory = lab.run_dir().join("containers").join(id);
    let socket = directory.join("monitor.sock");
    fs::rename(&socket, directory.join("monitor.sock.kept")).unwrap();
    let short = lab.run_dir().join("sock");
    let listener = UnixListener::bind(&short).unwrap();
    fs::rename(short, socket).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(&words);
        let _ = std::io::Read::read(&mut stream, &mut [0]);
    });
}

fn frame(header: &str) -> Vec<u8> {
    let length = u32::try_from(header.len()).unwrap().to_le_bytes();
    [&length[..], &[0; 4], header.as_bytes()].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn monitors_that_speak_of_tomorrow_are_left_alone() {
    let Some(mut lab) = Lab::open().await else { return };
    let strange = [
        ("newer", frame(r#"{"Hello":{"version":2,"state":{"Frozen":{}},"sessions":[]}}"#)),
        ("broken", frame("what?")),
        ("loud", vec![0xff; 64]),
    ];
    for id in ["good", "newer", "broken", "loud"] {
        lab.run(id).await;
    }
    let pids: Vec<_> = strange.iter().map(|(id, _)| pid_of(&lab, id)).collect();
    lab.stop_runtime();
    let ids = strange.clone().map(|(id, _)| id);
    for (id, words) in strange {
        answer(&lab, id, words);
    }
    lab.start_runtime().await;
    assert_eq!(lab.sh("good", "echo here").await.0, "here\n");
    for (id, pid) in ids.iter().zip(&pids) {
        is_left_alone(&lab, id).await;
        test_kill_process(*pid).unwrap();
    }
    lab.stop_runtime();
    for id in ids {
        let directory = lab.run_dir().join("containers").join(id);
        fs::rename(directory.join("monitor.sock.kept"), directory.join("monitor.sock")).unwrap();
    }
    lab.start_runtime().await;
    for id in ["good", "newer", "broken", "loud"] {
        lab.kill_and_delete(id).await;
    }
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_is_not_understood_is_not_made_up() {
    let Some(mut lab) = Lab::open().await else { return };
    for id in ["newer", "broken"] {
        let request = lab.container(id, &["/bin/sh", "-c", "exit 4"]);
        lab.engine().create(id, request).await.unwrap();
        lab.engine().start(id).await.unwrap();
        lab.engine().wait(id).await.unwrap();
    }
    lab.stop_runtime();
    let exit = |id: &str| lab.run_dir().join("containers").join(id).join("exit.json");
    let saved = fs::read(exit("newer")).unwrap();
    make_newer(&exit("newer"));
    make_garbage(&exit("broken"));
    lab.start_runtime().await;
    for id in ["newer", "broken"] {
        is_left_alone(&lab, id).await;
    }
    lab.stop_runtime();
    let exit = |id: &str| lab.run_dir().join("containers").join(id).join("exit.json");
    for id in ["newer", "broken"] {
        fs::write(exit(id), &saved).unwrap();
    }
    lab.start_runtime().await;
    for id in ["newer", "broken"] {
        let end = lab.engine().wait(id).await.unwrap();
        assert_eq!((end.code, end.cause), (4, ExitCause::Own));
        lab.engine().delete(id).await.unwrap();
    }
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_and_sessions_of_tomorrow_stay() {
    let Some(mut lab) = Lab::open().await else { return };
    let request = |id: &str| SandboxRequest {
        hostname: Some("here".into()),
        network: NamespaceMode::Pod,
        pid: NamespaceMode::Pod,
        ipc: NamespaceMode::Pod,
        user: None,
        sysctls: [].into(),
        cgroup_parent: lab.cgroup.join(format!("pod-{id}")),
    };
    // The one that goes first is made last: what all stand in belongs to the first.
    for id in ["newer", "broken", "good"] {
        lab.engine().create_sandbox(id, &request(id)).await.unwrap();
    }
    lab.run("box").await;
    lab.sh("box", "true").await;
    lab.stop_runtime();
    let record = |id: &str| lab.run_dir().join("sandboxes").join(id).join("record.json");
    let saved = ["newer", "broken"].map(|id| (id, fs::read(record(id)).unwrap()));
    make_newer(&record("newer"));
    make_garbage(&record("broken"));
    let sessions = lab.run_dir().join("sessions");
    let known = fs::read_dir(&sessions).unwrap().next().unwrap().unwrap().path();
    let newer = sessions.join("newer.json");
    fs::copy(&known, &newer).unwrap();
    make_newer(&newer);
    fs::write(sessions.join("broken.json"), "{").unwrap();
    lab.start_runtime().await;
    assert_eq!(lab.engine().sessions(&SessionFilter::default()).len(), 1);
    assert!(newer.exists() && sessions.join("broken.json").exists());
    let holders = || lab.processes().len();
    let before = holders();
    for id in ["newer", "broken"] {
        assert!(is_unknown(&lab.engine().check_sandbox(id)));
        assert!(is_unknown(&lab.engine().remove_sandbox(id).await));
    }
    lab.engine().finish_sandbox_removals().await.unwrap();
    assert_eq!(holders(), before);
    lab.engine().remove_sandbox("good").await.unwrap();
    eventually("one holder is gone", || holders() == before - 1).await;
    lab.kill_and_delete("box").await;
    // What all stand in goes with the first.
    for (id, text) in saved.into_iter().rev() {
        fs::write(lab.run_dir().join("sandboxes").join(id).join("record.json"), text).unwrap();
        lab.engine().remove_sandbox(id).await.unwrap();
    }
    lab.close().await;
}
