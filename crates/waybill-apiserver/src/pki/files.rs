//! Files of the PKI directory: written whole or not at all, and private where they hold keys.
//!
//! A reader never sees half a file: content goes to a temporary name, is synced, and is renamed over
//! the old one. Nothing here looks into what it reads or writes.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use tracing::warn;
use waybill_core::secret::SecretBytes;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// Everybody who can reach the directory: certificates.
    Everyone,
    /// The owner: private keys.
    Owner,
}

impl Audience {
    fn mode(self) -> u32 {
        match self {
            Self::Everyone => 0o644,
            Self::Owner => 0o600,
        }
    }
}

/// A file or directory of the PKI that could not be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {}", path.display())]
pub(crate) struct FileError {
    step: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Makes sure that `dir` exists and that only its owner can enter it.
pub(super) fn private_dir(dir: &Path) -> Result<(), FileError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(at("create", dir))?;
    tighten(dir, 0o700)
}

/// The content of `path`, or `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at("read", path)(error)),
    }
}

/// The content of a file that must be there.
pub(super) fn read_existing(path: &Path) -> Result<Vec<u8>, FileError> {
    fs::read(path).map_err(at("read", path))
}

/// The private key at `path`, which is made unreadable for others if it was not.
pub(super) fn read_key(path: &Path) -> Result<Option<SecretBytes>, FileError> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    tighten(path, Audience::Owner.mode())?;
    Ok(Some(SecretBytes::from(bytes)))
}

/// Replaces `path` by `content`, durably and in one step.
pub(super) fn write(path: &Path, content: &[u8], audience: Audience) -> Result<(), FileError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    // A left-over of a crash may have another mode.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(at("remove", &temporary)(error));
        }
        Ok(()) | Err(_) => {}
    }
    write_new(&temporary, content, audience).map_err(at("write", &temporary))?;
    fs::rename(&temporary, path).map_err(at("replace", path))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(at("sync", dir))
}

fn write_new(path: &Path, content: &[u8], audience: Audience) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(audience.mode()).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Takes away what `mode` does not grant.
fn tighten(path: &Path, mode: u32) -> Result<(), FileError> {
    let found = fs::metadata(path).map_err(at("inspect", path))?.permissions().mode() & 0o777;
    if found & !mode == 0 {
        return Ok(());
    }
    warn!(path = %path.display(), found = format!("{found:o}"), "private file was open to others");
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(at("restrict", path))
}

fn at(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError { step, path, source }
}

#[cfg(test)]
mod tests {
    use waybill_core::chain::Chain;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_replaced_whole_and_keys_are_private() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/pki");
        private_dir(&dir).unwrap();
        assert_eq!(mode(&dir), 0o700);
        let key = dir.join("x.key");
        fs::write(dir.join("x.key.tmp"), "left over").unwrap();
        write(&key, b"one", Audience::Owner).unwrap();
        write(&key, b"two", Audience::Owner).unwrap();
        assert_eq!(mode(&key), 0o600);
        assert_eq!(read(&key).unwrap().unwrap(), b"two");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    }

    #[test]
    fn a_key_open_to_others_is_closed() {
        let root = tempfile::tempdir().unwrap();
        let key = root.path().join("x.key");
        fs::write(&key, "k").unwrap();
        fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
        assert!(read_key(&key).unwrap().is_some());
        assert_eq!(mode(&key), 0o600);
    }

    #[test]
    fn errors_name_the_step_and_the_path() {
        let error = read_existing(Path::new("/nonexistent/ca.crt")).unwrap_err();
        assert_eq!(
            Chain(&error).to_string(),
            "cannot read /nonexistent/ca.crt: No such file or directory (os error 2)"
        );
    }
}
