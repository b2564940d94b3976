//! Images, and root file systems made of them.
//!
//! Images come from archives or registries, all of it checked against digests, and are kept in a
//! store on disk that one process owns. Nothing here knows CRI or containers' processes.

mod archive;
pub mod build;
mod catalog;
mod compress;
mod digest;
mod error;
mod export;
#[doc(hidden)]
pub mod fuzzing;
mod layer;
mod layout;
mod limits;
mod manifest;
mod mount;
mod name;
mod pull;
mod store;
mod tar_reader;
#[cfg(test)]
mod testing;
mod usage;

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use oci_spec::image::ImageConfiguration;

pub(crate) use self::mount::Access;
use self::{
    archive::{Archived, Staged},
    catalog::Record,
    store::Store,
};
pub use self::{
    digest::{Digest, DigestError},
    error::{ImageError, Result},
    limits::Limits,
    name::{ImageName, ImageNameError},
    pull::{Auth, Progress},
    usage::Usage,
};
use crate::id_map::UserNamespace;

/// All images of a runtime. Cheap to clone.
///
/// Functions that are not async wait for the disk; call them where that is fine.
#[derive(Clone)]
pub struct Images(Arc<Store>);

/// An image in the store.
#[derive(Clone, Debug)]
pub struct Image {
    /// The digest of the configuration: the same files and settings have the same id everywhere.
    pub id: Digest,
    /// Names with tags, in full.
    pub tags: Vec<String>,
    /// Names with the digests of manifests.
    pub digests: Vec<String>,
    /// Bytes of all its blobs, as a registry would send them.
    pub size: u64,
    /// How to run it.
    pub config: Arc<ImageConfiguration>,
    /// Whether garbage collectors must keep it.
    pub pinned: bool,
}

impl Images {
    /// Opens the store below `state`, and cleans up after a crash.
    pub fn open(state: &Path) -> Result<Self> {
        Self::open_with(state, Limits::default())
    }

    /// The same with other limits.
    pub fn open_with(state: &Path, limits: Limits) -> Result<Self> {
        Store::open(state, limits).map(|store| Self(Arc::new(store)))
    }

    /// Whether images can be used. A store whose list was written by a newer runtime is opened, so that containers go on, and
    /// left as it is.
    pub fn check(&self) -> Result<()> {
        self.0.usable()
    }

    /// Adds the images of an archive: an OCI image layout or the output of `docker save`, plain or
    /// compressed with gzip or zstd. With a name, the archive must hold one image, which gets it.
    pub fn import(&self, archive: impl Read, name: Option<&str>) -> Result<Vec<Image>> {
        self.check()?;
        let name = name.map(parse_name).transpose()?;
        let mut staged = Staged::read(archive, &self.0)?;
        let mut images = staged.images()?;
        if let Some(name) = name {
            let [only] = images.as_mut_slice() else {
                return Err(ImageError::archive(format_args!(
                    "the archive holds {} images, and a name can be given to one only",
                    images.len()
                )));
            };
            only.names = vec![name];
        }
        let added: Result<Vec<_>> = images.iter().map(|image| self.add(&staged, image)).collect();
        drop(staged);
        // Of a bad image nothing stays, and of one that was here already only what was.
        let collected = self.0.collect();
        let ids = added?;
        collected?;
        Ok(ids.iter().filter_map(|id| self.by_id(*id)).collect())
    }

    /// Fetches an image from its registry, and what is new of it only. Registries on this machine
    /// are asked in plain HTTP, all others by HTTPS.
    pub async fn pull(&self, name: &str, auth: Option<&Auth>) -> Result<Image> {
        self.pull_watched(name, auth, |_| ()).await
    }

    /// The same, and tells `watch` how far it is, again and again.
    pub async fn pull_watched(
        &self,
        name: &str,
        auth: Option<&Auth>,
        watch: impl Fn(Progress) + Sync,
    ) -> Result<Image> {
        self.check()?;
        let pulled = pull::pull(&self.0, &parse_name(name)?, auth, &watch).await?;
        // Somebody may have removed it again, which makes no failure of the pull.
        Ok(self.by_id(pulled.id).unwrap_or(pulled))
    }

    /// Writes an archive of the named images, which docker, containerd and podman can load as well.
    pub fn export(&self, images: &[String], to: impl Write) -> Result<()> {
        export::export(&self.0, images, to)
    }

    /// Makes sure that what was added survives a power cut without being unpacked again. Takes as
    /// long as the disk needs, and is meant for the background.
    pub fn settle(&self) -> Result<()> {
        self.0.settle()
    }

    /// Every image, by id.
    pub fn list(&self) -> Vec<Image> {
        self.0.read(|catalog, configurations| {
            let images = catalog.images.iter();
            images.filter_map(|(id, it)| Some(image(*id, it, configurations.get(id)?))).collect()
        })
    }

    /// The image of a name, an id, the beginning of an id, or a digest.
    pub fn find(&self, text: &str) -> Option<Image> {
        self.resolve(text).ok()
    }

    /// The same, with the reason why there is none.
    pub fn resolve(&self, text: &str) -> Result<Image> {
        self.check()?;
        let id = self.0.read(|catalog, _| catalog.resolve(text).map(|meaning| meaning.id()))?;
        self.by_id(id).ok_or_else(|| ImageError::NotFound(text.into()))
    }

    /// Removes an image with all of its names, whichever way it is named. Layers stay while a container uses them.
    pub fn remove(&self, text: &str) -> Result<()> {
        self.0.remove(text)
    }

    /// Removes images that no container uses and that are not pinned; returns their ids.
    pub fn remove_unused(&self) -> Result<Vec<Digest>> {
        self.0.remove_unused()
    }

    /// Keeps an image from garbage collectors, or lets them have it.
    pub fn set_pinned(&self, text: &str, pinned: bool) -> Result<()> {
        self.0.set_pinned(text, pinned)
    }

    /// What all of it takes.
    pub fn usage(&self) -> Result<Usage> {
        usage::usage(&self.0)
    }

    /// What a container wrote into its root file system: bytes and inodes.
    pub fn container_usage(&self, container: &str) -> Result<(u64, u64)> {
        usage::tree(&self.0.containers.join(container).join("upper"))
    }

    /// Mounts a root file system of the container's own at the directory `target`.
    pub fn mount(&self, image: &Image, container: &str, target: &Path) -> Result<()> {
        self.mount_with(image, container, target, Access::ReadWrite, None)
    }

    /// Mounts an image so that nobody can write to it.
    pub fn mount_read_only(&self, image: &Image, container: &str, target: &Path) -> Result<()> {
        self.mount_with(image, container, target, Access::ReadOnly, None)
    }

    /// Undoes a mount, and removes what the container wrote. Fine if there is none.
    pub fn unmount(&self, container: &str, target: &Path) -> Result<()> {
        mount::unmount(&self.0, container, target)
    }

    /// Unmounts and removes the root file systems of containers that are not among the `living`;
    /// returns their ids.
    pub fn clean(&self, living: &BTreeSet<String>) -> Result<Vec<String>> {
        mount::clean(&self.0, living)
    }

    /// The same for the users of a user namespace, or the machine's.
    pub(crate) fn mount_with(
        &self,
        image: &Image,
        container: &str,
        target: &Path,
        access: Access,
        user: Option<&UserNamespace>,
    ) -> Result<()> {
        let layers = self
            .0
            .read(|catalog, _| catalog.images.get(&image.id).map(|record| record.layers.clone()));
        let layers = layers.ok_or_else(|| ImageError::NotFound(image.id.to_string()))?;
        let digests = layers.iter().flat_map(|layer| [layer.chain, layer.blob]);
        let _lease = self.0.lease(digests);
        // After a power cut some may have to be unpacked again.
        self.0.unpack_layers(&layers)?;
        mount::mount(&self.0, image.id, &layers, container, target, access, user)
    }

    /// What all layers are in.
    pub(crate) fn layers_path(&self) -> PathBuf {
        self.0.layers_path()
    }

    fn add(&self, staged: &Staged, image: &Archived) -> Result<Digest> {
        let Archived { found, names } = image;
        let _lease = self.0.lease(found.leased());
        staged.store_blobs(found, &self.0)?;
        self.0.unpack_layers(&found.layers)?;
        self.0.add_image(
            found.id,
            found.record(names, found.manifest),
            Arc::new(found.configuration.clone()),
        )?;
        Ok(found.id)
    }

    fn by_id(&self, id: Digest) -> Option<Image> {
        self.0.read(|catalog, configurations| {
            Some(image(id, catalog.images.get(&id)?, configurations.get(&id)?))
        })
    }
}

fn image(id: Digest, record: &Record, config: &Arc<ImageConfiguration>) -> Image {
    Image {
        id,
        tags: record.names.iter().cloned().collect(),
        digests: record.digests.iter().cloned().collect(),
        size: record.blobs.values().sum(),
        config: Arc::clone(config),
        pinned: record.pinned,
    }
}

fn parse_name(name: &str) -> Result<ImageName> {
    name.parse().map_err(|reason| ImageError::Name { name: name.into(), reason })
}

#[cfg(test)]
mod tests;
