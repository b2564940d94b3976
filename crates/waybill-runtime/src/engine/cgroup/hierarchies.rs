//! Which cgroup hierarchies this machine has, and where.

use std::{
    borrow::Cow,
    io,
    path::{Path, PathBuf},
};

use crate::procfs::MountTable;

/// The hierarchies of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Hierarchies {
    pub(super) unified: PathBuf,
    /// Empty on a machine that has the unified one only.
    pub(super) legacy: Vec<Legacy>,
}

/// A hierarchy of cgroup v1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Legacy {
    pub(super) mount: PathBuf,
    controllers: Vec<String>,
}

impl Hierarchies {
    /// Finds them; an error when there is no unified one, because sessions live there.
    pub(in crate::engine) fn detect() -> io::Result<Self> {
        Self::among(&MountTable::read()?).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "no cgroup v2 hierarchy is mounted; mount one at /sys/fs/cgroup, or at /sys/fs/cgroup/unified beside v1",
            )
        })
    }

    fn among(table: &MountTable) -> Option<Self> {
        let mut unified = None;
        let mut legacy = Vec::new();
        for mount in table.mounts().filter(|mount| mount.point.starts_with("/sys/fs/cgroup")) {
            match mount.kind {
                b"cgroup2" if unified.is_none() => unified = Some(mount.point),
                b"cgroup" => {
                    let controllers = mount.options().map(String::from_utf8_lossy);
                    let controllers = controllers.map(Cow::into_owned).collect();
                    legacy.push(Legacy { mount: mount.point, controllers });
                }
                _ => {}
            }
        }
        Some(Self { unified: unified?, legacy })
    }

    pub(super) fn legacy_with(&self, controller: &str) -> Option<&Path> {
        self.legacy
            .iter()
            .find(|legacy| legacy.has(controller))
            .map(|legacy| legacy.mount.as_path())
    }

    /// The names by which older hierarchies are mounted.
    pub(in crate::engine) fn legacy_names(&self) -> impl Iterator<Item = &str> {
        self.legacy.iter().filter_map(Legacy::name)
    }

    /// Whether there is such a cgroup, relative to the root.
    pub(in crate::engine) fn has(&self, path: &Path) -> bool {
        self.unified.join(path).exists()
    }

    /// Whether the cgroup exists in any hierarchy. One that is being removed goes from one after the other.
    pub(in crate::engine) fn have(&self, path: &Path) -> bool {
        self.roots().any(|root| root.join(path).exists())
    }

    /// Whether the unified hierarchy is the only one.
    pub(in crate::engine) fn is_unified(&self) -> bool {
        self.legacy.is_empty()
    }

    pub(super) fn roots(&self) -> impl Iterator<Item = &Path> {
        [self.unified.as_path()]
            .into_iter()
            .chain(self.legacy.iter().map(|legacy| legacy.mount.as_path()))
    }
}

impl Legacy {
    pub(super) fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.mount.file_name()?.to_str()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::engine::cgroup) const HYBRID: &str = "\
25 1 0:5 / /sys/fs/cgroup rw - tmpfs tmpfs rw
26 25 0:6 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:1 - cgroup cgroup rw,cpu,cpuacct
27 25 0:7 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
28 25 0:8 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
29 25 0:8 / /mnt/other rw - cgroup2 cgroup2 rw
";

    pub(in crate::engine::cgroup) fn parse(mountinfo: &str) -> Option<Hierarchies> {
        Hierarchies::among(&MountTable::from_mountinfo(mountinfo.into()))
    }

    #[test]
    fn hierarchies_are_found_by_what_is_mounted() {
        let hybrid = parse(HYBRID).unwrap();
        assert_eq!(hybrid.unified, Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(hybrid.legacy.len(), 2);
        assert_eq!(hybrid.legacy_with("cpuacct"), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(hybrid.legacy_with("memory"), None);
        let unified = "29 25 0:8 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
        let unified = parse(unified).unwrap();
        assert!(unified.legacy.is_empty());
        assert_eq!(parse("25 1 0:5 / /sys/fs/cgroup rw - tmpfs tmpfs rw"), None);
    }
}
