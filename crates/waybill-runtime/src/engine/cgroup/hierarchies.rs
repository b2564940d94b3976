//! Which cgroup hierarchies this machine has, and where.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

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
        Self::parse(&fs::read_to_string("/proc/self/mountinfo")?).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "no cgroup v2 hierarchy is mounted; mount one at /sys/fs/cgroup, or at /sys/fs/cgroup/unified beside v1",
            )
        })
    }

    pub(super) fn parse(mountinfo: &str) -> Option<Self> {
        let mut unified = None;
        let mut legacy = Vec::new();
        for line in mountinfo.lines() {
            let Some((head, tail)) = line.split_once(" - ") else { continue };
            let Some(mount) = head.split(' ').nth(4).filter(|at| at.starts_with("/sys/fs/cgroup"))
            else {
                continue;
            };
            let mut tail = tail.split(' ');
            match tail.next() {
                Some("cgroup2") if unified.is_none() => unified = Some(PathBuf::from(mount)),
                Some("cgroup") => legacy.push(Legacy {
                    mount: PathBuf::from(mount),
                    controllers: tail
                        .nth(1)
                        .unwrap_or_default()
                        .split(',')
                        .map(str::to_owned)
                        .collect(),
                }),
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

    #[test]
    fn hierarchies_are_found_by_what_is_mounted() {
        let hybrid = Hierarchies::parse(HYBRID).unwrap();
        assert_eq!(hybrid.unified, Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(hybrid.legacy.len(), 2);
        assert_eq!(hybrid.legacy_with("cpuacct"), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(hybrid.legacy_with("memory"), None);
        let unified = "29 25 0:8 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
        let unified = Hierarchies::parse(unified).unwrap();
        assert!(unified.legacy.is_empty());
        assert_eq!(Hierarchies::parse("25 1 0:5 / /sys/fs/cgroup rw - tmpfs tmpfs rw"), None);
    }
}
