//! Root file systems.

use std::{collections::BTreeSet, os::unix::fs::MetadataExt};

use super::*;

/// Ends with nothing mounted, also when a test fails.
struct Target(tempfile::TempDir);

impl Target {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path().join(path)).ok()
    }

    fn is_mounted(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.contains(self.path().to_str().unwrap())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        while rustix::mount::unmount(self.path(), flags).is_ok() {}
    }
}

#[test]
fn layers_lie_over_one_another() {
    let Some(fixture) = Fixture::open() else { return };
    let base = Tarball::new()
        .directory("./", 0o711)
        .file("kept", b"kept")
        .file("changed", b"old")
        .file("gone", b"gone")
        .file("cleared/old", b"old")
        .directory("tmp", 0o1777);
    let top = Tarball::new()
        .file("changed", b"new")
        .file(".wh.gone", b"")
        .file("cleared/.wh..wh..opq", b"")
        .file("cleared/new", b"new")
        .file("tmp/file", b"");
    let image = fixture.import(&Sample::new("a", &[base.finish(), top.finish()]), "app");
    let target = Target::new();
    fixture.images.mount(&image, "c1", target.path()).unwrap();
    assert_eq!(target.read("kept").as_deref(), Some("kept"));
    assert_eq!(target.read("changed").as_deref(), Some("new"));
    assert_eq!((target.read("gone"), target.read("cleared/old")), (None, None));
    assert_eq!(target.read("cleared/new").as_deref(), Some("new"));
    let mode = |path: &str| fs::metadata(target.path().join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode(""), mode("tmp")), (0o711, 0o1777));
    fixture.images.unmount("c1", target.path()).unwrap();
}

#[test]
fn containers_write_for_themselves_alone() {
    let Some(fixture) = Fixture::open() else { return };
    let image = fixture.import(&Sample::new("a", &[layer("file")]), "app");
    let (one, two) = (Target::new(), Target::new());
    fixture.images.mount(&image, "one", one.path()).unwrap();
    fixture.images.mount(&image, "two", two.path()).unwrap();
    fs::write(one.path().join("file"), "changed").unwrap();
    assert_eq!(two.read("file").as_deref(), Some("file"));
    assert_eq!(fixture.images.container_usage("one").unwrap().1, 1);
    assert_eq!(fixture.images.container_usage("two").unwrap(), (0, 0));
    let again = fixture.images.mount(&image, "one", two.path());
    assert!(matches!(again, Err(ImageError::ContainerExists(_))));
    for _ in 0..2 {
        fixture.images.unmount("one", one.path()).unwrap();
        fixture.images.unmount("two", two.path()).unwrap();
    }
    assert!(!one.is_mounted() && !two.is_mounted());
    assert_eq!(fs::read_dir(fixture.state.path().join("containers")).unwrap().count(), 0);
    // What it wrote is gone with it.
    fixture.images.mount(&image, "one", one.path()).unwrap();
    assert_eq!(one.read("file").as_deref(), Some("file"));
    fixture.images.unmount("one", one.path()).unwrap();
}

#[test]
fn a_view_cannot_be_written() {
    let Some(fixture) = Fixture::open() else { return };
    for layers in [vec![], vec![layer("a")], vec![layer("a"), layer("b")]] {
        let image = fixture.import(&Sample::new("a", &layers), "app");
        let target = Target::new();
        fixture.images.mount_read_only(&image, "view", target.path()).unwrap();
        let error = fs::write(target.path().join("new"), "").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(fs::read_dir(target.path()).unwrap().count(), layers.len());
        fixture.images.unmount("view", target.path()).unwrap();
    }
}

#[test]
fn an_image_may_have_no_layer_or_very_many() {
    let Some(fixture) = Fixture::open() else { return };
    for count in [0, 1, 200] {
        let layers: Vec<_> = (0..count).map(|at| layer(&format!("f{at}"))).collect();
        let image = fixture.import(&Sample::new("a", &layers), "app");
        let target = Target::new();
        fixture.images.mount(&image, "c", target.path()).unwrap();
        assert_eq!(fs::read_dir(target.path()).unwrap().count(), count);
        fs::write(target.path().join("new"), "new").unwrap();
        assert_eq!(target.read("new").as_deref(), Some("new"));
        fixture.images.unmount("c", target.path()).unwrap();
    }
}

#[test]
fn layers_stay_while_a_container_uses_them_also_over_a_restart() {
    let Some(fixture) = Fixture::open() else { return };
    let image = fixture.import(&Sample::new("a", &[layer("a")]), "app");
    let target = Target::new();
    fixture.images.mount(&image, "c", target.path()).unwrap();
    assert_eq!(fixture.images.remove_unused().unwrap(), []);
    fixture.images.remove("app").unwrap();
    assert_eq!(fixture.counts(), (0, 1, 0));
    let fixture = fixture.reopen();
    assert_eq!(fixture.counts(), (0, 1, 0));
    assert_eq!(target.read("a").as_deref(), Some("a"));
    fixture.images.unmount("c", target.path()).unwrap();
    assert_eq!(fixture.counts(), (0, 0, 0));
}

#[test]
fn what_containers_left_that_are_gone_is_cleaned() {
    let Some(fixture) = Fixture::open() else { return };
    let image = fixture.import(&Sample::new("a", &[layer("a")]), "app");
    let (living, dead) = (Target::new(), Target::new());
    fixture.images.mount(&image, "living", living.path()).unwrap();
    fixture.images.mount(&image, "dead", dead.path()).unwrap();
    // One that never got as far as a mount.
    fs::create_dir_all(fixture.state.path().join("containers/early/upper")).unwrap();
    let fixture = fixture.reopen();
    let mut cleaned = fixture.images.clean(&BTreeSet::from(["living".into()])).unwrap();
    cleaned.sort();
    assert_eq!(cleaned, ["dead", "early"]);
    assert!(living.is_mounted() && !dead.is_mounted());
    fixture.images.unmount("living", living.path()).unwrap();
}

#[test]
fn a_failed_mount_leaves_nothing() {
    let Some(fixture) = Fixture::open() else { return };
    let image = fixture.import(&Sample::new("a", &[layer("a")]), "app");
    let target = fixture.state.path().join("nowhere");
    let error = fixture.images.mount(&image, "c", &target).unwrap_err().to_string();
    assert!(error.starts_with("mounting a root file system at "), "{error}");
    assert_eq!(fs::read_dir(fixture.state.path().join("containers")).unwrap().count(), 0);
    for id in ["", "..", "a/b", ".hidden", "a b", &"x".repeat(200)] {
        let error = fixture.images.mount(&image, id, &target).unwrap_err();
        assert!(matches!(error, ImageError::ContainerId(_)), "{error}");
        assert!(fixture.images.unmount(id, &target).is_err());
    }
}
