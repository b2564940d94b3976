//! The store on disk: blobs by digest, unpacked layers by chain id, and the catalogue above both.
//!
//! ```text
//! images/lock              held while a runtime uses the store
//! images/index.json        the catalogue
//! images/blobs/sha256/…    manifests, configurations and the archives of layers
//! images/layers/…          unpacked layers, shared by images
//! images/tmp/…             what is not finished, or is being removed; emptied at start
//! containers/<id>/…        who uses which layers, and what a container wrote
//! ```
//!
//! Blobs are on disk before the catalogue names them. Layers may still be in memory then; they can
//! be made again from blobs, and are, after a power cut.

mod locks;
mod unpack;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use oci_spec::image::ImageConfiguration;
use rustix::fs::FlockOperation;
use waybill_core::chain::Chain;

use self::locks::{BlobLocks, LayerLocks};
use super::{
    catalog::{Catalog, Record},
    digest::Digest,
    error::{Doing, ImageError, Result},
    limits::Limits,
};

/// The open store.
pub(super) struct Store {
    images: PathBuf,
    pub(super) containers: PathBuf,
    pub(super) limits: Limits,
    /// Which boot of the machine this is.
    boot: String,
    /// Held while the catalogue is changed, also while it is written.
    writer: Mutex<()>,
    /// Held for moments only.
    state: Mutex<State>,
    /// One at a time fetches a blob.
    pub(super) blob_locks: BlobLocks,
    /// One at a time unpacks a layer.
    layer_locks: LayerLocks,
    temporary: AtomicU64,
    /// Why the catalogue cannot be understood; then nothing in the store is changed.
    sealed: Option<(String, String)>,
    _lock: File,
}

struct State {
    catalog: Catalog,
    configurations: BTreeMap<Digest, Arc<ImageConfiguration>>,
    /// What work in progress relies on, and how often; it is not collected.
    leases: HashMap<Digest, usize>,
    /// The layers under each container's root file system; `None` if they are not known.
    containers: BTreeMap<String, Option<Vec<Digest>>>,
}

impl Store {
    /// Opens the store and throws away what was not finished.
    pub(super) fn open(state: &Path, limits: Limits) -> Result<Self> {
        let images = state.join("images");
        let containers = state.join("containers");
        for directory in [&images.join("blobs/sha256"), &images.join("layers"), &containers] {
            make_private(directory)?;
        }
        let lock = lock(&images)?;
        let temporary = images.join("tmp");
        remove_tree(&temporary)?;
        make_private(&temporary)?;
        let (catalog, sealed) = match Catalog::load(&images.join(INDEX)) {
            Ok(catalog) => (catalog, None),
            Err(ImageError::Sealed { path, reason }) => {
                tracing::error!(
                    path,
                    reason,
                    "the image store is left as it is, and no image can be used"
                );
                (Catalog::default(), Some((path, reason)))
            }
            Err(error) => return Err(error),
        };
        let store = Self {
            blob_locks: BlobLocks::default(),
            layer_locks: LayerLocks::default(),
            boot: boot_id()?,
            writer: Mutex::new(()),
            state: Mutex::new(State {
                catalog,
                configurations: BTreeMap::new(),
                leases: HashMap::new(),
                containers: super::mount::read_uses(&containers)?,
            }),
            temporary: AtomicU64::new(0),
            sealed,
            _lock: lock,
            images,
            containers,
            limits,
        };
        store.check()?;
        store.collect()?;
        Ok(store)
    }

    /// Whether images can be used; an error says why not.
    pub(super) fn usable(&self) -> Result<()> {
        match self.sealed.clone() {
            Some((path, reason)) => Err(ImageError::Sealed { path, reason }),
            None => Ok(()),
        }
    }

    /// A new name in the directory for unfinished things.
    pub(super) fn temporary(&self) -> PathBuf {
        let number = self.temporary.fetch_add(1, Ordering::Relaxed);
        self.images.join("tmp").join(number.to_string())
    }

    pub(super) fn blob_path(&self, blob: Digest) -> PathBuf {
        self.images.join("blobs/sha256").join(blob.hex())
    }

    pub(super) fn layer_path(&self, chain: Digest) -> PathBuf {
        self.layers_path().join(chain.hex())
    }

    /// What all layers are in.
    pub(super) fn layers_path(&self) -> PathBuf {
        self.images.join("layers")
    }

    /// The directory whose file system holds the store.
    pub(super) fn images_path(&self) -> &Path {
        &self.images
    }

    pub(super) fn open_blob(&self, blob: Digest) -> Result<File> {
        File::open(self.blob_path(blob)).doing(|| format!("opening the blob {blob}"))
    }

    /// Keeps `digests` from being collected until the lease is dropped.
    pub(super) fn lease(self: &Arc<Self>, digests: impl IntoIterator<Item = Digest>) -> Lease {
        let mut state = self.state();
        let digests: Vec<_> = digests.into_iter().collect();
        for digest in &digests {
            *state.leases.entry(*digest).or_default() += 1;
        }
        Lease { store: Arc::clone(self), digests }
    }

    /// Puts a finished temporary file at its place. Its content has been checked, and a lease held.
    pub(super) fn add_blob(&self, blob: Digest, file: &Path) -> Result<()> {
        let path = self.blob_path(blob);
        let add = || {
            if path.exists() {
                return fs::remove_file(file);
            }
            File::open(file)?.sync_all()?;
            fs::rename(file, &path)
        };
        add().doing(|| format!("storing the blob {blob}"))
    }

    pub(super) fn has_blob(&self, blob: Digest) -> bool {
        self.blob_path(blob).exists()
    }

    /// Makes an image count: all of its blobs are here, and its layers are unpacked.
    ///
    /// One that is here already gets the new names too.
    pub(super) fn add_image(
        &self,
        id: Digest,
        record: Record,
        configuration: Arc<ImageConfiguration>,
    ) -> Result<()> {
        let blobs = self.images.join("blobs/sha256");
        File::open(&blobs)
            .and_then(|directory| directory.sync_all())
            .doing(|| format!("writing {}", blobs.display()))?;
        self.state().configurations.insert(id, configuration);
        self.update(|catalog| {
            let names = record.names.clone();
            match catalog.images.get_mut(&id) {
                Some(known) => {
                    known.digests.extend(record.digests);
                    known.pinned |= record.pinned;
                }
                None => drop(catalog.images.insert(id, record)),
            }
            names.iter().for_each(|name| catalog.name(id, name));
            Ok(())
        })
    }

    /// Takes away a name, or the image if it was the last one or the image was named by its id.
    pub(super) fn remove(&self, text: &str) -> Result<()> {
        self.update(|catalog| {
            let id = catalog.resolve(text)?.id();
            catalog.images.remove(&id);
            Ok(())
        })?;
        self.collect()
    }

    /// Pins an image, or lets go of it.
    pub(super) fn set_pinned(&self, text: &str, pinned: bool) -> Result<()> {
        self.update(|catalog| {
            let id = catalog.resolve(text)?.id();
            if let Some(record) = catalog.images.get_mut(&id) {
                record.pinned = pinned;
            }
            Ok(())
        })
    }

    /// Removes images that are not pinned and that no container uses; returns their ids.
    pub(super) fn remove_unused(&self) -> Result<Vec<Digest>> {
        let used = self.state().used_layers();
        let all_known = self.state().knows_uses();
        let removed = self.update(|catalog| {
            let is_unused = |record: &Record| {
                let layers = record.layers.last().is_some_and(|top| used.contains(&top.chain));
                !record.pinned && !layers && all_known
            };
            let unused = catalog.images.extract_if(.., |_, record| is_unused(record));
            Ok(unused.map(|(id, _)| id).collect())
        })?;
        self.collect()?;
        Ok(removed)
    }

    /// Removes what no image, container or unfinished work needs.
    pub(super) fn collect(&self) -> Result<()> {
        if self.sealed.is_some() {
            return Ok(());
        }
        let _writer = self.writer();
        let mut state = self.state();
        let all_known = state.knows_uses();
        let mut blobs: BTreeSet<Digest> = state.catalog.blobs().collect();
        let mut layers: BTreeSet<Digest> = state.catalog.needed_layers().collect();
        layers.extend(state.used_layers());
        blobs.extend(state.leases.keys());
        layers.extend(state.leases.keys());
        let before = state.catalog.layers.len();
        state.catalog.layers.retain(|chain, _| layers.contains(chain) || !all_known);
        if state.catalog.layers.len() < before {
            // Else a layer that is unpacked again could pass for the old one, which was settled.
            state.catalog.save(&self.images.join(INDEX))?;
        }
        // Needed is not enough: one that a crash spoiled is unpacked anew when it is used.
        let mut layers: BTreeSet<Digest> = state.catalog.layers.keys().copied().collect();
        layers.extend(state.leases.keys());
        layers.extend(state.used_layers());
        let State { catalog, configurations, .. } = &mut *state;
        configurations.retain(|id, _| catalog.images.contains_key(id) || blobs.contains(id));
        // Renamed while nobody can take a lease, removed when everybody can.
        let mut garbage = self.set_aside("blobs/sha256", &blobs)?;
        if all_known {
            garbage.extend(self.set_aside("layers", &layers)?);
        }
        drop(state);
        garbage.iter().try_for_each(|path| remove_tree(path))
    }

    /// Marks all layers as safely on disk, after making them so.
    pub(super) fn settle(&self) -> Result<()> {
        let unsettled: Vec<Digest> = {
            let state = self.state();
            let layers = state.catalog.layers.iter();
            layers.filter(|(_, layer)| layer.unsettled.is_some()).map(|(chain, _)| *chain).collect()
        };
        if unsettled.is_empty() {
            return Ok(());
        }
        let doing = || format!("writing {} to disk", self.images.display());
        let directory = File::open(&self.images).doing(doing)?;
        rustix::fs::syncfs(&directory).doing(doing)?;
        self.update(|catalog| {
            for chain in unsettled {
                if let Some(layer) = catalog.layers.get_mut(&chain) {
                    layer.unsettled = None;
                }
            }
            Ok(())
        })
    }

    /// Looks at the catalogue, with the parsed configurations.
    pub(super) fn read<T>(
        &self,
        look: impl FnOnce(&Catalog, &BTreeMap<Digest, Arc<ImageConfiguration>>) -> T,
    ) -> T {
        let state = self.state();
        look(&state.catalog, &state.configurations)
    }

    /// Remembers which layers a container uses. Says whether one was let go that no image needs.
    pub(super) fn set_use(&self, container: &str, layers: Option<Vec<Digest>>) -> bool {
        let mut state = self.state();
        if let Some(layers) = layers {
            state.containers.insert(container.to_owned(), Some(layers));
            return false;
        }
        let Some(released) = state.containers.remove(container) else { return false };
        // What was kept for its sake can go.
        let Some(released) = released else { return true };
        let needed: BTreeSet<Digest> = state.catalog.needed_layers().collect();
        released.iter().any(|chain| !needed.contains(chain))
    }

    fn update<T>(&self, change: impl FnOnce(&mut Catalog) -> Result<T>) -> Result<T> {
        self.usable()?;
        let _writer = self.writer();
        let mut catalog = self.state().catalog.clone();
        let result = change(&mut catalog)?;
        catalog.save(&self.images.join(INDEX))?;
        self.state().catalog = catalog;
        Ok(result)
    }

    /// Compares the catalogue with what is there, and reads the configurations.
    fn check(&self) -> Result<()> {
        let mut state = self.state();
        let State { catalog, configurations, .. } = &mut *state;
        catalog.layers.retain(|chain, layer| {
            let settled = layer.unsettled.as_ref().is_none_or(|boot| *boot == self.boot);
            settled && self.layer_path(*chain).is_dir()
        });
        let mut kept = BTreeMap::new();
        for (id, record) in std::mem::take(&mut catalog.images) {
            match self.read_image(id, &record) {
                Ok(configuration) => {
                    configurations.insert(id, Arc::new(configuration));
                    kept.insert(id, record);
                }
                Err(error) => {
                    let error = Chain(&error).to_string();
                    tracing::warn!(image = %id, names = ?record.names, error, "an image is lost");
                }
            }
        }
        catalog.images = kept;
        Ok(())
    }

    /// The configuration of an image whose blobs are all there.
    fn read_image(&self, id: Digest, record: &Record) -> Result<ImageConfiguration> {
        if let Some(blob) = record.blobs.keys().find(|blob| !self.has_blob(**blob)) {
            return Err(ImageError::archive(format_args!("its blob {blob} is missing")));
        }
        let text = fs::read(self.blob_path(id)).doing(|| format!("reading the blob {id}"))?;
        super::manifest::parse_configuration(&text)
    }

    /// Moves what is not in `kept` out of a directory.
    fn set_aside(&self, directory: &str, kept: &BTreeSet<Digest>) -> Result<Vec<PathBuf>> {
        let directory = self.images.join(directory);
        let kept: BTreeSet<String> = kept.iter().map(Digest::hex).collect();
        let mut moved = Vec::new();
        let mut set_aside = || -> io::Result<()> {
            for entry in fs::read_dir(&directory)? {
                let entry = entry?;
                if entry.file_name().to_str().is_some_and(|name| kept.contains(name)) {
                    continue;
                }
                let target = self.temporary();
                fs::rename(entry.path(), &target)?;
                moved.push(target);
            }
            Ok(())
        };
        set_aside().doing(|| format!("cleaning {}", directory.display()))?;
        Ok(moved)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn used_layers(&self) -> BTreeSet<Digest> {
        self.containers.values().flatten().flatten().copied().collect()
    }

    /// Whether it is known of every container which layers it uses.
    fn knows_uses(&self) -> bool {
        self.containers.values().all(Option::is_some)
    }
}

/// Keeps blobs and layers from being collected.
pub(super) struct Lease {
    store: Arc<Store>,
    digests: Vec<Digest>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.store.state();
        for digest in &self.digests {
            if let Some(count) = state.leases.get_mut(digest) {
                *count -= 1;
                if *count == 0 {
                    state.leases.remove(digest);
                }
            }
        }
    }
}

const INDEX: &str = "index.json";

/// Layers hold other people's setuid programs; only root looks into them.
pub(super) fn make_private(directory: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .doing(|| format!("making the directory {}", directory.display()))
}

/// Removes a file, or a directory with all that is in it; fine if there is none.
pub(super) fn remove_tree(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other.doing(|| format!("removing {}", path.display())),
    }
}

fn lock(images: &Path) -> Result<File> {
    let path = images.join("lock");
    let open = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
    let file = open.doing(|| format!("opening {}", path.display()))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(ImageError::Locked(images.display().to_string())),
        other => other.map(|()| file).doing(|| format!("locking {}", path.display())),
    }
}

fn boot_id() -> Result<String> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    fs::read_to_string(PATH).map(|id| id.trim().to_owned()).doing(|| format!("reading {PATH}"))
}
