//! One overlay mount.
//!
//! Options of the old call must fit a page, which is 40 layers or so. The new ones take layers one
//! by one, and kernels since 6.7 can do that. On older ones layers are named by file descriptors,
//! whose names are short.
//!
//! Which step an older kernel refuses differs: before 5.2 there are no such calls, from 6.5 the option for one layer
//! is not known when it is set, and in between overlayfs reads its options only when it is created. So a kernel is
//! asked in the old way whenever it does not understand the new one, at whichever step that shows.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
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

/// Whether the kernel did in the old way what it refused in the new one. Then it is not asked in the new way again:
/// each refusal is a line in its log.
static IS_OLD: AtomicBool = AtomicBool::new(false);

impl Overlay {
    pub(super) fn mount(&self, target: &Path) -> Result<()> {
        self.mount_by(&mut Calls::default(), &IS_OLD, target)
    }

    fn mount_by(&self, kernel: &mut impl Kernel, is_old: &AtomicBool, target: &Path) -> Result<()> {
        let created =
            if is_old.load(Ordering::Relaxed) { Err(Errno::NOSYS) } else { self.create(kernel) };
        let mounted = match created {
            Ok(()) => kernel.attach(self.attributes(), target),
            Err(Errno::NOSYS | Errno::INVAL) => {
                let mounted = self.mount_old(kernel, target);
                is_old.fetch_or(mounted.is_ok(), Ordering::Relaxed);
                mounted
            }
            Err(errno) => Err(errno),
        };
        match mounted {
            Err(Errno::INVAL) => Err(io::Error::other(
                "the kernel refuses and says why in its log (dmesg); mostly the state directory \
                 lies on a file system that cannot be under an overlay, such as another overlay",
            ))
            .doing(|| doing(target)),
            mounted => mounted.doing(|| doing(target)),
        }
    }

    fn create(&self, kernel: &mut impl Kernel) -> rustix::io::Result<()> {
        let mut handles = Handles::default();
        kernel.open()?;
        kernel.set("source", &self.source)?;
        for lower in &self.lower {
            kernel.set("lowerdir+", &handles.name(lower)?)?;
        }
        if let Some((upper, work)) = &self.writable {
            kernel.set("upperdir", &handles.name(upper)?)?;
            kernel.set("workdir", &handles.name(work)?)?;
            kernel.set_flag("volatile")?;
        }
        kernel.create()
    }

    /// The devices of a container are in its /dev, which is a file system of its own. Who guards their use may
    /// mount this again without.
    fn attributes(&self) -> MountAttrFlags {
        match self.writable {
            Some(_) => MountAttrFlags::MOUNT_ATTR_NODEV,
            None => MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_RDONLY,
        }
    }

    fn mount_old(&self, kernel: &mut impl Kernel, target: &Path) -> rustix::io::Result<()> {
        let mut handles = Handles::default();
        let mut options = self.options(&mut handles)?;
        if options.len() > LONGEST_OPTIONS {
            handles.always = true;
            options = self.options(&mut handles)?;
        }
        let flags = match self.writable {
            Some(_) => MountFlags::NODEV,
            None => MountFlags::NODEV | MountFlags::RDONLY,
        };
        kernel.mount(&self.source, target, flags, &options)
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

/// What we ask of the kernel; tests have one that refuses.
trait Kernel {
    /// Begins a new overlay, in the way that takes options one by one.
    fn open(&mut self) -> rustix::io::Result<()>;
    fn set(&mut self, option: &str, value: &str) -> rustix::io::Result<()>;
    fn set_flag(&mut self, option: &str) -> rustix::io::Result<()>;
    fn create(&mut self) -> rustix::io::Result<()>;
    fn attach(&mut self, attributes: MountAttrFlags, target: &Path) -> rustix::io::Result<()>;
    /// All at once, as kernels always could.
    fn mount(
        &mut self,
        source: &str,
        target: &Path,
        flags: MountFlags,
        options: &str,
    ) -> rustix::io::Result<()>;
}

/// The kernel itself.
#[derive(Default)]
struct Calls {
    context: Option<OwnedFd>,
}

impl Calls {
    fn context(&self) -> rustix::io::Result<BorrowedFd<'_>> {
        self.context.as_ref().map(AsFd::as_fd).ok_or(Errno::BADF)
    }
}

impl Kernel for Calls {
    fn open(&mut self) -> rustix::io::Result<()> {
        self.context = Some(fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?);
        Ok(())
    }

    fn set(&mut self, option: &str, value: &str) -> rustix::io::Result<()> {
        fsconfig_set_string(self.context()?, option, value)
    }

    fn set_flag(&mut self, option: &str) -> rustix::io::Result<()> {
        fsconfig_set_flag(self.context()?, option)
    }

    fn create(&mut self) -> rustix::io::Result<()> {
        fsconfig_create(self.context()?)
    }

    fn attach(&mut self, attributes: MountAttrFlags, target: &Path) -> rustix::io::Result<()> {
        let mounted = fsmount(self.context()?, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        move_mount(&mounted, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
    }

    fn mount(
        &mut self,
        source: &str,
        target: &Path,
        flags: MountFlags,
        options: &str,
    ) -> rustix::io::Result<()> {
        let options = CString::new(options).map_err(|_| Errno::INVAL)?;
        mount(source, target, "overlay", flags, options.as_c_str())
    }
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
        check(|overlay, target| overlay.mount_old(&mut Calls::default(), target).unwrap(), 150);
    }

    /// A kernel that refuses one step of the new way.
    struct Refusing {
        step: &'static str,
        with: Errno,
        /// What it was asked to begin, and did: the last step of each way.
        done: Vec<&'static str>,
    }

    impl Refusing {
        fn answer(&self, step: &str) -> rustix::io::Result<()> {
            if step == self.step { Err(self.with) } else { Ok(()) }
        }
    }

    impl Kernel for Refusing {
        fn open(&mut self) -> rustix::io::Result<()> {
            self.done.push("try");
            self.answer("open")
        }

        fn set(&mut self, option: &str, _: &str) -> rustix::io::Result<()> {
            self.answer(option)
        }

        fn set_flag(&mut self, option: &str) -> rustix::io::Result<()> {
            self.answer(option)
        }

        fn create(&mut self) -> rustix::io::Result<()> {
            self.answer("create")
        }

        fn attach(&mut self, _: MountAttrFlags, _: &Path) -> rustix::io::Result<()> {
            self.answer("attach")?;
            self.done.push("new");
            Ok(())
        }

        fn mount(
            &mut self,
            _: &str,
            _: &Path,
            _: MountFlags,
            options: &str,
        ) -> rustix::io::Result<()> {
            assert_eq!(options, "lowerdir=/layer,upperdir=/upper,workdir=/work,volatile");
            self.answer("mount")?;
            self.done.push("old");
            Ok(())
        }
    }

    /// Mounts twice; `expected` is what the kernel was asked for and did.
    #[track_caller]
    fn check_way(step: &'static str, with: Errno, expected: &[&str]) {
        let overlay = Overlay {
            source: "waybill:test".into(),
            lower: vec!["/layer".into()],
            writable: Some(("/upper".into(), "/work".into())),
        };
        let mut kernel = Refusing { step, with, done: Vec::new() };
        let is_old = AtomicBool::new(false);
        let mut mount = || overlay.mount_by(&mut kernel, &is_old, Path::new("/target"));
        let mounted = [mount().is_ok(), mount().is_ok()];
        assert_eq!(kernel.done, expected, "{step}");
        let is_done = expected.iter().any(|step| *step != "try");
        assert_eq!(mounted, [is_done, is_done], "{step}");
    }

    /// On Debian 12 (Linux 6.1) overlayfs refuses `lowerdir+` only when it is created.
    #[test]
    fn the_old_call_is_tried_at_whichever_step_a_kernel_refuses_the_new_one() {
        check_way("none", Errno::INVAL, &["try", "new", "try", "new"]);
        check_way("open", Errno::NOSYS, &["try", "old", "old"]);
        for step in ["lowerdir+", "upperdir", "workdir", "volatile", "create"] {
            check_way(step, Errno::INVAL, &["try", "old", "old"]);
        }
    }

    #[test]
    fn other_refusals_are_told_and_not_tried_again() {
        for step in ["open", "lowerdir+", "upperdir", "create", "attach"] {
            check_way(step, Errno::PERM, &["try", "try"]);
        }
        check_way("attach", Errno::INVAL, &["try", "try"]);
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
