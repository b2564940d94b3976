//! Containers, from creation to removal.

use std::fs;

use waybill_runtime::engine::{EngineError, ExitCause, State};

use crate::lab::Lab;

#[tokio::test(flavor = "multi_thread")]
async fn a_container_runs_logs_exits_and_leaves_nothing() {
    let Some(lab) = Lab::open().await else { return };
    let engine = lab.engine();
    let mut exits = engine.exits();
    let script = "echo $BASE; echo oops >&2; exit 7";
    engine.create("one", lab.container("one", &["/bin/sh", "-c", script])).await.unwrap();
    assert_eq!(engine.state("one").unwrap(), State::Created);
    let State::Running { pid, started_at } = engine.start("one").await.unwrap() else { panic!() };
    assert!(pid > 1);
    let exit = engine.wait("one").await.unwrap();
    assert_eq!((exit.code, exit.cause), (7, ExitCause::Own));
    assert_eq!(exit.started_at, Some(started_at));
    assert!(exit.finished_at >= started_at);
    assert_eq!(exits.recv().await.unwrap(), ("one".to_owned(), exit.clone()));
    assert_eq!(engine.state("one").unwrap(), State::Exited(exit));
    let mut logged = lab.logged("one");
    logged.sort();
    assert_eq!(logged, ["stderr F oops", "stdout F line"]);
    engine.delete("one").await.unwrap();
    engine.delete("one").await.unwrap();
    assert!(matches!(engine.state("one"), Err(EngineError::NotFound { .. })));
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_a_container_with_its_number() {
    let Some(lab) = Lab::open().await else { return };
    let engine = lab.engine();
    let script = "trap 'exit 3' TERM; while :; do sleep 0.05; done";
    engine.create("trap", lab.container("trap", &["/bin/sh", "-c", script])).await.unwrap();
    engine.start("trap").await.unwrap();
    lab.run("stay").await;
    engine.signal("stay", 9).await.unwrap();
    assert_eq!(engine.wait("stay").await.unwrap().code, 137);
    engine.signal("stay", 9).await.unwrap();
    lab.sh("trap", "true").await;
    engine.signal("trap", 15).await.unwrap();
    assert_eq!(engine.wait("trap").await.unwrap().code, 3);
    for id in ["trap", "stay"] {
        engine.delete(id).await.unwrap();
    }
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_exist_fails_the_creation_and_leaves_nothing() {
    let Some(lab) = Lab::open().await else { return };
    let error = lab.engine().create("no", lab.container("no", &["nope"])).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("exec: \"nope\": executable file not found in $PATH"), "{text}");
    let error = lab.engine().create("no", lab.container("no", &["/etc/plain"])).await.unwrap_err();
    assert!(error.to_string().contains("permission denied"), "{error}");
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_the_kernel_refuses_fails_the_start() {
    let Some(lab) = Lab::open().await else { return };
    let script = lab.rootfs.join("bin/broken");
    fs::write(&script, "#!/bin/missing\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let engine = lab.engine();
    engine.create("no", lab.container("no", &["/bin/broken"])).await.unwrap();
    let Err(EngineError::Exec(fault)) = engine.start("no").await else { panic!() };
    assert_eq!(fault.message, "exec: \"/bin/broken\": no such file or directory");
    assert_eq!(fault.code, 127);
    assert_eq!(engine.wait("no").await.unwrap().code, 127);
    engine.delete("no").await.unwrap();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_was_never_started_is_deleted() {
    let Some(lab) = Lab::open().await else { return };
    let engine = lab.engine();
    engine.create("idle", lab.container("idle", &["/bin/true"])).await.unwrap();
    let again = engine.create("idle", lab.container("idle", &["/bin/true"])).await;
    assert!(matches!(again, Err(EngineError::AlreadyExists { .. })));
    engine.delete("idle").await.unwrap();
    lab.run("busy").await;
    assert!(matches!(engine.delete("busy").await, Err(EngineError::WrongState { .. })));
    lab.kill_and_delete("busy").await;
    lab.close().await;
}

/// CSI-31, D9
#[tokio::test(flavor = "multi_thread")]
async fn the_environment_of_a_container_is_in_no_file() {
    let Some(lab) = Lab::open().await else { return };
    let mut request = lab.container("quiet", &["/bin/sleep", "1000"]);
    request.env = crate::lab::variables(&[("PATH", "/bin"), ("TOKEN", "canary-7f3a")]);
    lab.engine().create("quiet", request).await.unwrap();
    lab.engine().start("quiet").await.unwrap();
    let (text, _) = lab.sh("quiet", "echo $TOKEN").await;
    assert_eq!(text, "canary-7f3a\n");
    let found = std::process::Command::new("grep")
        .args(["-r", "-l", "canary-7f3a"])
        .arg(lab.directory.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    lab.kill_and_delete("quiet").await;
    lab.close().await;
}
