//! Archives, good and broken.

use proptest::prelude::*;

use super::*;
use crate::image::testing::Tarball;

fn entries(archive: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>> {
    let mut reader = Entries::new(archive);
    let mut entries = Vec::new();
    while let Some(entry) = reader.next()? {
        let mut content = Vec::new();
        reader.read_to_end(&mut content).doing(|| READING)?;
        entries.push((entry, content));
    }
    reader.drain().doing(|| READING)?;
    Ok(entries)
}

#[test]
fn entries_come_with_their_attributes_and_contents() {
    let archive = Tarball::new()
        .directory("a/", 0o1777)
        .file("a/b", b"content")
        .symlink("a/c", "b")
        .hard_link("a/d", "a/b")
        .device("a/e", b'3', 1, 3)
        .finish();
    let entries = entries(&archive).unwrap();
    let kinds: Vec<_> = entries.iter().map(|(entry, _)| entry.kind.clone()).collect();
    let (b, ab) = (b"b".to_vec(), b"a/b".to_vec());
    assert_eq!(
        kinds,
        [
            Kind::Directory,
            Kind::File,
            Kind::Symlink { target: b },
            Kind::HardLink { target: ab },
            Kind::Character { major: 1, minor: 3 },
        ]
    );
    assert_eq!(entries[0].0.mode, 0o1777);
    assert_eq!(entries[1].1, b"content");
    assert_eq!(entries[1].0.path, b"a/b");
}

#[test]
fn what_was_not_read_is_skipped() {
    let archive = Tarball::new().file("a", &[7; 1000]).file("b", b"").file("c", b"x").finish();
    let mut reader = Entries::new(archive.as_slice());
    let mut paths = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        paths.extend(entry.path);
    }
    assert_eq!(paths, b"abc");
}

#[test]
fn long_names_come_by_either_way() {
    let (path, target) = ("d/".repeat(300) + "f", "t".repeat(500));
    for archive in [
        Tarball::new().gnu_long(b'L', &path).gnu_long(b'K', &target).symlink("x", "y"),
        Tarball::new().pax(&[("path", &path), ("linkpath", &target)]).symlink("x", "y"),
    ] {
        let entries = entries(&archive.finish()).unwrap();
        assert_eq!(entries[0].0.path, path.as_bytes());
        assert_eq!(entries[0].0.kind, Kind::Symlink { target: target.clone().into() });
    }
}

#[test]
fn a_value_with_newlines_does_not_pass_for_other_records() {
    let hostile = "x\n15 path=/etc/passwd\n";
    let records = [("SCHILY.xattr.user.a", hostile), ("mtime", "12.5"), ("uid", "3000000")];
    let archive = Tarball::new().pax(&records).file("good", b"").finish();
    let entry = entries(&archive).unwrap().remove(0).0;
    assert_eq!(entry.path, b"good");
    assert_eq!(entry.xattrs, [(b"user.a".to_vec(), hostile.as_bytes().to_vec())]);
    assert_eq!(entry.mtime, Mtime { seconds: 12, nanoseconds: 500_000_000 });
    assert_eq!(entry.uid, 3_000_000);
}

#[test]
fn a_size_of_pax_goes_before_the_header() {
    let archive = Tarball::new().pax(&[("size", "600")]).file_of_size("a", b"", 0);
    let archive = archive.raw(&[b'x'; 1024]).file("b", b"y").finish();
    let entries = entries(&archive).unwrap();
    assert_eq!(entries[0].1.len(), 600);
    assert_eq!(entries[1].1, b"y");
}

#[test]
fn a_blank_number_is_zero() {
    let blank = |header: &mut Header| {
        header.as_mut_bytes()[100..124].fill(0);
        header.as_mut_bytes()[136..148].fill(b' ');
    };
    let archive = Tarball::new().file_with("a", b"content", blank).finish();
    let (entry, content) = entries(&archive).unwrap().remove(0);
    assert_eq!((entry.mode, entry.uid, entry.gid, entry.mtime), (0, 0, 0, Mtime::default()));
    assert_eq!(content, b"content");
}

#[test]
fn what_is_broken_is_said() {
    let whole = Tarball::new().file("a", &[1; 700]).finish();
    let check = |archive: &[u8], expected: &str| {
        let error = entries(archive).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&whole[..100], "middle of a header");
    check(&whole[..600], "middle of a file");
    check(b"no archive at all, but longer than a header".repeat(20).as_slice(), "no tar archive");
    check(&Tarball::new().pax(&[("path", "a")]).finish(), "without the file");
    check(&Tarball::new().raw_pax(b"5 a=b\n").file("a", b"").finish(), "PAX record");
    check(&Tarball::new().raw_pax(b"99 a=b\n").file("a", b"").finish(), "PAX record");
    check(&Tarball::new().pax(&[("GNU.sparse.major", "1")]).finish(), "sparse");
    check(&Tarball::new().pax(&[("uid", "4294967295")]).file("a", b"").finish(), "too large");
    check(&Tarball::new().typed("a", b'S').finish(), "not supported");
}

#[test]
fn a_name_cannot_fill_the_memory() {
    let huge = Tarball::new().gnu_long_of_size(b'L', HEADER_BYTES + 1).finish();
    let error = entries(&huge).unwrap_err();
    assert!(matches!(error, ImageError::Limit { .. }), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..2000), fix in any::<bool>()) {
        if fix && bytes.len() >= 512 {
            crate::image::testing::fix_sum(&mut bytes[..512]);
        }
        let _ = entries(&bytes);
    }
}
