//! Images as volumes: the files of an image in a container that runs another one.

use std::fs;

use waybill_runtime::image::build::ImageBuilder;
use waybill_testkit::stack::{IMAGE, Setup};

use crate::{BINARY, disk::image};

fn pod(name: &str, volume: &str, mount: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{
        terminationGracePeriodSeconds: 0, volumes: [{{name: v, image: {volume}}}],
        containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600'],
            volumeMounts: [{{name: v, mountPath: /tools, {mount}}}]}}]}}}}"
    )
}

/// Issue 16, items 6 and 9.
#[test]
fn a_pod_reads_the_files_of_an_image_and_writes_none() {
    let Ok(busybox) = fs::read("/bin/busybox") else { return };
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let builder = ImageBuilder::new().file("bin/busybox", 0o755, busybox);
    let archive = builder.file("data/greeting", 0o644, "hello from an image\n").archive("tools:1");
    image(&stack, &["import", "-"], &archive.expect("a good name")).succeeds();
    let kubectl = stack.kubectl();

    let local = "{reference: 'tools:1', pullPolicy: Never}";
    kubectl.apply(&pod("whole", local, "readOnly: true")).succeeds();
    kubectl.apply(&pod("part", local, "subPath: data")).succeeds();
    kubectl.wait_until_ready("whole");
    kubectl.wait_until_ready("part");
    let said = "hello from an image\n";
    assert_eq!(kubectl.line("exec whole -- cat /tools/data/greeting").succeeds().stdout, said);
    assert_eq!(kubectl.line("exec part -- cat /tools/greeting").succeeds().stdout, said);
    kubectl.line("exec whole -- /tools/bin/busybox true").succeeds();
    for path in ["whole -- touch /tools/new", "part -- touch /tools/greeting"] {
        let refused = kubectl.line(&format!("exec {path}"));
        assert!(!refused.succeeded() && refused.stderr.contains("Read-only file system"), "{path}");
    }

    // What is not there is said, and tried again.
    kubectl.apply(&pod("missing", "{reference: 'none:1', pullPolicy: Never}", "")).succeeds();
    let waits = "get pod missing -o jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    kubectl.eventually(waits, "ErrImageNeverPull");
    kubectl.apply(&pod("nowhere", local, "subPath: data/none")).succeeds();
    kubectl.eventually_shows("describe pod nowhere", "has no image_sub_path");

    stack.kill_role("node");
    kubectl.eventually("exec whole -- cat /tools/data/greeting", said.trim());
    kubectl.line("delete pods --all --wait=true").succeeds();
    stack.stop();
}
