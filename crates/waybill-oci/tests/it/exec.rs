//! Sessions that gate signed, and the others that may happen.

use std::{fs, io::Write, os::unix::fs::MetadataExt, process::Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use waybill_api::stock::{Mode, Verdict};

use crate::lab::{finish, has, owned, sealed, signed, text, wait_for, with_each};

#[test]
fn a_signed_session_runs_with_its_own_words_and_exit_code() {
    with_each(Mode::Enforce, |lab| {
        let (session, output) = lab.session(&[
            "sh",
            "-c",
            "echo $WAYBILL_SESSION_ID \"$0\"; echo e >&2; exit 7",
            "a b",
        ]);
        assert_eq!(output.status.code(), Some(7), "{}", text(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{session} a b\n"));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "e\n");
    });
}

/// D12: what counts is the cgroup that was made for it.
#[test]
fn a_session_is_in_a_cgroup_of_its_own_and_on_record() {
    with_each(Mode::Enforce, |lab| {
        let claims = lab.claims(None, &["sh", "-c", "read line; echo $line"]);
        let mut command =
            lab.exec_command(&signed(&claims, None, &["sh", "-c", "read line; echo $line"]), &[]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        wait_for("the record", || lab.layout.session(&claims.session).exists());
        let record = lab.record(&claims.session);
        assert_eq!(record.verdict, Verdict::Attributed);
        assert_eq!(record.argv, ["sh", "-c", "read line; echo $line"]);
        assert_eq!(
            (record.namespace.as_str(), record.pod.as_str(), record.container.as_str()),
            ("ns", "web", "main")
        );
        assert_eq!((record.container_id.as_str(), record.pid), (lab.id.as_str(), Some(child.id())));
        assert!(record.cgroup.ends_with(&claims.session.cgroup_name()), "{}", record.cgroup);
        assert_eq!(record.cgroup_id, fs::metadata(lab.cgroup(&record)).unwrap().ino());
        let procs = lab.cgroup(&record).join("cgroup.procs");
        wait_for("a process in the cgroup", || !fs::read_to_string(&procs).unwrap().is_empty());
        child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n");
        assert!(output.status.success());
    });
}

#[test]
fn a_detached_session_writes_its_pid_and_goes_on() {
    with_each(Mode::Enforce, |lab| {
        let words = ["sleep", "1000"];
        let claims = lab.claims(None, &words);
        let file = lab.process(&signed(&claims, None, &words), false, &[]);
        let pid_file = lab.path("exec.pid");
        let status = lab
            .wrapped(&[
                "exec",
                "--process",
                file.to_str().unwrap(),
                "--detach",
                "--pid-file",
                pid_file.to_str().unwrap(),
                &lab.id,
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{status:?} {}", lab.logged());
        let pid = fs::read_to_string(pid_file).unwrap();
        let procs = lab.cgroup(&lab.record(&claims.session)).join("cgroup.procs");
        let procs = fs::read_to_string(procs).unwrap();
        assert!(procs.lines().any(|line| line == pid.trim()), "{pid} is not in {procs}");
    });
}

#[test]
fn a_signal_for_the_wrapper_reaches_the_session() {
    with_each(Mode::Enforce, |lab| {
        let words = ["sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 1; done"];
        let claims = lab.claims(None, &words);
        let mut child = lab
            .exec_command(&signed(&claims, None, &words), &[])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(finish(child).code(), Some(9));
    });
}

/// EXEC-13: sealed variables go before the container's, and are nowhere but in the process.
#[test]
fn sealed_variables_reach_the_process_and_no_file_exec_13() {
    with_each(Mode::Enforce, |lab| {
        let word =
            sealed(&[("TOKEN", "hunter2-canary"), ("EMPTY", ""), ("PATH", "/none:/bin")], |_| {});
        let command = ["/bin/sh", "-c", "echo $TOKEN [${EMPTY-unset}] $PATH"];
        let claims = lab.claims(Some(&word), &command);
        let output = lab.exec(&signed(&claims, Some(&word), &command));
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "hunter2-canary [] /none:/bin\n",
            "{}",
            text(&output)
        );
        assert_eq!(lab.files_with(b"hunter2-canary"), [""; 0]);
        assert!(!has(&serde_json::to_vec(&lab.record(&claims.session)).unwrap(), b"sealed"));
    });
}

#[test]
fn a_declared_probe_needs_no_session_and_leaves_no_record() {
    with_each(Mode::Enforce, |lab| {
        lab.facts(
            "enforce",
            &json!({"probes": [["sh", "-c", "exit 3"]], "hooks": [["sh", "-c", "echo hook"]]}),
        );
        assert_eq!(lab.exec(&owned(&["sh", "-c", "exit 3"])).status.code(), Some(3));
        assert_eq!(lab.exec(&owned(&["sh", "-c", "echo hook"])).stdout, b"hook\n");
        assert_eq!(lab.strangers(), []);
        // The same words with an input are somebody who types.
        let mut command = lab.exec_command(&owned(&["sh", "-c", "exit 3"]), &[]);
        let output = command.stdin(Stdio::piped()).output().unwrap();
        lab.check_refused(&output, "waybill: exec refused: no session");
        let output = lab.exec(&owned(&["sh", "-c", "exit 3", ""]));
        lab.check_refused(&output, "waybill: exec refused: no session");
    });
}

#[test]
fn without_a_session_the_mode_decides() {
    with_each(Mode::Enforce, |lab| {
        let output = lab.exec(&owned(&["sh", "-c", "echo in"]));
        lab.check_refused(&output, "waybill: exec refused: no session");
        let [refused] = &lab.strangers()[..] else { panic!("one record") };
        assert_eq!(
            (refused.verdict, refused.session.as_ref(), refused.cgroup_id),
            (Verdict::Refused, None, 0)
        );
        // The namespace's word goes before the node's.
        lab.facts("record", &json!({}));
        let output = lab.exec(&owned(&["sh", "-c", "echo in; echo \"[$WAYBILL_SESSION_ID]\""]));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "in\n[]\n", "{}", text(&output));
        let records = lab.strangers();
        let nobodys =
            records.iter().find(|record| record.verdict == Verdict::Unattributed).unwrap();
        assert_eq!((nobodys.session.as_ref(), nobodys.argv[0].as_str()), (None, "sh"));
        assert_ne!(nobodys.cgroup_id, 0);
    });
    with_each(Mode::Record, |lab| {
        let output = lab.exec(&owned(&["sh", "-c", "echo in"]));
        assert_eq!(output.stdout, b"in\n", "{}", text(&output));
    });
}

#[test]
fn cgroups_of_sessions_that_ended_are_removed_by_the_next() {
    with_each(Mode::Enforce, |lab| {
        let (first, _) = lab.session(&["sh", "-c", "exit 0"]);
        let cgroup = lab.cgroup(&lab.record(&first));
        // It may be about to begin for all that anybody knows.
        let (_, output) = lab.session(&["sh", "-c", "exit 0"]);
        assert!(output.status.success(), "{}", text(&output));
        assert!(fs::metadata(&cgroup).is_ok());
        fs::remove_file(lab.layout.used_session(&first)).unwrap();
        lab.session(&["sh", "-c", "exit 0"]);
        assert!(fs::metadata(&cgroup).is_err());
    });
}

#[test]
fn everything_else_is_the_runtimes() {
    with_each(Mode::Enforce, |lab| {
        let state = lab.wrapped(&["state", &lab.id]).output().unwrap();
        let state: serde_json::Value = serde_json::from_slice(&state.stdout).unwrap();
        assert_eq!((&state["id"], &state["status"]), (&json!(lab.id), &json!("running")));
        // It says itself what it does not know.
        let output =
            lab.wrapped(&["exec", "--process", "/none", "no-such-container"]).output().unwrap();
        assert!(!output.status.success());
        assert!(!has(&output.stderr, b"waybill:"), "{}", text(&output));
    });
}
