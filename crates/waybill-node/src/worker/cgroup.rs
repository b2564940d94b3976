//! The cgroups of pods. Runtimes make them, with the limits of containers inside; ours removes them too,
//! others leave the one of the pod behind.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tracing::debug;
use waybill_core::id::PodUid;

use crate::cri::{resources::Qos, sandbox::cgroup_parent};

const MOUNT: &str = "/sys/fs/cgroup";

/// Removes what is left of a pod's cgroups, in all hierarchies.
pub(super) fn remove(root: &str, uid: &PodUid) {
    let hierarchies = hierarchies(Path::new(MOUNT));
    for qos in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
        let parent = cgroup_parent(root, qos, uid);
        for hierarchy in &hierarchies {
            let path = hierarchy.join(parent.trim_start_matches('/'));
            if let Err(error) = remove_tree(&path) {
                debug!(path = %path.display(), %error, "a cgroup is still in use");
            }
        }
    }
}

/// Removes the cgroups above those of pods, unless there are pods.
pub(super) fn remove_root(root: &str) {
    for hierarchy in hierarchies(Path::new(MOUNT)) {
        let root = hierarchy.join(root.trim_matches('/'));
        if root == hierarchy {
            continue;
        }
        for path in [root.join("burstable"), root.join("besteffort"), root] {
            // One that is missing, or in use, stays so.
            let _ = fs::remove_dir(path);
        }
    }
}

/// The one of cgroup v2 is the mount itself; those of v1 are below it.
fn hierarchies(mount: &Path) -> Vec<PathBuf> {
    let below = fs::read_dir(mount).into_iter().flatten().flatten();
    let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    [mount.to_owned()].into_iter().chain(below.map(|entry| entry.path())).collect()
}

/// Files in a cgroup go with it; only directories are removed.
fn remove_tree(path: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_are_removed_and_a_missing_one_is_fine() {
        let directory = tempfile::tempdir().unwrap();
        let pod = directory.path().join("pod");
        fs::create_dir_all(pod.join("a/b")).unwrap();
        remove_tree(&pod).unwrap();
        assert!(!pod.exists());
        remove_tree(&pod).unwrap();
    }
}
