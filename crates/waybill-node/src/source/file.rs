//! Static pods: one in each file of a directory.
//!
//! The directory is looked at every second; files are read when their size or time changes. Names that
//! begin with a dot, directories and what is no regular file are passed over, as editors leave those.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};
use waybill_core::{chain::Chain, id::PodUid};

use super::{
    Change, NobodyListens, Outlet,
    manifest::{self, MAX_BYTES, ManifestError, Rules},
    mirror,
};
use crate::{blocking::blocking, pod::Pod};

const LOOK: Duration = Duration::from_secs(1);

/// The files of static pods.
pub(super) struct Files {
    directory: PathBuf,
    rules: Arc<Rules>,
    outlet: Outlet,
    mirrors: Option<mirror::Sender>,
    known: BTreeMap<PathBuf, Known>,
    /// Whether the last look failed, so that a missing directory is told of once.
    unreadable: bool,
}

/// A file that was read.
struct Known {
    version: Version,
    pod: Option<(PodUid, mirror::Key)>,
}

/// Tells whether a file has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    inode: u64,
    size: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

/// What was found in a directory: files, and what became of those that changed.
type Look = BTreeMap<PathBuf, (Version, Option<Result<Found, FileError>>)>;

/// A pod, and its object for the API server.
struct Found {
    pod: Pod,
    object: Value,
}

#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("cannot be read")]
    Read(#[source] io::Error),
    #[error("is larger than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("is no static pod")]
    Manifest(#[source] ManifestError),
}

impl Files {
    pub(super) fn new(
        directory: PathBuf,
        rules: Rules,
        outlet: Outlet,
        mirrors: Option<mirror::Sender>,
    ) -> Self {
        let rules = Arc::new(rules);
        Self { directory, rules, outlet, mirrors, known: BTreeMap::new(), unreadable: false }
    }

    /// Runs until nobody listens.
    pub(super) async fn run(mut self) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_first = true;
        loop {
            ticks.tick().await;
            if self.look_and_tell().await.is_err() {
                return;
            }
            if std::mem::take(&mut is_first) && self.synced().await.is_err() {
                return;
            }
        }
    }

    async fn synced(&self) -> Result<(), NobodyListens> {
        self.tell_mirrors(mirror::Told::FilesRead).await;
        self.outlet.synced().await
    }

    async fn look_and_tell(&mut self) -> Result<(), NobodyListens> {
        let known: HashMap<_, _> =
            self.known.iter().map(|(path, known)| (path.clone(), known.version.clone())).collect();
        let (directory, rules) = (self.directory.clone(), Arc::clone(&self.rules));
        let looked = blocking(move || look(&directory, &known, &rules)).await;
        let looked = match looked.map_err(io::Error::other).and_then(|looked| looked) {
            Ok(looked) => looked,
            Err(error) => {
                // What ran goes on: a directory that cannot be read says nothing about pods.
                if !std::mem::replace(&mut self.unreadable, true) {
                    let directory = self.directory.display();
                    warn!(%directory, %error, "cannot read the directory of static pods");
                }
                return Ok(());
            }
        };
        self.unreadable = false;
        self.tell(looked).await
    }

    async fn tell(&mut self, mut looked: Look) -> Result<(), NobodyListens> {
        let gone: Vec<_> =
            self.known.keys().filter(|path| !looked.contains_key(*path)).cloned().collect();
        for path in gone {
            let known = self.known.remove(&path);
            self.remove(known).await?;
        }
        // A pod that moved to another file goes before it comes.
        let changed: Vec<_> = looked.extract_if(.., |_, (_, read)| read.is_some()).collect();
        for (path, (version, read)) in changed {
            let found = match read {
                Some(Ok(found)) => found,
                Some(Err(error)) => {
                    // The pod that ran from it goes on, until the file says something else.
                    warn!(file = %path.display(), error = %Chain(&error), "a file was passed over");
                    let pod = self.known.remove(&path).and_then(|known| known.pod);
                    self.known.insert(path, Known { version, pod });
                    continue;
                }
                None => continue,
            };
            self.replace(path, version, found).await?;
        }
        Ok(())
    }

    async fn replace(
        &mut self,
        path: PathBuf,
        version: Version,
        found: Found,
    ) -> Result<(), NobodyListens> {
        let key = mirror::Key::of(&found.pod);
        let uid = found.pod.uid().clone();
        let mut others = self.known.iter().filter(|(other, _)| **other != path);
        if let Some((other, _)) =
            others.find(|(_, known)| known.pod.as_ref().is_some_and(|(_, used)| *used == key))
        {
            let (file, other) = (path.display(), other.display());
            warn!(%file, %other, "a file was passed over: another one has a pod of that name");
            let old = self.known.insert(path, Known { version, pod: None });
            return self.remove(old).await;
        }
        let pod = Some((uid.clone(), key.clone()));
        let old = self.known.insert(path, Known { version, pod });
        if old.as_ref().and_then(|old| old.pod.as_ref()).is_some_and(|(old, _)| *old == uid) {
            return Ok(());
        }
        if let Some((old_uid, old_key)) = old.and_then(|old| old.pod) {
            if old_key != key {
                self.tell_mirrors(mirror::Told::FileGone(old_key)).await;
            }
            self.outlet.put(Change::Gone(old_uid)).await?;
        }
        info!(namespace = found.pod.namespace(), pod = found.pod.name(), "a static pod");
        let object = found.object;
        self.tell_mirrors(mirror::Told::File(mirror::StaticPod { key, uid, object })).await;
        self.outlet.put(Change::Set(Arc::new(found.pod))).await
    }

    async fn remove(&mut self, known: Option<Known>) -> Result<(), NobodyListens> {
        let Some((uid, key)) = known.and_then(|known| known.pod) else { return Ok(()) };
        self.tell_mirrors(mirror::Told::FileGone(key)).await;
        self.outlet.put(Change::Gone(uid)).await
    }

    async fn tell_mirrors(&self, told: mirror::Told) {
        if let Some(mirrors) = &self.mirrors {
            mirrors.tell(told).await;
        }
    }
}

/// Looks through the directory, and reads what is not as it is `known`.
fn look(directory: &Path, known: &HashMap<PathBuf, Version>, rules: &Rules) -> io::Result<Look> {
    let mut found = Look::new();
    for entry in directory.read_dir()? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        // Links are followed, and what vanishes meanwhile was not there.
        let Ok(metadata) = path.metadata() else { continue };
        if !metadata.is_file() {
            continue;
        }
        let version = Version::of(&metadata);
        let is_known = known.get(&path) == Some(&version);
        let read = (!is_known).then(|| read(&path, rules));
        found.insert(path, (version, read));
    }
    Ok(found)
}

fn read(path: &Path, rules: &Rules) -> Result<Found, FileError> {
    let mut content = Vec::new();
    let file = File::open(path).map_err(FileError::Read)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut content).map_err(FileError::Read)?;
    if content.len() as u64 > MAX_BYTES {
        return Err(FileError::TooLarge);
    }
    let path = path.to_string_lossy();
    let manifest::StaticPod { pod, object } =
        manifest::read(&content, &path, rules).map_err(FileError::Manifest)?;
    Ok(Found { pod, object })
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}
