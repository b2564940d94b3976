//! Whether mounts that appear below a path reach a container, and the other way round.

use std::path::{Path, PathBuf};

use crate::{
    cri::error::{CriError, Result},
    procfs::{Mount, MountTable},
};

/// The mounts of this process, and how each passes on what is mounted below it.
pub(crate) struct Sharing(Vec<MountPoint>);

struct MountPoint {
    path: PathBuf,
    shared: bool,
    receives: bool,
}

impl Sharing {
    pub(crate) fn of_this_process() -> Result<Self> {
        let table = MountTable::read().map_err(CriError::io("read", MountTable::PATH))?;
        Ok(Self::among(&table))
    }

    fn among(table: &MountTable) -> Self {
        let point = |mount: Mount<'_>| MountPoint {
            path: mount.point,
            shared: mount.is_shared,
            receives: mount.is_shared || mount.is_slave,
        };
        Self(table.mounts().map(point).collect())
    }

    /// Mounts below `path` must go both ways.
    pub(super) fn check_shared(&self, path: &Path) -> Result<()> {
        self.check(path, |point| point.shared, "a shared mount (try `mount --make-rshared`)")
    }

    /// Mounts below `path` must reach the container.
    pub(super) fn check_receives(&self, path: &Path) -> Result<()> {
        self.check(path, |point| point.receives, "a shared or slave mount")
    }

    /// The mount that `path` lies on. Of two on one place the later hides the earlier.
    fn innermost(&self, path: &Path) -> Option<&MountPoint> {
        let above = self.0.iter().filter(|point| path.starts_with(&point.path));
        above.max_by_key(|point| point.path.components().count())
    }

    fn check(
        &self,
        path: &Path,
        is_good: impl Fn(&MountPoint) -> bool,
        wanted: &str,
    ) -> Result<()> {
        let point = self.innermost(path);
        if point.is_none_or(is_good) {
            return Ok(());
        }
        let at = point.map(|point| point.path.display().to_string()).unwrap_or_default();
        let reason = format!("{} lies on the mount {at}, which is not {wanted}", path.display());
        Err(CriError::invalid(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda rw\n\
                          2 1 0:2 / /private rw - tmpfs tmpfs rw\n\
                          3 1 0:3 / /slave rw master:4 - tmpfs tmpfs rw\n\
                          4 1 0:4 / /with\\040space rw - tmpfs tmpfs rw\n";

    fn sharing() -> Sharing {
        Sharing::among(&MountTable::from_mountinfo(MOUNTS.into()))
    }

    #[track_caller]
    fn check(path: &str, shared: bool, receives: bool) {
        let sharing = sharing();
        assert_eq!(sharing.check_shared(Path::new(path)).is_ok(), shared, "{path}");
        assert_eq!(sharing.check_receives(Path::new(path)).is_ok(), receives, "{path}");
    }

    #[test]
    fn the_innermost_mount_decides() {
        check("/", true, true);
        check("/srv/data", true, true);
        check("/private", false, false);
        check("/private/a", false, false);
        check("/privately", true, true);
        check("/slave/a", false, true);
        check("/with space/a", false, false);
    }

    #[test]
    fn the_refusal_names_the_mount() {
        let error = sharing().check_shared(Path::new("/private/a")).unwrap_err();
        assert!(error.to_string().starts_with("/private/a lies on the mount /private, which is"));
    }
}
