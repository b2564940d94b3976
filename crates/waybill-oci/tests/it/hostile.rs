//! Attempts to be somebody else, or nobody.

use std::{fs, process::Stdio, time::Duration};

use waybill_api::stock::Mode;

use crate::lab::{owned, signed, text, wait_for, with_each};

#[test]
fn words_that_look_like_a_token_are_words() {
    with_each(Mode::Enforce, |lab| {
        let (session, output) = lab.session(&[
            "sh",
            "-c",
            "echo $WAYBILL_SESSION_ID \"$@\"",
            "waybill-exec:x",
            "waybill-sealed:y",
            "-",
        ]);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            format!("{session} waybill-sealed:y -\n"),
            "{}",
            text(&output)
        );
        // In front, without a signature, they are a refusal in every mode.
        lab.facts("record", &serde_json::json!({}));
        let output = lab.exec(&owned(&["waybill-exec:x", "-", "sh"]));
        lab.check_refused(&output, "waybill: exec refused: not signed by this cluster");
    });
}

/// A token inside of a token's command begins nothing.
#[test]
fn a_nested_token_is_no_program() {
    with_each(Mode::Enforce, |lab| {
        let inner = signed(&lab.claims(None, &["true"]), None, &["true"]);
        let inner: Vec<_> = inner.iter().map(String::as_str).collect();
        let output = lab.exec(&signed(&lab.claims(None, &inner), None, &inner));
        assert!(!output.status.success(), "{}", text(&output));
    });
}

#[test]
fn who_forgets_the_environment_or_its_parent_stays_in_the_session() {
    with_each(Mode::Enforce, |lab| {
        let script = "(busybox env -i busybox setsid busybox sleep 1000 </dev/null >/dev/null 2>&1 &) ; exit 0";
        let words = ["sh", "-c", script];
        let claims = lab.claims(None, &words);
        let mut command = lab.exec_command(&signed(&claims, None, &words), &[]);
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(status.success());
        let procs = lab.cgroup(&lab.record(&claims.session)).join("cgroup.procs");
        let sleeps = || {
            let pids = fs::read_to_string(&procs).unwrap();
            pids.lines().any(|pid| {
                fs::read(format!("/proc/{pid}/cmdline"))
                    .is_ok_and(|line| line.ends_with(b"sleep\x001000\0"))
            })
        };
        wait_for("the child that was left behind", sleeps);
    });
}

/// The container's environment cannot say whose session it is.
#[test]
fn a_session_variable_of_the_container_does_not_count() {
    with_each(Mode::Enforce, |lab| {
        let words = ["sh", "-c", "echo $WAYBILL_SESSION_ID"];
        let claims = lab.claims(None, &words);
        let output = lab
            .exec_command(&signed(&claims, None, &words), &["WAYBILL_SESSION_ID=forged"])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{}\n", claims.session));
    });
}

/// Killed at any step it leaves no process without a record.
#[test]
fn a_wrapper_that_is_killed_leaves_nothing_half_started() {
    with_each(Mode::Enforce, |lab| {
        let words = ["sleep", "1000"];
        let mut sessions = Vec::new();
        for step in 0..24 {
            let claims = lab.claims(None, &words);
            let mut child = lab
                .exec_command(&signed(&claims, None, &words), &[])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            // Not a wait for something: every step is a good moment to be killed, those of the runtime included.
            std::thread::sleep(Duration::from_micros(step * step * 100));
            child.kill().unwrap();
            child.wait().unwrap();
            sessions.push(claims.session);
        }
        let (last, output) = lab.session(&["sh", "-c", "echo alive"]);
        assert_eq!(output.stdout, b"alive\n", "{}", text(&output));
        let (mut recorded, mut running) = (0, 0);
        let parent = lab.cgroup(&lab.record(&last)).parent().unwrap().to_owned();
        for session in sessions {
            let procs = fs::read_to_string(parent.join(session.cgroup_name()).join("cgroup.procs"));
            let is_recorded = lab.layout.session(&session).exists();
            if is_recorded {
                // Whole, however early the end came.
                assert_eq!(lab.record(&session).session, Some(session.clone()));
                recorded += 1;
            }
            if procs.is_ok_and(|procs| !procs.is_empty()) {
                assert!(is_recorded, "{session} runs and is not on record");
                running += 1;
            }
        }
        println!("{recorded} of 24 on record, {running} running");
    });
}
