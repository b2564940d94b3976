//! The file with the keys: ours, for our eyes alone, and never in the directory of the store.
//!
//! Whoever copies the store, as for a backup, shall not copy the keys with it.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use waybill_core::secret::SecretBytes;

use super::key_ring::{self, KeyId, KeyRing, KeyRingError};
use crate::pki::files::{self, Audience, FileError};

/// Group and everybody else.
const OTHERS: u32 = 0o077;

/// Where the keys are.
#[derive(Clone, Debug)]
pub(crate) struct KeyFile(PathBuf);

/// What tells one content of the file from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    file: (u64, u64),
    changed: (i64, i64),
    length: u64,
}

/// Why the keys cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyFileError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot use the key file {}", path.display())]
    Content {
        path: PathBuf,
        #[source]
        source: KeyRingError,
    },
    #[error("others can read the key file {0} (mode {mode:04o}): chmod 600 {0}", path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("the key file {} lies in the directory of the store, so that who copies that has both; name another place", path.display())]
    InStore { path: PathBuf },
    #[error("somebody else is changing the key file {}; try again", path.display())]
    Busy { path: PathBuf },
    #[error("there is no key file {}", path.display())]
    Missing { path: PathBuf },
}

impl KeyFile {
    /// The file at `path`, which must not be in `store_dir`.
    pub(crate) fn at(path: &Path, store_dir: &Path) -> Result<Self, KeyFileError> {
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let dir = real(path.parent().unwrap_or(Path::new(".")));
        if dir.starts_with(real(store_dir)) {
            return Err(KeyFileError::InStore { path: path.to_owned() });
        }
        Ok(Self(path.to_owned()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The keys; `None` if there is no file.
    pub(crate) fn read(&self) -> Result<Option<KeyRing>, KeyFileError> {
        let Some(text) = self.text()? else { return Ok(None) };
        let ring = KeyRing::parse(&text);
        ring.map(Some).map_err(|source| KeyFileError::Content { path: self.0.clone(), source })
    }

    /// Puts a new key to the top of the file, which is made if it is missing, and returns its id.
    pub(crate) fn add_key(&self, now: Timestamp) -> Result<KeyId, KeyFileError> {
        if let Some(dir) = self.0.parent().filter(|dir| !dir.exists()) {
            files::private_dir(dir)?;
        }
        let _alone = self.lock()?;
        // What cannot be read is not written over.
        self.read()?;
        let (text, id) = key_ring::with_new_key(self.text()?.as_ref(), now)
            .map_err(|source| KeyFileError::Content { path: self.0.clone(), source })?;
        files::write(&self.0, text.expose(), Audience::Owner)?;
        Ok(id)
    }

    /// Removes the keys that `keep` does not want; the one for writing stays in any case.
    pub(crate) fn retain(&self, keep: impl Fn(&str) -> bool) -> Result<(), KeyFileError> {
        let missing = || KeyFileError::Missing { path: self.0.clone() };
        let _alone = self.lock()?;
        let ring = self.read()?.ok_or_else(missing)?;
        let text = self.text()?.ok_or_else(missing)?;
        let newest = ring.newest().map(KeyId::as_str);
        let left = key_ring::retain(&text, |id| keep(id) || newest == Some(id));
        Ok(files::write(&self.0, left.expose(), Audience::Owner)?)
    }

    /// Changes whenever the file does; `None` without one.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let found = fs::symlink_metadata(&self.0).ok()?;
        Some(Stamp {
            file: (found.dev(), found.ino()),
            changed: (found.mtime(), found.mtime_nsec()),
            length: found.len(),
        })
    }

    fn text(&self) -> Result<Option<SecretBytes>, KeyFileError> {
        let text = files::read(&self.0)?.map(SecretBytes::from);
        if text.is_some()
            && let Ok(found) = fs::symlink_metadata(&self.0)
            && found.mode() & OTHERS != 0
        {
            let mode = found.mode() & 0o7777;
            return Err(KeyFileError::Open { path: self.0.clone(), mode });
        }
        Ok(text)
    }

    /// Nobody else changes the file while this is held. The directory is locked: the file is replaced.
    fn lock(&self) -> Result<File, KeyFileError> {
        let path = self.0.clone();
        let dir = path.parent().unwrap_or(Path::new("."));
        let dir =
            File::open(dir).map_err(|source: io::Error| files::failed("open", dir, source))?;
        dir.try_lock().map_err(|_| KeyFileError::Busy { path })?;
        Ok(dir)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::Permissions,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use waybill_core::chain::Chain;

    use super::*;

    fn place() -> (tempfile::TempDir, KeyFile) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("encryption/keys");
        let file = KeyFile::at(&path, &root.path().join("store")).unwrap();
        (root, file)
    }

    #[track_caller]
    fn check_refused(file: &KeyFile, words: &str) {
        let told = Chain(&file.read().err().unwrap()).to_string();
        assert!(told.contains(words), "{told}");
        assert!(file.add_key(Timestamp::UNIX_EPOCH).is_err(), "it is not written over");
    }

    #[test]
    fn keys_are_for_their_owner_alone() {
        let (_root, file) = place();
        assert!(file.read().unwrap().is_none() && file.stamp().is_none());
        let old = file.add_key(Timestamp::UNIX_EPOCH).unwrap();
        let stamp = file.stamp();
        let new = file.add_key(Timestamp::UNIX_EPOCH).unwrap();
        assert_ne!(file.stamp(), stamp);
        assert_eq!(fs::metadata(file.path()).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(file.path().parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        let ids = |file: &KeyFile| file.read().unwrap().unwrap().ids().cloned().collect::<Vec<_>>();
        assert_eq!(ids(&file), [new.clone(), old]);
        file.retain(|_| false).unwrap();
        assert_eq!(ids(&file), [new]);
    }

    #[test]
    fn a_file_that_others_read_is_refused() {
        let (_root, file) = place();
        file.add_key(Timestamp::UNIX_EPOCH).unwrap();
        for mode in [0o640, 0o604] {
            fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            check_refused(&file, "chmod 600");
        }
    }

    #[test]
    fn links_and_files_of_others_are_refused() {
        let (root, file) = place();
        file.add_key(Timestamp::UNIX_EPOCH).unwrap();
        let elsewhere = root.path().join("elsewhere");
        fs::rename(file.path(), &elsewhere).unwrap();
        symlink(&elsewhere, file.path()).unwrap();
        check_refused(&file, "cannot read");
        fs::remove_file(file.path()).unwrap();
        if rustix::process::geteuid().is_root() {
            fs::rename(&elsewhere, file.path()).unwrap();
            std::os::unix::fs::chown(file.path(), Some(12_345), None).unwrap();
            check_refused(&file, "belongs to uid 12345");
        }
    }

    #[test]
    fn a_file_beside_what_it_protects_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let store = root.path().join("store");
        fs::create_dir(&store).unwrap();
        symlink(&store, root.path().join("link")).unwrap();
        for path in ["store/keys", "link/keys", "link/../store/keys"] {
            let refused = KeyFile::at(&root.path().join(path), &store);
            assert!(matches!(refused, Err(KeyFileError::InStore { .. })), "{path}");
        }
        KeyFile::at(&root.path().join("store-keys"), &store).unwrap();
    }

    #[test]
    fn a_damaged_file_is_told_and_left_alone() {
        let (_root, file) = place();
        file.add_key(Timestamp::UNIX_EPOCH).unwrap();
        fs::write(file.path(), "key hunter2").unwrap();
        check_refused(&file, "line 1: a key is 32 bytes in base64");
        assert_eq!(fs::read(file.path()).unwrap(), b"key hunter2");
    }
}
