//! Files of the PKI directory, and of the keys of the store: written whole or not at all, and private where they hold keys.
//!
//! A reader never sees half a file: content goes to a temporary name, is synced, and is renamed over
//! the old one. Nothing here looks into what it reads or writes.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, process::geteuid};
use tracing::warn;
use waybill_core::secret::SecretBytes;

const NO_LINKS: i32 = OFlags::NOFOLLOW.bits().cast_signed();

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
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

/// A file or directory that could not be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {}", path.display())]
pub(crate) struct FileError {
    step: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Makes sure that `dir` exists, is ours and no link, and that only its owner can enter it.
pub(crate) fn private_dir(dir: &Path) -> Result<(), FileError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(at("create", dir))?;
    let found = fs::symlink_metadata(dir).map_err(at("inspect", dir))?;
    if found.is_symlink() {
        return Err(at("trust", dir)(io::Error::other("it is a link")));
    }
    check_owner(&found).map_err(at("trust", dir))?;
    tighten(dir, 0o700)
}

/// The content of our own file at `path`, or `None` if there is no such file.
///
/// What somebody else made is not believed, and no link is followed: keys decide who rules.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let mut options = OpenOptions::new();
    let mut file = match options.read(true).custom_flags(NO_LINKS).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(at("read", path)(error)),
    };
    let found = file.metadata().map_err(at("inspect", path))?;
    check_owner(&found).map_err(at("trust", path))?;
    let mut content = Vec::new();
    file.read_to_end(&mut content).map_err(at("read", path))?;
    Ok(Some(content))
}

/// Root and the user that we run as can make whatever they want; everybody else cannot.
fn check_owner(found: &Metadata) -> io::Result<()> {
    let uid = found.uid();
    if uid == 0 || uid == geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "it belongs to uid {uid}; remove it, or chown it if you trust what is in it"
    )))
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
pub(crate) fn write(path: &Path, content: &[u8], audience: Audience) -> Result<(), FileError> {
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

/// What `step` met at `path`.
pub(crate) fn failed(step: &'static str, path: &Path, source: io::Error) -> FileError {
    FileError { step, path: path.to_owned(), source }
}

fn at(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |source| failed(step, path, source)
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

    /// Hole: planted keys were believed, and planted links followed.
    #[test]
    fn links_and_the_files_of_others_are_refused() {
        use std::os::unix::fs::{chown, symlink};

        let root = tempfile::tempdir().unwrap();
        let (key, link) = (root.path().join("x.key"), root.path().join("link"));
        fs::write(&key, "k").unwrap();
        symlink(&key, &link).unwrap();
        assert!(read(&link).is_err());
        let dir = root.path().join("dir");
        symlink(root.path(), &dir).unwrap();
        assert!(private_dir(&dir).is_err());
        if geteuid().is_root() {
            chown(&key, Some(12_345), None).unwrap();
            let told = Chain(&read(&key).unwrap_err()).to_string();
            assert!(told.contains("it belongs to uid 12345"), "{told}");
            chown(root.path(), Some(12_345), None).unwrap();
            assert!(private_dir(root.path()).is_err());
        }
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
