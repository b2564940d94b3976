//! Containers, from creation to removal.

use std::{
    fs,
    io::{Read, Write},
    os::fd::{AsFd, OwnedFd},
};

use oci_spec::runtime::{
    LinuxCpuBuilder, LinuxMemoryBuilder, LinuxPidsBuilder, LinuxResources, LinuxResourcesBuilder,
};
use waybill_runtime::engine::{
    AttachRequest, Attachment, EngineError, ExitCause, ProcessIo, State,
};

use crate::lab::{Lab, eventually, hierarchies};

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

/// D9: swap is a file.
#[tokio::test(flavor = "multi_thread")]
async fn the_environment_is_locked_in_the_memory_of_the_monitor() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("locked").await;
    let status = fs::read_to_string(format!("/proc/{}/status", lab.monitor("locked"))).unwrap();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    assert_ne!(locked.trim(), "0 kB");
    lab.kill_and_delete("locked").await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_fails_leaves_nothing() {
    let Some(lab) = Lab::open().await else { return };
    let mut request = lab.container("no", &["/bin/true"]);
    request.spec.root_mut().as_mut().unwrap().set_path("/nowhere".into());
    let error = lab.engine().create("no", request).await.unwrap_err();
    assert!(matches!(error, EngineError::Create { .. }), "{error}");
    assert!(lab.engine().containers().is_empty());
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_run_fails_the_start() {
    let Some(lab) = Lab::open().await else { return };
    let script = lab.rootfs.join("bin/broken");
    fs::write(&script, "#!/bin/missing\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let engine = lab.engine();
    for (program, code, message) in [
        ("nope", 127, "exec: \"nope\": executable file not found in $PATH"),
        ("/etc/plain", 126, "exec: \"/etc/plain\": permission denied"),
        ("/bin/broken", 127, "exec: \"/bin/broken\": no such file or directory"),
    ] {
        engine.create("no", lab.container("no", &[program])).await.unwrap();
        let Err(EngineError::Exec(fault)) = engine.start("no").await else { panic!() };
        assert_eq!((fault.code, fault.message.as_str()), (code, message));
        assert_eq!(engine.wait("no").await.unwrap().code, code);
        engine.delete("no").await.unwrap();
    }
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

#[tokio::test(flavor = "multi_thread")]
async fn those_who_attach_read_everything_and_write_standard_input() {
    let Some(lab) = Lab::open().await else { return };
    let engine = lab.engine();
    let mut request = lab.container("box", &["/bin/sh", "-c", "cat; echo end >&2"]);
    request.stdio.stdin = true;
    request.stdio.stdin_once = true;
    engine.create("box", request).await.unwrap();
    let reader = engine.attach("box", &reads()).await.unwrap();
    let writer = engine.attach("box", &writes()).await.unwrap();
    engine.start("box").await.unwrap();
    let (stdin, stdout, stderr) = pipes(writer);
    fs::File::from(stdin.unwrap()).write_all(b"typed").unwrap();
    assert_eq!(engine.wait("box").await.unwrap().code, 0);
    assert_eq!((text(stdout), text(stderr)), ("typed".to_owned(), "end\n".to_owned()));
    let (stdin, stdout, stderr) = pipes(reader);
    assert!(stdin.is_none());
    assert_eq!((text(stdout), text(stderr)), ("typed".to_owned(), "end\n".to_owned()));
    assert!(engine.attach("box", &reads()).await.is_err());
    engine.delete("box").await.unwrap();
    lab.run("deaf").await;
    let error = engine.attach("deaf", &writes()).await.unwrap_err();
    assert!(error.to_string().contains("no standard input"), "{error}");
    lab.kill_and_delete("deaf").await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_of_a_container_is_logged_and_attached() {
    let Some(lab) = Lab::open().await else { return };
    let engine = lab.engine();
    let mut request = lab.container("box", &["/bin/sh", "-c", "tty; read go; stty size"]);
    request.stdio.stdin = true;
    request.stdio.tty = true;
    engine.create("box", request).await.unwrap();
    let attached = engine.attach("box", &writes()).await.unwrap();
    engine.start("box").await.unwrap();
    let size = rustix::termios::Winsize { ws_row: 20, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(attached.terminal.as_ref().unwrap().as_fd(), size).unwrap();
    let (stdin, stdout, stderr) = pipes(attached);
    assert!(stderr.is_none());
    let mut stdin = fs::File::from(stdin.unwrap());
    stdin.write_all(b"go\n").unwrap();
    assert_eq!(engine.wait("box").await.unwrap().code, 0);
    let text = text(stdout);
    assert!(text.contains("/dev/pts/0\r\n") && text.ends_with("20 90\r\n"), "{text:?}");
    assert!(lab.logged("box").contains(&"stdout F 20 90\r".to_owned()), "{:?}", lab.logged("box"));
    engine.delete("box").await.unwrap();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_goes_on_in_a_new_file() {
    let Some(lab) = Lab::open().await else { return };
    let engine = lab.engine();
    let script = "echo one; while [ ! -e /tmp/go ]; do usleep 1000; done; echo two";
    engine.create("box", lab.container("box", &["/bin/sh", "-c", script])).await.unwrap();
    engine.start("box").await.unwrap();
    eventually("the first line is logged", || lab.logged("box") == ["stdout F one"]).await;
    fs::rename(lab.log("box"), lab.log("old")).unwrap();
    engine.reopen_log("box").await.unwrap();
    fs::write(lab.rootfs.join("tmp/go"), "").unwrap();
    engine.wait("box").await.unwrap();
    assert_eq!(lab.logged("box"), ["stdout F two"]);
    engine.delete("box").await.unwrap();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_uses_too_much_memory_says_so() {
    let Some(lab) = Lab::open().await else { return };
    let mut request = lab.container("hog", &["/bin/tail", "/dev/zero"]);
    limit(&mut request.spec, &memory(32 << 20));
    lab.engine().create("hog", request).await.unwrap();
    lab.engine().start("hog").await.unwrap();
    let exit = lab.engine().wait("hog").await.unwrap();
    assert_eq!((exit.code, exit.cause), (137, ExitCause::OutOfMemory));
    lab.engine().delete("hog").await.unwrap();
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_applied_changed_and_counted() {
    let Some(lab) = Lab::open().await else { return };
    let engine = lab.engine();
    let mut request = lab.container("box", &["/bin/sleep", "1000"]);
    let resources = LinuxResourcesBuilder::default()
        .memory(LinuxMemoryBuilder::default().limit(64 << 20).build().unwrap())
        .pids(LinuxPidsBuilder::default().limit(20).build().unwrap())
        .cpu(LinuxCpuBuilder::default().shares(512_u64).cpus("0").build().unwrap())
        .build()
        .unwrap();
    limit(&mut request.spec, &resources);
    engine.create("box", request).await.unwrap();
    engine.start("box").await.unwrap();
    lab.sh("box", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done").await;
    let stats = engine.stats("box").await.unwrap();
    assert_eq!((stats.memory.limit, stats.pids_limit), (Some(64 << 20), Some(20)));
    assert_eq!(stats.pids, 1);
    assert!(stats.cpu_usage_ns > 1_000_000, "{stats:?}");
    assert!(stats.memory.usage > 0 && stats.memory.working_set <= stats.memory.usage, "{stats:?}");
    // Sessions are under the same limits.
    assert_eq!(
        lab.sh("box", "grep Cpus_allowed_list /proc/self/status").await.0,
        "Cpus_allowed_list:\t0\n"
    );
    let (text, _) = lab.sh("box", "for i in $(seq 30); do sleep 1 & done 2>&1; wait").await;
    assert!(text.contains("can't fork"), "{text}");
    engine.update("box", &memory(128 << 20)).await.unwrap();
    assert_eq!(engine.stats("box").await.unwrap().memory.limit, Some(128 << 20));
    lab.kill_and_delete("box").await;
    assert!(matches!(engine.stats("box").await, Err(EngineError::NotFound { .. })));
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_sees_its_own_cgroups_and_cannot_write_them() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let (text, _) = lab.sh("box", "cat /proc/1/cgroup; ls /sys/fs/cgroup").await;
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(':')).collect();
    assert!(lines.iter().all(|line| line.ends_with(":/")), "{text}");
    let legacy: Vec<_> =
        hierarchies().into_iter().filter(|path| !path.ends_with("unified")).collect();
    for hierarchy in &legacy {
        let name = hierarchy.file_name().unwrap().to_str().unwrap();
        if name != "cgroup" {
            let (seen, _) = lab.sh("box", &format!("cat /sys/fs/cgroup/{name}/cgroup.procs")).await;
            assert!(seen.lines().any(|pid| pid == "1"), "{name}: {seen}");
        }
    }
    let (_, exit) = lab.sh("box", "mkdir /sys/fs/cgroup/x || mkdir /sys/fs/cgroup/memory/x").await;
    assert_ne!(exit.code, 0);
    lab.kill_and_delete("box").await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_exactly_is_refused() {
    let Some(lab) = Lab::open().await else { return };
    let seccomp = oci_spec::runtime::LinuxSeccompBuilder::default()
        .default_action(oci_spec::runtime::LinuxSeccompAction::ScmpActAllow)
        .build()
        .unwrap();
    let linux = lab.spec("no", &["/bin/true"]).linux().clone().unwrap();
    let mut changed = vec![("seccomp", linux.clone()), ("cgroup path", linux.clone())];
    changed.push(("mount namespace", linux));
    changed[0].1.set_seccomp(Some(seccomp));
    changed[1].1.set_cgroups_path(Some("a/b".into()));
    changed[2].1.set_namespaces(None);
    for (what, linux) in changed {
        let mut request = lab.container("no", &["/bin/true"]);
        request.spec.set_linux(Some(linux));
        match lab.engine().create("no", request).await {
            Err(EngineError::Invalid { reason }) => assert!(reason.contains(what), "{reason}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    lab.close().await;
}

fn memory(limit: i64) -> LinuxResources {
    let memory = LinuxMemoryBuilder::default().limit(limit).build().unwrap();
    LinuxResourcesBuilder::default().memory(memory).build().unwrap()
}

fn limit(spec: &mut oci_spec::runtime::Spec, resources: &LinuxResources) {
    let mut linux = spec.linux().clone().unwrap();
    linux.set_resources(Some(resources.clone()));
    spec.set_linux(Some(linux));
}

type Pipe = Option<OwnedFd>;

fn pipes(attachment: Attachment) -> (Pipe, Pipe, Pipe) {
    let ProcessIo::Pipes { stdin, stdout, stderr } = attachment.io else { panic!() };
    (stdin, stdout, stderr)
}

fn text(pipe: Pipe) -> String {
    let mut text = String::new();
    fs::File::from(pipe.unwrap()).read_to_string(&mut text).unwrap();
    text
}

fn reads() -> AttachRequest {
    AttachRequest::default()
}

fn writes() -> AttachRequest {
    AttachRequest { stdin: true, audit_id: None }
}

/// A container dies with its monitor, so the kernel must choose anybody else first; and the container must not inherit that.
#[tokio::test(flavor = "multi_thread")]
async fn monitors_are_protected_from_the_oom_killer_and_their_containers_are_not() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let score = |pid: &str| {
        let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        score.trim().parse::<i32>().unwrap()
    };
    let own = score("self");
    let monitor = score(&lab.monitor("box").to_string());
    // Without CAP_SYS_RESOURCE nobody may lower it.
    assert!(monitor == -998 || monitor == own, "{monitor}");
    let State::Running { pid, .. } = lab.engine().state("box").unwrap() else { panic!() };
    assert_eq!(score(&pid.to_string()), own);
    let (session, _) = lab.sh("box", "cat /proc/self/oom_score_adj").await;
    assert_eq!(session.trim(), own.to_string());
    lab.kill_and_delete("box").await;
    lab.close().await;
}
