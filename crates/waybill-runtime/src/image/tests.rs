//! The store as a whole: what goes in, what comes out, what stays after a crash.

mod archives;
mod mounts;

use std::{fs, path::Path, thread};

use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::{
    build::ImageBuilder,
    testing::{Sample, Tarball, is_root, oci_archive_of},
    *,
};

/// A store in a directory of its own.
struct Fixture {
    state: tempfile::TempDir,
    images: Images,
}

impl Fixture {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let images = Images::open(state.path()).unwrap();
        Self { state, images }
    }

    /// `None` for users who cannot unpack layers.
    fn open() -> Option<Self> {
        is_root().then(Self::new)
    }

    /// As after a crash of the process: nobody was told to finish anything.
    fn reopen(self) -> Self {
        let Self { state, images } = self;
        drop(images);
        let images = Images::open(state.path()).unwrap();
        Self { state, images }
    }

    fn count(&self, directory: &str) -> usize {
        fs::read_dir(self.state.path().join("images").join(directory)).unwrap().count()
    }

    /// Blobs, layers, and unfinished things.
    fn counts(&self) -> (usize, usize, usize) {
        (self.count("blobs/sha256"), self.count("layers"), self.count("tmp"))
    }

    fn import(&self, sample: &Sample, name: &str) -> Image {
        let archive = oci_archive_of(sample, Some(name));
        self.images.import(archive.as_slice(), None).unwrap().remove(0)
    }

    /// One image with two names.
    fn import_twice(&self, first: &str, second: &str) -> Image {
        let sample = Sample::new("a", &[layer("a")]);
        self.import(&sample, first);
        self.import(&sample, second)
    }
}

fn layer(path: &str) -> Vec<u8> {
    Tarball::new().file(path, path.as_bytes()).finish()
}

#[test]
fn a_built_image_is_imported_and_found() {
    let Some(fixture) = Fixture::open() else { return };
    let builder = ImageBuilder::new()
        .directory("/tmp", 0o1777)
        .file("/bin/tool", 0o755, *b"tool")
        .symlink("/bin/sh", "tool")
        .entrypoint(&["/bin/tool"])
        .command(&["run"])
        .variable("PATH", "/bin")
        .user("1:2")
        .working_directory("/tmp");
    let archive = builder.archive("tool").unwrap();
    assert_eq!(archive, builder.archive("tool").unwrap());
    let imported = fixture.images.import(archive.as_slice(), None).unwrap();
    assert_eq!(imported[0].tags, ["docker.io/library/tool:latest"]);
    let found = fixture.images.find("tool").unwrap();
    assert_eq!(found.id, imported[0].id);
    let config = found.config.config().as_ref().unwrap();
    assert_eq!(config.entrypoint().as_ref().unwrap(), &["/bin/tool"]);
    assert_eq!(config.cmd().as_ref().unwrap(), &["run"]);
    assert_eq!(config.env().as_ref().unwrap(), &["PATH=/bin"]);
    assert_eq!(config.user().as_deref(), Some("1:2"));
    assert_eq!(config.working_dir().as_deref(), Some("/tmp"));
    assert_eq!(fixture.counts(), (3, 1, 0));
}

#[test]
fn an_image_goes_with_all_its_names() {
    let Some(fixture) = Fixture::open() else { return };
    let id = fixture.import_twice("one", "two").id.hex();
    for text in ["one", "two", &id, &id[..10]] {
        let image = fixture.import_twice("one", "two");
        assert_eq!(image.tags.len(), 2);
        fixture.images.remove(text).unwrap();
        assert!(fixture.images.list().is_empty(), "{text}");
        assert_eq!(fixture.counts(), (0, 0, 0));
        let error = fixture.images.remove("two").unwrap_err().to_string();
        assert_eq!(error, "there is no image `two`");
    }
}

#[test]
fn images_share_layers_and_the_last_one_takes_them_along() {
    let Some(fixture) = Fixture::open() else { return };
    fixture.import(&Sample::new("a", &[layer("base"), layer("a")]), "a");
    fixture.import(&Sample::new("b", &[layer("base"), layer("b")]), "b");
    assert_eq!(fixture.counts(), (3 + 4, 3, 0));
    let before = fixture.images.usage().unwrap();
    fixture.images.remove("a").unwrap();
    assert_eq!(fixture.counts(), (4, 2, 0));
    let after = fixture.images.usage().unwrap();
    assert!(after.bytes < before.bytes && after.inodes < before.inodes, "{after:?}");
    fixture.images.remove("b").unwrap();
    assert_eq!(fixture.images.usage().unwrap().inodes, 0);
}

#[test]
fn a_name_that_moves_leaves_its_image_behind() {
    let Some(fixture) = Fixture::open() else { return };
    let old = fixture.import(&Sample::new("a", &[layer("a")]), "app");
    let new = fixture.import(&Sample::new("b", &[layer("b")]), "app");
    assert_eq!(fixture.images.find("app").unwrap().id, new.id);
    let old = fixture.images.find(&old.id.to_string()).unwrap();
    assert_eq!(old.tags, [""; 0]);
}

#[test]
fn pinned_images_are_not_collected() {
    let Some(fixture) = Fixture::open() else { return };
    let kept = fixture.import(&Sample::new("a", &[layer("a")]), "kept");
    let gone = fixture.import(&Sample::new("b", &[layer("b")]), "gone");
    fixture.images.set_pinned("kept", true).unwrap();
    assert_eq!(fixture.images.remove_unused().unwrap(), [gone.id]);
    assert_eq!(fixture.images.list().len(), 1);
    assert!(fixture.images.find(&kept.id.hex()).unwrap().pinned);
    let newer = fixture.import(&Sample::new("c", &[layer("c")]), "kept");
    fixture.images.set_pinned("kept", true).unwrap();
    assert!(!fixture.images.find(&kept.id.hex()).unwrap().pinned, "its name is another's now");
    assert_eq!(fixture.images.remove_unused().unwrap(), [kept.id]);
    assert!(fixture.images.find(&newer.id.hex()).unwrap().pinned);
}

#[test]
fn a_store_is_the_same_after_a_restart() {
    let Some(fixture) = Fixture::open() else { return };
    let image = fixture.import(&Sample::new("a", &[layer("a"), layer("b")]), "app:1");
    fixture.images.set_pinned("app:1", true).unwrap();
    let counts = fixture.counts();
    let fixture = fixture.reopen();
    let found = fixture.images.find("app:1").unwrap();
    assert_eq!((found.id, found.size, &found.tags), (image.id, image.size, &image.tags));
    assert_eq!(found.config, image.config);
    assert!(found.pinned);
    assert_eq!(fixture.counts(), counts);
}

#[test]
fn what_a_crash_left_is_thrown_away_and_what_counts_stays() {
    let Some(fixture) = Fixture::open() else { return };
    fixture.import(&Sample::new("a", &[layer("a")]), "app");
    let counts = fixture.counts();
    let images = fixture.state.path().join("images");
    for stray in ["tmp/7/half/done", "layers/0123/file", "blobs/sha256/4567"] {
        let stray = images.join(stray);
        fs::create_dir_all(stray.parent().unwrap()).unwrap();
        fs::write(stray, "x").unwrap();
    }
    fs::write(images.join("index.new"), "{ half").unwrap();
    let fixture = fixture.reopen();
    assert_eq!(fixture.counts(), counts);
    assert!(fixture.images.find("app").is_some());
}

/// The file of the catalogue, changed as another boot would find it.
fn change_index(fixture: &Fixture, from: &str, to: &str) {
    let path = fixture.state.path().join("images/index.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(&path, text.replace(from, to)).unwrap();
}

#[test]
fn layers_that_may_not_have_reached_the_disk_are_unpacked_again() {
    let Some(fixture) = Fixture::open() else { return };
    let image = fixture.import(&Sample::new("a", &[layer("a"), layer("b")]), "app");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    change_index(&fixture, boot.trim(), "an earlier boot");
    let target = tempfile::tempdir().unwrap();
    let fixture = fixture.reopen();
    assert_eq!(fixture.counts(), (4, 0, 0));
    fixture.images.mount(&image, "c", target.path()).unwrap();
    assert_eq!(fs::read_to_string(target.path().join("b")).unwrap(), "b");
    fixture.images.unmount("c", target.path()).unwrap();
    fixture.images.settle().unwrap();
    // Settled layers are those of every boot.
    let text = fs::read_to_string(fixture.state.path().join("images/index.json")).unwrap();
    assert!(!text.contains(boot.trim()) && text.contains("\"unsettled\":null"), "{text}");
    assert_eq!(fixture.reopen().count("layers"), 2);
}

#[test]
fn an_image_that_lost_a_blob_is_gone_and_the_others_stay() {
    let Some(fixture) = Fixture::open() else { return };
    let sample = Sample::new("a", &[layer("a")]);
    fixture.import(&sample, "lost");
    fixture.import(&Sample::new("b", &[layer("b")]), "kept");
    let blob = Digest::of(&sample.layers[0]).hex();
    fs::remove_file(fixture.state.path().join("images/blobs/sha256").join(blob)).unwrap();
    let fixture = fixture.reopen();
    assert!(fixture.images.find("lost").is_none());
    assert!(fixture.images.find("kept").is_some());
    assert_eq!(fixture.counts(), (3, 1, 0));
}

#[test]
fn a_store_has_one_owner() {
    let fixture = Fixture::new();
    let Err(error) = Images::open(fixture.state.path()) else { panic!("opened twice") };
    assert!(matches!(error, ImageError::Locked(_)), "{error}");
}

#[test]
fn many_at_once_import_the_same_image_and_others() {
    let Some(fixture) = Fixture::open() else { return };
    let sample = |at: usize| Sample::new(&at.to_string(), &[layer("base"), layer(&at.to_string())]);
    thread::scope(|scope| {
        for at in 0..12 {
            let fixture = &fixture;
            scope.spawn(move || {
                let name = format!("app:{}", at % 4);
                let archive = oci_archive_of(&sample(at % 4), Some(&name));
                fixture.images.import(archive.as_slice(), None).unwrap();
                if at % 4 == 3 {
                    // Another thread may have been quicker.
                    let _ = fixture.images.remove(&name);
                } else {
                    assert_eq!(fixture.images.find(&name).unwrap().id, sample(at % 4).id());
                }
            });
        }
    });
    let mut left: Vec<_> = fixture.images.list().into_iter().flat_map(|it| it.tags).collect();
    left.retain(|tag| !tag.ends_with(":3"));
    assert_eq!(left.len(), 3);
    let _ = fixture.images.remove("app:3");
    assert_eq!(fixture.counts(), (1 + 3 * 3, 1 + 3, 0));
    assert_eq!(fixture.reopen().counts(), (1 + 3 * 3, 1 + 3, 0));
}
