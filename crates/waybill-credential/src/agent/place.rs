//! The directory of the agent's socket: ours alone, and reached without following a link of somebody else.

use std::{
    fs,
    io::{self, ErrorKind},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{fs::PermissionsExt, net::UnixListener},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, mkdirat, open, openat},
    io::Errno,
    process::geteuid,
};
use tokio::{net::UnixStream, time::sleep};

/// The number is that of the protocol: agents of different versions do not meet.
const SOCKET: &str = "credential-1.sock";

/// Whoever starts an agent is done sooner.
const LOCK_ATTEMPTS: u32 = 2000;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Where the agent of a user is found.
#[derive(Debug)]
pub struct Place {
    directory: OwnedFd,
    path: PathBuf,
}

impl Place {
    /// Below `runtime_dir`, which is `$XDG_RUNTIME_DIR`, below `/run/user`, or in `temporary`: the first that is safe.
    pub fn find(runtime_dir: Option<&Path>, temporary: &Path) -> Result<Self, PlaceError> {
        let user = geteuid().as_raw();
        let of_user = PathBuf::from(format!("/run/user/{user}"));
        let own =
            runtime_dir.filter(|path| path.is_absolute()).into_iter().chain([of_user.as_path()]);
        for parent in own {
            if let Ok(place) = Self::below(parent, "waybill", Parent::Own) {
                return Ok(place);
            }
        }
        Self::below(temporary, &format!("waybill-{user}"), Parent::Shared)
    }

    fn below(parent: &Path, name: &str, kind: Parent) -> Result<Self, PlaceError> {
        let path = parent.join(name);
        let io = |cause: Errno| PlaceError::Io { path: path.clone(), cause: cause.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = open(parent, flags, Mode::empty()).map_err(io)?;
        if !kind.is_safe(&fstat(&above).map_err(io)?) {
            return Err(PlaceError::Parent { path: parent.to_owned() });
        }
        match mkdirat(&above, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(cause) => return Err(io(cause)),
        }
        let directory =
            openat(&above, name, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(io)?;
        if !is_private(&fstat(&directory).map_err(io)?) {
            return Err(PlaceError::NotPrivate { path });
        }
        Ok(Self { directory, path })
    }

    /// The socket, for people.
    pub fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    /// By way of the open directory: it cannot be replaced under us, and is short enough for any socket.
    fn way(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", self.directory.as_raw_fd()))
    }

    pub(crate) async fn connect(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(self.way()).await?;
        is_of_this_user(&stream)?;
        Ok(stream)
    }

    /// Lets one client at a time start an agent. The lock ends with what is returned.
    pub(crate) async fn lock(&self) -> io::Result<Lock> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Opened again, because a lock belongs to one opening.
        let directory = openat(&self.directory, ".", flags, Mode::empty())?;
        for _ in 0..LOCK_ATTEMPTS {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock(directory)),
                Err(Errno::WOULDBLOCK) => sleep(LOCK_PAUSE).await,
                Err(cause) => return Err(cause.into()),
            }
        }
        Err(io::Error::new(
            ErrorKind::TimedOut,
            "somebody else is starting an agent and does not finish",
        ))
    }

    /// A socket on which nobody has listened yet; what an agent left behind that was killed goes.
    pub(crate) fn listen(&self, _: &Lock) -> io::Result<UnixListener> {
        match fs::remove_file(self.way()) {
            Err(cause) if cause.kind() != ErrorKind::NotFound => return Err(cause),
            _ => {}
        }
        let listener = UnixListener::bind(self.way())?;
        // Until now the directory alone kept others out.
        fs::set_permissions(self.way(), fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }
}

/// Held while an agent is started.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "the lock ends when it is closed")] OwnedFd);

/// Whoever is at the other end of a stream must be us: nothing is said to others, and nothing believed.
pub(crate) fn is_of_this_user(stream: &UnixStream) -> io::Result<()> {
    if stream.peer_cred()?.uid() == geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::new(
        ErrorKind::PermissionDenied,
        "the other end of the socket is another user's",
    ))
}

#[derive(Clone, Copy)]
enum Parent {
    /// Of this user alone.
    Own,
    /// As `/tmp` is: what is ours in it others cannot replace.
    Shared,
}

impl Parent {
    fn is_safe(self, parent: &Stat) -> bool {
        let mode = Mode::from_raw_mode(parent.st_mode);
        let closed = !mode.intersects(Mode::WGRP | Mode::WOTH);
        match self {
            Self::Own => parent.st_uid == geteuid().as_raw() && closed,
            Self::Shared => {
                let trusted = [0, geteuid().as_raw()].contains(&parent.st_uid);
                trusted && (closed || mode.contains(Mode::SVTX))
            }
        }
    }
}

fn is_private(directory: &Stat) -> bool {
    let mode = Mode::from_raw_mode(directory.st_mode);
    FileType::from_raw_mode(directory.st_mode) == FileType::Directory
        && directory.st_uid == geteuid().as_raw()
        && !mode.intersects(Mode::RWXG | Mode::RWXO)
}

/// Why there is no safe place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// It cannot be reached, or is a link.
    #[error("{} cannot be used", path.display())]
    Io {
        /// Which directory.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
    /// Others could replace what is in it.
    #[error("others can write to {}, or own it; set XDG_RUNTIME_DIR to a directory of yours", path.display())]
    Parent {
        /// Which directory.
        path: PathBuf,
    },
    /// Others can enter it, or own it.
    #[error("{} must be a directory of yours with mode 0700; remove it, or mend it with chmod", path.display())]
    NotPrivate {
        /// Which directory.
        path: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    fn below(parent: &Path) -> Result<Place, PlaceError> {
        Place::below(parent, "waybill", Parent::Own)
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_is_made_for_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        below(dir.path()).unwrap();
        let mode = fs::metadata(dir.path().join("waybill")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        below(dir.path()).unwrap();
        chmod(&dir.path().join("waybill"), 0o750);
        assert!(matches!(below(dir.path()), Err(PlaceError::NotPrivate { .. })));
    }

    #[test]
    fn links_and_directories_of_others_are_not_used() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("elsewhere")).unwrap();
        symlink("elsewhere", dir.path().join("waybill")).unwrap();
        assert!(matches!(below(dir.path()), Err(PlaceError::Io { .. })));
        fs::remove_file(dir.path().join("waybill")).unwrap();
        fs::create_dir(dir.path().join("waybill")).unwrap();
        chmod(&dir.path().join("waybill"), 0o700);
        if geteuid().is_root() {
            chown(dir.path().join("waybill"), Some(65534), None).unwrap();
            assert!(matches!(below(dir.path()), Err(PlaceError::NotPrivate { .. })));
        }
        chmod(dir.path(), 0o777);
        assert!(matches!(below(dir.path()), Err(PlaceError::Parent { .. })));
        let shared = Place::below(dir.path(), "waybill-0", Parent::Shared);
        assert!(matches!(shared, Err(PlaceError::Parent { .. })), "no sticky bit");
        chmod(dir.path(), 0o1777);
        Place::below(dir.path(), "waybill-0", Parent::Shared).unwrap();
    }

    #[test]
    fn the_first_safe_place_is_taken() {
        let [own, temporary] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let place = Place::find(Some(own.path()), temporary.path()).unwrap();
        assert!(place.socket().starts_with(own.path()));
        chmod(own.path(), 0o777);
        let place = Place::find(Some(own.path()), temporary.path()).unwrap();
        assert!(!place.socket().starts_with(own.path()), "{:?}", place.socket());
    }

    #[tokio::test]
    async fn a_socket_that_nobody_serves_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let place = below(dir.path()).unwrap();
        assert_eq!(place.connect().await.unwrap_err().kind(), ErrorKind::NotFound);
        let lock = place.lock().await.unwrap();
        drop(place.listen(&lock).unwrap());
        assert_eq!(place.connect().await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let _listener = place.listen(&lock).unwrap();
        place.connect().await.unwrap();
        let mode = fs::metadata(place.socket()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
