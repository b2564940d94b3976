//! A state directory that somebody else made is used by no role.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
};

use crate::run::Dir;

const STRANGER: u32 = 12_345;

/// Each role that runs as root, with its state in `state`.
const ROLES: &[&[&str]] = &[
    &["apiserver", "--listen", "127.0.0.1:0", "--state-dir", "state"],
    &["runtime", "--listen", "unix:///nonexistent/s", "--run-dir", "run", "--state-dir", "state"],
    &[
        "node",
        "--tls-cert-file",
        "c",
        "--tls-key-file",
        "k",
        "--client-ca-file",
        "a",
        "--standalone",
        "--static-pods",
        "pods",
        "--log-dir",
        "logs",
        "--state-dir",
        "state",
    ],
    &["up", "--listen", "127.0.0.1:1", "--state-dir", "state"],
];

/// Runs every role on what `plant` prepared; all must refuse it with these words, and write nothing.
fn refuse(plant: impl Fn(&Dir), words: &str) {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        waybill_testkit::skip::skip("root", "run the tests as root");
        return;
    }
    for role in ROLES {
        let dir = Dir::new();
        plant(&dir);
        let ran = dir.run(role);
        assert_eq!(ran.code, 1, "{role:?}: {ran:?}");
        // A machine on which `up` cannot run at all says that first.
        let cannot_run = role.first() == Some(&"up") && ran.stderr.contains("cannot run here");
        assert!(ran.stderr.contains(words) || cannot_run, "{role:?}: {ran:?}");
        let left = fs::read_dir(dir.path("state")).unwrap().count();
        assert_eq!(left, 0, "{role:?} wrote to it");
    }
}

/// Hole: its owner became `system:masters`, and the keys that lay there were used.
#[test]
fn a_state_directory_of_somebody_else_is_refused() {
    let plant = |dir: &Dir| {
        fs::create_dir(dir.path("state")).unwrap();
        chown(dir.path("state"), Some(STRANGER), None).unwrap();
    };
    refuse(plant, "belongs to uid 12345");
}

#[test]
fn a_state_directory_that_others_can_write_is_refused() {
    let plant = |dir: &Dir| {
        fs::create_dir(dir.path("state")).unwrap();
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(dir.path("state"), open).unwrap();
    };
    refuse(plant, "can be written by others");
}

/// Hole: the link of somebody else was followed as root.
#[test]
fn a_link_of_somebody_else_is_not_followed() {
    let plant = |dir: &Dir| {
        fs::create_dir(dir.path("target")).unwrap();
        symlink("target", dir.path("state")).unwrap();
        std::os::unix::fs::lchown(dir.path("state"), Some(STRANGER), None).unwrap();
    };
    refuse(plant, "belongs to uid 12345");
}
