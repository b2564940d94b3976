//! A Unix socket for root and this user alone, which is there again when somebody removes it.
//!
//! A kubelet that is set up anew clears its directories, and nobody tells the drivers. So each socket
//! looks from time to time whether its name still leads to it.

use std::{
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::{Stream, stream};
use rustix::{
    fs::{Mode, OFlags, open},
    process::geteuid,
};
use tokio::{
    net::{UnixListener, UnixStream},
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How often a socket looks for its name.
const LOOK: Duration = Duration::from_secs(1);

/// After an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the kernel takes.
const ADDRESS_BYTES: usize = 107;

/// A socket that listens. Its name is removed on drop, unless it leads elsewhere by then.
pub struct Socket {
    path: PathBuf,
    listener: UnixListener,
    inode: (u64, u64),
}

impl Socket {
    /// Listens at `path`, in place of a process that is gone.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
        }
        remove_stale(path)?;
        // The kernel takes the mode of a socket from the umask, which is not ours alone to change; so
        // it is made beside, closed, and only then gets its name. Kubelets overlook names with a dot.
        // Drivers in containers all have the same number.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let new = path.with_file_name(format!(".{name}.{}", std::process::id()));
        let _ = fs::remove_file(&new);
        let listener = UnixListener::bind(&Short::of(&new)?.path)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
        let inode = inode(&new)?;
        fs::rename(&new, path)?;
        Ok(Self { path: path.to_owned(), listener, inode })
    }

    /// Connections of those who may, until `stop`.
    pub fn connections(
        self,
        stop: CancellationToken,
    ) -> impl Stream<Item = io::Result<UnixStream>> {
        let owner = geteuid().as_raw();
        stream::unfold((self, stop), move |(mut socket, stop)| async move {
            tokio::select! {
                connection = socket.accept(owner) => Some((Ok(connection), (socket, stop))),
                () = stop.cancelled() => None,
            }
        })
    }

    async fn accept(&mut self, owner: u32) -> UnixStream {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = look.tick() => {
                    self.come_back();
                    continue;
                }
            };
            match accepted {
                Ok((connection, _)) => match connection.peer_cred() {
                    Ok(peer) if peer.uid() == 0 || peer.uid() == owner => return connection,
                    Ok(peer) => warn!(uid = peer.uid(), pid = peer.pid(), "a stranger was refused"),
                    Err(error) => {
                        warn!(%error, "a caller whom the kernel does not name was refused");
                    }
                },
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Listens again if the name is gone. A name that leads to somebody else is left to them.
    fn come_back(&mut self) {
        if self.path.symlink_metadata().is_ok() {
            return;
        }
        match Self::bind(&self.path) {
            Ok(socket) => {
                info!(socket = %self.path.display(), "the socket was removed, and is there again");
                *self = socket;
            }
            Err(error) => {
                warn!(socket = %self.path.display(), %error, "the socket was removed");
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = path.symlink_metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// A way to a path that fits into the address of a socket.
struct Short {
    path: PathBuf,
    /// What it leads through, for as long as this lives.
    _directory: Option<OwnedFd>,
}

impl Short {
    fn of(path: &Path) -> io::Result<Self> {
        // Only then: who is neither root nor dumpable has no way through this part of /proc.
        if path.as_os_str().len() <= ADDRESS_BYTES {
            return Ok(Self { path: path.to_owned(), _directory: None });
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(parent, flags, Mode::empty())?;
        let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _directory: Some(directory) })
    }
}

/// Removes a socket at which nobody listens any more. Anything else stays, and is in the way.
fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !metadata.file_type().is_socket() {
        let what = "there is something that is not a socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    if std::os::unix::net::UnixStream::connect(&Short::of(path)?.path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process serves there"));
    }
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_socket_is_for_its_owner_only_and_goes_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plugins/csi.sock");
        let first = Socket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let in_use = Socket::bind(&path).err().unwrap();
        assert_eq!(in_use.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert_eq!(fs::read_dir(directory.path().join("plugins")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_anything_else_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("csi.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(Socket::bind(&path).unwrap());
        fs::write(&path, "precious").unwrap();
        let in_the_way = Socket::bind(&path).err().unwrap();
        assert_eq!(in_the_way.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_path_may_be_longer_than_an_address() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d".repeat(200)).join("csi.sock");
        let socket = Socket::bind(&path).unwrap();
        assert!(path.symlink_metadata().unwrap().file_type().is_socket());
        let in_use = Socket::bind(&path).err().unwrap();
        assert_eq!(in_use.kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn the_name_of_a_successor_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("csi.sock");
        let first = Socket::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let second = Socket::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
}
