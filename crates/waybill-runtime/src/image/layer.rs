//! A layer's files: from its archive into a directory that overlayfs can stack.
//!
//! A layer comes from anybody, and is unpacked by root. Nothing is ever written outside of its
//! directory: the kernel resolves each path as if that directory were `/`, so that links, `..`
//! and absolute paths cannot lead out of it. Whiteouts become what overlayfs uses for them.

mod tree;

use std::{
    collections::BTreeMap,
    io::Read,
    path::{Path, PathBuf},
};

use self::tree::Tree;
pub(super) use self::tree::copy_attributes;
use super::{
    digest::{Digest, Hashing},
    error::{Doing, ImageError, Result},
    limits::{Limited, Limits},
    tar_reader::{Entries, Entry, Kind, Mtime, Shown},
};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// What aufs left in old images; it means nothing to others.
const AUFS: &[u8] = b".wh..wh.";

/// The longest path that the kernel takes.
const LONGEST_PATH: usize = 4095;

/// A layer that was unpacked.
#[derive(Debug)]
pub(super) struct Extracted {
    /// Of the archive after decompression.
    pub(super) diff_id: Digest,
    /// Bytes of its files.
    pub(super) bytes: u64,
    /// Files, directories and links.
    pub(super) inodes: u64,
    /// Directories that the archive uses but does not hold, so that their modes and owners are
    /// those of the layers below. The root is the empty path.
    pub(super) implied: Vec<PathBuf>,
}

/// Unpacks the archive `packed` into the empty directory `target`.
pub(super) fn extract(packed: impl Read, target: &Path, limits: &Limits) -> Result<Extracted> {
    let unpacked = super::compress::decompress(packed).doing(|| "reading a layer")?;
    // Headers and padding come on top of the files' bytes; no file needs more than a page of them.
    let overhead = limits.layer_entries.saturating_mul(4096);
    let limit = limits.layer_bytes.saturating_add(overhead);
    let limited = Limited::new(Hashing::new(unpacked), limit, "a layer");
    let mut entries = Entries::new(limited);
    let mut extraction = Extraction {
        tree: Tree::open(target)?,
        limits,
        bytes: 0,
        inodes: 0,
        times: BTreeMap::new(),
        buffer: vec![0; 128 << 10],
    };
    while let Some(entry) = entries.next()? {
        extraction.apply(&entry, &mut entries)?;
    }
    entries.drain().doing(|| "reading a layer")?;
    extraction.set_times()?;
    let Extraction { tree, bytes, inodes, .. } = extraction;
    let (_, diff_id, _) = entries.into_source().into_inner().finish();
    Ok(Extracted { diff_id, bytes, inodes, implied: tree.into_implied() })
}

struct Extraction<'a> {
    tree: Tree,
    limits: &'a Limits,
    bytes: u64,
    inodes: u64,
    /// Of directories, which change whenever something is put into them.
    times: BTreeMap<PathBuf, Mtime>,
    buffer: Vec<u8>,
}

impl Extraction<'_> {
    fn apply(&mut self, entry: &Entry, content: &mut impl Read) -> Result<()> {
        self.count(entry)?;
        let path = clean(&entry.path)?;
        let Some((parent, name)) = tree::split(&path) else {
            return self.apply_root(entry);
        };
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            return self.apply_whiteout(parent, name, hidden);
        }
        let at = |what: &'static str| move || format!("{what} {}", Shown(&entry.path));
        match &entry.kind {
            Kind::File => {
                let file = self.tree.create_file(parent, name)?;
                tree::copy(content, &file, &mut self.buffer).doing(at("unpacking"))?;
                tree::set_metadata(&file, entry).doing(at("setting the attributes of"))?;
                tree::set_time(&file, entry.mtime).doing(at("setting the time of"))?;
            }
            Kind::Directory => {
                let directory = self.tree.make_directory(parent, name)?;
                tree::set_metadata(&directory, entry).doing(at("setting the attributes of"))?;
                self.tree.forget_implied(&path);
                self.times.insert(path, entry.mtime);
            }
            Kind::Symlink { target } => {
                self.tree.symlink(parent, name, target)?;
                self.tree.set_attributes(parent, name, entry)?;
            }
            Kind::HardLink { target } => {
                let target = clean(target)?;
                let Some((target_parent, target_name)) = tree::split(&target) else {
                    return Err(bad(&entry.path, "is a hard link to the root"));
                };
                self.tree.link(parent, name, target_parent, target_name)?;
            }
            Kind::Character { .. } | Kind::Block { .. } | Kind::Fifo => {
                self.tree.make_node(parent, name, &entry.kind)?;
                self.tree.set_attributes(parent, name, entry)?;
            }
        }
        Ok(())
    }

    fn apply_root(&mut self, entry: &Entry) -> Result<()> {
        if entry.kind != Kind::Directory {
            return Err(bad(&entry.path, "is the root and not a directory"));
        }
        let root = self.tree.root_for_attributes()?;
        tree::set_metadata(&root, entry).doing(|| "setting the attributes of a layer's root")?;
        self.tree.forget_implied(Path::new(""));
        self.times.insert(PathBuf::new(), entry.mtime);
        Ok(())
    }

    fn apply_whiteout(&mut self, parent: &Path, name: &[u8], hidden: &[u8]) -> Result<()> {
        if name == OPAQUE {
            return self.tree.set_opaque(parent);
        }
        if name.starts_with(AUFS) {
            return Ok(());
        }
        if hidden.is_empty() || hidden == b"." || hidden == b".." {
            return Err(bad(name, "hides no file"));
        }
        self.tree.white_out(parent, hidden)
    }

    /// Checks what an entry claims before any of it is read.
    fn count(&mut self, entry: &Entry) -> Result<()> {
        self.inodes += 1;
        self.bytes = self.bytes.saturating_add(entry.size);
        let limit = |limit, unit| Err(ImageError::Limit { what: "a layer".into(), limit, unit });
        if self.inodes > self.limits.layer_entries {
            return limit(self.limits.layer_entries, "files");
        }
        if self.bytes > self.limits.layer_bytes {
            return limit(self.limits.layer_bytes, "bytes");
        }
        Ok(())
    }

    fn set_times(&self) -> Result<()> {
        // Deeper directories first, though setting a time does not touch the one above.
        for (path, mtime) in self.times.iter().rev() {
            self.tree.set_directory_time(path, *mtime)?;
        }
        Ok(())
    }
}

/// Gives directories that layer `upper` only implies the mode, owner and time that they have in the
/// nearest of the layers `below` it, the nearest first.
pub(super) fn adopt_directories(
    upper: &Path,
    implied: &[PathBuf],
    below: &[PathBuf],
) -> Result<()> {
    if implied.is_empty() || below.is_empty() {
        return Ok(());
    }
    let upper = Tree::open(upper)?;
    let below = below.iter().map(|path| Tree::open(path)).collect::<Result<Vec<_>>>()?;
    implied.iter().try_for_each(|path| upper.adopt(path, &below))
}

/// The parts of a path that name something, without a leading `/`.
fn clean(path: &[u8]) -> Result<PathBuf> {
    if path.len() > LONGEST_PATH {
        return Err(bad(path, "is longer than a path may be"));
    }
    if path.contains(&0) {
        return Err(bad(path, "holds a NUL byte"));
    }
    let mut clean = PathBuf::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(bad(path, "leads upwards with `..`")),
            part => clean.push(tree::as_path(part)),
        }
    }
    Ok(clean)
}

fn bad(path: &[u8], why: &str) -> ImageError {
    ImageError::archive(format_args!("the layer is not safe to unpack: {} {why}", Shown(path)))
}

#[cfg(test)]
mod tests;
