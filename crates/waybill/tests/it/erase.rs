//! `waybill erase` removes a cluster's state, and nothing through a mount.

use std::fs;

use rustix::{
    mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount},
    process::geteuid,
};

use crate::run::Dir;

/// A state directory of a cluster that was stopped.
fn stopped(dir: &Dir) {
    for part in ["pki", "store", "run/runtime", "node/pods/a/volumes/b", "logs/pods"] {
        fs::create_dir_all(dir.path("state").join(part)).unwrap();
    }
    for file in ["up.lock", "up.json", "pki/ca.key", "logs/pods/a.log"] {
        fs::write(dir.path("state").join(file), "").unwrap();
    }
}

fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        waybill_testkit::skip::skip("root", "run the tests as root");
    }
    is_root
}

#[test]
fn without_yes_nothing_is_removed() {
    if !is_root() {
        return;
    }
    let dir = Dir::new();
    stopped(&dir);
    let ran = dir.run(&["erase", "--state-dir", "state"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(told.contains("nothing was removed; with --yes it is"), "{ran:?}");
    assert!(dir.path("state/pki/ca.key").exists());
    let ran = dir.run(&["erase", "--state-dir", "state", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!dir.path("state").exists());
}

/// Our own tmpfs goes; a disk of others stops everything before the first file is gone.
#[test]
fn nothing_is_removed_through_a_mount() {
    if !is_root() {
        return;
    }
    let dir = Dir::new();
    stopped(&dir);
    fs::create_dir(dir.path("precious")).unwrap();
    fs::write(dir.path("precious/file"), "").unwrap();
    let ours = dir.path("state/run/runtime");
    mount("waybill", &ours, "tmpfs", MountFlags::empty(), Some(c"mode=700")).unwrap();
    let place = dir.path("state/node/pods/a/volumes/b");
    mount_bind(dir.path("precious"), &place).unwrap();
    let ran = dir.run(&["erase", "--state-dir", "state", "--yes", "--kill"]);
    let kept = dir.path("precious/file").exists() && dir.path("state/pki/ca.key").exists();
    unmount(&place, UnmountFlags::empty()).unwrap();
    let again = dir.run(&["erase", "--state-dir", "state", "--yes"]);
    if again.code != 0 {
        let _ = unmount(&ours, UnmountFlags::DETACH);
    }
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("is a mount") && ran.stderr.contains("umount "), "{ran:?}");
    assert!(kept, "nothing was removed");
    assert_eq!(again.code, 0, "{again:?}");
    assert!(!dir.path("state").exists() && dir.path("precious/file").exists());
}

#[test]
fn what_is_no_cluster_is_refused() {
    if !is_root() {
        return;
    }
    let dir = Dir::new();
    fs::create_dir(dir.path("state")).unwrap();
    let ran = dir.run(&["erase", "--state-dir", "state", "--yes"]);
    assert!(ran.code == 1 && ran.stderr.contains("is no state directory"), "{ran:?}");
    stopped(&dir);
    fs::write(dir.path("state/thesis.txt"), "").unwrap();
    let ran = dir.run(&["erase", "--state-dir", "state", "--yes"]);
    assert!(ran.code == 1 && ran.stderr.contains("thesis.txt is not a cluster's"), "{ran:?}");
    assert!(dir.path("state/thesis.txt").exists() && dir.path("state/pki/ca.key").exists());
}
