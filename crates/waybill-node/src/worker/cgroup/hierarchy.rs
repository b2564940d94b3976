//! How cgroups are made and limited, in version 1 and version 2.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::cri::resources::cpu_period;

/// What version 2 passes on to the cgroups below, where the kernel has it.
const CONTROLLERS: [&str; 6] = ["cpuset", "cpu", "io", "memory", "hugetlb", "pids"];

/// Weights of version 2 go from 1 to this, where shares go from 2 to 262144.
const MOST_WEIGHT: i64 = 10_000;

/// What a cgroup gets. What is not named stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Values {
    pub(super) shares: Option<i64>,
    /// Microseconds in each period.
    pub(super) quota: Option<i64>,
    pub(super) memory: Option<i64>,
    /// Processes and threads.
    pub(super) pids: Option<i64>,
    /// Whether its memory stays out of swap, as far as the kernel can say so.
    pub(super) no_swap: bool,
}

/// Where cgroups are on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hierarchies {
    /// Each controller has its own; one that a machine has not, nobody misses.
    V1 {
        cpu: PathBuf,
        memory: PathBuf,
        pids: PathBuf,
    },
    V2 {
        root: PathBuf,
    },
}

impl Hierarchies {
    pub(super) fn of(mount: &Path) -> Self {
        if mount.join("cgroup.controllers").exists() {
            return Self::V2 { root: mount.to_owned() };
        }
        Self::V1 { cpu: mount.join("cpu"), memory: mount.join("memory"), pids: mount.join("pids") }
    }

    /// Makes the cgroup `path` with all above it, and gives it `values`.
    pub(super) fn make(&self, path: &Path, values: &Values) -> io::Result<()> {
        match self {
            Self::V1 { cpu, memory, pids } => {
                if cpu.is_dir() {
                    set(&directory(cpu, path)?, &cpu_files(values))?;
                }
                if memory.is_dir() {
                    let directory = directory(memory, path)?;
                    set(&directory, &memory_files(values))?;
                    set_where_there(&directory, &swap_files(values))?;
                }
                if pids.is_dir() {
                    set(&directory(pids, path)?, &pids_files(values))?;
                }
                Ok(())
            }
            Self::V2 { root } => {
                pass_controllers_on(root, path)?;
                let directory = directory(root, path)?;
                set(&directory, &unified_files(values))?;
                let swap = ("memory.swap.max", "0".to_owned());
                set_where_there(&directory, &values.no_swap.then_some(swap).into_iter().collect())
            }
        }
    }
}

fn directory(hierarchy: &Path, path: &Path) -> io::Result<PathBuf> {
    let directory = hierarchy.join(path);
    fs::create_dir_all(&directory).map_err(|error| at(&directory, &error))?;
    Ok(directory)
}

/// A cgroup has the controllers that all above it pass on.
fn pass_controllers_on(root: &Path, path: &Path) -> io::Result<()> {
    let above: Vec<_> = path.ancestors().skip(1).collect();
    for above in above.into_iter().rev() {
        let above = directory(root, above)?;
        let offered = fs::read_to_string(above.join("cgroup.controllers")).unwrap_or_default();
        for controller in offered.split_whitespace().filter(|it| CONTROLLERS.contains(it)) {
            // One that cannot be passed on has no file below, which is told then.
            let _ = fs::write(above.join("cgroup.subtree_control"), format!("+{controller}"));
        }
    }
    Ok(())
}

type Files = Vec<(&'static str, String)>;

fn cpu_files(values: &Values) -> Files {
    let shares = values.shares.map(|shares| ("cpu.shares", shares.to_string()));
    let quota = values.quota.map(|quota| {
        let period = ("cpu.cfs_period_us", cpu_period().to_string());
        [period, ("cpu.cfs_quota_us", quota.to_string())]
    });
    shares.into_iter().chain(quota.into_iter().flatten()).collect()
}

fn memory_files(values: &Values) -> Files {
    values.memory.map(|bytes| ("memory.limit_in_bytes", bytes.to_string())).into_iter().collect()
}

/// Version 1 counts memory and swap together, so it can refuse swap only where memory has a limit; without one it can be told not
/// to swap when it reclaims.
fn swap_files(values: &Values) -> Files {
    if !values.no_swap {
        return Vec::new();
    }
    let together = values.memory.map(|bytes| ("memory.memsw.limit_in_bytes", bytes.to_string()));
    together.into_iter().chain([("memory.swappiness", "0".to_owned())]).collect()
}

/// The same in both versions.
fn pids_files(values: &Values) -> Files {
    values.pids.map(|most| ("pids.max", most.to_string())).into_iter().collect()
}

fn unified_files(values: &Values) -> Files {
    let weight = values.shares.map(|shares| ("cpu.weight", weight(shares).to_string()));
    let quota = values.quota.map(|quota| ("cpu.max", format!("{quota} {}", cpu_period())));
    let memory = values.memory.map(|bytes| ("memory.max", bytes.to_string()));
    let all = [weight, quota, memory].into_iter().flatten();
    all.chain(pids_files(values)).collect()
}

/// As kubelets translate shares.
fn weight(shares: i64) -> i64 {
    ((shares - 2) * (MOST_WEIGHT - 1) / 262_142 + 1).clamp(1, MOST_WEIGHT)
}

fn set(directory: &Path, files: &Files) -> io::Result<()> {
    for (name, value) in files {
        let path = directory.join(name);
        // A value that is there already is not written: the kernel would not like all of them twice.
        if fs::read_to_string(&path).is_ok_and(|found| found.trim() == value) {
            continue;
        }
        fs::write(&path, value).map_err(|error| at(&path, &error))?;
    }
    Ok(())
}

/// Of these files a kernel has those that it was built and started for.
fn set_where_there(directory: &Path, files: &Files) -> io::Result<()> {
    let there = files.iter().filter(|(name, _)| directory.join(name).exists());
    set(directory, &there.cloned().collect())
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_become_weights() {
        for (shares, expected) in [(2, 1), (102, 4), (1024, 39), (262_144, 10_000)] {
            assert_eq!(weight(shares), expected, "{shares}");
        }
    }

    #[test]
    fn version_2_passes_controllers_on() {
        let mount = tempfile::tempdir().unwrap();
        let read = |path: &str| fs::read_to_string(mount.path().join(path)).unwrap();
        fs::write(mount.path().join("cgroup.controllers"), "cpu memory rdma").unwrap();
        let hierarchies = Hierarchies::of(mount.path());
        let values = Values {
            shares: Some(1024),
            quota: Some(50_000),
            memory: Some(4096),
            pids: Some(64),
            no_swap: false,
        };
        hierarchies.make(Path::new("waybill/burstable/pod1"), &values).unwrap();
        assert_eq!(read("cgroup.subtree_control"), "+memory");
        assert_eq!(read("waybill/burstable/pod1/cpu.weight"), "39");
        assert_eq!(read("waybill/burstable/pod1/cpu.max"), "50000 100000");
        assert_eq!(read("waybill/burstable/pod1/memory.max"), "4096");
        assert_eq!(read("waybill/burstable/pod1/pids.max"), "64");
        assert!(!mount.path().join("waybill/burstable/pod1/cgroup.subtree_control").exists());
    }

    #[test]
    fn a_controller_that_a_machine_has_not_is_not_missed() {
        let mount = tempfile::tempdir().unwrap();
        fs::create_dir(mount.path().join("memory")).unwrap();
        let hierarchies = Hierarchies::of(mount.path());
        let values =
            Values { shares: Some(2), memory: Some(4096), pids: Some(64), ..Values::default() };
        hierarchies.make(Path::new("waybill"), &values).unwrap();
        assert!(mount.path().join("memory/waybill/memory.limit_in_bytes").exists());
        assert!(!mount.path().join("cpu").exists() && !mount.path().join("pids").exists());
    }

    /// Values in a container's memory must not end up on a disk.
    #[test]
    fn a_pod_gets_no_swap_where_the_kernel_can_say_so() {
        let path = Path::new("waybill/pod1");
        let values = Values { memory: Some(4096), no_swap: true, ..Values::default() };
        let check = |version: &[&str], files: &[(&str, &str)]| {
            let mount = tempfile::tempdir().unwrap();
            for file in version {
                fs::create_dir_all(mount.path().join(file).parent().unwrap()).unwrap();
                fs::write(mount.path().join(file), "").unwrap();
            }
            Hierarchies::of(mount.path()).make(path, &values).unwrap();
            for (file, expected) in files {
                assert_eq!(fs::read_to_string(mount.path().join(file)).unwrap(), *expected);
            }
            mount
        };
        check(
            &["cgroup.controllers", "waybill/pod1/memory.swap.max"],
            &[("waybill/pod1/memory.swap.max", "0"), ("waybill/pod1/memory.max", "4096")],
        );
        let together = "memory/waybill/pod1/memory.memsw.limit_in_bytes";
        let swappiness = "memory/waybill/pod1/memory.swappiness";
        check(&[together, swappiness], &[(together, "4096"), (swappiness, "0")]);
        // A kernel without swap has none of them.
        let without = check(&["cgroup.controllers"], &[]);
        assert!(!without.path().join("waybill/pod1/memory.swap.max").exists());
    }
}
