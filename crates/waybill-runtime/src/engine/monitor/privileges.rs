//! The last steps of a process that is in its container already, before it executes the container's program: working
//! directory, privileges and user. The same for first processes and for sessions.
//!
//! Nothing of the machine may be open here but what is no directory: paths of the container are looked up.

use std::io;

use rustix::{
    fs::Mode,
    process::{DumpableBehavior, Gid, Uid},
    thread::{CapabilitySet, CapabilitySets},
};

use super::child::{Fault, Step};
use crate::engine::{
    settings::{Capabilities, Settings},
    sys,
};

/// Makes of a process with all rights what the container's processes are, but for the filter of those that can gain no
/// privileges; see [`seal`].
pub(super) fn settle(settings: &Settings) -> Result<(), Fault> {
    rustix::process::umask(Mode::from_raw_mode(settings.umask));
    // As root first, because the user may enter a working directory below one that is closed to them.
    let late = match change_directory(settings) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => true,
        result => result.map(|()| false).map_err(Step::Directory.failed())?,
    };
    // Keys in ours are none of the container's business, nor are those of its other processes.
    sys::leave_session_keyring().map_err(Step::Keyring.failed())?;
    // While we have CAP_SYS_ADMIN: without it, only processes that can gain no privileges may have a filter.
    if !settings.no_new_privileges {
        install_filter(settings)?;
    }
    limit_privileges(settings).map_err(Step::Privileges.failed())?;
    become_user(settings).map_err(Step::User.failed())?;
    set_capabilities(&settings.capabilities).map_err(Step::Privileges.failed())?;
    // Where `fs.suid_dumpable` says so, changing users made us dumpable: memory holds other sessions' variables.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| Step::Privileges.failed()(errno.into()))?;
    if late {
        change_directory(settings).map_err(Step::Directory.failed())?;
    }
    Ok(())
}

/// The very last step before the program: a process that can gain no privileges may install its filter now, so that a profile
/// need not allow what we do before.
pub(super) fn seal(settings: &Settings) -> Result<(), Fault> {
    if settings.no_new_privileges { install_filter(settings) } else { Ok(()) }
}

fn install_filter(settings: &Settings) -> Result<(), Fault> {
    match &settings.seccomp {
        Some(filter) => filter.install().map_err(Step::Seccomp.failed()),
        None => Ok(()),
    }
}

/// Goes to the working directory and makes sure that it lies in the container.
fn change_directory(settings: &Settings) -> io::Result<()> {
    if !settings.cwd.is_empty() {
        rustix::process::chdir(settings.cwd.as_str())?;
    }
    let reached = rustix::process::getcwd(Vec::new())?;
    if reached.as_bytes().starts_with(b"/") {
        Ok(())
    } else {
        // The kernel writes "(unreachable)" before a path outside the root.
        Err(io::Error::from_raw_os_error(libc::ENOENT))
    }
}

fn limit_privileges(settings: &Settings) -> io::Result<()> {
    if settings.no_new_privileges {
        rustix::thread::set_no_new_privs(true)?;
    }
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::capability_is_in_bounding_set(capability) {
            Ok(true) if settings.capabilities.bounding & (1 << number) == 0 => {
                rustix::thread::remove_capability_from_bounding_set(capability)?;
            }
            Ok(_) => {}
            // The first number that the kernel does not know.
            Err(_) => break,
        }
    }
    Ok(())
}

fn become_user(settings: &Settings) -> io::Result<()> {
    // For the kernel that means "leave it as it is", and we are root.
    if [settings.uid, settings.gid].contains(&u32::MAX) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    rustix::thread::set_keep_capabilities(true)?;
    let groups: Vec<Gid> = settings.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
    rustix::thread::set_thread_groups(&groups)?;
    let (uid, gid) = (Uid::from_raw(settings.uid), Gid::from_raw(settings.gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    rustix::thread::set_keep_capabilities(false)?;
    Ok(())
}

fn set_capabilities(sets: &Capabilities) -> io::Result<()> {
    let set = CapabilitySet::from_bits_retain;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: set(sets.effective),
            permitted: set(sets.permitted),
            inheritable: set(sets.inheritable),
        },
    )?;
    rustix::thread::clear_ambient_capability_set()?;
    for number in (0..64).filter(|number| sets.ambient & (1 << number) != 0) {
        // What is not both permitted and inheritable cannot be ambient; the first process went without, too.
        let _ = rustix::thread::configure_capability_in_ambient_set(set(1 << number), true);
    }
    Ok(())
}
