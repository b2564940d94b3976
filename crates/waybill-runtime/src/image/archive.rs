//! Images from archives: OCI image layouts, and what `docker save` writes, old and new.
//!
//! An archive is read once, from front to back: its files are set aside under the digests that they
//! have, and understood when all are there. Only what an image refers to gets into the store.

mod docker;
mod oci;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::PathBuf,
};

pub(super) use self::oci::{CONTAINERD_NAME, REFERENCE_NAME};
use super::{
    compress::{self, Compression},
    digest::{Digest, Hashing},
    error::{Doing, ImageError, Result},
    limits::{Limited, Limits},
    manifest::{Found, Platform},
    name::ImageName,
    store::{Store, make_private, remove_tree},
    tar_reader::{Entries, Kind, Shown},
};

/// How many links may lead from a name to a file.
const MOST_LINKS: usize = 8;

/// An image of an archive, with the names that the archive gives it.
pub(super) struct Archived {
    pub(super) found: Found,
    pub(super) names: Vec<ImageName>,
}

/// The files of an archive, set aside.
pub(super) struct Staged {
    directory: PathBuf,
    files: BTreeMap<String, StagedFile>,
    links: BTreeMap<String, String>,
    limits: Limits,
}

#[derive(Clone, Debug)]
struct StagedFile {
    path: PathBuf,
    digest: Digest,
    size: u64,
    compression: Compression,
}

impl Staged {
    /// Reads an archive to its end.
    pub(super) fn read(archive: impl Read, store: &Store) -> Result<Self> {
        let directory = store.temporary();
        make_private(&directory)?;
        let limits = store.limits;
        let mut staged = Self { directory, files: BTreeMap::new(), links: BTreeMap::new(), limits };
        staged.fill(archive)?;
        Ok(staged)
    }

    /// The images in it; at least one.
    pub(super) fn images(&mut self) -> Result<Vec<Archived>> {
        let images = if self.files.contains_key(oci::INDEX) && self.files.contains_key(oci::LAYOUT)
        {
            oci::images(self, Platform::HERE)?
        } else if self.files.contains_key(docker::MANIFEST) {
            docker::images(self)?
        } else {
            return Err(ImageError::archive(
                "this is not an archive of images: it has neither the index.json of an OCI image \
                 layout nor the manifest.json of `docker save`",
            ));
        };
        if images.is_empty() {
            return Err(ImageError::archive("the archive holds no image"));
        }
        Ok(images)
    }

    /// Moves the blobs of an image into the store. The caller holds a lease for them.
    pub(super) fn store_blobs(&self, found: &Found, store: &Store) -> Result<()> {
        let files: BTreeMap<Digest, &StagedFile> =
            self.files.values().map(|file| (file.digest, file)).collect();
        for blob in found.blobs.keys() {
            match files.get(blob) {
                // Two images of an archive may share it, and the first has moved it.
                Some(file) if file.path.exists() => store.add_blob(*blob, &file.path)?,
                _ if store.has_blob(*blob) => {}
                _ => return Err(missing(*blob)),
            }
        }
        Ok(())
    }

    fn fill(&mut self, archive: impl Read) -> Result<()> {
        let unpacked = compress::decompress(archive).doing(|| READING)?;
        let limited = Limited::new(unpacked, self.limits.archive_bytes, "the archive");
        let mut entries = Entries::new(limited);
        let mut count = 0;
        while let Some(entry) = entries.next()? {
            count += 1;
            if count > self.limits.archive_entries {
                let (limit, unit) = (self.limits.archive_entries, "files");
                return Err(ImageError::Limit { what: "the archive".into(), limit, unit });
            }
            let Some(path) = clean(&entry.path) else {
                let path = Shown(&entry.path);
                return Err(ImageError::archive(format_args!("the archive holds the path {path}")));
            };
            match entry.kind {
                Kind::File => {
                    let file = self.stage(&mut entries)?;
                    self.insert(path, file)?;
                }
                Kind::Directory => {}
                Kind::Symlink { target } => {
                    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                    let target = resolve(parent, &target).unwrap_or_default();
                    self.links.insert(path, target);
                }
                Kind::HardLink { target } => {
                    self.links.insert(path, clean(&target).unwrap_or_default());
                }
                Kind::Character { .. } | Kind::Block { .. } | Kind::Fifo => {
                    let path = Shown(&entry.path);
                    let text = format_args!("the archive holds {path}, which is no file");
                    return Err(ImageError::archive(text));
                }
            }
        }
        // The sender may wait until all is read.
        entries.drain().doing(|| READING)
    }

    fn stage(&self, content: &mut impl Read) -> Result<StagedFile> {
        let path = self.directory.join(self.files.len().to_string());
        let mut stage = || {
            let mut start = Vec::new();
            content.take(4).read_to_end(&mut start)?;
            let mut whole = start.as_slice().chain(&mut *content);
            let mut file = Hashing::new(File::create(&path)?);
            let mut buffer = vec![0; 256 << 10];
            loop {
                match whole.read(&mut buffer)? {
                    0 => break,
                    count => {
                        io::Write::write_all(&mut file, buffer.get(..count).unwrap_or_default())?;
                    }
                }
            }
            let (_, digest, size) = file.finish();
            Ok::<_, io::Error>((digest, size, Compression::of(&start)))
        };
        let (digest, size, compression) = stage().doing(|| READING)?;
        Ok(StagedFile { path, digest, size, compression })
    }

    /// A path may come twice if nobody can tell the difference.
    fn insert(&mut self, path: String, file: StagedFile) -> Result<()> {
        if let Some(known) = self.files.get(&path) {
            if known.digest == file.digest {
                return fs::remove_file(&file.path).doing(|| READING);
            }
            return Err(ImageError::archive(format_args!(
                "the archive holds `{path}` twice, with different contents"
            )));
        }
        self.files.insert(path, file);
        Ok(())
    }

    /// A file by its path, also by way of links.
    fn file(&self, path: &str) -> Result<&StagedFile> {
        let mut path = resolve("", path.as_bytes()).unwrap_or_default();
        for _ in 0..MOST_LINKS {
            if let Some(file) = self.files.get(&path) {
                return Ok(file);
            }
            let Some(target) = self.links.get(&path) else { break };
            path.clone_from(target);
        }
        let path = path.escape_debug();
        Err(ImageError::archive(format_args!("the archive lacks its file `{path}`")))
    }

    fn text(&self, path: &str) -> Result<Vec<u8>> {
        self.read_text(self.file(path)?, path)
    }

    fn read_text(&self, file: &StagedFile, name: &str) -> Result<Vec<u8>> {
        let limit = self.limits.metadata_bytes;
        if file.size > limit {
            return Err(ImageError::Limit { what: format!("`{name}`"), limit, unit: "bytes" });
        }
        fs::read(&file.path).doing(|| READING)
    }

    /// Adds a file that the archive does not have but ought to.
    fn add_text(&mut self, text: &[u8]) -> Result<()> {
        let file = self.stage(&mut &*text)?;
        self.files.insert(format!("made/{}", file.digest), file);
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.directory) {
            tracing::warn!(%error, "an archive's files stay until the next start");
        }
    }
}

const READING: &str = "reading the archive";

fn missing(blob: Digest) -> ImageError {
    ImageError::archive(format_args!("the archive lacks the blob {blob}"))
}

/// The path in its shortest form; none if it leads out of the archive or is no text.
fn clean(path: &[u8]) -> Option<String> {
    resolve("", path)
}

/// Where `path` leads to from the directory `from`.
fn resolve(from: &str, path: &[u8]) -> Option<String> {
    let path = str::from_utf8(path).ok()?;
    let from = if path.starts_with('/') { "" } else { from };
    let mut parts: Vec<&str> = Vec::new();
    for part in from.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_in_the_archive() {
        let check = |from, path: &str, expected: Option<&str>| {
            assert_eq!(resolve(from, path.as_bytes()).as_deref(), expected, "{from} {path}");
        };
        check("a", "../b/layer.tar", Some("b/layer.tar"));
        check("a/b", "./c//d", Some("a/b/c/d"));
        check("a", "/b", Some("b"));
        check("a", "../../b", None);
        check("", "..", None);
    }
}
