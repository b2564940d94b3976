//! The cgroups of pods, in the layout of kubelets: below the root stand the pods that are guaranteed what
//! they have, and `burstable` and `besteffort` with the others.
//!
//! The node makes the one of a pod with what all its containers may use together, before the runtime puts
//! containers into it. Runtimes may remove it with the last of them, or leave it behind; either is well.

mod hierarchy;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::sleep;
use tracing::{debug, warn};
use waybill_core::id::PodUid;

use self::hierarchy::{Hierarchies, Values};
use crate::{
    blocking::blocking,
    cri::{
        resources::{self, PodLimits, Qos},
        sandbox::cgroup_parent,
    },
    pod::Pod,
};

const MOUNT: &str = "/sys/fs/cgroup";
/// Processes that were killed may still be about to leave. What is left after this is found again later.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// The cgroups of all pods.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    mount: PathBuf,
    root: String,
    /// How many processes and threads a pod may have, sessions in it included; nothing for as many as there are.
    pids_of_pod: Option<i64>,
}

impl Cgroups {
    /// Below `root`, such as `/waybill`.
    pub(crate) fn new(root: &str) -> Self {
        Self::at(Path::new(MOUNT), root)
    }

    /// The same where cgroups are mounted elsewhere.
    pub(crate) fn at(mount: &Path, root: &str) -> Self {
        let root = root.trim_matches('/').to_owned();
        Self { mount: mount.to_owned(), root, pids_of_pod: None }
    }

    /// The same where a pod may have so many processes and threads; no limit unless it is positive, as for kubelets.
    pub(crate) fn with_pids_of_pod(self, most: i64) -> Self {
        Self { pids_of_pod: (most > 0).then_some(most), ..self }
    }

    /// Gives all pods together what the node has for them: thousandths of processors, bytes, and processes.
    pub(crate) fn limit_all(&self, milli: i64, memory: i64, pids: Option<i64>) {
        let all = Values {
            shares: Some(resources::shares(milli)),
            memory: (memory > 0).then_some(memory),
            pids,
            ..Values::default()
        };
        let least = Values { shares: Some(resources::shares(0)), ..Values::default() };
        let made = self.make(Path::new(""), &all);
        let made = made.and_then(|()| self.make(Path::new("besteffort"), &least));
        if let Err(error) = made {
            warn!(%error, "the pods of this node have no limit as a whole");
        }
    }

    /// Pods that ask for some of the processors get as much of them together, beside guaranteed ones.
    pub(super) fn share_with_burstable(&self, milli: i64) {
        let values = Values { shares: Some(resources::shares(milli)), ..Values::default() };
        if let Err(error) = self.make(Path::new("burstable"), &values) {
            debug!(%error, "burstable pods have the share that they had");
        }
    }

    /// Makes the cgroup of a pod, with its limits.
    pub(super) fn make_pod(&self, pod: &Pod) -> io::Result<()> {
        let PodLimits { shares, quota, memory } = PodLimits::of(pod);
        let path = cgroup_parent("", Qos::of(pod), pod.uid());
        let path = Path::new(path.trim_start_matches('/'));
        let values =
            Values { shares: Some(shares), quota, memory, pids: self.pids_of_pod, no_swap: true };
        self.make(path, &values)
    }

    /// How many processes and threads a pod has; none where that is not counted.
    pub(super) fn processes(&self, pod: &Pod) -> u64 {
        let parent = cgroup_parent(&self.root, Qos::of(pod), pod.uid());
        let files = all_hierarchies(&self.mount)
            .into_iter()
            .map(|hierarchy| hierarchy.join(parent.trim_start_matches('/')).join("pids.current"));
        let counts = files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
        counts.max().unwrap_or(0)
    }

    /// Removes what is left of a pod's cgroups, in all hierarchies.
    pub(super) async fn remove_pod(&self, uid: &PodUid) {
        for _ in 0..TRIES {
            let (cgroups, uid) = (self.clone(), uid.clone());
            let removed = blocking(move || cgroups.remove_if_unused(&uid)).await;
            if removed.is_ok_and(|removed| removed) {
                return;
            }
            sleep(PAUSE).await;
        }
        warn!(%uid, "a cgroup of a pod is still in use");
    }

    /// Removes the cgroups of a pod if nothing is in them. True if there is nothing left.
    pub(super) fn remove_if_unused(&self, uid: &PodUid) -> bool {
        let mut is_gone = true;
        for qos in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
            let parent = cgroup_parent(&self.root, qos, uid);
            for hierarchy in all_hierarchies(&self.mount) {
                let path = hierarchy.join(parent.trim_start_matches('/'));
                is_gone &= remove_tree(&path).is_ok();
            }
        }
        is_gone
    }

    /// Removes the cgroups above those of pods, unless there are pods.
    pub(super) fn remove_root(&self) {
        for hierarchy in all_hierarchies(&self.mount) {
            let root = hierarchy.join(&self.root);
            if self.root.is_empty() {
                continue;
            }
            for path in [root.join("burstable"), root.join("besteffort"), root] {
                // One that is missing, or in use, stays so.
                let _ = fs::remove_dir(path);
            }
        }
    }

    /// Pods that have a cgroup.
    pub(super) fn pods(&self) -> Vec<PodUid> {
        let roots = all_hierarchies(&self.mount).into_iter().map(|it| it.join(&self.root));
        let classes = roots.flat_map(|root| {
            let classes = [root.join("burstable"), root.join("besteffort")];
            classes.into_iter().chain([root])
        });
        let entries = classes.flat_map(|class| fs::read_dir(class).into_iter().flatten().flatten());
        let uids = entries.filter_map(|entry| {
            PodUid::parse(entry.file_name().to_str()?.strip_prefix("pod")?).ok()
        });
        let mut uids: Vec<_> = uids.collect();
        uids.sort_unstable();
        uids.dedup();
        uids
    }

    fn make(&self, path: &Path, values: &Values) -> io::Result<()> {
        if self.root.is_empty() && path.as_os_str().is_empty() {
            // The machine's own.
            return Ok(());
        }
        Hierarchies::of(&self.mount).make(&Path::new(&self.root).join(path), values)
    }
}

/// How many processes and threads all pods may have together: a tenth of what the kernel has stays with the machine, so
/// that many pods at their limits keep nobody from logging in. Nothing where the kernel does not say.
pub(crate) fn pids_of_all_pods() -> Option<i64> {
    let most = |file: &str| fs::read_to_string(file).ok()?.trim().parse::<i64>().ok();
    let all = most("/proc/sys/kernel/pid_max")?.min(most("/proc/sys/kernel/threads-max")?);
    Some(all - all / 10)
}

/// The one of cgroup v2 is the mount itself; those of v1 are below it.
fn all_hierarchies(mount: &Path) -> Vec<PathBuf> {
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
    match fs::remove_dir(path) {
        // The runtime was quicker.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::testing::pod;

    fn machine() -> (tempfile::TempDir, Cgroups) {
        let mount = tempfile::tempdir().unwrap();
        for controller in ["cpu", "memory", "pids"] {
            fs::create_dir(mount.path().join(controller)).unwrap();
        }
        let cgroups = Cgroups::at(mount.path(), "/waybill");
        (mount, cgroups)
    }

    #[test]
    fn a_pod_stands_below_its_class_with_its_limits() {
        let (mount, cgroups) = machine();
        let limits =
            json!({ "limits": { "cpu": "1", "memory": "1Mi" }, "requests": { "cpu": "500m" } });
        let pod =
            pod(json!({ "containers": [{ "name": "a", "image": "i", "resources": limits }] }));
        cgroups.limit_all(4000, 1 << 30, Some(30_000));
        cgroups.share_with_burstable(500);
        cgroups.make_pod(&pod).unwrap();
        let read = |path: &str| fs::read_to_string(mount.path().join(path)).unwrap();
        assert_eq!(read("cpu/waybill/cpu.shares"), "4096");
        assert_eq!(read("memory/waybill/memory.limit_in_bytes"), (1_i64 << 30).to_string());
        assert_eq!(read("cpu/waybill/besteffort/cpu.shares"), "2");
        assert_eq!(read("cpu/waybill/burstable/cpu.shares"), "512");
        assert_eq!(read("cpu/waybill/burstable/poduid-1/cpu.shares"), "512");
        assert_eq!(read("cpu/waybill/burstable/poduid-1/cpu.cfs_quota_us"), "100000");
        assert_eq!(read("cpu/waybill/burstable/poduid-1/cpu.cfs_period_us"), "100000");
        assert_eq!(read("memory/waybill/burstable/poduid-1/memory.limit_in_bytes"), "1048576");
        assert_eq!(read("pids/waybill/pids.max"), "30000");
        assert!(!mount.path().join("pids/waybill/burstable/poduid-1/pids.max").exists());
        assert_eq!(cgroups.pods(), [pod.uid().clone()]);
    }

    #[test]
    fn a_pod_has_no_more_processes_than_the_node_allows_each() {
        let (mount, cgroups) = machine();
        let pod = pod(json!({ "containers": [{ "name": "a", "image": "i" }] }));
        let most = mount.path().join("pids/waybill/besteffort/poduid-1/pids.max");
        for none in [-1, 0] {
            cgroups.clone().with_pids_of_pod(none).make_pod(&pod).unwrap();
            assert!(!most.exists(), "{none}");
        }
        cgroups.with_pids_of_pod(64).make_pod(&pod).unwrap();
        assert_eq!(fs::read_to_string(most).unwrap(), "64");
    }

    #[test]
    fn the_machine_keeps_some_processes_for_itself() {
        let all: i64 =
            fs::read_to_string("/proc/sys/kernel/pid_max").unwrap().trim().parse().unwrap();
        assert!(pids_of_all_pods().is_some_and(|most| 0 < most && most < all));
    }

    #[test]
    fn the_cgroups_of_the_machine_are_left_alone() {
        let (mount, _) = machine();
        Cgroups::at(mount.path(), "/").limit_all(4000, 1 << 30, None);
        assert!(!mount.path().join("cpu/cpu.shares").exists());
    }

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
