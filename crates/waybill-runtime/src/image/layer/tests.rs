//! Layers of all kinds, the hostile ones first.

use std::{
    fs::{self, Metadata},
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
};

use waybill_core::chain::Chain;

use super::*;
use crate::image::testing::{Tarball, gzip, is_root};

/// A directory that stands in for a layer's, with neighbours that must stay as they are.
struct Place {
    outside: tempfile::TempDir,
    layer: PathBuf,
}

impl Place {
    fn new() -> Self {
        let outside = tempfile::tempdir().unwrap();
        let layer = outside.path().join("layer");
        fs::create_dir(&layer).unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        Self { outside, layer }
    }

    fn extract(&self, archive: Tarball) -> Result<Extracted> {
        extract(archive.finish().as_slice(), &self.layer, &Limits::default())
    }

    fn stat(&self, path: &str) -> Metadata {
        fs::symlink_metadata(self.layer.join(path)).unwrap()
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.layer.join(path)).unwrap()
    }

    fn attribute(&self, path: &str, name: &str) -> Vec<u8> {
        let mut value = [0; 64];
        let path = self.layer.join(path);
        let count = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap_or(0);
        value[..count].to_vec()
    }

    /// Nothing but the layer and the neighbour is there, and the neighbour is untouched.
    #[track_caller]
    fn assert_nothing_outside(&self) {
        assert_eq!(fs::read_dir(self.outside.path()).unwrap().count(), 2);
        assert_eq!(fs::read_to_string(self.outside.path().join("secret")).unwrap(), "secret");
    }
}

#[test]
fn owners_modes_and_times_are_kept() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let archive = Tarball::new()
        .directory("bin/", 0o1777)
        .file_with("bin/su", b"x", |header| {
            header.set_mode(0o6755);
            header.set_uid(12);
            header.set_gid(34);
        })
        .pax(&[("mtime", "1234.000000005"), ("uid", "4000000000")])
        .file("bin/late", b"")
        .symlink("bin/sh", "/bin/su")
        .hard_link("bin/again", "/bin/su")
        .device("null", b'3', 1, 3)
        .device("disk", b'4', 8, 1)
        .typed("pipe", b'6');
    let extracted = place.extract(archive).unwrap();
    let su = place.stat("bin/su");
    assert_eq!((su.mode() & 0o7777, su.uid(), su.gid(), su.nlink()), (0o6755, 12, 34, 2));
    assert_eq!((su.mtime(), place.stat("bin/sh").mtime()), (1_000_000, 1_000_000));
    assert_eq!(place.stat("bin/again").ino(), su.ino());
    let late = place.stat("bin/late");
    assert_eq!((late.mtime(), late.mtime_nsec(), late.uid()), (1234, 5, 4_000_000_000));
    // Though files were put into it afterwards.
    let bin = place.stat("bin");
    assert_eq!((bin.mode() & 0o7777, bin.mtime()), (0o1777, 1_000_000));
    assert_eq!(fs::read_link(place.layer.join("bin/sh")).unwrap(), Path::new("/bin/su"));
    assert!(place.stat("null").file_type().is_char_device());
    assert_eq!(place.stat("null").rdev(), rustix::fs::makedev(1, 3));
    assert!(place.stat("disk").file_type().is_block_device());
    assert!(place.stat("pipe").file_type().is_fifo());
    assert_eq!((extracted.bytes, extracted.inodes), (1, 8));
    assert_eq!(extracted.implied, [PathBuf::new()]);
}

#[test]
fn compressed_layers_have_the_digest_of_what_is_inside() {
    if !is_root() {
        return;
    }
    let archive = Tarball::new().file("a", b"content").finish();
    let place = Place::new();
    let extracted = extract(gzip(&archive).as_slice(), &place.layer, &Limits::default()).unwrap();
    assert_eq!(extracted.diff_id, Digest::of(&archive));
    assert_eq!(place.read("a"), "content");
}

#[test]
fn only_harmless_attributes_are_set() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    // The form of file capabilities, with a newline in it.
    let capability = "\u{1}\0\0\u{2}\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let records = [
        ("SCHILY.xattr.security.capability", capability),
        ("SCHILY.xattr.user.note", "hello"),
        ("SCHILY.xattr.trusted.overlay.redirect", "/etc"),
        ("SCHILY.xattr.user.overlay.opaque", "y"),
    ];
    let archive = Tarball::new().pax(&records).file_with("ping", b"", |header| header.set_uid(5));
    place.extract(archive).unwrap();
    assert_eq!(place.attribute("ping", "security.capability"), capability.as_bytes());
    assert_eq!(place.attribute("ping", "user.note"), b"hello");
    assert_eq!(place.attribute("ping", "trusted.overlay.redirect"), b"");
    assert_eq!(place.attribute("ping", "user.overlay.opaque"), b"");
    assert_eq!(place.stat("ping").uid(), 5);
}

#[test]
fn whiteouts_become_those_of_overlayfs() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let archive = Tarball::new()
        .file("a/.wh.gone", b"")
        .file("b/.wh..wh..opq", b"")
        .file("b/new", b"")
        // A whiteout hides what is below, never what the layer itself has.
        .file("c/own", b"kept")
        .file(".wh.c", b"")
        .file(".wh.d", b"")
        .file("d/own", b"kept")
        .file(".wh.e", b"")
        .file("e", b"kept")
        .file(".wh..wh.plnk", b"");
    place.extract(archive).unwrap();
    let gone = place.stat("a/gone");
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    let opaque = |path| place.attribute(path, "trusted.overlay.opaque");
    assert_eq!((opaque("a"), opaque("b")), (b"".to_vec(), b"y".to_vec()));
    assert_eq!((opaque("c"), place.read("c/own")), (b"y".to_vec(), "kept".into()));
    assert_eq!((opaque("d"), place.read("d/own")), (b"y".to_vec(), "kept".into()));
    assert_eq!(place.read("e"), "kept");
    assert_eq!(fs::read_dir(&place.layer).unwrap().count(), 5);
}

#[test]
fn the_last_of_a_name_wins() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let archive = Tarball::new()
        .file("a", b"first")
        .file("a", b"second")
        .file("b/c", b"")
        .symlink("b", "a")
        .symlink("d", "/nowhere")
        .directory("d", 0o700)
        .file("d/e", b"")
        .directory("d", 0o711);
    place.extract(archive).unwrap();
    assert_eq!(place.read("a"), "second");
    assert!(place.stat("b").is_symlink());
    assert_eq!(place.stat("d").mode() & 0o7777, 0o711);
    assert!(place.stat("d/e").is_file());
}

#[test]
fn links_lead_within_the_layer() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let archive = Tarball::new()
        .directory("usr/bin", 0o755)
        .symlink("bin", "/usr/bin")
        .file("bin/tool", b"tool")
        .symlink("up", "../../../..")
        .file("up/caught", b"caught")
        .file("/absolute", b"absolute")
        .hard_link("up/linked", "bin/tool");
    place.extract(archive).unwrap();
    assert_eq!(place.read("usr/bin/tool"), "tool");
    assert_eq!(place.read("caught"), "caught");
    assert_eq!(place.read("absolute"), "absolute");
    assert_eq!(place.read("linked"), "tool");
    place.assert_nothing_outside();
}

#[test]
fn hostile_archives_are_refused_and_reach_nothing_outside() {
    if !is_root() {
        return;
    }
    let outside = || tempfile::tempdir().unwrap();
    let aim = outside();
    let aim = aim.path().to_str().unwrap();
    let check = |archive: Tarball, expected: &str| {
        let place = Place::new();
        let error = Chain(&place.extract(archive).unwrap_err()).to_string();
        assert!(error.contains(expected), "{error}");
        place.assert_nothing_outside();
        assert_eq!(fs::read_dir(aim).unwrap().count(), 0);
    };
    check(Tarball::new().file("../secret", b"changed"), "`..`");
    check(Tarball::new().file("a/../../secret", b"changed"), "`..`");
    check(Tarball::new().hard_link("a", "../secret"), "`..`");
    check(Tarball::new().hard_link("a", "secret"), "does not come before it");
    check(Tarball::new().hard_link("a", "a"), "itself");
    check(Tarball::new().symlink("up", "..").hard_link("a", "up/secret"), "does not come before");
    check(Tarball::new().symlink("out", aim).file("out/f", b""), "a link to nothing");
    check(Tarball::new().symlink("a", "a").file("a/f", b""), "symbolic links");
    check(Tarball::new().file("a", b"").file("a/b", b""), "is used as a directory");
    check(Tarball::new().file(".wh...", b""), "hides no file");
    check(Tarball::new().file(".wh.", b""), "hides no file");
    check(Tarball::new().file(".", b""), "root");
    check(Tarball::new().hard_link("a", "/"), "root");
    check(Tarball::new().pax(&[("path", "a\0b")]).file("x", b""), "NUL");
    check(Tarball::new().pax(&[("path", &"x/".repeat(4000))]).file("x", b""), "longer");
    check(Tarball::new().pax(&[("path", &"x".repeat(300))]).file("x", b""), "making");
    check(Tarball::new().symlink("proc", "/proc/self").file("proc/f", b""), "symbolic links");
}

#[test]
fn a_bomb_is_stopped() {
    if !is_root() {
        return;
    }
    let limits = Limits { layer_bytes: 10_000, layer_entries: 5, ..Limits::default() };
    let check = |archive: Tarball, expected: &str| {
        let place = Place::new();
        let archive = gzip(&archive.finish());
        let error = extract(archive.as_slice(), &place.layer, &limits).unwrap_err().to_string();
        assert_eq!(error, expected);
    };
    let bytes = "a layer has more than 10000 bytes, which is the limit";
    check(Tarball::new().file("a", &[0; 6000]).file("b", &[0; 6000]), bytes);
    // A claim alone is enough.
    check(Tarball::new().file_of_size("a", b"", 1 << 40), bytes);
    let many = (0..6).fold(Tarball::new(), |archive, at| archive.file(&at.to_string(), b""));
    check(many, "a layer has more than 5 files, which is the limit");
    let trailer = Tarball::new().file("a", b"").raw(&[0; 50_000]);
    check(trailer, "a layer has more than 30480 bytes, which is the limit");
}

#[test]
fn directories_that_are_only_implied_look_as_they_do_below() {
    if !is_root() {
        return;
    }
    let (base, middle, top) = (Place::new(), Place::new(), Place::new());
    let root = |header: &mut tar::Header| header.set_uid(7);
    let archive = Tarball::new()
        .directory("./", 0o711)
        .directory("tmp", 0o1777)
        .file_with("home/me/file", b"", root)
        .directory("home/me", 0o700);
    base.extract(archive).unwrap();
    let extracted = middle.extract(Tarball::new().file("tmp/a", b"")).unwrap();
    assert_eq!(extracted.implied, [PathBuf::new(), PathBuf::from("tmp")]);
    adopt_directories(&middle.layer, &extracted.implied, std::slice::from_ref(&base.layer))
        .unwrap();
    let extracted = top.extract(Tarball::new().file("tmp/b", b"").file("home/me/b", b"")).unwrap();
    let below = [middle.layer.clone(), base.layer.clone()];
    adopt_directories(&top.layer, &extracted.implied, &below).unwrap();
    for place in [&middle, &top] {
        assert_eq!(place.stat("tmp").permissions().mode() & 0o7777, 0o1777);
        assert_eq!(place.stat("").permissions().mode() & 0o7777, 0o711);
    }
    assert_eq!(top.stat("home/me").mode() & 0o7777, 0o700);
    assert_eq!(top.stat("home").mode() & 0o7777, 0o755);
}

mod hostile {
    use proptest::prelude::*;

    use super::*;

    /// Few names, so that entries meet one another.
    fn path() -> impl Strategy<Value = String> {
        let part =
            prop::sample::select(vec!["a", "b", "c", ".", "..", ".wh.a", ".wh..wh..opq", ""]);
        prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"))
    }

    fn entry() -> impl Strategy<Value = (u8, String, String)> {
        let target = prop_oneof![
            path(),
            path().prop_map(|path| format!("/{path}")),
            Just("../secret".to_owned()),
            Just("../../../../../etc".to_owned()),
        ];
        (0_u8..6, path(), target)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Whatever order links, whiteouts and files come in, the neighbours of a layer are safe.
        #[test]
        fn no_archive_reaches_outside(entries in prop::collection::vec(entry(), 1..12)) {
            if !is_root() {
                return Ok(());
            }
            let place = Place::new();
            let mut archive = Tarball::new();
            for (kind, path, target) in entries {
                archive = match kind {
                    0 => archive.file(&path, b"content"),
                    1 => archive.directory(&path, 0o755),
                    2 => archive.hard_link(&path, &target),
                    3 => archive.device(&path, b'3', 0, 0),
                    _ => archive.symlink(&path, &target),
                };
            }
            let _ = place.extract(archive);
            place.assert_nothing_outside();
        }
    }
}
