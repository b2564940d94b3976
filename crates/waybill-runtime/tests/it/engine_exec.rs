//! Exec sessions: exactly what the container is, plus variables, in a cgroup of their own.

use std::{
    fs,
    io::{Read, Write},
    os::fd::AsFd,
};

use waybill_core::env::value::EnvValue;
use waybill_runtime::engine::{EngineError, ProcessIo, Session, SessionFilter};

use crate::lab::{Lab, eventually, exec, finish, unified, variables};

/// EXEC-02, EXEC-04, EXEC-05, EXEC-06, EXEC-07, EXEC-08, EXEC-09
#[tokio::test(flavor = "multi_thread")]
async fn variables_of_a_session_go_over_those_of_the_container() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let baseline = "PATH=/bin\nBASE=line\nOVER=container\nHOME=/root\n";
    assert_eq!(lab.exec("box", exec(&["/bin/env"])).await.0, baseline);
    let mut request = exec(&["env"]);
    request.env = variables(&[("OVER", "1"), ("OVER", "caller"), ("EMPTY", ""), ("MINE", "no")]);
    request.runtime_env = variables(&[("MINE", "runtime")]);
    let (text, exit) = lab.exec("box", request).await;
    assert_eq!(text, "PATH=/bin\nBASE=line\nOVER=caller\nEMPTY=\nMINE=runtime\nHOME=/root\n");
    assert_eq!(exit.code, 0);
    assert_eq!(lab.exec("box", exec(&["/bin/env"])).await.0, baseline);
    assert_eq!(lab.sh("box", "tr '\\0' '\\n' </proc/1/environ").await.0, baseline);
    lab.kill_and_delete("box").await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_what_the_first_process_is() {
    let Some(lab) = Lab::open().await else { return };
    let mut request = lab.container("box", &["/bin/sleep", "1000"]);
    let mut process = request.spec.process().clone().unwrap();
    let user = oci_spec::runtime::UserBuilder::default()
        .uid(1000_u32)
        .gid(1000_u32)
        .additional_gids(vec![7_u32, 8])
        .umask(0o027_u32)
        .build()
        .unwrap();
    process.set_user(user);
    process.set_cwd("/home/web".into());
    process.set_oom_score_adj(Some(500));
    let limit = oci_spec::runtime::PosixRlimitBuilder::default()
        .typ(oci_spec::runtime::PosixRlimitType::RlimitNofile)
        .soft(100_u64)
        .hard(200_u64)
        .build()
        .unwrap();
    process.set_rlimits(Some(vec![limit]));
    request.spec.set_process(Some(process));
    lab.engine().create("box", request).await.unwrap();
    lab.engine().start("box").await.unwrap();
    let look = "for at in 1 self; do grep -E 'Uid|Gid|Groups|Cap|NoNewPrivs|Umask|Seccomp' \
                /proc/$at/status; cat /proc/$at/oom_score_adj; grep 'open files' /proc/$at/limits; \
                for ns in cgroup ipc mnt net pid uts user; do readlink /proc/$at/ns/$ns; done; echo ==; done";
    // What is not our own is not readable for this user, so the first process is read from outside.
    let (own, exit) = lab.sh("box", &look.replace("1 self", "self")).await;
    assert_eq!(exit.code, 0, "{own}");
    let waybill_runtime::engine::State::Running { pid, .. } = lab.engine().state("box").unwrap()
    else {
        panic!()
    };
    let outside = std::process::Command::new("sh")
        .args(["-c", &look.replace("1 self", &pid.to_string())])
        .output()
        .unwrap();
    assert_eq!(own, String::from_utf8(outside.stdout).unwrap());
    assert!(own.contains("Groups:\t7 8"), "{own}");
    assert_eq!(lab.sh("box", "pwd; umask; echo x >/dev/stderr").await.0, "/home/web\n0027\nx\n");
    lab.kill_and_delete("box").await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_run_is_said_and_leaves_no_session() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let fault = async |arguments: &[&str]| match lab.engine().exec("box", exec(arguments)).await {
        Err(EngineError::Exec(fault)) => (fault.code, fault.message),
        other => panic!("{other:?}"),
    };
    let (code, message) = fault(&["nope"]).await;
    assert_eq!(
        (code, message.as_str()),
        (127, "exec: \"nope\": executable file not found in $PATH")
    );
    let (code, message) = fault(&["/bin/nope"]).await;
    assert_eq!((code, message.as_str()), (127, "exec: \"/bin/nope\": no such file or directory"));
    let (code, message) = fault(&["/etc/plain"]).await;
    assert_eq!((code, message.as_str()), (126, "exec: \"/etc/plain\": permission denied"));
    assert!(lab.engine().sessions(&SessionFilter::default()).is_empty());
    assert_eq!(fs::read_dir(lab.run_dir().join("sessions")).unwrap().count(), 0);
    lab.kill_and_delete("box").await;
    lab.close().await;
}

/// EXEC-02, EXEC-03
#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_every_byte_and_a_megabyte_of_variables_arrive_unchanged() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let value: Vec<u8> = (1..=255).cycle().take(32 << 10).collect();
    let mut request = exec(&["/bin/cat", "/proc/self/environ"]);
    request.env = variables(&[("LITERAL", "$BASE ${BASE} $(BASE) %BASE%")]);
    let names: Vec<String> = (0..32).map(|at| format!("BYTES_{at}")).collect();
    for name in &names {
        request.env.extend(variables(&[(name, "")]));
        request.env.last_mut().unwrap().1 = EnvValue::secret(value.clone()).unwrap();
    }
    let Session { io, process } = lab.engine().exec("box", request).await.unwrap();
    let ProcessIo::Pipes { stdout: Some(stdout), .. } = io else { panic!() };
    let mut bytes = Vec::new();
    fs::File::from(stdout).read_to_end(&mut bytes).unwrap();
    assert_eq!(process.wait().await.unwrap().code, 0);
    let found: Vec<&[u8]> = bytes.split(|&byte| byte == 0).collect();
    assert!(found.contains(&&b"LITERAL=$BASE ${BASE} $(BASE) %BASE%"[..]));
    for name in &names {
        assert!(found.contains(&&[name.as_bytes(), b"=", &value].concat()[..]), "{name}");
    }
    lab.kill_and_delete("box").await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_input_is_written_and_closed_and_streams_stay_apart() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let mut request = exec(&["/bin/sh", "-c", "cat; echo done >&2; exit 9"]);
    request.stdin = true;
    let Session { io, process } = lab.engine().exec("box", request).await.unwrap();
    let ProcessIo::Pipes { stdin, stdout, stderr } = io else { panic!() };
    let mut stdin = fs::File::from(stdin.unwrap());
    stdin.write_all(b"typed").unwrap();
    drop(stdin);
    let read = |fd| {
        let mut text = String::new();
        fs::File::from(fd).read_to_string(&mut text).unwrap();
        text
    };
    assert_eq!((read(stdout.unwrap()), read(stderr.unwrap())), ("typed".into(), "done\n".into()));
    assert_eq!(process.wait().await.unwrap().code, 9);
    let silent = exec(&["/bin/sh", "-c", "read line || echo none; ls -l /proc/self/fd"]);
    let text = lab.exec("box", silent).await.0;
    assert!(text.starts_with("none\n"), "{text}");
    // 0, 1 and 2: nothing of ours was inherited.
    assert_eq!(text.lines().filter(|line| line.contains("->")).count(), 3, "{text}");
    lab.kill_and_delete("box").await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_belongs_to_the_container_and_can_be_resized() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let mut request = exec(&["/bin/sh", "-c", "tty; read go; stty size; exit 2"]);
    request.tty = true;
    request.stdin = true;
    let Session { io, process } = lab.engine().exec("box", request).await.unwrap();
    let ProcessIo::Terminal(master) = io else { panic!() };
    let size = rustix::termios::Winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(master.as_fd(), size).unwrap();
    let mut master = fs::File::from(master);
    master.write_all(b"go\n").unwrap();
    let mut bytes = Vec::new();
    let _ = master.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.contains("/dev/pts/0\r\n"), "{text:?}");
    assert!(text.ends_with("33 77\r\n"), "{text:?}");
    assert_eq!(process.wait().await.unwrap().code, 2);
    lab.kill_and_delete("box").await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_session_reports_the_signal_and_its_cgroup_goes() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let session = lab.engine().exec("box", exec(&["/bin/sleep", "1000"])).await.unwrap();
    let cgroup = session_cgroup(&lab, session.process.id());
    assert_eq!(processes_of(&cgroup), [session.process.pid()]);
    session.kill().await.unwrap();
    assert_eq!(session.wait().await.unwrap().code, 137);
    eventually("the cgroup is removed", || !cgroup.exists()).await;
    session.kill().await.unwrap();
    lab.kill_and_delete("box").await;
    lab.close().await;
}

/// D7: whatever a session's processes do, the kernel knows whose they are.
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_session_stays_in_its_cgroup() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    // Clears its environment, forks twice, leaves its session, and outlives its parent.
    let script = "(setsid env -i /bin/sh -c 'exec sleep 1001' </dev/null >/dev/null 2>&1 &) ; \
                  (env -i A=b /bin/sleep 1002 </dev/null >/dev/null 2>&1 &) ; exit 0";
    let session = lab.engine().exec("box", exec(&["/bin/sh", "-c", script])).await.unwrap();
    let process = session.process.clone();
    let cgroup = session_cgroup(&lab, process.id());
    let (_, exit) = finish(session).await;
    assert_eq!(exit.code, 0);
    eventually("both sleep", || {
        let pids = processes_of(&cgroup);
        pids.iter().filter(|pid| command_of(**pid).contains("sleep")).count() == 2
    })
    .await;
    assert_eq!(processes_of(&cgroup).len(), 2);
    // The container cannot move processes: neither out of a session nor into one.
    let moves = "for file in $(find /sys/fs/cgroup -name cgroup.procs -o -name tasks); do \
                 echo $$ >$file; done 2>/dev/null; mkdir /sys/fs/cgroup/x /sys/fs/cgroup/*/x; \
                 mount -t cgroup2 none /tmp; mount -o remount,rw /sys/fs/cgroup; \
                 grep ^0: /proc/self/cgroup";
    let mover = exec(&["/bin/sh", "-c", moves]);
    let own = format!("0::/../sessions/exec-{}\n", mover.session);
    let (text, _) = lab.exec("box", mover).await;
    assert!(text.starts_with(&own), "{text}");
    assert_eq!(processes_of(&cgroup).len(), 2);
    process.kill().await.unwrap();
    eventually("the cgroup is removed", || !cgroup.exists()).await;
    lab.kill_and_delete("box").await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn many_sessions_at_once_and_many_in_a_row_leave_no_trace() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let monitor = lab.monitor("box");
    let open = || fs::read_dir(format!("/proc/{monitor}/fd")).unwrap().count();
    lab.sh("box", "true").await;
    let before = open();
    let all = (0..50).map(|number| {
        let engine = lab.engine().clone();
        tokio::spawn(async move {
            let script = format!("sleep 0.1; exit {number}");
            let session = engine.exec("box", exec(&["/bin/sh", "-c", &script])).await.unwrap();
            (number, finish(session).await.1.code)
        })
    });
    for one in all.collect::<Vec<_>>() {
        let (number, code) = one.await.unwrap();
        assert_eq!(number, code);
    }
    for _ in 0..100 {
        assert_eq!(lab.exec("box", exec(&["/bin/true"])).await.1.code, 0);
    }
    // Fewer, if those of the first session were still being closed when they were counted.
    eventually("descriptors are closed", || open() <= before).await;
    let container = unified().join(lab.cgroup.strip_prefix("/").unwrap()).join("box");
    let sessions = || {
        let entries = fs::read_dir(container.join("sessions")).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    };
    eventually("cgroups are removed", || sessions() == 0).await;
    lab.kill_and_delete("box").await;
    lab.close().await;
}

fn session_cgroup(lab: &Lab, session: &str) -> std::path::PathBuf {
    let container = unified().join(lab.cgroup.strip_prefix("/").unwrap()).join("box");
    container.join(format!("sessions/exec-{session}"))
}

fn processes_of(cgroup: &std::path::Path) -> Vec<i32> {
    let text = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

fn command_of(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}
