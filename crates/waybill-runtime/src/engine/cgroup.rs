//! Control groups: those of containers and, below them, leaves for their processes and exec sessions (see `leaves`).
//!
//! A machine has one unified hierarchy (cgroup v2), and may have older ones (v1) beside it. A container
//! has the same path in all of them. Which processes belong to a container or session is asked of the unified
//! hierarchy alone; the older ones only hold limits.

mod counters;
mod devices;
mod hierarchies;
mod leaves;
mod mirror;
mod session;
mod stats;
mod tree;

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Component, Path, PathBuf},
    time::Duration,
};

use libcgroups::common::{CgroupConfig, CgroupManager, ControllerOpt, create_cgroup_manager};
use oci_spec::runtime::{LinuxDeviceCgroup, LinuxResources};
use rustix::fs::{Mode, OFlags};

use self::tree::{directories_below, is_populated, kill_below, remove_tree, wait_until_empty};
pub(super) use self::{
    hierarchies::Hierarchies,
    leaves::{CgroupIds, Layout},
    session::{SessionCgroup, SessionIdentity, kill_session},
};
use super::{MemoryStats, sys};

/// A container's cgroup, in all hierarchies.
#[derive(Clone, Debug)]
pub(super) struct Cgroup {
    hierarchies: Hierarchies,
    /// Below each hierarchy's root.
    path: PathBuf,
    layout: Layout,
}

/// How often a cgroup is made again because its parent was removed meanwhile.
const MOST_TRIES: u32 = 100;

/// What keeps containers from devices that they were not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceGuard {
    /// The controller of cgroup v1, which is set with the other limits.
    Controller,
    /// A program of ours in each container's cgroup.
    Program,
    /// A kernel without the controller that takes no programs from us.
    Nothing,
}

impl DeviceGuard {
    pub(super) fn of(hierarchies: &Hierarchies) -> Self {
        if hierarchies.legacy_with("devices").is_some() {
            Self::Controller
        } else if sys::can_guard_devices() {
            Self::Program
        } else {
            Self::Nothing
        }
    }
}

/// Makes the directory of a cgroup, unless it is there. Everybody may pass it, whatever our umask: the root of a pod with users of its own
/// mounts a view of its cgroup, and the kernel leads it there from the root of the hierarchy.
fn make_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o755)),
    }
}

/// Where, beside a container's view of its cgroups, the creator mounts the one of a hierarchy. It does not end with the
/// name of a controller, because that is how libcontainer would know it.
pub(super) fn source_of(view: &Path, hierarchy: &str) -> PathBuf {
    view.with_file_name(format!("of-{hierarchy}"))
}

impl Cgroup {
    /// The cgroup at `path`, which need not exist. Refuses a path that is not absolute and plain, and the root.
    pub(super) fn new(hierarchies: &Hierarchies, path: &Path) -> Option<Self> {
        let relative = path.strip_prefix("/").ok()?;
        let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        (plain && relative.components().next().is_some()).then(|| Self {
            hierarchies: hierarchies.clone(),
            path: relative.to_owned(),
            layout: Layout::Leaves,
        })
    }

    /// The same, of a container whose processes lie as `layout` says.
    pub(super) fn with_layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// Makes the cgroup in every hierarchy, parents included.
    pub(super) fn create(&self) -> io::Result<()> {
        self.hierarchies.roots().try_for_each(|root| self.create_in(root))
    }

    /// Whoever else is removed from below a parent that nobody uses takes that along, until ours is there. So a parent that
    /// goes away meanwhile is made again.
    fn create_in(&self, root: &Path) -> io::Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_create_in(root) {
                Err(error) if is_gone(&error) && tries < MOST_TRIES => {}
                result => return result,
            }
        }
    }

    fn try_create_in(&self, root: &Path) -> io::Result<()> {
        let unified = root == self.hierarchies.unified;
        let cpuset = self.hierarchies.legacy_with("cpuset") == Some(root);
        let mut parent = root.to_owned();
        for part in self.path.components() {
            if unified && self.hierarchies.legacy.is_empty() {
                pass_controllers_on(&parent);
            }
            let directory = parent.join(part);
            make_directory(&directory)?;
            if cpuset {
                inherit_cpuset(&parent, &directory)?;
            }
            parent = directory;
        }
        Ok(())
    }

    /// Opens, in the leaf of each older hierarchy, the file to which a process writes "0" to enter.
    ///
    /// It is `tasks`, not `cgroup.procs`: a thread that moves itself does not wait until every processor has passed
    /// a quiet state, which costs about ten milliseconds. A process with one thread moves completely that way.
    pub(super) fn entrances(&self) -> io::Result<Vec<File>> {
        let leaf = self.processes_path();
        self.hierarchies
            .legacy
            .iter()
            .map(|legacy| {
                OpenOptions::new().write(true).open(legacy.mount.join(&leaf).join("tasks"))
            })
            .collect()
    }

    /// Opens what reports `PollFlags::PRI` when it became empty or populated.
    pub(super) fn open_events(&self) -> io::Result<File> {
        File::open(self.unified().join("cgroup.events"))
    }

    /// Has a program keep its processes from all devices but those that the rules allow.
    pub(super) fn guard_devices(&self, rules: &[LinuxDeviceCgroup]) -> io::Result<()> {
        sys::guard_devices(open_directory(&self.unified())?.as_fd(), &devices::program(rules))
    }

    /// Applies limits; what is not named stays as it is.
    pub(super) fn apply(&self, resources: &LinuxResources) -> io::Result<()> {
        let config = CgroupConfig {
            cgroup_path: self.path(),
            systemd_cgroup: false,
            container_name: String::new(),
        };
        let manager = create_cgroup_manager(config).map_err(io::Error::other)?;
        let options = ControllerOpt {
            resources,
            disable_oom_killer: false,
            oom_score_adj: None,
            freezer_state: None,
        };
        manager.apply(&options).map_err(io::Error::other)
    }

    /// Kills every process in it and below it.
    pub(super) fn kill(&self) -> io::Result<()> {
        kill_below(&self.unified())
    }

    /// Whether any process lives in it or below it.
    pub(super) fn is_populated(&self) -> io::Result<bool> {
        is_populated(&self.unified())
    }

    /// Waits until no process lives in it or below it. False when that took longer than `patience`.
    pub(super) fn wait_until_empty(&self, patience: Duration) -> io::Result<bool> {
        wait_until_empty(&self.unified(), patience)
    }

    /// Removes it and everything below it from every hierarchy. It must be empty of processes.
    pub(super) fn remove(&self) -> io::Result<()> {
        for root in self.hierarchies.roots() {
            remove_tree(&root.join(&self.path))?;
        }
        Ok(())
    }

    /// Removes cgroups that did not exist before, given topmost first, as far as nobody else uses them.
    pub(super) fn remove_made(hierarchies: &Hierarchies, made: &[PathBuf]) {
        for relative in made.iter().rev() {
            for root in hierarchies.roots() {
                let _ = fs::remove_dir(root.join(relative));
            }
        }
    }

    /// Whether the kernel killed a process of it for want of memory. On v1 each cgroup counts for itself, as on v2 where it
    /// is mounted so, and the process was in a leaf.
    pub(super) fn ran_out_of_memory(&self) -> bool {
        self.out_of_memory_kills() > 0
    }

    fn out_of_memory_kills(&self) -> u64 {
        let (root, file) = match self.hierarchies.legacy_with("memory") {
            Some(root) => (root, "memory.oom_control"),
            None => (self.hierarchies.unified.as_path(), "memory.events"),
        };
        let all = directories_below(&root.join(&self.path)).unwrap_or_default();
        let kills = all.iter().filter_map(|it| stats::field(&it.join(file), "oom_kill").ok());
        kills.fold(0, u64::saturating_add)
    }

    /// Processor time in nanoseconds, memory, number of processes and its limit.
    pub(super) fn usage(&self) -> io::Result<(u64, MemoryStats, u64, Option<u64>)> {
        let of =
            |controller| self.hierarchies.legacy_with(controller).map(|root| root.join(&self.path));
        let unified = self.unified();
        let cpu = match of("cpuacct") {
            Some(directory) => stats::number(&directory.join("cpuacct.usage"))?,
            None => stats::field(&unified.join("cpu.stat"), "usage_usec")?.saturating_mul(1000),
        };
        let memory = match of("memory") {
            Some(directory) => stats::legacy_memory(&directory)?,
            None => stats::unified_memory(&unified)?,
        };
        let pids = of("pids").unwrap_or(unified);
        let limit = stats::limit(&pids.join("pids.max"))?;
        Ok((cpu, memory, stats::number(&pids.join("pids.current"))?, limit))
    }

    /// The cgroups above it, topmost first, relative to the root.
    pub(super) fn above(&self) -> impl Iterator<Item = PathBuf> {
        let mut above: Vec<PathBuf> = self.path.ancestors().skip(1).map(Path::to_owned).collect();
        above.reverse();
        above.into_iter().filter(|path| !path.as_os_str().is_empty())
    }

    pub(super) fn hierarchies(&self) -> &Hierarchies {
        &self.hierarchies
    }

    /// Below each hierarchy's root.
    pub(super) fn relative(&self) -> &Path {
        &self.path
    }

    /// The directory in the unified hierarchy.
    pub(super) fn directory(&self) -> PathBuf {
        self.unified()
    }

    pub(super) fn path(&self) -> PathBuf {
        Path::new("/").join(&self.path)
    }

    pub(in crate::engine) fn unified(&self) -> PathBuf {
        self.hierarchies.unified.join(&self.path)
    }
}

/// Whether a cgroup was removed meanwhile. What was open of it then answers that there is no such device.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Lets children of a v2 cgroup be limited. Best effort: a limit that then cannot be set is reported when it is set.
fn pass_controllers_on(directory: &Path) {
    let available = fs::read_to_string(directory.join("cgroup.controllers")).unwrap_or_default();
    let enabled = fs::read_to_string(directory.join("cgroup.subtree_control")).unwrap_or_default();
    for controller in available.split_whitespace() {
        if !enabled.split_whitespace().any(|name| name == controller) {
            let _ = fs::write(directory.join("cgroup.subtree_control"), format!("+{controller}"));
        }
    }
}

/// No process can enter a v1 cpuset whose processors or memory nodes are not set.
fn inherit_cpuset(parent: &Path, directory: &Path) -> io::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if fs::read_to_string(directory.join(file))?.trim().is_empty() {
            fs::write(directory.join(file), fs::read_to_string(parent.join(file))?.trim())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        hierarchies::tests::{HYBRID, parse},
        *,
    };

    #[test]
    fn a_cgroup_path_is_absolute_and_plain() {
        let hierarchies = parse(HYBRID).unwrap();
        let new = |path: &str| Cgroup::new(&hierarchies, Path::new(path)).is_some();
        assert!(new("/pods/a/b"));
        for bad in ["/", "", "pods/a", "/pods/../..", "/.."] {
            assert!(!new(bad), "{bad}");
        }
    }
}
