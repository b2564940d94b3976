//! On the way into a user namespace: what first processes find there, and who a session is when it enters.

use std::{
    fs::{self, File},
    io,
    os::fd::AsFd,
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, StatxFlags, statx},
    process::{DumpableBehavior, Gid, Uid},
    thread::CapabilitySets,
};

use crate::{
    IdMap,
    engine::{
        sys,
        users::{NAMESPACES, ROOT, Users},
    },
};

/// The namespace of `users`, for mounts that show files under its ids.
pub(super) fn open(users: &Users) -> Result<File, String> {
    let pin = users.pin.display();
    File::open(&users.pin).map_err(|error| format!("cannot open the user namespace {pin}: {error}"))
}

/// Binds root file system and namespaces to where libcontainer looks for them. The directory above must be private to this
/// process.
pub(super) fn put(users: &Users) -> Result<(), String> {
    let bind = |from: &Path, to: &Path| -> io::Result<()> {
        if from == users.root {
            fs::create_dir(to)?;
        } else {
            File::create_new(to)?;
        }
        Ok(rustix::mount::mount_bind_recursive(from, to)?)
    };
    let bind = |from: &Path, to: &Path| {
        bind(from, to).map_err(|error| format!("cannot bind {}: {error}", from.display()))
    };
    bind(&users.root, Path::new(ROOT))?;
    fs::create_dir(NAMESPACES).map_err(|error| format!("cannot make {NAMESPACES}: {error}"))?;
    users
        .namespaces
        .iter()
        .try_for_each(|(name, from)| bind(from, &Path::new(NAMESPACES).join(name)))
}

/// Shows the files of a mount that nobody else has under the ids of a user namespace.
pub(super) fn map_ids(tree: impl AsFd, namespace: &File, source: &Path) -> io::Result<()> {
    sys::map_ids(tree.as_fd(), namespace.as_fd()).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL | libc::EPERM | libc::EOPNOTSUPP) => io::Error::other(format!(
            "the file system there ({}) cannot show its files under the ids of a user namespace; use a volume of another kind, \
             a newer kernel, or hostUsers: true",
            file_system(source)
        )),
        _ => error,
    })
}

/// Becomes who is root in a user namespace, while still outside with all rights. So nobody changes users once inside, where that
/// could open a process to others; and root in there cannot touch us out here, because our rights are the machine's.
pub(super) fn become_root(map: IdMap) -> io::Result<()> {
    let held = rustix::thread::capabilities(None)?;
    rustix::thread::set_keep_capabilities(true)?;
    rustix::thread::set_thread_groups(&[])?;
    let (uid, gid) = (Uid::from_raw(map.root()), Gid::from_raw(map.root()));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    rustix::thread::set_keep_capabilities(false)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_capabilities(None, CapabilitySets { effective: held.permitted, ..held })?;
    Ok(())
}

/// What the mount table calls it.
fn file_system(path: &Path) -> String {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let named = found.ok().and_then(|found| kind_of(&table, found.stx_mnt_id));
    named.map_or_else(|| "of unknown kind".to_owned(), str::to_owned)
}

fn kind_of(table: &str, mount: u64) -> Option<&str> {
    let id = mount.to_string();
    let line = table.lines().find(|line| line.split(' ').next() == Some(&id))?;
    line.split_once(" - ")?.1.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_named_by_the_mount_table() {
        let table =
            "22 1 0:20 / /proc rw - proc proc rw\n31 1 0:40 / /x rw shared:5 - nfs a:/b rw\n";
        assert_eq!(kind_of(table, 31), Some("nfs"));
        assert_eq!(kind_of(table, 3), None);
        assert_eq!(file_system(Path::new("/proc/self")), "proc");
    }
}
