//! One overlay mount.
//!
//! Options of the old call must fit a page, which is 40 layers or so. The new one takes layers one
//! by one, and kernels since 6.7 can do that. On older ones layers are named by file descriptors,
//! whose names are short.

use std::{
    ffi::CString,
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, fsconfig_create,
        fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, move_mount,
    },
};

use crate::image::error::{Doing, Result};

/// The longest value that `fsconfig` takes, and some room.
const LONGEST_VALUE: usize = 250;

/// The most options that `mount` takes: a page less a NUL, on all machines.
const LONGEST_OPTIONS: usize = 4095;

/// What to mount.
pub(super) struct Overlay {
    pub(super) source: String,
    /// From the uppermost.
    pub(super) lower: Vec<PathBuf>,
    /// Where changes go, and overlayfs's own working directory beside it; none for a view.
    pub(super) writable: Option<(PathBuf, PathBuf)>,
}

impl Overlay {
    pub(super) fn mount(&self, target: &Path) -> Result<()> {
        match self.mount_new(target) {
            Ok(()) => Ok(()),
            Err(Failure::TooOld) => self.mount_old(target),
            Err(Failure::Refused(Errno::INVAL)) => Err(io::Error::other(
                "the kernel refuses and says why in its log (dmesg); mostly the state directory \
                 lies on a file system that cannot be under an overlay, such as another overlay",
            ))
            .doing(|| doing(target)),
            Err(Failure::Refused(errno)) => Err(errno).doing(|| doing(target)),
        }
    }

    fn mount_new(&self, target: &Path) -> std::result::Result<(), Failure> {
        let context =
            fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| match errno {
                Errno::NOSYS => Failure::TooOld,
                errno => Failure::Refused(errno),
            })?;
        let refused = Failure::Refused;
        let mut handles = Handles::default();
        fsconfig_set_string(&context, "source", &self.source).map_err(refused)?;
        for lower in &self.lower {
            let name = handles.name(lower).map_err(refused)?;
            fsconfig_set_string(&context, "lowerdir+", name).map_err(|errno| match errno {
                Errno::INVAL => Failure::TooOld,
                errno => refused(errno),
            })?;
        }
        if let Some((upper, work)) = &self.writable {
            let upper = handles.name(upper).map_err(refused)?;
            fsconfig_set_string(&context, "upperdir", upper).map_err(refused)?;
            let work = handles.name(work).map_err(refused)?;
            fsconfig_set_string(&context, "workdir", work).map_err(refused)?;
            fsconfig_set_flag(&context, "volatile").map_err(refused)?;
        }
        fsconfig_create(&context).map_err(refused)?;
        // The devices of a container are in its /dev, which is a file system of its own. Who guards their use may
        // mount this again without.
        let attributes = match self.writable {
            Some(_) => MountAttrFlags::MOUNT_ATTR_NODEV,
            None => MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_RDONLY,
        };
        let mounted =
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(refused)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&mounted, "", CWD, target, flags).map_err(refused)
    }

    fn mount_old(&self, target: &Path) -> Result<()> {
        let mut handles = Handles::default();
        let options = self.options(&mut handles).doing(|| doing(target))?;
        let options = if options.len() > LONGEST_OPTIONS {
            handles.always = true;
            self.options(&mut handles).doing(|| doing(target))?
        } else {
            options
        };
        let flags = match self.writable {
            Some(_) => MountFlags::NODEV,
            None => MountFlags::NODEV | MountFlags::RDONLY,
        };
        let options = CString::new(options).map_err(io::Error::from);
        let options = options.doing(|| doing(target))?;
        mount(self.source.as_str(), target, "overlay", flags, options.as_c_str())
            .doing(|| doing(target))
    }

    fn options(&self, handles: &mut Handles) -> rustix::io::Result<String> {
        let lower: rustix::io::Result<Vec<_>> =
            self.lower.iter().map(|path| handles.name(path)).collect();
        let mut options = format!("lowerdir={}", lower?.join(":"));
        if let Some((upper, work)) = &self.writable {
            let (upper, work) = (handles.name(upper)?, handles.name(work)?);
            // A container's changes do not outlive a power cut, so nobody needs to wait for the
            // disk; without this, every unmount would flush the whole file system below.
            options.push_str(&format!(",upperdir={upper},workdir={work},volatile"));
        }
        Ok(options)
    }
}

enum Failure {
    /// The kernel cannot be told in the new way.
    TooOld,
    /// The kernel does not want to.
    Refused(Errno),
}

/// Names of directories for the kernel, and what keeps them valid.
#[derive(Default)]
struct Handles {
    open: Vec<OwnedFd>,
    always: bool,
}

impl Handles {
    /// The path, or a short name for it if it is long or holds what options are separated by.
    fn name(&mut self, path: &Path) -> rustix::io::Result<String> {
        let plain = path
            .to_str()
            .filter(|path| path.len() <= LONGEST_VALUE && !path.contains([':', ',', '\\', '\n']));
        match plain {
            Some(path) if !self.always => Ok(path.to_owned()),
            _ => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let handle = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
                let name = format!("/proc/self/fd/{}", handle.as_raw_fd());
                self.open.push(handle);
                Ok(name)
            }
        }
    }
}

fn doing(target: &Path) -> String {
    format!("mounting a root file system at {}", target.display())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use waybill_core::chain::Chain;

    use super::*;
    use crate::image::testing::is_root;

    /// Layers with one file each, at a path that is hard on options.
    fn overlay(root: &Path, count: usize) -> Overlay {
        let lower = (0..count).map(|at| root.join(format!("a,b:c\\d {at}")));
        let lower: Vec<_> = lower.collect();
        for (at, path) in lower.iter().enumerate() {
            fs::create_dir(path).unwrap();
            fs::write(path.join(at.to_string()), "").unwrap();
        }
        let (upper, work) = (root.join("upper"), root.join("work"));
        for path in [&upper, &work, &root.join("target")] {
            fs::create_dir(path).unwrap();
        }
        Overlay { source: "waybill:test".into(), lower, writable: Some((upper, work)) }
    }

    fn check(mount: impl Fn(&Overlay, &Path), count: usize) {
        if !is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let long = root.path().join("x".repeat(250));
        fs::create_dir(&long).unwrap();
        let target = long.join("target");
        mount(&overlay(&long, count), &target);
        let found = fs::read_dir(&target).unwrap().count();
        rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).unwrap();
        assert_eq!(found, count);
    }

    #[test]
    fn long_paths_and_strange_characters_are_no_obstacle() {
        check(|overlay, target| overlay.mount(target).unwrap(), 150);
    }

    #[test]
    fn the_old_call_takes_many_layers_too() {
        check(|overlay, target| overlay.mount_old(target).unwrap(), 150);
    }

    #[test]
    fn a_refusal_says_where_to_look() {
        if !is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let mut overlay = overlay(root.path(), 1);
        overlay.writable.as_mut().unwrap().1 = root.path().join("upper/work");
        fs::create_dir(root.path().join("upper/work")).unwrap();
        let error = overlay.mount(&root.path().join("target")).unwrap_err();
        let error = Chain(&error).to_string();
        assert!(error.contains("dmesg"), "{error}");
    }
}
