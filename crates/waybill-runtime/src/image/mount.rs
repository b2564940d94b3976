//! Root file systems of containers: an image's layers under a directory of the container's own.

mod mapped;
mod overlay;
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder},
    io::{self, ErrorKind},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags},
    io::Errno,
    mount::UnmountFlags,
};
use serde::{Deserialize, Serialize};
use waybill_core::chain::Chain;

use self::{mapped::MappedLayers, overlay::Overlay};
use super::{
    catalog::Layer,
    digest::Digest,
    error::{Doing, ImageError, Result},
    layer,
    store::{Store, make_private, remove_tree},
};
use crate::{
    id_map::UserNamespace,
    versioned::{self, Versioned},
};

/// Says which layers a container uses, for a runtime that starts while it runs.
const USE: &str = "image.json";

/// Where layers are for a moment, in the directory of a container.
const MAPPED: &str = "mapped";

#[derive(Serialize, Deserialize)]
struct Use {
    image: Digest,
    layers: Vec<Digest>,
}

impl Versioned for Use {
    const VERSION: u32 = 1;
}

/// Whether a container may write into its root file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    ReadWrite,
    ReadOnly,
}

/// Mounts an image at `target`, which is a directory, for the users of `user` if it is not for the machine's. Nothing is left
/// behind if that fails.
pub(super) fn mount(
    store: &Store,
    image: Digest,
    layers: &[Layer],
    container: &str,
    target: &Path,
    access: Access,
    user: Option<&UserNamespace>,
) -> Result<()> {
    check_id(container)?;
    let directory = store.containers.join(container);
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(ImageError::ContainerExists(container.into()));
        }
        other => other.doing(|| format!("making the directory {}", directory.display()))?,
    }
    let chains: Vec<_> = layers.iter().map(|layer| layer.chain).collect();
    store.set_use(container, Some(chains.clone()));
    let used = Use { image, layers: chains };
    let mounted = prepare_and_mount(store, &used, container, target, access, user);
    if mounted.is_err() {
        // The first error is the one to tell.
        let _ = remove_tree(&directory);
        store.set_use(container, None);
    }
    mounted
}

/// Undoes [`mount`], as far as it was done, and removes what the container wrote.
pub(super) fn unmount(store: &Store, container: &str, target: &Path) -> Result<()> {
    check_id(container)?;
    unmount_all(target)?;
    forget(store, container)
}

/// Removes the root file systems of containers that are not among the `living`, wherever they are
/// mounted.
pub(super) fn clean(store: &Store, living: &BTreeSet<String>) -> Result<Vec<String>> {
    let mut gone = Vec::new();
    for container in directories(&store.containers)? {
        if living.contains(&container) {
            continue;
        }
        for target in table::mounted_at(&source(&container))? {
            unmount_all(&target)?;
        }
        forget(store, &container)?;
        gone.push(container);
    }
    Ok(gone)
}

/// The layers that containers use, by what was written down when they were made; `None` for a container of which we do not
/// understand that.
pub(super) fn read_uses(containers: &Path) -> Result<BTreeMap<String, Option<Vec<Digest>>>> {
    let uses = directories(containers)?.into_iter().map(|container| {
        let path = containers.join(&container).join(USE);
        let layers = match versioned::load::<Use>(&path) {
            Ok(Some(used)) => Some(used.layers),
            // The container has no mount yet: it is written first.
            Ok(None) => Some(Vec::new()),
            Err(unreadable) => {
                let (path, error) = (path.display(), Chain(&unreadable));
                tracing::error!(%path, %error, "no layer is removed: nobody knows which ones a container uses");
                None
            }
        };
        (container, layers)
    });
    Ok(uses.collect())
}

fn prepare_and_mount(
    store: &Store,
    used: &Use,
    container: &str,
    target: &Path,
    access: Access,
    user: Option<&UserNamespace>,
) -> Result<()> {
    let directory = store.containers.join(container);
    let path = directory.join(USE);
    let write = || fs::write(&path, versioned::to_vec(used)?);
    write().doing(|| format!("writing {}", path.display()))?;
    // Overlayfs wants the uppermost first.
    let mut lower: Vec<PathBuf> =
        used.layers.iter().rev().map(|chain| store.layer_path(*chain)).collect();
    let root = lower.first().cloned();
    let place = directory.join(MAPPED);
    let mapped = user.map(|user| MappedLayers::mount(&store.layers_path(), place, user));
    let mapped = mapped.transpose()?;
    if let Some(mapped) = &mapped {
        let name = |chain: &Digest| mapped.path().join(chain.hex());
        lower = used.layers.iter().rev().map(name).collect();
    }
    let make_root = |path: &Path, like: Option<&Path>| {
        make_root(path, like)?;
        let give = user.map(|user| mapped::give(path, user.map));
        give.transpose().map(drop).doing(|| format!("preparing {}", path.display()))
    };
    let (upper, work) = (directory.join("upper"), directory.join("work"));
    let writable = match access {
        Access::ReadWrite => {
            make_private(&work)?;
            make_root(&upper, root.as_deref())?;
            Some((upper, work))
        }
        Access::ReadOnly => None,
    };
    // An image may have no layer, and overlayfs needs one, or two if nobody writes.
    if lower.is_empty() || writable.is_none() {
        let empty = directory.join("empty");
        make_root(&empty, root.as_deref())?;
        lower.push(empty);
        if lower.len() == 1 && writable.is_none() {
            let other = directory.join("empty2");
            make_root(&other, None)?;
            lower.push(other);
        }
    }
    Overlay { source: source(container), lower, writable }.mount(target)
}

/// The attributes of a root come from the uppermost directory, so it must look like the image's.
fn make_root(path: &Path, like: Option<&Path>) -> Result<()> {
    make_private(path)?;
    let doing = || format!("preparing {}", path.display());
    let open = |path: &Path| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, path, flags, Mode::empty())
    };
    let own = open(path).doing(doing)?;
    match like {
        Some(like) => layer::copy_attributes(&open(like).doing(doing)?, &own).doing(doing),
        None => rustix::fs::fchmod(&own, Mode::from_raw_mode(0o755)).doing(doing),
    }
}

fn forget(store: &Store, container: &str) -> Result<()> {
    mapped::remove(&store.containers.join(container).join(MAPPED));
    remove_tree(&store.containers.join(container))?;
    if store.set_use(container, None) {
        // The image may have been removed while the container ran.
        store.collect()?;
    }
    Ok(())
}

/// Fine if nothing is mounted there, or nothing is there.
fn unmount_all(target: &Path) -> Result<()> {
    loop {
        let mut unmounted = rustix::mount::unmount(target, UnmountFlags::NOFOLLOW);
        if unmounted == Err(Errno::BUSY) {
            // Somebody looks at it from outside; the mount goes away with the last of them.
            let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
            unmounted = rustix::mount::unmount(target, flags);
        }
        match unmounted {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(error) => {
                return Err(error).doing(|| format!("unmounting {}", target.display()));
            }
        }
    }
}

/// What the mount table shows as the device.
fn source(container: &str) -> String {
    format!("waybill:{container}")
}

/// An id becomes a directory and a word of the mount table.
fn check_id(container: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let good = (1..=128).contains(&container.len())
        && container.bytes().all(is_plain)
        && !container.starts_with('.');
    if good { Ok(()) } else { Err(ImageError::ContainerId(container.escape_debug().to_string())) }
}

fn directories(path: &Path) -> Result<Vec<String>> {
    let list = || -> io::Result<Vec<String>> {
        let entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
        Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    };
    list().doing(|| format!("reading {}", path.display()))
}
