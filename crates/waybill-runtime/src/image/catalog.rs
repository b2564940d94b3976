//! Which images there are: the one file that says what counts in the store.
//!
//! A blob or layer that no image here leads to does not exist, whatever lies in the directories.
//! The file is replaced as a whole, so that a crash leaves the old one or the new one. Beside it lies a
//! spare file that holds room for the next one: on a full disk images can still be removed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};
use waybill_core::chain::Chain;

use super::{
    digest::Digest,
    error::{Doing, ImageError, Result},
    name::{ImageName, is_hex},
};
use crate::versioned::{self, Versioned};

/// The spare file has at least this size.
const SPARE: usize = 64 << 10;

/// All that is known about images, but for what their blobs say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Catalog {
    /// By id, which is the digest of the configuration.
    pub(super) images: BTreeMap<Digest, Record>,
    /// Unpacked layers by chain id: the digest of this layer and all below it.
    pub(super) layers: BTreeMap<Digest, LayerRecord>,
}

impl Versioned for Catalog {
    const VERSION: u32 = 1;
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) manifest: Digest,
    /// Places with tags.
    pub(super) names: BTreeSet<String>,
    /// Places with the digests of manifests.
    pub(super) digests: BTreeSet<String>,
    /// Kept by garbage collectors, ours and the kubelet's.
    pub(super) pinned: bool,
    /// From the lowest.
    pub(super) layers: Vec<Layer>,
    /// Everything that the image consists of, with sizes.
    pub(super) blobs: BTreeMap<Digest, u64>,
}

/// A layer, as an image refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layer {
    /// Under this it is unpacked.
    pub(super) chain: Digest,
    /// What its archive must be after decompression.
    pub(super) diff: Digest,
    /// The archive.
    pub(super) blob: Digest,
}

/// An unpacked layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LayerRecord {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
    /// Until all of it is surely on disk: the boot in which it was unpacked. A later boot unpacks it
    /// again.
    pub(super) unsettled: Option<String>,
}

impl Catalog {
    /// Reads the file; an empty catalogue if there is none.
    pub(super) fn load(path: &Path) -> Result<Self> {
        versioned::load(path).map(Option::unwrap_or_default).map_err(|unreadable| {
            ImageError::Sealed {
                path: path.display().to_string(),
                reason: Chain(&unreadable).to_string(),
            }
        })
    }

    /// Writes the file so that it is on disk, whole, or as before.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let spare = path.with_extension("spare");
        let save = || {
            let text = versioned::to_vec(self)?;
            match replace(path, &text) {
                Err(error) if is_full(&error) && spare.exists() => {
                    fs::remove_file(&spare)?;
                    replace(path, &text)?;
                }
                other => other?,
            }
            Ok::<_, io::Error>(text.len())
        };
        let size = save().doing(|| format!("writing {}", path.display()))?;
        keep_spare(&spare, size.saturating_mul(2).max(SPARE));
        Ok(())
    }

    /// Gives `id` a name, which any other image then loses. One that has no name any more is pinned no
    /// more: nobody would ask for it.
    pub(super) fn name(&mut self, id: Digest, name: &str) {
        for (other, record) in &mut self.images {
            let had = record.names.remove(name);
            record.pinned &= !had || !record.names.is_empty() || *other == id;
        }
        if let Some(record) = self.images.get_mut(&id) {
            record.names.insert(name.to_owned());
        }
    }

    /// The image that is meant by a name, an id, the beginning of one, or a digest.
    pub(super) fn resolve(&self, text: &str) -> Result<Meaning> {
        if let Ok(digest) = text.parse::<Digest>() {
            let by_manifest = || self.images.iter().find(|(_, record)| record.manifest == digest);
            let known = self.images.contains_key(&digest).then_some(digest);
            let id = known.or_else(|| by_manifest().map(|(id, _)| *id));
            return id.map(Meaning::Id).ok_or_else(|| ImageError::NotFound(text.into()));
        }
        let name = text.parse::<ImageName>();
        if let Some(meaning) = name.as_ref().ok().and_then(|name| self.by_name(name)) {
            return Ok(meaning);
        }
        match (self.by_prefix(text)?, name) {
            (Some(id), _) => Ok(Meaning::Id(id)),
            (None, Ok(_)) => Err(ImageError::NotFound(text.into())),
            (None, Err(_)) if is_prefix(text) => Err(ImageError::NotFound(text.into())),
            (None, Err(reason)) => Err(ImageError::Name { name: text.into(), reason }),
        }
    }

    fn by_name(&self, name: &ImageName) -> Option<Meaning> {
        let with = |has: &dyn Fn(&Record) -> bool| {
            self.images.iter().find(|(_, record)| has(record)).map(|(id, _)| *id)
        };
        if let Some(digest) = name.digest() {
            // A digest says more than the tag beside it.
            let digest = name.with_digest(digest);
            let id = with(&|record| record.digests.contains(&digest))?;
            return Some(Meaning::Id(id));
        }
        let tagged = name.tagged()?;
        let id = with(&|record| record.names.contains(&tagged))?;
        Some(Meaning::Name(id, tagged))
    }

    fn by_prefix(&self, text: &str) -> Result<Option<Digest>> {
        if !is_prefix(text) {
            return Ok(None);
        }
        let start = text.strip_prefix("sha256:").unwrap_or(text);
        let mut found = self.images.keys().filter(|id| id.hex().starts_with(start));
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => Err(ImageError::Ambiguous(text.into())),
            (first, _) => Ok(first.copied()),
        }
    }

    /// Every blob that counts.
    pub(super) fn blobs(&self) -> impl Iterator<Item = Digest> {
        self.images.values().flat_map(|record| record.blobs.keys().copied())
    }

    /// Every layer that an image needs.
    pub(super) fn needed_layers(&self) -> impl Iterator<Item = Digest> {
        self.images.values().flat_map(|record| record.layers.iter().map(|layer| layer.chain))
    }
}

fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(path.parent().unwrap_or(path))?.sync_all()
    };
    write().inspect_err(|_| {
        // A part of it would only take room.
        let _ = fs::remove_file(&new);
    })
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Holds `size` bytes of the disk. Without room for that there is no spare until the next time.
fn keep_spare(path: &Path, size: usize) {
    if fs::metadata(path).is_ok_and(|found| found.len() >= size as u64) {
        return;
    }
    let write = || File::create(path)?.write_all(&vec![0; size]);
    if write().is_err() {
        let _ = fs::remove_file(path);
    }
}

/// How an image was meant, with its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Id(Digest),
    /// By this name among perhaps others.
    Name(Digest, String),
}

impl Meaning {
    pub(super) fn id(&self) -> Digest {
        match self {
            Self::Id(id) | Self::Name(id, _) => *id,
        }
    }
}

/// Lower-case hex digits, perhaps after `sha256:`.
fn is_prefix(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    (1..=64).contains(&digits.len()) && digits.bytes().all(is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(images: &[(&[u8], &[&str])]) -> Catalog {
        let mut catalog = Catalog::default();
        for (content, names) in images {
            let record = Record {
                manifest: Digest::of(&[content, &b" manifest"[..]].concat()),
                names: names.iter().map(ToString::to_string).collect(),
                digests: BTreeSet::new(),
                pinned: false,
                layers: Vec::new(),
                blobs: BTreeMap::new(),
            };
            catalog.images.insert(Digest::of(content), record);
        }
        catalog
    }

    #[test]
    fn an_image_is_found_by_name_id_beginning_and_manifest() {
        let mut catalog = catalog(&[(b"a", &["docker.io/library/app:latest"]), (b"b", &[])]);
        let a = Digest::of(b"a");
        let manifest = catalog.images[&a].manifest;
        let digest = format!("docker.io/library/app@{manifest}");
        catalog.images.get_mut(&a).unwrap().digests.insert(digest.clone());
        let id = |text: &str| catalog.resolve(text).unwrap().id();
        for text in ["app", "app:latest", "docker.io/app", &digest, &format!("app:1@{manifest}")] {
            assert_eq!(id(text), a, "{text}");
        }
        for text in
            [&a.to_string(), &a.hex(), &a.hex()[..6], &a.to_string()[..12], &manifest.to_string()]
        {
            assert_eq!(id(text), a, "{text}");
        }
        assert!(matches!(catalog.resolve("app:2"), Err(ImageError::NotFound(_))));
        assert!(matches!(catalog.resolve("0000"), Err(ImageError::NotFound(_))));
        assert!(matches!(catalog.resolve("App"), Err(ImageError::Name { .. })));
    }

    #[test]
    fn a_beginning_of_two_ids_is_refused_and_a_name_goes_before_it() {
        let first = Digest::of(b"a");
        let shared = &first.hex()[..1];
        let others = (0..=255).map(|byte| [byte]).filter(|it| it != b"a").collect::<Vec<_>>();
        let other = others.iter().find(|it| Digest::of(*it).hex().starts_with(shared));
        let mut catalog = catalog(&[(b"a", &[]), (other.unwrap(), &[])]);
        assert!(matches!(catalog.resolve(shared), Err(ImageError::Ambiguous(_))));
        catalog.name(first, &format!("docker.io/library/{shared}:latest"));
        assert_eq!(catalog.resolve(shared).unwrap().id(), first);
    }

    #[test]
    fn a_name_moves_from_image_to_image() {
        let name = "docker.io/library/app:latest";
        let mut catalog = catalog(&[(b"a", &[name]), (b"b", &[])]);
        catalog.name(Digest::of(b"b"), name);
        assert_eq!(catalog.resolve("app").unwrap().id(), Digest::of(b"b"));
        assert!(catalog.images[&Digest::of(b"a")].names.is_empty());
    }

    #[test]
    fn what_is_saved_is_loaded_and_what_is_damaged_or_newer_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("index.json");
        assert_eq!(Catalog::load(&path).unwrap(), Catalog::default());
        let catalog = catalog(&[(b"a", &["x/y:z"])]);
        catalog.save(&path).unwrap();
        assert_eq!(Catalog::load(&path).unwrap(), catalog);
        for damaged in ["", "{}", "{\"version\":2,\"images\":{},\"layers\":{}}"] {
            fs::write(&path, damaged).unwrap();
            let error = Catalog::load(&path).unwrap_err().to_string();
            assert!(error.contains("move it away"), "{error}");
        }
    }
}
