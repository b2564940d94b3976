//! How much disk images take.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{
    error::{Doing, Result},
    store::Store,
};

/// What the store takes, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// On this directory's file system.
    pub path: PathBuf,
    /// Bytes of blobs and unpacked layers.
    pub bytes: u64,
    /// Files, directories and links.
    pub inodes: u64,
}

pub(super) fn usage(store: &Store) -> Result<Usage> {
    let (layer_bytes, layer_inodes) = store.read(|catalog, _| {
        let layers = catalog.layers.values();
        layers.fold((0, 0), |(bytes, inodes), it| (bytes + it.bytes, inodes + it.inodes + 1))
    });
    let path = store.images_path();
    let (blob_bytes, blob_inodes) =
        count(&path.join("blobs/sha256")).doing(|| format!("reading {}", path.display()))?;
    Ok(Usage {
        path: path.to_owned(),
        bytes: layer_bytes + blob_bytes,
        inodes: layer_inodes + blob_inodes,
    })
}

/// The bytes on disk and the inodes of a whole tree, such as what a container wrote.
pub(super) fn tree(path: &Path) -> Result<(u64, u64)> {
    count(path).doing(|| format!("reading {}", path.display()))
}

fn count(path: &Path) -> io::Result<(u64, u64)> {
    let mut total = (0, 0);
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            // Others may remove things while we count.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let Ok(metadata) = entry.metadata() else { continue };
            total = (total.0 + metadata.blocks() * 512, total.1 + 1);
            if metadata.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    Ok(total)
}
