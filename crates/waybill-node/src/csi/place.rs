//! Where a socket is, and whether who answers there may be trusted with it.
//!
//! A directory is opened once: what is judged is what is dialled, and the way through it is short. The address
//! of a socket holds 107 bytes, and paths may be longer.

use std::{
    ffi::OsString,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, fstat, open},
    process::geteuid,
};
use tokio::net::UnixStream;

use super::error::CsiError;

/// A socket in a directory that nobody else can write.
pub(super) struct Place {
    path: PathBuf,
    directory: OwnedFd,
    name: OsString,
    /// Whose the directory is, if that counts.
    owner: Option<u32>,
}

impl Place {
    /// Finds the directory, through links. In one that others can write anybody may have put a socket: a
    /// container, if it is mounted there. Below `plugins` directories are what administrators gave to drivers;
    /// elsewhere whose they are says nothing.
    pub(super) fn open(path: &Path, plugins: Option<&Path>) -> Result<Self, CsiError> {
        let missing = || CsiError::NoSocket { path: path.to_owned() };
        let real = path.canonicalize().map_err(|_| missing())?;
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(missing());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(parent, flags, Mode::empty()).map_err(|_| missing())?;
        let found = fstat(&directory).map_err(|_| missing())?;
        let mode = Mode::from_raw_mode(found.st_mode);
        let by_group = mode.contains(Mode::WGRP) && found.st_gid != 0;
        if mode.contains(Mode::WOTH) || by_group {
            let parent = parent.display();
            let why = format!("others can write {parent}; chmod go-w it");
            return Err(CsiError::Untrusted { path: path.to_owned(), why });
        }
        let plugins = plugins.and_then(|plugins| plugins.canonicalize().ok());
        let is_given = plugins.is_some_and(|plugins| parent.starts_with(plugins));
        let owner = is_given.then_some(found.st_uid);
        let (path, name) = (path.to_owned(), name.to_owned());
        Ok(Self { path, directory, name, owner })
    }

    /// A path to the socket, good for as long as this lives.
    pub(super) fn address(&self) -> PathBuf {
        // Who is neither root nor dumpable has no way through that part of /proc.
        if !geteuid().is_root() {
            return self.path.clone();
        }
        PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd())).join(&self.name)
    }

    /// Whether whoever listens is root, the user of this node, or the user to whom the directory was given.
    /// Root in a container is root; that a container has no such directory is for the owner of the node.
    pub(super) fn check_peer(&self, stream: &UnixStream) -> Result<(), CsiError> {
        let untrusted = |why: String| CsiError::Untrusted { path: self.path.clone(), why };
        let peer = stream.peer_cred().map_err(|error| untrusted(error.to_string()))?;
        let (peer, own) = (peer.uid(), geteuid().as_raw());
        if [0, own].contains(&peer) || self.owner == Some(peer) {
            return Ok(());
        }
        Err(untrusted(format!(
            "user {peer} answers there, who is neither root, nor user {own}, nor one whom the directory \
             was given below the directory of plugins"
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{
            fs::{PermissionsExt, chown},
            net::UnixListener,
        },
        thread,
    };

    use rustix::{process::Uid, thread::set_thread_res_uid};

    use super::{
        super::connection::{Socket, dial},
        *,
    };

    const NOBODY: u32 = 65534;

    async fn answer(path: &Path) -> Result<(), String> {
        answer_below(path, Path::new("/nowhere")).await
    }

    async fn answer_below(path: &Path, plugins: &Path) -> Result<(), String> {
        let socket = Socket::find(path).map_err(|error| error.to_string())?.below(plugins);
        dial(&socket).await.map(drop).map_err(|error| error.to_string())
    }

    /// Listens as another user, for as long as the result lives.
    fn listen_as_nobody(path: &Path) -> UnixListener {
        let path = path.to_owned();
        let listening = thread::spawn(move || {
            let nobody = Uid::from_raw(NOBODY);
            // Of this thread alone, which ends.
            set_thread_res_uid(None, nobody, None).unwrap();
            UnixListener::bind(path).unwrap()
        });
        listening.join().unwrap()
    }

    /// CSI-26
    #[tokio::test]
    async fn only_who_owns_the_directory_answers_there_csi_26() {
        if !geteuid().is_root() {
            waybill_testkit::skip::skip("root", "run the tests as root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let plugin = dir.path().join("plugin");
        fs::create_dir(&plugin).unwrap();
        chown(&plugin, Some(NOBODY), None).unwrap();
        let path = plugin.join("csi.sock");
        let _listener = listen_as_nobody(&path);
        let below = dir.path();
        let given = answer_below(&path, below).await;
        assert_eq!(given, Ok(()), "the directory was given to that user");
        let refused = Err(format!(
            "CSI driver socket at {} is not trusted: user 65534 answers there, who is neither root, nor \
             user 0, nor one whom the directory was given below the directory of plugins",
            path.display()
        ));
        assert_eq!(answer(&path).await, refused, "elsewhere nobody gave it");
        chown(&plugin, Some(0), None).unwrap();
        assert_eq!(answer_below(&path, below).await, refused);
    }

    /// CSI-26
    #[tokio::test]
    async fn nothing_is_dialled_where_others_can_write_csi_26() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        let path = open.join("csi.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        // A link does not make it better.
        let link = dir.path().join("link.sock");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for (mode, trusted) in [(0o755, true), (0o777, false), (0o1777, false), (0o700, true)] {
            fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
            for path in [&path, &link] {
                let found = answer(path).await;
                assert_eq!(found.is_ok(), trusted, "{mode:o} {found:?}");
            }
        }
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let why = format!("others can write {}; chmod go-w it", open.display());
        assert!(answer(&path).await.unwrap_err().ends_with(&why));
    }

    /// CSI-26: the kernel takes 107 bytes.
    #[tokio::test]
    async fn a_path_may_be_longer_than_an_address_csi_26() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(200));
        fs::create_dir(&deep).unwrap();
        let place = open(&deep, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let short = format!("/proc/self/fd/{}/csi.sock", place.as_raw_fd());
        let _listener = UnixListener::bind(short).unwrap();
        assert_eq!(answer(&deep.join("csi.sock")).await, Ok(()));
    }
}
