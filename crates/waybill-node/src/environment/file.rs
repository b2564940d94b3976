//! Variables from env files that another container of the pod wrote into an `emptyDir` (KEP-3721).
//!
//! What is in that directory is the pod's own business and not to be trusted: symbolic links end inside
//! it, only regular files are opened, and no more is read than an env file may have. Errors name
//! volume, path, key and line, and never content or a path of the host (FILE-20).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read},
    os::fd::{AsRawFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2},
    io::Errno,
};
use waybill_api::pod::{EnvRules, FileKeySelector};
use waybill_core::{
    env::{
        file::{EnvFile, EnvFileError},
        limits::FILE_BYTES,
        name::NameRules,
        origin::Origin,
        value::EnvValue,
    },
    secret::SecretBytes,
};

use super::{Resolver, error::Reason, gather::Gathered};
use crate::{blocking::blocking, pod::Pod, volume};

/// A walk is begun again when something in its way was renamed meanwhile, so often at most.
const TRIES: usize = 64;

/// What a file had.
pub(super) enum FileAnswer {
    Missing,
    /// The keys that were asked for and are there. The rest of the file is already gone from memory.
    Found(BTreeMap<String, SecretBytes>),
}

/// Refuses what leads out of the volume (OP-23). The API server has done so for pods that it knows.
pub(super) fn check_path(selector: &FileKeySelector) -> Result<(), FileError> {
    let path = Path::new(&selector.path);
    let first_is_dotted = selector.path.starts_with("..");
    let is_good =
        path.components().all(|part| matches!(part, Component::CurDir | Component::Normal(_)));
    if selector.path.is_empty() || first_is_dotted || !is_good {
        return Err(FileError::Path { path: selector.path.clone() });
    }
    Ok(())
}

/// Reads and parses a file once, whatever the number of keys.
pub(super) async fn read(
    resolver: &Resolver,
    pod: &Pod,
    (volume, path): (&str, &str),
    keys: &BTreeSet<&str>,
) -> Result<FileAnswer, FileError> {
    let directory = directory(resolver, pod, volume)?;
    let rules = EnvRules::for_create(&resolver.gates).names();
    let place = FilePlace { volume: volume.to_owned(), path: path.to_owned() };
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    let read = move || read_blocking(&directory, &place, &keys, rules);
    match blocking(read).await {
        Ok(answer) => answer,
        Err(_) => Err(FileError::Volume { volume: volume.to_owned() }),
    }
}

/// The value of one key; none if it is missing and may be (FILE-16).
pub(super) fn look_up(
    gathered: &Gathered<'_>,
    selector: &FileKeySelector,
) -> Result<Option<(EnvValue, Origin)>, Reason> {
    let FileKeySelector { volume_name, path, key, optional } = selector;
    let place = || FilePlace { volume: volume_name.clone(), path: path.clone() };
    let missing = match gathered.files.get(&(&**volume_name, &**path)) {
        Some(Err(error)) => return Err(error.clone().into()),
        Some(Ok(FileAnswer::Found(found))) => match found.get(key) {
            Some(value) => {
                let value = EnvValue::secret(value.expose().to_vec())?;
                return Ok(Some((value, origin(selector))));
            }
            None => FileError::Key { key: key.clone(), place: place() },
        },
        Some(Ok(FileAnswer::Missing)) | None => FileError::Missing { place: place() },
    };
    if *optional { Ok(None) } else { Err(missing.into()) }
}

fn origin(selector: &FileKeySelector) -> Origin {
    let FileKeySelector { volume_name, path, key, .. } = selector;
    Origin::File { volume: (**volume_name).into(), path: (**path).into(), key: (**key).into() }
}

fn directory(resolver: &Resolver, pod: &Pod, volume: &str) -> Result<PathBuf, FileError> {
    let missing = || FileError::Volume { volume: volume.to_owned() };
    let mut volumes = pod.environments().volumes.iter();
    let found = volumes.find(|found| found.name == volume).ok_or_else(missing)?;
    if !found.is_empty_dir() {
        return Err(FileError::Kind { volume: volume.to_owned() });
    }
    volume::host_path(&resolver.directories, pod, volume).ok_or_else(missing)
}

fn read_blocking(
    directory: &Path,
    place: &FilePlace,
    keys: &[String],
    rules: NameRules,
) -> Result<FileAnswer, FileError> {
    let unreadable =
        |error: io::Error| FileError::Unreadable { place: place.clone(), why: error.kind() };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = match openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::empty()) {
        Ok(root) => root,
        Err(Errno::NOENT) => return Err(FileError::Volume { volume: place.volume.clone() }),
        Err(error) => return Err(unreadable(error.into())),
    };
    let file = match open_inside(&root, &place.path) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(FileAnswer::Missing),
        Err(error) => return Err(unreadable(error.into())),
    };
    let stat = fstat(&file).map_err(|error| unreadable(error.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(FileError::NotRegular { place: place.clone() });
    }
    let text = read_file(&file).map_err(unreadable)?;
    let parsed = EnvFile::parse(text.expose(), rules)
        .map_err(|fault| FileError::Parse { place: place.clone(), fault })?;
    let found = keys
        .iter()
        .filter_map(|key| parsed.get(key).map(|value| (key.clone(), SecretBytes::copy_of(value))));
    Ok(FileAnswer::Found(found.collect()))
}

/// A handle that can do nothing yet, so that a device or a pipe is not touched by looking at it.
fn open_inside(root: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let mut tries = 0;
    loop {
        match openat2(root, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) if tries < TRIES => tries += 1,
            result => return result,
        }
    }
}

/// One byte more than is allowed, by which the parser sees that the file is too long. The memory is
/// taken at once: a vector that grows would leave pieces behind.
fn read_file(handle: &OwnedFd) -> io::Result<SecretBytes> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = open(format!("/proc/self/fd/{}", handle.as_raw_fd()), flags, Mode::empty())?;
    let most = FILE_BYTES + 1;
    let mut text = Vec::with_capacity(most);
    File::from(file).take(most as u64).read_to_end(&mut text)?;
    Ok(text.into())
}

/// A file as its pod knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePlace {
    volume: String,
    path: String,
}

/// Why a file gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FileError {
    #[error("environment variable key {key:?} not found in file {:?} of volume {:?}", place.path, place.volume)]
    Key { key: String, place: FilePlace },
    #[error("the volume {volume:?} referenced by FileKeyRef must be of type emptyDir")]
    Kind { volume: String },
    #[error("env file {:?} not found in volume {:?}", place.path, place.volume)]
    Missing { place: FilePlace },
    #[error("env file {:?} in volume {:?} is not a regular file", place.path, place.volume)]
    NotRegular { place: FilePlace },
    #[error("couldn't parse env file {:?} in volume {:?}: {fault}", place.path, place.volume)]
    Parse { place: FilePlace, fault: EnvFileError },
    #[error("fileKeyRef path {path:?} must be a relative path that does not contain '..'")]
    Path { path: String },
    #[error("couldn't read env file {:?} in volume {:?}: {why}", place.path, place.volume)]
    Unreadable { place: FilePlace, why: io::ErrorKind },
    #[error("cannot find the volume {volume:?} referenced by FileKeyRef")]
    Volume { volume: String },
}

#[cfg(test)]
mod tests;
