//! What lies below a container's cgroup: leaves, which alone hold processes.
//!
//! ```text
//! <container>                limits and device rules; no process
//! ├── processes              the container's own; the root of its cgroup namespace
//! └── sessions               unified hierarchy only
//!     └── exec-<session>     one for each exec session
//! ```
//!
//! A container can mount cgroup file systems again if it gets a user namespace, and then sees from the root of its cgroup
//! namespace downwards. So neither limits nor sessions are below `processes`, in any hierarchy. In the older ones,
//! which only hold limits, sessions are in `processes` too.

use std::{fs, io, os::fd::OwnedFd, os::unix::fs::MetadataExt, path::PathBuf};

use oci_spec::runtime::LinuxResources;

use super::{
    Cgroup, inherit_cpuset, make_directory, mirror, open_directory, pass_controllers_on,
    session::SessionCgroup, tree::directories_below,
};

const PROCESSES: &str = "processes";
const SESSIONS: &str = "sessions";

/// Where processes of a container are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Layout {
    /// In the container's cgroup, and sessions right below it: containers of runtimes that knew no leaves.
    Flat,
    /// In leaves.
    Leaves,
}

/// The kernel's names for cgroups of the unified hierarchy, which it never gives twice while the machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct CgroupIds {
    pub(in crate::engine) container: u64,
    pub(in crate::engine) processes: u64,
}

impl Cgroup {
    /// Makes what the unified hierarchy has below the container's cgroup.
    pub(in crate::engine) fn create_leaves(&self) -> io::Result<CgroupIds> {
        let container = self.unified();
        if self.hierarchies.is_unified() {
            pass_controllers_on(&container);
        }
        for name in [PROCESSES, SESSIONS] {
            make_directory(&container.join(name))?;
        }
        let id = |path: &PathBuf| Ok::<_, io::Error>(fs::metadata(path)?.ino());
        Ok(CgroupIds { container: id(&container)?, processes: id(&container.join(PROCESSES))? })
    }

    /// Makes the leaf of each older hierarchy, and has all leaves tell the limits of the container. To be done after those
    /// are set: on v1 a new cgroup copies device rules from the one above, and its processors must be among that one's.
    pub(in crate::engine) fn finish_leaves(&self) -> io::Result<()> {
        for legacy in &self.hierarchies.legacy {
            let container = legacy.mount.join(&self.path);
            let leaf = container.join(PROCESSES);
            // Before Linux 5.11 a cgroup below another one counted for itself alone unless told otherwise.
            let counts_below = container.join("memory.use_hierarchy");
            let alone = || fs::read_to_string(&counts_below).is_ok_and(|text| text.trim() == "0");
            if legacy.has("memory") && alone() {
                fs::write(&counts_below, "1")?;
            }
            make_directory(&leaf)?;
            if legacy.has("cpuset") {
                inherit_cpuset(&container, &leaf)?;
            }
        }
        self.mirror_limits();
        Ok(())
    }

    /// Changes limits of a container that may run; what is not named stays as it is.
    pub(in crate::engine) fn change(&self, resources: &LinuxResources) -> io::Result<()> {
        if self.layout == Layout::Leaves {
            self.make_room(resources);
        }
        self.apply(resources)?;
        self.mirror_limits();
        Ok(())
    }

    /// Opens the leaf of the container's own processes in the unified hierarchy, to fork into.
    pub(in crate::engine) fn open_processes(&self) -> io::Result<OwnedFd> {
        open_directory(&self.unified().join(PROCESSES))
    }

    /// Opens what the cgroups of sessions are made in.
    pub(in crate::engine) fn open_sessions(&self) -> io::Result<OwnedFd> {
        open_directory(&self.unified().join(SESSIONS))
    }

    /// The cgroup of a session.
    pub(in crate::engine) fn session(&self, session: &str) -> PathBuf {
        let name = SessionCgroup::name_of(session);
        match self.layout {
            Layout::Flat => self.unified().join(name),
            Layout::Leaves => self.unified().join(SESSIONS).join(name),
        }
    }

    /// Its leaf in each older hierarchy, and the name by which that is mounted.
    pub(in crate::engine) fn legacy_leaves(&self) -> impl Iterator<Item = (&str, PathBuf)> {
        let legacy = &self.hierarchies.legacy;
        legacy.iter().filter_map(|one| Some((one.name()?, one.mount.join(self.processes_path()))))
    }

    /// Below each hierarchy's root.
    pub(super) fn processes_path(&self) -> PathBuf {
        self.path.join(PROCESSES)
    }

    /// Programs read their limits at the root of their cgroup namespace, so the leaf has a copy. It limits nothing that the
    /// container's cgroup does not limit, and whoever changes it gains nothing; that it cannot be written does not matter.
    fn mirror_limits(&self) {
        if self.layout == Layout::Flat {
            return;
        }
        // Where there are older hierarchies, limits are set in those alone.
        for legacy in &self.hierarchies.legacy {
            let container = legacy.mount.join(&self.path);
            let has = |controller: &str| legacy.has(controller);
            mirror::copy_limits(&container, &container.join(PROCESSES), has);
        }
        if self.hierarchies.is_unified() {
            let container = self.unified();
            mirror::copy_limits(&container, &container.join(PROCESSES), |_| true);
            // Siblings share processors by weight, and sessions together shall count as much as what they are run in.
            mirror::copy(&container, &container.join(SESSIONS), "cpu.weight");
        }
    }

    /// On v1 the kernel refuses limits that something below exceeds, and a container may have made cgroups below its leaf.
    fn make_room(&self, resources: &LinuxResources) {
        let Some(cpu) = resources.cpu() else { return };
        let mut changes = Vec::new();
        if cpu.quota().is_some() || cpu.period().is_some() {
            changes.push(("cpu", "cpu.cfs_quota_us", "-1"));
        }
        changes.extend(cpu.cpus().as_deref().map(|cpus| ("cpuset", "cpuset.cpus", cpus)));
        changes.extend(cpu.mems().as_deref().map(|mems| ("cpuset", "cpuset.mems", mems)));
        for (controller, file, value) in changes {
            let Some(root) = self.hierarchies.legacy_with(controller) else { continue };
            let below = directories_below(&root.join(&self.path)).unwrap_or_default();
            for directory in below.iter().skip(1).rev() {
                // What is wider than it may be now is refused, and is not in the way either.
                let _ = fs::write(directory.join(file), value);
            }
        }
    }
}
