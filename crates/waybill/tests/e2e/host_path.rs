//! Pods that have the whole machine as a volume, and state directories that must not have it.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf};

use waybill_testkit::stack::{IMAGE, Setup, Stack};

use crate::BINARY;

/// Parts of the machine's root file system that are mounted below the state directory.
fn of_the_machine(stack: &Stack) -> Vec<PathBuf> {
    let (state, root) = (stack.state(), fs::metadata("/").unwrap().dev());
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = table.lines().map(|line| PathBuf::from(line.split(' ').nth(4).unwrap()));
    points
        .filter(|point| point.starts_with(&state))
        .filter(|point| fs::metadata(point).is_ok_and(|found| found.dev() == root))
        .collect()
}

/// `rm -rf` of the state directory would have deleted the machine: volumes were bound below it, read-write,
/// for as long as the pod had an object.
#[test]
fn no_part_of_the_machine_is_mounted_below_the_state_directory() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let pod = |name: &str, command: &str| {
        let manifest = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{
            terminationGracePeriodSeconds: 1, restartPolicy: Never,
            volumes: [{{name: root, hostPath: {{path: /}}}}],
            containers: [{{name: main, image: '{IMAGE}', command: [sh, -c, '{command}'], volumeMounts: [
              {{name: root, mountPath: /host}},
              {{name: root, mountPath: /some, subPath: etc}},
              {{name: root, mountPath: /file, subPath: etc/passwd}}]}}]}}}}"
        );
        stack.kubectl().apply(&manifest).succeeds();
    };
    let script = "test -d /host/proc && test -f /some/passwd && test -s /file";
    pod("runs", &format!("{script} && sleep 3600"));
    pod("ends", script);
    stack.kubectl().wait_until_ready("runs");
    stack.kubectl().eventually("get pod ends -o jsonpath={.status.phase}", "Succeeded");
    assert_eq!(of_the_machine(&stack), Vec::<PathBuf>::new());
    stack.kubectl().line("delete pod runs ends").succeeds();
    stack.stop();
}
