//! What takes the room of others goes: images that nobody uses, and pods that outgrow their volumes.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use waybill_runtime::image::build::ImageBuilder;
use waybill_testkit::{
    disk::SmallDisk,
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

pub(crate) fn image(stack: &Stack, arguments: &[&str], input: &[u8]) -> Ran {
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

/// Three pods once wrote 60 MB each to places that no volume has, within a limit of 10Mi, and ran on.
#[test]
fn a_pod_that_outgrows_its_limit_of_the_disk_is_evicted_wherever_it_writes() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let kubectl = stack.kubectl();
    let pod = |name: &str, path: &str, megabytes: u32| {
        let script = format!("dd if=/dev/zero of={path} bs=1048576 count={megabytes}; sleep 3600");
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{
            terminationGracePeriodSeconds: 0,
            containers: [{{name: main, image: '{IMAGE}', command: [sh, -c, '{script}'],
                resources: {{limits: {{ephemeral-storage: 10Mi}}}}}}]}}}}"
        )
    };
    let places = [("layer", "/file"), ("hosts", "/etc/hosts"), ("words", "/dev/termination-log")];
    kubectl.apply(&pod("modest", "/file", 2)).succeeds();
    for (name, path) in places {
        kubectl.apply(&pod(name, path, 60)).succeeds();
    }
    let expected = "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ";
    for (name, _) in places {
        let reason = format!("get pod {name} -o jsonpath={{.status.phase}}/{{.status.reason}}");
        kubectl.eventually(&reason, "Failed/Evicted");
        let message = format!("get pod {name} -o jsonpath={{.status.message}}");
        assert_eq!(kubectl.line(&message).succeeds().stdout, expected);
    }
    kubectl.line("get pod modest").shows(&["modest 1/1 Running 0"]);
    kubectl.line("delete pods --all --wait=true").succeeds();
    stack.stop();
}

/// A small disk in place of a directory of a stack; taken away when it is dropped.
struct SmallPlace {
    disk: SmallDisk,
    place: PathBuf,
}

impl SmallPlace {
    fn of(stack: &Stack, directory: &str, megabytes: u32) -> Option<Self> {
        let disk = SmallDisk::mount(megabytes)?;
        let small = Self { disk, place: stack.state().join(directory) };
        let mut mount = Command::new("mount");
        let bound = mount.arg("--bind").arg(small.disk.path()).arg(&small.place).status();
        assert!(bound.unwrap().success());
        Some(small)
    }
}

impl Drop for SmallPlace {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.place).status();
    }
}

/// How far the container has counted, and how far its log has.
fn counted(stack: &Stack) -> (u64, Option<u64>) {
    let kubectl = stack.kubectl();
    let count = kubectl.line("exec talker -- cat /count").succeeds().stdout.trim().parse();
    let logged = kubectl.line("logs talker --tail=1").succeeds().stdout.clone();
    let logged = logged.trim().strip_prefix("line ").and_then(|number| number.parse().ok());
    // It is emptied before it is written.
    (count.unwrap_or(0), logged)
}

#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_full_disk_of_logs_stops_no_container_and_no_node_and_logs_go_on_when_there_is_room() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let Some(logs) = SmallPlace::of(&stack, "logs/pods", 1) else { return };
    let kubectl = stack.kubectl();
    let script = "i=0; while true; do i=$((i+1)); echo line $i; echo $i >/count; usleep 2000; done";
    let pod = |name: &str, script: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{
            terminationGracePeriodSeconds: 0,
            containers: [{{name: main, image: '{IMAGE}', command: [sh, -c, '{script}']}}]}}}}"
        )
    };
    kubectl.apply(&pod("talker", script)).succeeds();
    kubectl.wait_until_ready("talker");
    until("it is logged", || counted(&stack).1.is_some());

    logs.disk.fill();
    // What has room in the last page of the log comes through.
    until("the log stands still while the container counts", || {
        let ((_, before), (count, after)) = (counted(&stack), counted(&stack));
        before == after && after.is_some_and(|logged| count > logged + 1000)
    });
    kubectl.apply(&pod("silent", "sleep 3600")).succeeds();
    kubectl.wait_until_ready("silent");
    kubectl.line("delete pod silent").succeeds();
    kubectl.eventually_shows("get nodes", " Ready ");
    let restarts = "get pod talker -o jsonpath={.status.containerStatuses[0].restartCount}";
    kubectl.line(restarts).prints("0");

    let (count, _) = counted(&stack);
    logs.disk.free();
    until("the log goes on", || counted(&stack).1.is_some_and(|logged| logged > count));
    let all = kubectl.line("logs talker").succeeds().stdout.clone();
    let numbers: Vec<u64> = all
        .lines()
        .map(|line| line.strip_prefix("line ").and_then(|number| number.parse().ok()))
        .map(|number| number.unwrap_or_else(|| panic!("half of a line is in the log")))
        .collect();
    assert!(numbers.is_sorted_by(|one, next| one < next));
    kubectl.line("delete pod talker").succeeds();
    drop(logs);
    stack.stop();
}

const PRESSURE: &str =
    "get nodes -o jsonpath={.items[0].status.conditions[?(@.type==\"DiskPressure\")].status}";

/// Issue 16, item 6: a full disk of the node is told, pods go in order, new ones are refused, and all that ends with it.
#[test]
fn a_node_whose_disk_is_full_says_so_makes_room_and_takes_no_pods_meanwhile() {
    let setup = Setup::new(BINARY)
        .flag("--node-flag=--eviction-hard=nodefs.available<50%")
        .flag("--node-flag=--eviction-pressure-transition-period=2s");
    let Some(stack) = setup.start() else { return };
    let Some(small) = SmallPlace::of(&stack, "node", 32) else { return };
    let kubectl = stack.kubectl();
    let pod = |name: &str, more: &str, megabytes: u32| {
        let script = format!("dd if=/dev/zero of=/v/file bs=1048576 count={megabytes}; sleep 3600");
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{{more}
            terminationGracePeriodSeconds: 0, volumes: [{{name: v, emptyDir: {{}}}}],
            containers: [{{name: main, image: '{IMAGE}', command: [sh, -c, '{script}'],
                volumeMounts: [{{name: v, mountPath: /v}}]}}]}}}}"
        )
    };
    // Before, it may have seen that of this machine.
    kubectl.eventually(PRESSURE, "False");
    kubectl.apply(&pod("small", "", 1)).succeeds();
    kubectl.wait_until_ready("small");

    kubectl.apply(&pod("large", "", 20)).succeeds();
    kubectl
        .eventually("get pod large -o jsonpath={.status.phase}/{.status.reason}", "Failed/Evicted");
    kubectl.line("get pod large -o jsonpath={.status.message}").shows(&[
        "The node was low on resource: ephemeral-storage. Threshold quantity: 16Mi, available: ",
    ]);
    kubectl.eventually_shows("get events -A", "Warning EvictionThresholdMet node/");
    kubectl.eventually(PRESSURE, "False");
    kubectl.line("get pod small").shows(&["small 1/1 Running 0"]);

    small.disk.fill();
    kubectl.eventually(PRESSURE, "True");
    let node =
        kubectl.line("get nodes -o jsonpath={.items[0].metadata.name}").succeeds().stdout.clone();
    kubectl.apply(&pod("late", &format!("nodeName: {node},"), 1)).succeeds();
    let reason = "get pod late -o jsonpath={.status.reason}/{.status.message}";
    let refused = "Evicted/Pod was rejected: The node had condition: [DiskPressure]. ";
    until("a pod that comes now is refused", || kubectl.line(reason).succeeds().stdout == refused);

    small.disk.free();
    kubectl.eventually(PRESSURE, "False");
    kubectl.apply(&pod("after", "", 1)).succeeds();
    kubectl.wait_until_ready("after");
    kubectl.line("delete pods --all --wait=true").succeeds();
    drop(small);
    stack.stop();
}

#[test]
fn a_full_disk_of_images_costs_those_that_nobody_uses() {
    let Ok(busybox) = fs::read("/bin/busybox") else { return };
    let setup = Setup::new(BINARY)
        .flag("--node-flag=--image-gc-high-threshold=100")
        .flag("--node-flag=--image-gc-min-age=1")
        .flag("--node-flag=--eviction-hard=imagefs.available<99.999%");
    let Some(stack) = setup.start() else { return };
    let kubectl = stack.kubectl();
    for (name, flag) in [("unused:1", None), ("kept:1", Some("--pin"))] {
        // Without a difference they would be one image of two names.
        let builder = ImageBuilder::new().file("name", 0o644, name);
        let builder = builder.file("bin/busybox", 0o755, busybox.clone());
        let archive = builder.archive(name).expect("a good name");
        let import: Vec<_> = ["import", "-"].into_iter().chain(flag).collect();
        image(&stack, &import, &archive).succeeds();
    }
    kubectl.eventually(PRESSURE, "True");
    until("an image that nobody uses is gone", || {
        !image(&stack, &["ls"], b"").succeeds().stdout.contains("unused")
    });
    image(&stack, &["ls"], b"").shows(&["docker.io/library/kept 1"]);
    stack.stop();
}
