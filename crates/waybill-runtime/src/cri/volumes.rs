//! What is done on the machine for the volumes of a container.
//!
//! Some of them are such whose mounts must not pass through, or in one direction only.
//! libcontainer 0.7 gives every mount of a container the propagation of the root and drops what the
//! specification says about a single one. So a volume is bound to a place of ours first, with the
//! propagation that it asked for, and the container gets it from there.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use oci_spec::runtime::{Mount, Spec};
use rustix::{
    io::Errno,
    mount::{MountPropagationFlags, UnmountFlags, mount_bind_recursive, mount_change, unmount},
};

use waybill_proto::cri;

use super::{
    error::{CriError, Result},
    record,
    spec::Sharing,
};

/// Makes host paths that do not exist, as directories: kubelets leave that to the runtime, for a `hostPath` without a type.
pub(crate) fn make_host_paths(mounts: &[cri::Mount]) -> Result<()> {
    let paths = mounts.iter().map(|mount| Path::new(&mount.host_path));
    for path in paths.filter(|path| path.is_absolute() && !path.exists()) {
        fs::create_dir_all(path).map_err(CriError::io("make the host path", path))?;
    }
    Ok(())
}

/// Binds the volumes of a container below `directory`, where they need it, and changes the sources in
/// `spec` accordingly. `is_volume` tells the request's mounts from ours.
pub(crate) fn stage(
    directory: &Path,
    spec: &mut Spec,
    is_volume: impl Fn(&Path) -> bool,
) -> Result<()> {
    let sharing = Sharing::of_this_process()?;
    let Some(mounts) = spec.mounts_mut() else { return Ok(()) };
    let volumes = mounts.iter_mut().filter(|mount| is_volume(mount.destination()));
    for (number, mount) in volumes.enumerate() {
        let Some((source, flags)) = wanted(mount) else { continue };
        if sharing.touches(&source) {
            let place = place(directory, number, &source)?;
            bind(&source, &place, flags)
                .map_err(|error| CriError::io("bind the volume", &source)(error.into()))?;
            mount.set_source(Some(place));
        }
    }
    Ok(())
}

/// Undoes [`stage`], as far as it came. Twice is fine.
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

/// Source and propagation of a volume that does not let everything through.
fn wanted(mount: &Mount) -> Option<(PathBuf, MountPropagationFlags)> {
    let options = mount.options().as_ref()?;
    let has = |name: &str| options.iter().any(|option| option == name);
    let flags = if has("rprivate") {
        MountPropagationFlags::PRIVATE
    } else if has("rslave") {
        MountPropagationFlags::DOWNSTREAM
    } else {
        return None;
    };
    Some((mount.source().clone()?, flags | MountPropagationFlags::REC))
}

/// A place to bind to: a directory for a directory, a file for anything else.
fn place(directory: &Path, number: usize, source: &Path) -> Result<PathBuf> {
    let parent = directory.join("volumes");
    let place = parent.join(number.to_string());
    let make = || {
        if !parent.exists() {
            record::make_directory(&parent)?;
        }
        if fs::metadata(source)?.is_dir() {
            fs::create_dir(&place)
        } else {
            fs::File::create_new(&place).map(drop)
        }
    };
    make().map_err(CriError::io("make", &place))?;
    Ok(place)
}

fn bind(source: &Path, place: &Path, flags: MountPropagationFlags) -> rustix::io::Result<()> {
    mount_bind_recursive(source, place)?;
    mount_change(place, flags)
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::MountBuilder;

    use super::*;

    fn mount(options: &[&str]) -> Mount {
        let options: Vec<_> = options.iter().map(|&option| option.to_owned()).collect();
        MountBuilder::default().destination("/a").source("/b").options(options).build().unwrap()
    }

    #[test]
    fn only_what_goes_both_ways_is_taken_as_it_is() {
        let flags = |option| wanted(&mount(&["rbind", option])).map(|(_, flags)| flags);
        let rec = MountPropagationFlags::REC;
        assert_eq!(flags("rprivate"), Some(MountPropagationFlags::PRIVATE | rec));
        assert_eq!(flags("rslave"), Some(MountPropagationFlags::DOWNSTREAM | rec));
        assert_eq!(flags("rshared"), None);
    }

    #[test]
    fn nothing_staged_is_unstaged_easily() {
        let directory = tempfile::tempdir().unwrap();
        unstage(directory.path()).unwrap();
        unstage(&directory.path().join("none")).unwrap();
    }
}
