//! Ways out of a container that lead through our own processes while they enter it, and that they are closed.

use std::{fs, io::ErrorKind, path::Path, process::Command};

use waybill_runtime::engine::{EngineError, ExecRequest, State};

use crate::lab::{BUSYBOX, Lab, eventually, exec};

/// More descriptors than any of our processes has.
const DESCRIPTORS: std::ops::Range<u32> = 0..64;

/// Puts a program on the machine, outside of the container, and says how to reach it from a directory of the machine that is
/// open as a descriptor.
fn program_of_the_machine(lab: &Lab) -> impl Fn(u32) -> String + use<> {
    let program = lab.directory.path().join("busybox");
    fs::copy(BUSYBOX, &program).unwrap();
    let up = "../".repeat(16);
    move |fd| format!("/proc/self/fd/{fd}/{up}{}", program.strip_prefix("/").unwrap().display())
}

fn pid(lab: &Lab, id: &str) -> i32 {
    let State::Running { pid, .. } = lab.engine().state(id).unwrap() else { panic!("{id}") };
    pid
}

/// Issue: `kubectl exec web -- /proc/self/fd/10/../../../bin/busybox` ran a program of the machine (the class of CVE-2024-21626).
#[tokio::test(flavor = "multi_thread")]
async fn a_session_finds_no_directory_of_the_machine_behind_a_descriptor() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let outside = program_of_the_machine(&lab);
    for fd in DESCRIPTORS {
        let path = outside(fd);
        for tty in [false, true] {
            let request = ExecRequest { tty, ..exec(&[&path, "echo", "escaped"]) };
            match lab.engine().exec("box", request).await {
                Err(EngineError::Exec(_)) => {}
                other => panic!("descriptor {fd} leads out of the container: {other:?}"),
            }
        }
    }
    // The same path works as soon as a directory is left open.
    let script = format!(
        "exec 9</; nsenter --target {} --mount --pid {} echo escaped",
        pid(&lab, "box"),
        outside(9)
    );
    let control = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(control.stdout, b"escaped\n", "{control:?}");
    lab.kill_and_delete("box").await;
    lab.close().await;
}

/// As before, by way of the first program and of the working directory.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_process_finds_no_directory_of_the_machine_behind_a_descriptor() {
    let Some(lab) = Lab::open().await else { return };
    let outside = program_of_the_machine(&lab);
    for fd in 3..18 {
        let program = outside(fd);
        let mut by_directory = lab.container("directory", &["./busybox", "echo", "escaped"]);
        let mut process = by_directory.spec.process().clone().unwrap();
        process.set_cwd(Path::new(&program).parent().unwrap().to_owned());
        by_directory.spec.set_process(Some(process));
        let by_program = lab.container("program", &[&program, "echo", "escaped"]);
        for (id, request) in [("directory", by_directory), ("program", by_program)] {
            if lab.engine().create(id, request).await.is_ok() {
                let started = lab.engine().start(id).await;
                assert!(matches!(started, Err(EngineError::Exec(_))), "{fd} {id}: {started:?}");
            }
            let _ = lab.engine().delete(id).await;
        }
    }
    lab.close().await;
}

/// A process that waits for its start can be looked at by others of its pod, if they may.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_process_that_waits_holds_nothing_of_the_machine() {
    let Some(lab) = Lab::open().await else { return };
    lab.engine().create("box", lab.container("box", &["/bin/sleep", "1000"])).await.unwrap();
    let monitor = lab.monitor("box");
    let mut waiting = None;
    eventually("only the monitor and the first process are there", || {
        let others = lab.processes().into_iter().filter(|&pid| pid != monitor);
        waiting = <[i32; 1]>::try_from(others.collect::<Vec<_>>()).ok();
        waiting.is_some()
    })
    .await;
    let [waiting] = waiting.unwrap();
    for entry in fs::read_dir(format!("/proc/{waiting}/fd")).unwrap() {
        let entry = entry.unwrap();
        let target = fs::read_link(entry.path()).unwrap();
        let target = target.to_str().unwrap();
        let harmless =
            ["socket:", "pipe:", "/dev/null"].iter().any(|kind| target.starts_with(kind));
        assert!(harmless, "{:?} is {target}", entry.file_name());
    }
    let own = fs::read_to_string(format!("/proc/{waiting}/status")).unwrap();
    lab.engine().start("box").await.unwrap();
    let started = fs::read_to_string(format!("/proc/{waiting}/status")).unwrap();
    let bounding = |status: &str| -> Vec<String> {
        status.lines().filter(|line| line.starts_with("Cap")).map(str::to_owned).collect()
    };
    assert_eq!(bounding(&own), bounding(&started), "privileges are dropped before the wait");
    lab.kill_and_delete("box").await;
    lab.close().await;
}

/// Root in a container may change modes and owners of what it finds open.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_input_has_the_null_device_of_its_container() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let script = "stat -L -c '%d:%i' /dev/null /proc/self/fd/0";
    let (text, exit) = lab.sh("box", script).await;
    assert_eq!(exit.code, 0, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], lines[1], "standard input is a device of the machine");
    lab.kill_and_delete("box").await;
    lab.close().await;
}

/// CVE-2019-5736: a container has `/proc/self/exe` executed, which is our program, and writes to it through `/proc/PID/exe`.
#[tokio::test(flavor = "multi_thread")]
async fn our_program_cannot_be_written_through_a_process_that_enters_a_container() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let write = |pid: String| {
        // Nothing is lost where it is not protected: the kernel keeps running programs from being truncated.
        let file = fs::File::options().write(true).truncate(true).open(format!("/proc/{pid}/exe"));
        file.unwrap_err().kind()
    };
    // Sessions and first processes are forked from it.
    assert_eq!(write(lab.monitor("box").to_string()), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(write("self".to_owned()), ErrorKind::ExecutableFileBusy);
    lab.kill_and_delete("box").await;
    lab.close().await;
}
