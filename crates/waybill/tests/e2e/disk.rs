//! What takes the room of others goes: images that nobody uses, and pods that outgrow their volumes.

use std::{
    fs,
    io::Write,
    thread,
    time::{Duration, Instant},
};

use waybill_runtime::image::build::ImageBuilder;
use waybill_testkit::{
    kubectl::{PATIENCE, Ran},
    stack::{IMAGE, Setup, Stack},
};

use crate::{BINARY, on_containerd};

/// Any disk is too full.
const FLAGS: [&str; 3] = [
    "--node-flag=--image-gc-high-threshold=1",
    "--node-flag=--image-gc-low-threshold=0",
    "--node-flag=--image-gc-min-age=1",
];

fn image(stack: &Stack, arguments: &[&str], input: &[u8]) -> Ran {
    let socket = format!("unix://{}", stack.state().join("run/runtime.sock").display());
    let mut child = stack
        .waybill()
        .args(["image", "--runtime", &socket])
        .args(arguments)
        .spawn()
        .expect("waybill starts");
    let _ = child.stdin.take().expect("stdin is piped").write_all(input);
    Ran::of(format!("waybill image {}", arguments.join(" ")), child)
}

#[test]
fn images_that_nobody_uses_go_when_the_disk_is_full() {
    let Ok(busybox) = fs::read("/bin/busybox") else { return };
    let setup = FLAGS.into_iter().fold(Setup::new(BINARY), Setup::flag);
    let Some(stack) = setup.start() else { return };
    let kubectl = stack.kubectl();
    for name in ["used:1", "unused:1", "kept:1"] {
        let builder = ImageBuilder::new().file("name", 0o644, name);
        let archive = builder.file("bin/busybox", 0o755, busybox.clone()).archive(name);
        let import: &[&str] =
            if name == "kept:1" { &["import", "-", "--pin"] } else { &["import", "-"] };
        image(&stack, import, &archive.expect("a good name")).succeeds();
    }
    kubectl
        .apply(
            "{apiVersion: v1, kind: Pod, metadata: {name: user}, spec: {
            terminationGracePeriodSeconds: 1, containers: [{name: main, image: 'used:1',
            command: [/bin/busybox, sleep, '3600']}]}}",
        )
        .succeeds();
    kubectl.wait_until_ready("user");
    let start = Instant::now();
    while image(&stack, &["ls"], b"").succeeds().stdout.contains("unused") {
        assert!(start.elapsed() < PATIENCE, "an image that nobody uses is still there");
        thread::sleep(Duration::from_millis(200));
    }
    let kept = ["docker.io/library/kept 1", "docker.io/library/used 1", "waybill.dev/busybox 1"];
    image(&stack, &["ls"], b"").shows(&kept);
    kubectl.eventually_shows("get events -A", "Warning FreeDiskSpaceFailed node/");
    kubectl.line("delete pod user").succeeds();
    stack.stop();
}

fn manifest(name: &str, megabytes: u32) -> String {
    let script = format!("dd if=/dev/zero of=/v/file bs=1048576 count={megabytes}; sleep 3600");
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{
        volumes: [{{name: v, emptyDir: {{sizeLimit: 2Mi}}}}],
        containers: [{{name: main, image: '{IMAGE}', command: [sh, -c, '{script}'],
            volumeMounts: [{{name: v, mountPath: /v}}]}}]}}}}"
    )
}

fn evict(stack: Stack) {
    let kubectl = stack.kubectl();
    kubectl.apply(&manifest("small", 1)).succeeds();
    kubectl.apply(&manifest("large", 3)).succeeds();
    let reason = "get pod large -o jsonpath={.status.phase}/{.status.reason}";
    kubectl.eventually(reason, "Failed/Evicted");
    let message = "get pod large -o jsonpath={.status.message}";
    let expected = "Usage of EmptyDir volume \"v\" exceeds the limit \"2Mi\". ";
    assert_eq!(kubectl.line(message).succeeds().stdout, expected);
    kubectl.eventually_shows("describe pod large", "Warning Evicted");
    let uid = kubectl.line("get pod large -o jsonpath={.metadata.uid}").succeeds().stdout.clone();
    let volume = stack.state().join(format!("node/pods/{uid}/volumes/empty-dir/v"));
    let start = Instant::now();
    while volume.exists() {
        assert!(start.elapsed() < PATIENCE, "the room is not free");
        thread::sleep(Duration::from_millis(100));
    }
    // A node that knows nothing of it leaves it as it is.
    stack.kill_role("node");
    kubectl.eventually("exec small -- echo alive", "alive");
    kubectl.line(reason).prints("Failed/Evicted");
    kubectl.line("get pod small").shows(&["small 1/1 Running 0"]);
    kubectl.line("delete pods --all --wait=true --grace-period=1").succeeds();
    stack.stop();
}

#[test]
fn a_pod_that_outgrows_its_volume_is_evicted() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    evict(stack);
}

#[test]
fn a_pod_on_containerd_that_outgrows_its_volume_is_evicted() {
    let Some((containerd, stack)) = on_containerd() else { return };
    evict(stack);
    drop(containerd);
}
