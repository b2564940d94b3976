//! Secrets in commands and arguments: pods rely on it, so the container gets them, and nobody else.

use std::process::Command;

use waybill_testkit::stack::{IMAGE, Setup};

use crate::BINARY;

const CANARY: &str = "canary-9b1deb4d-words";

#[test]
fn a_secret_among_the_arguments_is_in_no_file_event_or_status() {
    let Some(mut stack) = Setup::new(BINARY).start() else { return };
    // The API server keeps it, in base64.
    let literal = format!("--from-literal=key={CANARY}");
    stack.kubectl().run(&["create", "secret", "generic", "s", &literal]).succeeds();
    let pod = |name: &str, command: &str| {
        let manifest = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{
            terminationGracePeriodSeconds: 1, restartPolicy: Never,
            containers: [{{name: main, image: '{IMAGE}', command: {command}, env: [
              {{name: PASSWORD, valueFrom: {{secretKeyRef: {{name: s, key: key}}}}}}]}}]}}}}"
        );
        stack.kubectl().apply(&manifest).succeeds();
    };
    pod("argument", "[sh, -c, 'sleep 3600; true', $(PASSWORD)]");
    pod("program", "[$(PASSWORD)]");
    stack.kubectl().wait_until_ready("argument");
    stack.kubectl().eventually("get pod program -o jsonpath={.status.phase}", "Failed");
    let cmdline = stack.kubectl().line("exec argument -- cat /proc/1/cmdline");
    assert!(cmdline.succeeds().stdout.contains(CANARY), "{cmdline:?}");
    for round in 0..2 {
        for what in ["pods", "events"] {
            let told = stack.kubectl().line(&format!("get {what} -A -o json"));
            assert!(!told.succeeds().stdout.contains(CANARY), "{what}: {told:?}");
        }
        let found = Command::new("grep").args(["-r", "-l", CANARY]).arg(stack.state()).output();
        assert_eq!(String::from_utf8(found.unwrap().stdout).unwrap(), "", "in round {round}");
        if round == 0 {
            stack.kill();
            stack.restart();
            stack.kubectl().eventually("exec argument -- echo alive", "alive");
        }
    }
    stack.kubectl().line("delete pod argument program").succeeds();
    stack.stop();
}
