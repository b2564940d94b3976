//! The directories in which a role keeps its state: ours, or not used.
//!
//! Whoever can write to the state directory has the keys of the cluster, and where we write as root
//! their links would be followed. So nobody else may own it, nor anything on the way to it, nor may
//! others write to it. A sticky directory such as `/tmp` may be on the way: what is ours there
//! stays ours.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, Metadata},
    io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt},
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use rustix::{
    fs::{Mode, OFlags},
    process::{geteuid, umask},
};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// Group and everybody else.
const OTHERS_WRITE: u32 = 0o022;
const EVERYBODY_WRITES: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// The parts of a state directory in which a planted file would be believed or followed.
const PARTS: &[&str] = &[
    "audit",
    "encryption",
    "logs",
    "node",
    "node/pki",
    "node/plugins",
    "node/plugins_registry",
    "pki",
    "run",
    "runtime",
    "store",
];

/// For files that we write: a link in their place is not followed.
pub(crate) fn no_links() -> i32 {
    OFlags::NOFOLLOW.bits().cast_signed()
}

/// Makes the directory if it is missing, and gives the path without links. It must be this user's.
pub(crate) fn own_directory(path: &Path) -> Result<PathBuf> {
    forbid_writing_by_others();
    let doing = || format!("cannot use the directory {}", path.display());
    let real = resolve(path, my_uid()).with_context(doing)?;
    check_way(&real, my_uid()).with_context(doing)?;
    DirBuilder::new().recursive(true).mode(0o755).create(&real).with_context(doing)?;
    check(&real, my_uid()).with_context(doing)?;
    Ok(real)
}

/// The path without links of a directory whose content is to be believed. Missing ones are left to
/// whoever reads them.
pub(crate) fn trusted_directory(path: &Path) -> Result<PathBuf> {
    let doing = || format!("cannot trust the directory {}", path.display());
    let real = resolve(path, my_uid()).with_context(doing)?;
    if real.is_dir() {
        check(&real, my_uid()).with_context(doing)?;
    }
    Ok(real)
}

fn my_uid() -> u32 {
    geteuid().as_raw()
}

/// What we make from now on is not for others to write, whatever the umask was.
fn forbid_writing_by_others() {
    let others = Mode::WGRP | Mode::WOTH;
    let before = umask(others);
    umask(before | others);
}

/// The path without links. Links on the way must be root's or `me`'s: in `/tmp` anybody makes some.
fn resolve(path: &Path, me: u32) -> Result<PathBuf> {
    let names = |path: &Path| -> Vec<OsString> {
        let parts = path.components().filter(|part| *part != Component::RootDir);
        parts.map(|part| part.as_os_str().to_owned()).rev().collect()
    };
    let mut rest = names(&std::path::absolute(path)?);
    let mut real = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            real.pop();
            continue;
        }
        let next = real.join(name);
        match fs::symlink_metadata(&next) {
            Ok(found) if found.is_symlink() => {
                links += 1;
                if links > MOST_LINKS {
                    bail!("{} leads through too many links", path.display());
                }
                check_owner(&next, &found, me)?;
                let target = fs::read_link(&next)?;
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                rest.extend(names(&target));
            }
            Ok(_) => real = next,
            Err(error) if error.kind() == io::ErrorKind::NotFound => real = next,
            Err(error) => return Err(error).with_context(|| next.display().to_string()),
        }
    }
    Ok(real)
}

fn check(real: &Path, me: u32) -> Result<()> {
    check_way(real, me)?;
    check_entry(real, me)?;
    check_entries(real, me)?;
    for part in PARTS {
        let part = real.join(part);
        if part.is_dir() {
            check_entries(&part, me)?;
        }
    }
    Ok(())
}

/// Nobody may put something else in the directory's place. Groups that a distribution lets write to its
/// directories, as Ubuntu to `/var/log`, are trusted.
fn check_way(real: &Path, me: u32) -> Result<()> {
    for above in real.ancestors().skip(1) {
        let Ok(found) = fs::symlink_metadata(above) else { continue };
        check_owner(above, &found, me)?;
        if found.mode() & STICKY == 0 {
            check_mode(above, &found, EVERYBODY_WRITES)?;
        }
    }
    Ok(())
}

fn check_entries(dir: &Path, me: u32) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        check_entry(&entry?.path(), me)?;
    }
    Ok(())
}

/// Directories and files are ours; links there are none. Sockets say for themselves who may use them.
fn check_entry(path: &Path, me: u32) -> Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.with_context(|| path.display().to_string())?,
    };
    if found.is_symlink() {
        bail!(
            "{0} is a link, and we make none there; remove it if you do not know it: rm {0}",
            path.display()
        );
    }
    check_owner(path, &found, me)?;
    let kind = found.file_type();
    if kind.is_socket() {
        return Ok(());
    }
    if !found.is_dir() && !found.is_file() {
        bail!(
            "{0} is neither a file nor a directory; remove it if you do not know it: rm {0}",
            path.display()
        );
    }
    // What is written here would be written there, too.
    if found.is_file() && found.nlink() > 1 {
        bail!(
            "{0} has another name elsewhere (a hard link), and we make none; remove it if you do not know it: rm {0}",
            path.display()
        );
    }
    check_mode(path, &found, OTHERS_WRITE)
}

fn check_owner(path: &Path, found: &Metadata, me: u32) -> Result<()> {
    if found.uid() == 0 || found.uid() == me {
        return Ok(());
    }
    bail!(
        "{0} belongs to uid {1}, who could change what is there and so rule the cluster; name another \
         directory, or take it over if you trust all that is in it: chown -R {me} {0}",
        path.display(),
        found.uid()
    )
}

fn check_mode(path: &Path, found: &Metadata, forbidden: u32) -> Result<()> {
    let mode = found.mode();
    if mode & forbidden == 0 {
        return Ok(());
    }
    bail!(
        "{0} can be written by others (mode {1:04o}), who could so rule the cluster; name another \
         directory, or close it if you trust all that is in it: chmod go-w {0}",
        path.display(),
        mode & 0o7777
    )
}

#[cfg(test)]
mod tests {
    use std::{
        fs::Permissions,
        os::unix::{
            fs::{PermissionsExt, symlink},
            net::UnixListener,
        },
    };

    use rustix::fs::{AtFlags, CWD, Uid, chownat, mkfifoat};
    use tempfile::TempDir;

    use super::*;

    const STRANGER: u32 = 12_345;

    /// Gives `path` to somebody else. Without root, we are that somebody: the uid to check as comes back.
    fn give_away(path: &Path) -> u32 {
        let me = my_uid();
        if me != 0 {
            return me + 1;
        }
        let stranger = Some(Uid::from_raw(STRANGER));
        chownat(CWD, path, stranger, None, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        me
    }

    /// A state directory as a first start leaves it behind.
    fn used() -> (TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let state = own_directory(&root.path().join("state")).unwrap();
        for part in PARTS {
            fs::create_dir_all(state.join(part)).unwrap();
        }
        fs::write(state.join("pki/ca.key"), "").unwrap();
        (root, state)
    }

    #[track_caller]
    fn check_refused(dir: &Path, me: u32, words: &str) {
        let refused = resolve(dir, me).and_then(|real| check(&real, me)).unwrap_err();
        let told = format!("{refused:#}");
        assert!(told.contains(words), "{told}");
    }

    #[test]
    fn a_directory_of_our_own_is_used_again() {
        let (_root, state) = used();
        assert_eq!(own_directory(&state).unwrap(), state);
        assert_eq!(fs::metadata(&state).unwrap().mode() & 0o7777, 0o755);
        assert_eq!(trusted_directory(&state).unwrap(), state);
    }

    /// Hole: the owner of a state directory that was there already became `system:masters`.
    #[test]
    fn what_somebody_else_made_is_refused() {
        for part in ["", "pki", "pki/ca.key", "run", "node/pki"] {
            let (_root, state) = used();
            let me = give_away(&state.join(part));
            check_refused(&state, me, "belongs to uid");
        }
    }

    #[test]
    fn what_others_can_write_is_refused() {
        for part in ["", "pki", "pki/ca.key", "audit"] {
            for mode in [0o777, 0o775, 0o1777] {
                let (_root, state) = used();
                fs::set_permissions(state.join(part), Permissions::from_mode(mode)).unwrap();
                check_refused(&state, my_uid(), "can be written by others");
            }
        }
    }

    /// Hole: a link in place of a file or directory of ours was followed as root.
    #[test]
    fn links_inside_are_refused_whosever_they_are() {
        for part in ["pki", "pki/ca.key", "up.lock"] {
            let (root, state) = used();
            let link = state.join(part);
            let _ = fs::remove_dir_all(&link);
            let _ = fs::remove_file(&link);
            symlink(root.path(), link).unwrap();
            check_refused(&state, my_uid(), "is a link");
        }
    }

    /// Holes: a second name of root's file was written to as the audit log, and a pipe in its place held the server up.
    #[test]
    fn second_names_and_pipes_are_refused_and_sockets_are_not() {
        let (root, state) = used();
        let log = state.join("audit/audit.log");
        fs::write(root.path().join("precious"), "").unwrap();
        fs::hard_link(root.path().join("precious"), &log).unwrap();
        check_refused(&state, my_uid(), "has another name elsewhere");
        fs::remove_file(&log).unwrap();
        mkfifoat(CWD, &log, Mode::RUSR | Mode::WUSR).unwrap();
        check_refused(&state, my_uid(), "is neither a file nor a directory");
        fs::remove_file(&log).unwrap();
        let _socket = UnixListener::bind(state.join("run/runtime.sock")).unwrap();
        own_directory(&state).unwrap();
    }

    #[test]
    fn a_link_to_the_directory_must_be_ours() {
        let (root, state) = used();
        let link = root.path().join("link");
        symlink("state", &link).unwrap();
        assert_eq!(own_directory(&link).unwrap(), state);
        let me = give_away(&link);
        check_refused(&link, me, "belongs to uid");
        let circle = root.path().join("circle");
        symlink("circle", &circle).unwrap();
        check_refused(&circle, my_uid(), "too many links");
    }

    /// Who can rename a directory above puts their own in its place.
    #[test]
    fn the_way_to_the_directory_is_ours_or_sticky() {
        let (root, state) = used();
        let open = |mode| fs::set_permissions(root.path(), Permissions::from_mode(mode)).unwrap();
        open(0o777);
        check_refused(&state, my_uid(), "can be written by others");
        assert!(own_directory(&root.path().join("new")).is_err());
        assert!(!root.path().join("new").exists(), "nothing is made there");
        open(0o1777);
        own_directory(&state).unwrap();
    }
}
