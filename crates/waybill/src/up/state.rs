//! The state directory: one `waybill up` at a time, and what is kept from one start to the next.

use std::{
    fs::{self, DirBuilder, File, Permissions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use rustix::system::uname;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::state_dir::{no_links, own_directory};

/// The longest path that a Unix socket can have.
const SOCKET_PATH: usize = 107;

/// Where most people keep it.
const USUAL: &str = "/var/lib/waybill";

/// A state directory that is ours as long as this lives.
pub(super) struct State {
    dir: PathBuf,
    _lock: File,
}

/// What a start keeps for the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Kept {
    pub(super) api_server_port: Option<u16>,
}

impl State {
    /// Makes the directory if it is missing, and takes it for this process alone.
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let doing = || format!("cannot use the state directory {}", dir.display());
        let dir = own_directory(dir)?;
        let lock = dir.join("up.lock");
        let mut options = File::options();
        options.create(true).append(true).mode(0o600).custom_flags(no_links());
        let file = options.open(&lock).with_context(doing)?;
        // Whoever can read a file can lock it; older versions let everybody.
        file.set_permissions(Permissions::from_mode(0o600)).with_context(doing)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "another `waybill up` uses {}; stop it, or name another directory with --state-dir",
                dir.display()
            ),
            Err(TryLockError::Error(error)) => return Err(error).with_context(doing),
        }
        let state = Self { dir, _lock: file };
        let longest = state.runtime_socket();
        if longest.as_os_str().len() > SOCKET_PATH {
            bail!(
                "{} is too long for a socket, which may have {SOCKET_PATH} characters; choose a --state-dir \
                 that is shorter by {}",
                longest.display(),
                longest.as_os_str().len() - SOCKET_PATH
            );
        }
        for part in ["logs", "logs/pods", "run"] {
            let part = state.dir.join(part);
            DirBuilder::new().recursive(true).mode(0o755).create(&part).with_context(doing)?;
        }
        Ok(state)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn runtime_socket(&self) -> PathBuf {
        self.dir.join("run/runtime.sock")
    }

    pub(super) fn collector_socket(&self) -> PathBuf {
        self.dir.join("run/trace.sock")
    }

    pub(super) fn runtime_run_dir(&self) -> PathBuf {
        runtime_run_dir(&self.dir)
    }

    /// Where the node finds the sockets of drivers; the node has it below its own state by default.
    pub(super) fn plugins_dir(&self) -> PathBuf {
        self.dir.join("node/plugins")
    }

    /// Where it learns of them.
    pub(super) fn registry_dir(&self) -> PathBuf {
        self.dir.join("node/plugins_registry")
    }

    pub(super) fn log(&self, role: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{role}.log"))
    }

    pub(super) fn cgroup_root(&self) -> String {
        cgroup_root(&self.dir)
    }

    /// What the last start kept; nothing if there was none.
    pub(super) fn kept(&self) -> Kept {
        let text = fs::read(self.kept_path()).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    pub(super) fn keep(&self, kept: Kept) -> Result<()> {
        write_whole(&self.kept_path(), &serde_json::to_vec_pretty(&kept)?)
            .with_context(|| format!("cannot write {}", self.kept_path().display()))
    }

    fn kept_path(&self) -> PathBuf {
        self.dir.join("up.json")
    }
}

/// Where the runtime has its tmpfs.
pub(super) fn runtime_run_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("run/runtime")
}

/// The cgroup of all pods, another one for each state directory of a machine.
pub(crate) fn cgroup_root(state_dir: &Path) -> String {
    if state_dir == Path::new(USUAL) {
        return "/waybill".to_owned();
    }
    let digest = Sha256::digest(state_dir.as_os_str().as_encoded_bytes());
    let digits: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("/waybill-{digits}")
}

/// A reader never sees half of it.
fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut options = File::options();
    options.write(true).create(true).truncate(true).custom_flags(no_links());
    let mut file = options.open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// What this machine is called, as a name of a node.
pub(crate) fn host_name() -> String {
    node_name(&uname().nodename().to_string_lossy())
}

fn node_name(host: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let name: String = host.to_ascii_lowercase().chars().map(fit).collect();
    match name.trim_matches(['-', '.']) {
        "" => "node".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_has_one_owner_and_keeps_ports() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let state = State::open(&path).unwrap();
        let error = State::open(&path).err().unwrap().to_string();
        assert!(error.contains("another `waybill up` uses"), "{error}");
        assert_eq!(state.kept(), Kept::default());
        let kept = Kept { api_server_port: Some(7443) };
        state.keep(kept).unwrap();
        drop(state);
        assert_eq!(State::open(&path).unwrap().kept(), kept);
    }

    /// Hole: any local user could lock the file, so that root could not start.
    #[test]
    fn only_the_owner_can_take_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("up.lock");
        for _ in 0..2 {
            drop(State::open(dir.path()).unwrap());
            assert_eq!(fs::metadata(&lock).unwrap().permissions().mode() & 0o777, 0o600);
            fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
        }
    }

    #[test]
    fn a_path_too_long_for_sockets_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let error = State::open(&dir.path().join("x".repeat(100))).err().unwrap().to_string();
        assert!(error.contains("choose a --state-dir that is shorter by "), "{error}");
    }

    #[test]
    fn names_of_hosts_become_names_of_nodes() {
        for (host, name) in [
            ("devbox", "devbox"),
            ("DESKTOP_1.local", "desktop-1.local"),
            ("-x-", "x"),
            ("", "node"),
            ("…", "node"),
        ] {
            assert_eq!(node_name(host), name, "{host}");
        }
    }
}
