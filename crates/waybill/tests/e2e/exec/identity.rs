//! What the proposal promises: the session's audit ID leads to its user.

use std::{collections::BTreeSet, io::Write, path::Path};

use waybill_testkit::kubectl::Running;

use super::{Lab, POD, audit_id};
use crate::{
    BINARY,
    people::{Person, variables},
    raw::PLAIN,
};

const RESERVED: &str = "KUBERNETES_EXEC_AUDIT_ID is reserved by the API server";

/// EXEC-56 (a), (b), (d), EXEC-15, EXEC-21, with stock kubectl and with our own command.
#[test]
fn a_session_carries_the_audit_id_of_its_request_exec_21_exec_56() {
    let Some(lab) = Lab::start() else { return };
    for person in [&lab.anna, &lab.boris] {
        let sessions = [
            person.kubectl.line(&format!("exec {POD} -- env")),
            person.waybill(&["exec", POD, "--", "env"]),
        ];
        for ran in sessions {
            let found = variables(&ran);
            let id = &found["KUBERNETES_EXEC_AUDIT_ID"];
            check_record(&lab, id, person);
            assert_eq!(found["LOG_LEVEL"], "info");
        }
    }
    let debug = ["exec", POD, "--env", "LOG_LEVEL=debug", "--env", "E=", "--", "env"];
    let found = variables(&lab.anna.waybill(&debug));
    assert_eq!((found["LOG_LEVEL"].as_str(), found["E"].as_str()), ("debug", ""));
    check_record(&lab, &found["KUBERNETES_EXEC_AUDIT_ID"], &lab.anna);
    // For that one session.
    let found = variables(&lab.anna.waybill(&["exec", POD, "--", "env"]));
    assert_eq!(found["LOG_LEVEL"], "info");
    let fake = ["exec", POD, "--env", "KUBERNETES_EXEC_AUDIT_ID=fake", "--", "env"];
    lab.anna.waybill(&fake).fails_with(1, RESERVED);
    lab.stop();
}

/// EXEC-48, EXEC-56 (c): sessions of two people in one container at the same time.
#[test]
fn overlapping_sessions_are_told_apart_exec_48_exec_56() {
    let Some(lab) = Lab::start() else { return };
    let script = "echo KUBERNETES_EXEC_AUDIT_ID=$KUBERNETES_EXEC_AUDIT_ID; read line; echo over";
    let own = |person: &Person| {
        let mut command = person.kubectl.command(Path::new(BINARY));
        Running::of(command.args(["exec", "-i", POD, "--", "sh", "-c", script]).spawn().unwrap())
    };
    let stock =
        |person: &Person| person.kubectl.follow(&["exec", "-i", POD, "--", "sh", "-c", script]);
    let mut sessions = [
        (&lab.anna, stock(&lab.anna)),
        (&lab.boris, stock(&lab.boris)),
        (&lab.anna, own(&lab.anna)),
        (&lab.boris, own(&lab.boris)),
    ];
    let mut ids = BTreeSet::new();
    for (person, session) in &sessions {
        let id = audit_id(&session.wait_for("KUBERNETES_EXEC_AUDIT_ID="));
        check_record(&lab, &id, person);
        let traces = lab.traces(&["--user", &person.name]);
        let traced = traces.iter().find(|trace| trace["auditID"] == id.as_str());
        let traced = traced.unwrap_or_else(|| panic!("{id} is not in {traces:#?}"));
        assert_eq!(traced["end"]["state"], "running", "{traced:#}");
        ids.insert(id);
    }
    assert_eq!(ids.len(), sessions.len());
    for (_, session) in &mut sessions {
        session.input().write_all(b"go\n").unwrap();
        session.wait_for("over");
    }
    for (_, session) in sessions {
        assert_eq!(session.ends(), Some(0));
    }
    lab.stop();
}

/// EXEC-45: what the server says reaches the user as it is, and nothing runs.
#[test]
fn refusals_are_printed_as_the_server_says_them_exec_45() {
    let Some(lab) = Lab::start() else { return };
    let raw = lab.raw(&lab.anna);
    let many: Vec<String> = (0..257).map(|number| format!("V{number}=")).collect();
    let long = format!("LONG={}", "x".repeat(32_768 - 3));
    let cases: [(&[&str], &str); 4] = [
        (&["KUBERNETES_EXEC_AUDIT_ID=fake"], RESERVED),
        (&["A=1", "A=2"], "env[1].name: Duplicate value: \"A\""),
        (&many.iter().map(String::as_str).collect::<Vec<_>>(), "env: Too many: 257"),
        (&[&long], "env: Too long"),
    ];
    for (env, part) in cases {
        let flags = env.iter().flat_map(|variable| ["--env", variable]);
        let arguments: Vec<_> =
            ["exec", POD].into_iter().chain(flags).chain(["--", "env"]).collect();
        let ran = lab.anna.waybill(&arguments);
        let query: String = env.iter().map(|variable| format!("&env={variable}")).collect();
        let path = format!("/api/v1/namespaces/default/pods/{POD}/exec?stdout=true&command=env");
        let said = raw.ask(&format!("POST {path}{query}"), PLAIN);
        assert_eq!(said.code, 422, "{said:?}");
        let status = said.text.split_once("\r\n\r\n").unwrap().1;
        let status: serde_json::Value = serde_json::from_str(status).unwrap();
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(part), "{part:?} is not in {message:?}");
        ran.fails_with(1, message);
        assert_eq!(ran.stdout, "");
    }
    let traces = lab.traces(&[]);
    assert!(traces.is_empty(), "{traces:#?}");
    lab.stop();
}

/// The audit log names the person, with groups and uid.
#[track_caller]
fn check_record(lab: &Lab, id: &str, person: &Person) {
    let record = lab.record(id);
    let user = &record["user"];
    assert_eq!(user["username"], person.name.as_str(), "{record:#}");
    let groups = user["groups"].as_array().unwrap();
    assert!(groups.iter().any(|group| group == "system:serviceaccounts:default"), "{record:#}");
    assert!(!user["uid"].as_str().unwrap().is_empty(), "{record:#}");
    let object = &record["objectRef"];
    assert_eq!((&object["subresource"], &object["name"]), (&"exec".into(), &POD.into()));
}
