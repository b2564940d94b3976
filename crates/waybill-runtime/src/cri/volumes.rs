//! What is done on the machine for the volumes of a container: nothing, but to make host paths that are
//! missing. The engine mounts them where only the container is.

use std::{fs, io, path::Path};

use rustix::{
    io::Errno,
    mount::{UnmountFlags, unmount},
};
use waybill_proto::cri;

use super::error::{CriError, Result};

/// Makes host paths that do not exist, as directories: kubelets leave that to the runtime, for a `hostPath` without a type.
pub(crate) fn make_host_paths(mounts: &[cri::Mount]) -> Result<()> {
    let paths = mounts.iter().map(|mount| Path::new(&mount.host_path));
    for path in paths.filter(|path| path.is_absolute() && !path.exists()) {
        fs::create_dir_all(path).map_err(CriError::io("make the host path", path))?;
    }
    Ok(())
}

/// Undoes what runtimes before 0.2 mounted below the directory of a container. Twice is fine.
pub(crate) fn unstage(directory: &Path) -> Result<()> {
    let parent = directory.join("volumes");
    let entries = match fs::read_dir(&parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(CriError::io("list", parent)(error)),
    };
    for entry in entries {
        let place = entry.map_err(CriError::io("list", &parent))?.path();
        match unmount(&place, UnmountFlags::DETACH) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(error) => return Err(CriError::io("unmount", place)(error.into())),
        }
        let remove = if place.is_dir() { fs::remove_dir } else { fs::remove_file };
        remove(&place).map_err(CriError::io("remove", &place))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_staged_is_unstaged_easily() {
        let directory = tempfile::tempdir().unwrap();
        unstage(directory.path()).unwrap();
        unstage(&directory.path().join("none")).unwrap();
    }
}
