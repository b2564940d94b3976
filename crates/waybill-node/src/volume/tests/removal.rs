//! The end of a pod's directory.

use std::os::unix::fs::symlink;

use super::*;

#[tokio::test]
async fn removal_unmounts_and_follows_no_link() {
    if !is_root() {
        return;
    }
    let objects = FakeObjects::default().with_secret("db", &[("key", "x")]);
    let fixture = Fixture::new(objects);
    let pod = with_volumes(json!([
        {"name": "s", "secret": {"secretName": "db"}},
        {"name": "disk", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]));
    fixture.volumes.prepare(&pod).await.unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("kept"), "x").unwrap();
    let disk = fixture.directory("empty-dir", "disk");
    symlink(outside.path(), disk.join("link")).unwrap();
    symlink(outside.path().join("kept"), disk.join("file-link")).unwrap();
    // Somebody's mounts below: one over the other, and one busy.
    let point = disk.join("a b/mount");
    fs::create_dir_all(&point).unwrap();
    mount::mount_memory(&point, None, 0o755).unwrap();
    mount::mount_memory(&point, None, 0o755).unwrap();
    let _busy = fs::File::create(point.join("open")).unwrap();
    rustix::mount::mount_bind(outside.path(), fixture.directory("empty-dir", "memory")).unwrap();

    fixture.volumes.remove(pod.uid()).await.unwrap();
    assert!(!fixture.pod_directory().exists());
    assert_eq!(read(outside.path().join("kept")), "x");
    fixture.volumes.remove(pod.uid()).await.unwrap();
}

/// Deeper than a path can say, and with more levels than files can be open.
#[tokio::test]
async fn removal_copes_with_trees_of_any_depth() {
    let fixture = Fixture::new(FakeObjects::default());
    let pod = with_volumes(json!([{"name": "disk", "emptyDir": {}}]));
    fixture.volumes.prepare(&pod).await.unwrap();
    let directory = fixture.directory("empty-dir", "disk");
    let open = |at: rustix::fd::BorrowedFd<'_>, path: &Path| {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
        rustix::fs::openat(at, path, flags, rustix::fs::Mode::empty()).unwrap()
    };
    let mut deepest = open(rustix::fs::CWD, &directory);
    for _ in 0..1500 {
        use rustix::fd::AsFd;
        let name = Path::new("a-directory");
        rustix::fs::mkdirat(&deepest, name, rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
        rustix::fs::symlinkat("..", &deepest, "link").unwrap();
        deepest = open(deepest.as_fd(), name);
    }
    fs::create_dir(directory.join("..moved-1")).unwrap();
    fixture.volumes.remove(pod.uid()).await.unwrap();
    assert!(!fixture.pod_directory().exists());
}

/// What is still mounted is not touched.
#[test]
fn nothing_is_deleted_behind_a_mount() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(FakeObjects::default());
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("kept"), "x").unwrap();
    for depth in ["v", "v/w", "v/w/x/y"] {
        let pod = fixture.state.path().join("pods/u");
        let point = pod.join(depth);
        fs::create_dir_all(&point).unwrap();
        rustix::mount::mount_bind(outside.path(), &point).unwrap();
        assert!(remove::delete(&pod).is_err(), "{depth}");
        assert_eq!(read(outside.path().join("kept")), "x");
        let state = fixture.state.path().canonicalize().unwrap();
        for point in mount::mounted_at_or_below(&state).unwrap() {
            mount::unmount_at(&point).unwrap();
        }
    }
}
