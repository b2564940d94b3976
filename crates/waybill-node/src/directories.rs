//! Where the node keeps what belongs to pods. Names of pods are never part of a path below the state
//! directory; uids are, and they are fit for it by their type.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use waybill_core::id::PodUid;

/// The two directories of a node.
#[derive(Clone, Debug)]
pub struct Directories {
    /// Volumes and other files of pods.
    pub state: PathBuf,
    /// Logs of containers, in the layout that log collectors know from `/var/log/pods`.
    pub logs: PathBuf,
}

impl Directories {
    /// Makes the directory of all pods, for root alone, also where another one made it: what pods write there
    /// has owners and bits of their choice. A program that is root's and says so by a bit would make everybody
    /// root who can reach it.
    pub(crate) fn make_pods(&self) -> io::Result<()> {
        let path = self.pods();
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))
    }

    /// All pods.
    pub(crate) fn pods(&self) -> PathBuf {
        self.state.join("pods")
    }

    /// Everything of one pod but its logs.
    pub(crate) fn pod(&self, uid: &PodUid) -> PathBuf {
        self.pods().join(uid.as_str())
    }

    /// One volume. `kind` is a word of ours such as `empty-dir`; the name is a DNS label, which the API
    /// server has checked and static pods are checked for.
    pub(crate) fn volume(&self, uid: &PodUid, kind: &str, name: &str) -> PathBuf {
        self.pod(uid).join("volumes").join(kind).join(name)
    }

    /// The logs of one pod.
    pub(crate) fn pod_logs(&self, namespace: &str, name: &str, uid: &PodUid) -> PathBuf {
        self.logs.join(format!("{namespace}_{name}_{uid}"))
    }

    /// The path of a log as CRI wants it: relative to the directory of the pod's logs.
    pub(crate) fn container_log(container: &str, attempt: u32) -> PathBuf {
        Path::new(container).join(format!("{attempt}.log"))
    }

    /// Below it are the seccomp profiles that pods name with `Localhost`, as below a kubelet's root directory.
    pub(crate) fn seccomp_profiles(&self) -> PathBuf {
        self.state.join("seccomp")
    }

    /// The hosts file of one pod.
    pub(crate) fn hosts(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("etc-hosts")
    }

    /// Where the variables of one container came from. The name is a DNS label.
    pub(crate) fn environment(&self, uid: &PodUid, container: &str) -> PathBuf {
        self.pod(uid).join("environments").join(format!("{container}.json"))
    }

    /// What containers of one pod run on, as hashes. In memory: something is mounted there.
    pub(crate) fn rotation(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("rotation")
    }

    /// What one container runs on. The name is a DNS label.
    pub(crate) fn rotation_record(&self, uid: &PodUid, container: &str) -> PathBuf {
        self.rotation(uid).join(format!("{container}.json"))
    }

    /// Where one container leaves what it says last. The name is a DNS label.
    pub(crate) fn termination_message(
        &self,
        uid: &PodUid,
        container: &str,
        attempt: u32,
    ) -> PathBuf {
        self.termination_messages(uid, container).join(attempt.to_string())
    }

    /// Where all instances of one container leave it.
    pub(crate) fn termination_messages(&self, uid: &PodUid, container: &str) -> PathBuf {
        self.pod(uid).join("containers").join(container)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod's root made a program of the machine's root out of its termination message: any user of the
    /// machine could run it.
    #[test]
    fn nobody_but_root_reaches_what_pods_write() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("node");
        let directories = Directories { state, logs: dir.path().join("logs") };
        fs::create_dir_all(directories.pods()).unwrap();
        fs::set_permissions(directories.pods(), fs::Permissions::from_mode(0o755)).unwrap();
        directories.make_pods().unwrap();
        let mode = fs::metadata(directories.pods()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
