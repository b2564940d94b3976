//! The cgroups of exec sessions, each a leaf beside that of its container's own processes.

use std::{io, os::fd::OwnedFd, time::Duration};

use rustix::{
    fs::{AtFlags, Mode, OFlags, fstat, mkdirat, openat, unlinkat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{
    Cgroup,
    tree::{has_populated, kill_below, wait_until_empty},
};
use crate::engine::clock;

/// How long processes that were killed may take to die.
const PATIENCE: Duration = Duration::from_secs(5);

/// The cgroup of an exec session.
#[derive(Debug)]
pub(in crate::engine) struct SessionCgroup {
    parent: OwnedFd,
    name: String,
    directory: OwnedFd,
    events: OwnedFd,
    identity: SessionIdentity,
}

/// By what a session's cgroup is known, whatever others are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(in crate::engine) struct SessionIdentity {
    /// The kernel's, which it never gives twice while the machine runs. 0 if it is not known.
    pub(in crate::engine) cgroup_id: u64,
    /// Nanoseconds after boot. No process that is older began in this cgroup.
    pub(in crate::engine) made_at: u64,
}

impl SessionCgroup {
    pub(in crate::engine) fn name_of(session: &str) -> String {
        format!("exec-{session}")
    }

    /// Makes it in `parent`, the container's directory for sessions.
    pub(in crate::engine) fn create(parent: &OwnedFd, session: &str) -> io::Result<Self> {
        let name = Self::name_of(session);
        let parent = parent.try_clone()?;
        let made_at = clock::after_boot();
        mkdirat(&parent, &name, Mode::from_raw_mode(0o755))?;
        let opened =
            Self::open_parts(&parent, &name).and_then(|parts| Ok((fstat(&parts.0)?.st_ino, parts)));
        match opened {
            Ok((cgroup_id, (directory, events))) => {
                let identity = SessionIdentity { cgroup_id, made_at };
                Ok(Self { parent, name, directory, events, identity })
            }
            Err(error) => {
                let _ = unlinkat(&parent, &name, AtFlags::REMOVEDIR);
                Err(error)
            }
        }
    }

    fn open_parts(parent: &OwnedFd, name: &str) -> io::Result<(OwnedFd, OwnedFd)> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = openat(parent, name, flags, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let events = openat(&directory, "cgroup.events", flags, Mode::empty())?;
        Ok((directory, events))
    }

    /// To fork into.
    pub(in crate::engine) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    pub(in crate::engine) fn identity(&self) -> SessionIdentity {
        self.identity
    }

    /// Reports `PollFlags::PRI` when it became empty or populated.
    pub(in crate::engine) fn events(&self) -> &OwnedFd {
        &self.events
    }

    /// Removes it if no process lives in it; false if one does.
    pub(in crate::engine) fn remove_if_empty(&self) -> io::Result<bool> {
        let mut buffer = [0; 256];
        let count = rustix::io::pread(&self.events, &mut buffer, 0)?;
        if has_populated(buffer.get(..count).unwrap_or_default()) {
            return Ok(false);
        }
        match unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::BUSY) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Kills every process of a session, wherever it went, and waits until they are gone or hang in the kernel. A session that is
/// gone has none.
pub(in crate::engine) fn kill_session(container: &Cgroup, session: &str) -> io::Result<()> {
    let directory = container.session(session);
    kill_below(&directory)?;
    wait_until_empty(&directory, PATIENCE).map(drop)
}
