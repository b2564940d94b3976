//! What is to stand in a volume that the node writes. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path},
};

use k8s_openapi::api::core::v1::KeyToPath;
use waybill_core::secret::SecretBytes;

use super::error::VolumeFault;

/// Mode of files for which nobody says another.
pub(super) const DEFAULT_MODE: i32 = 0o644;

/// Longest name of a file, and longest path in a volume.
const NAME_BYTES: usize = 255;
const PATH_BYTES: usize = 4096;

/// Files by their path in the volume. A later file of the same path replaces an earlier one.
#[derive(Default)]
pub(super) struct Files(BTreeMap<String, FileContent>);

/// One file.
pub(super) struct FileContent {
    pub(super) bytes: SecretBytes,
    pub(super) mode: u32,
    /// Who owns it, if not root.
    pub(super) owner: Option<u32>,
}

impl Files {
    pub(super) fn add(&mut self, path: &str, file: FileContent) -> Result<(), VolumeFault> {
        check_path(path)?;
        self.0.insert(path.to_owned(), file);
        Ok(())
    }

    /// Adds what `items` choose from an object, or all of it if they are not given.
    pub(super) fn add_object(&mut self, object: Object<'_>) -> Result<(), VolumeFault> {
        let Some(items) = object.items.filter(|items| !items.is_empty()) else {
            for (key, bytes) in object.data {
                self.add(key, file(bytes, object.default_mode)?)?;
            }
            return Ok(());
        };
        for item in items {
            match object.data.get(&*item.key) {
                Some(bytes) => {
                    let mode = item.mode.unwrap_or(object.default_mode);
                    self.add(&item.path, file(bytes, mode)?)?;
                }
                None if object.optional => {}
                None => {
                    return Err(VolumeFault::Key { whose: object.words, key: item.key.clone() });
                }
            }
        }
        Ok(())
    }

    /// Fails if all files together are larger than `most` bytes.
    pub(super) fn check_size(&self, most: u64) -> Result<(), VolumeFault> {
        let lengths =
            self.0.values().map(|file| u64::try_from(file.bytes.len()).unwrap_or(u64::MAX));
        let bytes = lengths.fold(0_u64, u64::saturating_add);
        if bytes > most { Err(VolumeFault::TooLarge { bytes, most }) } else { Ok(()) }
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &FileContent)> {
        self.0.iter().map(|(path, file)| (&**path, file))
    }

    /// The first parts of all paths, which are what users see in the volume.
    pub(super) fn top_level(&self) -> BTreeSet<&str> {
        self.0.keys().filter_map(|path| path.split('/').next()).collect()
    }
}

/// A ConfigMap or a Secret on its way into a volume.
pub(super) struct Object<'a> {
    pub(super) data: BTreeMap<&'a str, &'a SecretBytes>,
    pub(super) items: Option<&'a [KeyToPath]>,
    pub(super) default_mode: i32,
    pub(super) optional: bool,
    /// What errors call it and its keys.
    pub(super) words: (&'static str, &'static str),
}

fn file(bytes: &SecretBytes, mode: i32) -> Result<FileContent, VolumeFault> {
    let bytes = SecretBytes::copy_of(bytes.expose());
    Ok(FileContent { bytes, mode: parse_mode(mode)?, owner: None })
}

/// The bits of a file's mode.
pub(super) fn parse_mode(mode: i32) -> Result<u32, VolumeFault> {
    let unsupported = || VolumeFault::Unsupported { what: "file mode", value: format!("{mode:o}") };
    u32::try_from(mode).ok().filter(|mode| *mode <= 0o777).ok_or_else(unsupported)
}

/// Names that begin with two dots belong to the node.
fn check_path(path: &str) -> Result<(), VolumeFault> {
    let refuse = |why| Err(VolumeFault::Path { path: path.to_owned(), why });
    if path.is_empty() {
        return refuse("must not be empty");
    }
    if path.len() > PATH_BYTES {
        return refuse("must not be longer than 4096 bytes");
    }
    if path.starts_with("..") {
        return refuse("must not start with '..'");
    }
    for part in path.split('/') {
        let component = Path::new(part).components().next();
        if !matches!(component, Some(Component::Normal(_))) {
            return refuse("must be a relative path without empty parts, '.' and '..'");
        }
        if part.len() > NAME_BYTES {
            return refuse("a part of it is longer than 255 bytes");
        }
        if part.contains('\0') {
            return refuse("must not contain NUL");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> SecretBytes {
        text.as_bytes().to_vec().into()
    }

    fn item(key: &str, path: &str, mode: Option<i32>) -> KeyToPath {
        KeyToPath { key: key.to_owned(), path: path.to_owned(), mode, ..KeyToPath::default() }
    }

    fn files(items: Option<&[KeyToPath]>, optional: bool) -> Result<Files, VolumeFault> {
        let (one, two) = (bytes("1"), bytes("2"));
        let mut files = Files::default();
        files.add_object(Object {
            data: [("one", &one), ("two.txt", &two)].into(),
            items,
            default_mode: 0o640,
            optional,
            words: ("configmap", "config"),
        })?;
        Ok(files)
    }

    fn list(files: &Files) -> Vec<String> {
        let text = |file: &FileContent| String::from_utf8(file.bytes.expose().to_vec()).unwrap();
        files.iter().map(|(path, file)| format!("{path} {:o} {}", file.mode, text(file))).collect()
    }

    #[test]
    fn all_keys_are_files_unless_items_choose() {
        assert_eq!(list(&files(None, false).unwrap()), ["one 640 1", "two.txt 640 2"]);
        assert_eq!(list(&files(Some(&[]), false).unwrap()), ["one 640 1", "two.txt 640 2"]);
        let items = [item("one", "a/b", None), item("one", "c", Some(0o400))];
        let chosen = files(Some(&items), false).unwrap();
        assert_eq!(list(&chosen), ["a/b 640 1", "c 400 1"]);
        assert_eq!(chosen.top_level(), ["a", "c"].into());
    }

    #[test]
    fn files_of_a_volume_in_memory_are_counted_together() {
        let files = files(None, false).unwrap();
        files.check_size(2).unwrap();
        let error = files.check_size(1).unwrap_err().to_string();
        assert_eq!(error, "its files have 2 bytes, and a volume in memory has room for 1");
    }

    #[test]
    fn a_key_that_is_missing_is_an_error_unless_optional() {
        let items = [item("three", "a", None)];
        let error = files(Some(&items), false).err().unwrap().to_string();
        assert_eq!(error, "configmap references non-existent config key: three");
        assert!(list(&files(Some(&items), true).unwrap()).is_empty());
    }

    #[test]
    fn paths_stay_in_the_volume_and_leave_our_names_alone() {
        let long = "x".repeat(256);
        for path in ["", "/etc", "a/../b", "..data", "..", ".", "a//b", "a/", "./a", "a\0", &long] {
            assert!(files(Some(&[item("one", path, None)]), true).is_err(), "{path:?}");
        }
        for path in ["a..b", "a/..b", ".hidden", "a b"] {
            assert!(files(Some(&[item("one", path, None)]), true).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn modes_are_those_of_files() {
        for mode in [-1, 0o1000, 0o4755] {
            assert!(files(Some(&[item("one", "a", Some(mode))]), false).is_err());
        }
        assert!(files(Some(&[item("one", "a", Some(0))]), false).is_ok());
    }
}
