//! Host paths, and what is left of them on the machine: nothing.

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::{fs::MetadataExt, process::parent_id},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use waybill_proto::cri::{ContainerConfig, Mount};

use crate::cri_lab::{CriLab, sleeper};

fn bound(host: &Path, inside: &str) -> Mount {
    Mount {
        host_path: host.display().to_string(),
        container_path: inside.into(),
        ..Mount::default()
    }
}

fn with_mounts(mounts: Vec<Mount>) -> ContainerConfig {
    ContainerConfig { mounts, ..sleeper("c") }
}

fn table() -> Vec<String> {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().map(str::to_owned).collect()
}

fn points() -> Vec<PathBuf> {
    table().iter().map(|line| PathBuf::from(line.split(' ').nth(4).unwrap())).collect()
}

/// Runs one test of this binary again, in a mount namespace of its own whose root is shared, as systemd makes
/// it.
fn run_with_shared_root(test: &str) {
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .args(["mount --make-rshared / && exec \"$@\"", "sh"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Whether this process is the one that was run again.
fn has_mounts_of_its_own() -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).unwrap();
    namespace("self") != namespace(&parent_id().to_string())
}

/// Mounts by their numbers and places. Those that others had may go meanwhile, and their numbers come again.
fn mounts() -> BTreeSet<(String, PathBuf)> {
    let of = |line: &String| {
        let mut fields = line.split(' ');
        let number = fields.next().unwrap().to_owned();
        (number, PathBuf::from(fields.nth(3).unwrap()))
    };
    table().iter().map(of).collect()
}

/// A volume of the whole machine used to be bound below the state directory, where `rm -rf` would have
/// followed it; and where the root is shared, each such pod doubled the number of mounts.
#[tokio::test]
async fn the_whole_machine_as_a_volume_is_mounted_in_the_container_alone() {
    if !has_mounts_of_its_own() {
        run_with_shared_root(
            "cri_host_path::the_whole_machine_as_a_volume_is_mounted_in_the_container_alone",
        );
        return;
    }
    let Some(lab) = CriLab::open().await else { return };
    let before = mounts();
    let new = || mounts().difference(&before).count();
    let (plain, _) = lab.run("plain", sleeper("c")).await;
    let needed = new();
    let mut sandboxes = Vec::new();
    for number in 1..=4 {
        let config = with_mounts(vec![bound(Path::new("/"), "/host")]);
        let (sandbox, id) = lab.run(&format!("host-{number}"), config).await;
        assert_eq!(new(), needed * (number + 1), "of {number} pods");
        let path = lab.path("word").display().to_string();
        lab.sh(&id, &format!("echo {number} > /host{path}")).await;
        assert_eq!(fs::read_to_string(&path).unwrap().trim(), number.to_string());
        sandboxes.push(sandbox);
    }
    let of_the_machine = fs::metadata("/").unwrap().dev();
    let directory = lab.path("").canonicalize().unwrap();
    for point in points().iter().filter(|point| point.starts_with(&directory)) {
        assert_ne!(fs::metadata(point).unwrap().dev(), of_the_machine, "{}", point.display());
    }
    // Others go while they run.
    lab.remove(&plain).await;
    for sandbox in sandboxes {
        lab.remove(&sandbox).await;
    }
    assert_eq!(new(), 0);
    lab.close().await;
}

/// `rmdir: Device or resource busy`, long after the container was gone.
#[tokio::test]
async fn a_directory_with_a_mount_below_it_can_be_removed_when_the_container_is_gone() {
    let Some(lab) = CriLab::open().await else { return };
    let volume = lab.path("volume");
    let below = volume.join("below");
    fs::create_dir_all(&below).unwrap();
    mount("waybill-test", &below, "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(below.join("word"), "inside").unwrap();
    let (sandbox, id) = lab.run("below", with_mounts(vec![bound(&volume, "/v")])).await;
    assert_eq!(lab.sh(&id, "cat /v/below/word").await, "inside");
    lab.remove(&sandbox).await;
    unmount(&below, UnmountFlags::empty()).unwrap();
    fs::remove_dir(&below).unwrap();
    fs::remove_dir(&volume).unwrap();
    lab.close().await;
}

/// Devices, links and the file for last words used to be made in the machine's own `/dev`, and its `ptmx`
/// to be replaced.
#[tokio::test]
async fn a_volume_on_dev_is_left_as_it_is() {
    let Some(lab) = CriLab::open().await else { return };
    let dev = lab.path("dev");
    fs::create_dir_all(dev.join("pts")).unwrap();
    for file in ["ptmx", "log"] {
        fs::write(dev.join(file), file).unwrap();
    }
    let words = lab.path("words");
    fs::write(&words, "words").unwrap();
    let names = || {
        let entries = fs::read_dir(&dev).unwrap();
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    let expected = BTreeSet::from(["log", "ptmx", "pts"].map(str::to_owned));
    let config = with_mounts(vec![
        bound(&words, "/dev/termination-log"),
        bound(&words, "/dev/log"),
        bound(&dev, "/dev"),
    ]);
    let (sandbox, id) = lab.run("dev", config).await;
    assert_eq!(names(), expected);
    assert_eq!(lab.sh(&id, "ls /dev").await, "log\nptmx\npts");
    assert_eq!(lab.sh(&id, "cat /dev/log /dev/ptmx").await, "wordsptmx");
    lab.remove(&sandbox).await;
    assert_eq!(names(), expected);
    assert_eq!(fs::read_to_string(dev.join("ptmx")).unwrap(), "ptmx");

    let read_only = Mount { readonly: true, ..bound(&dev, "/dev") };
    let (sandbox, id) = lab.run("read-only", with_mounts(vec![read_only])).await;
    assert_ne!(lab.exec(&id, &["touch", "/dev/file"]).await.exit_code, 0);
    lab.remove(&sandbox).await;
    assert_eq!(names(), expected);
    lab.close().await;
}
