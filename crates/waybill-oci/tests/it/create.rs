//! Containers with references: values come from the agent and are on no disk.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::json;
use waybill_api::stock::{Answer, AnsweredValue, Mode, StockKind, Verdict};
use waybill_core::{id::PodUid, secret::SecretBytes};

use crate::lab::{Lab, UID, digest, has, owned, settings, signing_key, text, token};

const CANARY: &[u8] = b"hunter2-canary";

fn values(name: &str, value: &[u8]) -> Answer {
    Answer::Values(vec![AnsweredValue {
        name: name.to_owned(),
        value: SecretBytes::copy_of(value),
    }])
}

#[test]
fn a_reference_becomes_a_value_that_is_in_memory_only() {
    for setting in settings() {
        let lab = Lab::new(&setting, Mode::Enforce);
        lab.facts(
            "enforce",
            &json!({"references": ["PASSWORD"], "probes": [["sh", "-c", "echo $PASSWORD $TEXT"]]}),
        );
        let agent = lab.agent(values("PASSWORD", CANARY));
        lab.create(&["PASSWORD=waybill{db/pass}", "TEXT=waybill{{db/pass}"]);
        let asked = agent.join().unwrap();
        let reference = json!({"name": "PASSWORD", "class": "db", "key": "pass"});
        assert_eq!(
            asked,
            json!({"version": 1, "uid": UID, "container": "main", "references": [reference]})
        );
        // The agent is gone now. Whoever execs knows the reference only.
        let env = ["PASSWORD=waybill{db/pass}", "TEXT=waybill{{db/pass}"];
        let probe =
            lab.exec_command(&owned(&["sh", "-c", "echo $PASSWORD $TEXT"]), &env).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&probe.stdout),
            "hunter2-canary waybill{db/pass}\n",
            "{}",
            text(&probe)
        );
        let words = ["sh", "-c", "busybox tr '\\0' '\\n' < /proc/1/environ"];
        let (_, output) = lab.session(&words);
        assert!(has(&output.stdout, CANARY), "{}", text(&output));
        // crun keeps a copy of the description in its state, which is memory, too.
        let kept: Vec<_> =
            lab.files_with(CANARY).into_iter().filter(|file| !file.starts_with("root/")).collect();
        assert_eq!(kept, ["bundle/config.json"]);
        let mode = fs::metadata(lab.path("bundle/config.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_container_with_values_is_not_checkpointed() {
    for setting in settings() {
        let lab = Lab::new(&setting, Mode::Enforce);
        lab.facts("enforce", &json!({"references": ["PASSWORD"]}));
        let agent = lab.agent(values("PASSWORD", CANARY));
        lab.create(&["PASSWORD=waybill{db/pass}"]);
        agent.join().unwrap();
        let output =
            lab.wrapped(&["checkpoint", "--image-path", "/none", &lab.id]).output().unwrap();
        let expected =
            "waybill: checkpoint refused: the container has variables that must not reach a disk";
        lab.check_refused(&output, expected);
    }
}

#[track_caller]
fn check_refused(lab: &Lab, env: &[&str], reason: &str) {
    lab.describe(env);
    let before = fs::read(lab.path("bundle/config.json")).unwrap();
    let output = lab.try_create();
    lab.check_refused(&output, &format!("waybill: create refused: {reason}"));
    assert_eq!(fs::read(lab.path("bundle/config.json")).unwrap(), before);
    assert!(!lab.path("root").join(&lab.id).exists(), "there is a container");
}

#[test]
fn what_the_pod_does_not_ask_for_is_refused() {
    for setting in settings() {
        let lab = Lab::new(&setting, Mode::Enforce);
        check_refused(&lab, &["A=waybill{db/p}"], "the agent knows nothing of the pod yet");
        lab.facts("enforce", &json!({"references": ["B"]}));
        check_refused(
            &lab,
            &["A=waybill{db/p}"],
            "a variable refers to a value that the pod does not ask for",
        );
        check_refused(&lab, &["A=waybill{db"], "a variable begins as a reference and is none");
    }
}

#[test]
fn an_agent_that_does_not_answer_as_it_should_stops_the_container() {
    for setting in settings() {
        let lab = Lab::new(&setting, Mode::Enforce);
        lab.facts("enforce", &json!({"references": ["A"]}));
        check_refused(&lab, &["A=waybill{db/p}"], "the agent does not answer");
        let answers = [
            (values("B", b"x"), "the agent does not answer"),
            (values("A", b"a\0b"), "a value cannot be a variable"),
            (values("A", b"\xff"), "a value cannot be a variable"),
            (values("A", &[b'x'; 200_000]), "a value cannot be a variable"),
            (
                Answer::Refused { error: "the driver\nis gone".to_owned(), retry: true },
                "the driveris gone",
            ),
        ];
        for (answer, reason) in answers {
            let agent = lab.agent(answer);
            check_refused(&lab, &["A=waybill{db/p}"], reason);
            agent.join().unwrap();
        }
    }
}

#[test]
fn values_do_not_reach_a_disk() {
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for setting in settings() {
        let lab = Lab::below(disk, &setting, Mode::Enforce);
        lab.facts("enforce", &json!({"references": ["A"]}));
        check_refused(&lab, &["A=waybill{db/p}"], "the runtime keeps its state on a disk");
    }
}

#[test]
fn a_debug_container_is_a_session_as_a_whole() {
    for setting in settings() {
        let lab = Lab::new(&setting, Mode::Enforce);
        let mut claims = lab.claims(None, &[]);
        claims.kind = StockKind::Debug;
        claims.words = digest(&[]);
        // An image may have been pulled for an hour.
        claims.issued_at -= 3600;
        claims.expires_at -= 3600;
        let stamped =
            format!("WAYBILL_DEBUG_SESSION=waybill-exec:{}", token(&claims, &signing_key(1)));
        lab.create(&[&stamped]);
        let record = lab.record(&claims.session);
        assert_eq!((record.kind, record.verdict), (StockKind::Debug, Verdict::Attributed));
        assert_eq!(record.container_id, lab.id);
        let (_, output) = lab.session(&["sh", "-c", "busybox tr '\\0' '\\n' < /proc/1/environ"]);
        let environment = String::from_utf8(output.stdout).unwrap();
        assert!(
            environment.contains(&format!("WAYBILL_SESSION_ID={}", claims.session)),
            "{environment}"
        );
        assert!(!environment.contains("waybill-exec:"), "{environment}");
        let again = Lab::new(&setting, Mode::Enforce);
        let uid = PodUid::parse(UID).unwrap();
        fs::write(again.layout.used_debug(&uid, &claims.session), "").unwrap();
        again.describe(&[&stamped]);
        let output = again.try_create();
        again.check_refused(&output, "waybill: exec refused: used before");
    }
}
