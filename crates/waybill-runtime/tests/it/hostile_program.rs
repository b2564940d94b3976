//! CVE-2019-5736 from inside: a container has our program run as `/proc/self/exe`, by its first process and by a session, and writes
//! to it. It may look at every process that it sees. The control is a program of the machine that somebody runs in there without care.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    process::Command,
};

use waybill_runtime::engine::{ContainerRequest, ExecRequest, State, Stdio};
use waybill_testkit::hostile::hostile;

use crate::lab::{Lab, eventually, exec, with_ptrace};

const SPAWNER: &str = env!("CARGO_BIN_EXE_waybill-test-spawner");
/// Our program does nothing but wait for its standard input when it is called so.
const WAITS: &str = "waybill-spawner";

/// A lab whose image holds the attack, a link to whatever runs it, and the libraries that our program needs.
async fn open() -> Option<Lab> {
    let lab = Lab::open().await?;
    fs::copy(hostile(), lab.rootfs.join("bin/hostile")).unwrap();
    symlink("/proc/self/exe", lab.rootfs.join("bin").join(WAITS)).unwrap();
    // Asked of the loader itself, as `ldd` does, which not every machine has.
    let libraries = Command::new(SPAWNER).env("LD_TRACE_LOADED_OBJECTS", "1").output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        let place = lab.rootfs.join(library.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(library, place).unwrap();
    }
    Some(lab)
}

fn with_input(lab: &Lab, arguments: &[&str]) -> ContainerRequest {
    let request = with_ptrace(lab.container("box", arguments));
    ContainerRequest { stdio: Stdio { stdin: true, ..request.stdio.clone() }, ..request }
}

/// Whether a process of the container runs our program: the file has its number, whatever the mount that it is reached by.
fn runs_our_program(lab: &Lab, not: i32) -> bool {
    let number = |path: &Path| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    let ours = number(Path::new(SPAWNER));
    let name = |pid: i32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    lab.processes().into_iter().any(|pid| {
        pid != not
            && name(pid).starts_with(WAITS.as_bytes())
            && number(Path::new(&format!("/proc/{pid}/exe"))) == ours
            && fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it.trim() == WAITS)
    })
}

/// Has the container write to this program of the machine, and to no other.
async fn attack(lab: &Lab, program: &Path) -> (String, i32) {
    let file = fs::metadata(program).unwrap();
    let numbers = format!("{}:{}", file.dev(), file.ino());
    let (text, exit) = lab.exec("box", exec(&["/bin/hostile", "overwrite", &numbers])).await;
    (text, exit.code)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_runs_our_program_cannot_write_it() {
    let Some(lab) = open().await else { return };
    let before = fs::read(SPAWNER).unwrap();
    let stopped = |(text, code): (String, i32)| {
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("Read-only file system"), "{text}");
        assert!(fs::read(SPAWNER).unwrap() == before, "our program was written");
    };

    // As the first process.
    lab.engine().create("box", with_input(&lab, &[WAITS])).await.unwrap();
    lab.engine().start("box").await.unwrap();
    let monitor = lab.monitor("box");
    eventually("the first process is our program", || runs_our_program(&lab, monitor)).await;
    stopped(attack(&lab, Path::new(SPAWNER)).await);
    lab.kill_and_delete("box").await;

    // As a session.
    lab.engine().create("box", with_input(&lab, &["/bin/sleep", "1000"])).await.unwrap();
    lab.engine().start("box").await.unwrap();
    let monitor = lab.monitor("box");
    let (text, code) = attack(&lab, Path::new(SPAWNER)).await;
    assert_eq!((code, text.contains("nobody runs that program")), (1, true), "{text}");
    let session = ExecRequest { stdin: true, ..exec(&[WAITS]) };
    let session = lab.engine().exec("box", session).await.unwrap();
    eventually("the session is our program", || runs_our_program(&lab, monitor)).await;
    stopped(attack(&lab, Path::new(SPAWNER)).await);
    drop(session);
    lab.kill_and_delete("box").await;
    lab.close().await;
}

/// The control: where a program is run from the machine's own mounts, the attack works, and the file is another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_enters_without_care_is_overwritten() {
    let Some(lab) = open().await else { return };
    lab.engine().create("box", with_input(&lab, &["/bin/sleep", "1000"])).await.unwrap();
    lab.engine().start("box").await.unwrap();
    let State::Running { pid, .. } = lab.engine().state("box").unwrap() else { panic!() };
    let careless = lab.directory.path().join("careless");
    fs::copy(hostile(), &careless).unwrap();
    let script =
        "exec 9<\"$1\"; exec nsenter --target \"$2\" --mount --pid /proc/self/fd/9 stand-still";
    let mut entered = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(&careless)
        .arg(pid.to_string())
        .spawn()
        .unwrap();
    let mut told = (String::new(), 1);
    for _ in 0..200 {
        told = attack(&lab, &careless).await;
        if told.1 == 0 || !told.0.contains("nobody runs that") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(told.1, 0, "{}", told.0);
    assert!(fs::read(&careless).unwrap().starts_with(b"#!/bin/sh"), "it was written");
    entered.wait().unwrap();
    lab.kill_and_delete("box").await;
    lab.close().await;
}
