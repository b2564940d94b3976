//! AppArmor: has the kernel change to a profile when this process, or one that it forks, executes a program.
//!
//! It is told through the machine's own `/proc`, before anything of the container can be seen: one that lies in a container may be
//! somebody's volume, which takes the word and does nothing (CVE-2019-16884).

use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::proc;

/// Asks for a profile, which must be loaded.
pub(super) fn change_on_exec(profile: &str) -> io::Result<()> {
    tell(&proc::open_checked()?, profile)
}

/// The file of its own is there since Linux 5.8; before, all security modules shared one.
fn tell(proc: &OwnedFd, profile: &str) -> io::Result<()> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    let open =
        |name: &str| openat2(proc, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty(), resolve);
    let file = match open("thread-self/attr/apparmor/exec") {
        Err(rustix::io::Errno::NOENT) => open("thread-self/attr/exec")?,
        opened => opened?,
    };
    // In one piece: the kernel takes each write for a word of its own.
    File::from(file).write_all(format!("exec {profile}").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::*;

    fn open(directory: &Path) -> OwnedFd {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(directory, flags, Mode::empty()).unwrap()
    }

    /// A directory with what `/proc` has of a thread.
    fn fake(attributes: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let task = directory.path().join("7/task/8");
        fs::create_dir_all(task.join(attributes)).unwrap();
        fs::write(task.join(attributes).join("exec"), "").unwrap();
        symlink("7/task/8", directory.path().join("thread-self")).unwrap();
        directory
    }

    #[test]
    fn the_kernel_is_told_through_the_file_that_it_has() {
        for attributes in ["attr/apparmor", "attr"] {
            let proc = fake(attributes);
            tell(&open(proc.path()), "my-profile").unwrap();
            let told =
                fs::read_to_string(proc.path().join("7/task/8").join(attributes).join("exec"));
            assert_eq!(told.unwrap(), "exec my-profile");
        }
    }

    #[test]
    fn no_link_leads_the_word_elsewhere() {
        let (proc, elsewhere) = (fake("attr"), tempfile::tempdir().unwrap());
        let file = elsewhere.path().join("exec");
        fs::write(&file, "").unwrap();
        let exec = proc.path().join("7/task/8/attr/exec");
        fs::remove_file(&exec).unwrap();
        symlink(&file, &exec).unwrap();
        assert!(tell(&open(proc.path()), "my-profile").is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "");
    }

    /// What a file system without a kernel behind it takes is no confinement.
    #[test]
    fn a_machine_without_apparmor_says_so() {
        if !Path::new("/sys/kernel/security/apparmor").exists() {
            assert!(change_on_exec("my-profile").is_err());
        }
    }
}
