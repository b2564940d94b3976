//! The whole stack with stock kubectl, as a user would run both.
//!
//! One suite, three stacks: everything of our own, objects on etcd, containers on stock containerd. The
//! cases of a suite share a stack and run at the same time. What exec sessions are is in `exec`, with roles
//! of different versions among other things. Skipped, and says so, where something is missing.

#![cfg(test)]

mod attribution;
mod canary;
mod cases;
mod cgroups;
mod confinement;
mod csi;
mod csi_calls;
mod csi_canary;
mod disk;
mod exec;
mod host_path;
mod image_volumes;
mod lifetime;
mod log_rotation;
mod nodes;
mod people;
mod pids;
mod programs;
mod provenance;
mod raw;
mod reboot;
mod resize;
mod roles;
mod secret_arguments;
mod standalone;
mod static_pods;
mod stock;
mod stock_whole;
mod suite;
mod users;
mod walks;

use std::fs;

use waybill_runtime::image::build::ImageBuilder;
use waybill_testkit::{
    containerd::Containerd,
    etcd::EtcdServer,
    stack::{IMAGE, Setup, Stack},
};

const BINARY: &str = env!("CARGO_BIN_EXE_waybill");

/// What was imported is pinned by nobody, and this machine's disk may be as full as it likes.
const KEEP_IMAGES: &str = "--node-flag=--image-gc-high-threshold=100";

#[test]
fn the_embedded_stack() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    suite::run(stack);
}

#[test]
fn objects_on_etcd() {
    let Some(etcd) = EtcdServer::start() else { return };
    let setup = Setup::new(BINARY).flag(format!("--store=etcd={}", etcd.url()));
    let Some(stack) = setup.start() else { return };
    suite::run(stack);
}

/// kubectl falls back to SPDY there.
#[test]
fn containers_on_containerd() {
    let Some(stack) = on_containerd() else { return };
    let (containerd, stack) = stack;
    suite::run(stack);
    drop(containerd);
}

fn on_containerd() -> Option<(Containerd, Stack)> {
    on_containerd_with(&[])
}

fn on_containerd_with(flags: &[String]) -> Option<(Containerd, Stack)> {
    let busybox = fs::read("/bin/busybox").ok()?;
    let containerd = Containerd::start(IMAGE)?;
    containerd.import(&image(busybox));
    let socket = format!("--runtime=unix://{}", containerd.socket().display());
    let setup = flags.iter().fold(Setup::new(BINARY), |setup, flag| setup.flag(flag));
    let stack = setup.flag(socket).flag(KEEP_IMAGES).start()?;
    Some((containerd, stack))
}

/// The built-in image for a runtime that takes no archives from us; as the holder of sandboxes it sleeps.
fn image(busybox: Vec<u8>) -> Vec<u8> {
    let builder = ImageBuilder::new()
        .directory("tmp", 0o1777)
        .file("etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\n")
        .file("bin/busybox", 0o755, busybox)
        .variable("PATH", "/bin")
        .command(&["busybox", "sleep", "86400"]);
    let applets = "[ awk cat chmod cmp cp cut date dd echo env false grep head hostname httpd id kill ls \
                   mkdir mount nc printf ps pwd rm sed seq sh sleep sort stat stty tail tar test \
                   touch tr true uname vi wc wget whoami";
    let linked = applets
        .split_whitespace()
        .fold(builder, |builder, applet| builder.symlink(&format!("bin/{applet}"), "busybox"));
    linked.archive(IMAGE).expect("a good name")
}
