//! What is to stand in a volume that the node writes. Pure.

use std::{
    collections::BTreeMap,
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

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &FileContent)> {
        self.0.iter().map(|(path, file)| (&**path, file))
    }

    /// The first parts of all paths, which are what users see in the volume.
    pub(super) fn top_level(&self) -> impl Iterator<Item = &str> {
        let mut last = None;
        self.0.keys().filter_map(move |path| {
            let top = path.split('/').next();
            if top == last {
                return None;
            }
            last = top;
            top
        })
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
