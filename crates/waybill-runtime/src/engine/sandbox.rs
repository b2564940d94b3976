//! The namespaces of a sandbox: made by a child of the spawner, pinned as files, so that no process is needed to keep
//! them. Only a PID namespace needs one, which holds it and reaps orphans.

use std::{
    fs, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, UnmountFlags},
    process::{DumpableBehavior, Gid, Pid, Signal, Uid, WaitOptions},
    thread::{CapabilitySet, CapabilitySets, UnshareFlags},
};

use super::{
    message::SandboxPlan,
    sys::{self, Fork},
    user_namespace::Founder,
};
use crate::{IdMap, procfs::ProcessStat};

/// Names of the pins, beside one another in a sandbox's directory.
pub(super) const NETWORK: &str = "net";
pub(super) const IPC: &str = "ipc";
pub(super) const UTS: &str = "uts";
pub(super) const PID: &str = "pid";
pub(super) const USER: &str = "user";
pub(super) const PINS: [&str; 5] = [NETWORK, IPC, UTS, PID, USER];

/// What a process of ours calls the PID namespace that its children are in.
const CHILDREN: &str = "pid_for_children";

/// A directory that everybody can reach, for the empty root of a holder.
const SOMEWHERE: &str = "/sys";

/// The user that holds a PID namespace: nobody.
const NOBODY: u32 = 65534;

/// Runs in a process of its own. The holder of the PID namespace if there is one, or what went wrong; then nothing is left.
pub(super) fn make(plan: &SandboxPlan) -> Result<Option<i32>, String> {
    let made = make_namespaces(plan);
    if made.is_err() {
        for name in PINS {
            let _ = rustix::mount::unmount(plan.pins.join(name), UnmountFlags::DETACH);
        }
    }
    made
}

fn make_namespaces(plan: &SandboxPlan) -> Result<Option<i32>, String> {
    let mut flags = UnshareFlags::empty();
    flags.set(UnshareFlags::NEWNET, plan.network);
    flags.set(UnshareFlags::NEWIPC, plan.ipc);
    flags.set(UnshareFlags::NEWUTS, plan.hostname.is_some());
    let founder = match plan.user {
        Some(map) => Some(found(plan, map, flags)?),
        None => sys::unshare(flags).map_err(told("make namespaces")).map(|()| None)?,
    };
    let holder = founder.as_ref().map(Founder::told).and_then(Pid::from_raw);
    finish(plan, founder.as_ref()).inspect_err(|_| holder.into_iter().for_each(end))
}

/// Has the namespaces made that belong to a user namespace, and enters them. They look like others from here on, to who is root
/// of the machine.
fn found(plan: &SandboxPlan, map: IdMap, flags: UnshareFlags) -> Result<Founder, String> {
    let founder = Founder::start(map, flags, || {
        if plan.pid { fork_holder(plan).map(|pid| pid.as_raw_nonzero().get()) } else { Ok(0) }
    })?;
    let joined = founder.join(flags).map_err(told("enter namespaces"));
    if joined.is_err() {
        Pid::from_raw(founder.told()).into_iter().for_each(end);
    }
    joined.map(|()| founder)
}

/// Sets up what was made, pins it, and says who holds the PID namespace.
fn finish(plan: &SandboxPlan, founder: Option<&Founder>) -> Result<Option<i32>, String> {
    if let Some(hostname) = &plan.hostname {
        rustix::system::sethostname(hostname.as_bytes())
            .map_err(|error| told("set the host name")(error.into()))?;
    }
    if plan.network {
        sys::raise_loopback().map_err(told("bring up the loopback device"))?;
    }
    for (name, value) in &plan.sysctls {
        let file = Path::new("/proc/sys").join(name.replace('.', "/"));
        fs::write(file, value).map_err(|error| format!("cannot set sysctl {name}: {error}"))?;
    }
    for (wanted, name) in [(plan.network, NETWORK), (plan.ipc, IPC), (plan.hostname.is_some(), UTS)]
    {
        if wanted {
            pin(plan, name, &own_namespace(name)).map_err(told("pin a namespace"))?;
        }
    }
    let Some(founder) = founder else {
        return if plan.pid { hold_pids(plan).map(Some) } else { Ok(None) };
    };
    pin(plan, USER, &founder.namespace("user")).map_err(told("pin the user namespace"))?;
    if plan.pid {
        let held = founder.namespace(CHILDREN);
        pin(plan, PID, &held).map_err(told("pin the PID namespace"))?;
    }
    Ok(plan.pid.then_some(founder.told()))
}

/// Runs in a process of its own: makes a network as sandboxes have it, which goes with the process.
pub(super) fn try_network() -> Result<(), String> {
    sys::unshare(UnshareFlags::NEWNET).map_err(told("make a network namespace"))?;
    sys::raise_loopback().map_err(told("bring up the loopback device"))
}

fn told(action: &'static str) -> impl Fn(io::Error) -> String {
    move |error| format!("cannot {action}: {error}")
}

fn pin(plan: &SandboxPlan, name: &str, namespace: &Path) -> io::Result<()> {
    Ok(rustix::mount::mount_bind(namespace, plan.pins.join(name))?)
}

fn own_namespace(link: &str) -> PathBuf {
    Path::new("/proc/self/ns").join(link)
}

fn hold_pids(plan: &SandboxPlan) -> Result<i32, String> {
    let holder = fork_holder(plan)?;
    let pinned = pin(plan, PID, &own_namespace(CHILDREN)).map_err(told("pin the PID namespace"));
    if pinned.is_err() {
        end(holder);
    }
    pinned.map(|()| holder.as_raw_nonzero().get())
}

/// Makes a PID namespace, and its first process.
fn fork_holder(plan: &SandboxPlan) -> Result<Pid, String> {
    sys::unshare(UnshareFlags::NEWPID).map_err(told("make a PID namespace"))?;
    let cgroup = plan
        .holder_cgroup
        .as_ref()
        .ok_or_else(|| "no cgroup is given for the holder of the PID namespace".to_owned())?;
    let cgroup = fs::File::open(cgroup).map_err(told("open the holder's cgroup"))?;
    let (ready, report) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| told("make a pipe")(error.into()))?;
    let holder = match sys::fork_into(cgroup.as_fd()).map_err(told("fork"))? {
        Fork::Child => {
            let confined = confine();
            let message: &[u8] = if confined.is_ok() { b"1" } else { b"0" };
            let _ = rustix::io::write(&report, message);
            if confined.is_err() {
                sys::exit_now(1);
            }
            let _ = sys::close_from(0);
            hold()
        }
        Fork::Parent(pid) => pid,
    };
    drop(report);
    let mut answer = [0];
    let confined = rustix::io::read(&ready, &mut answer).is_ok() && answer == *b"1";
    if confined {
        return Ok(holder);
    }
    end(holder);
    Err("cannot confine the holder of the PID namespace".to_owned())
}

fn end(holder: Pid) {
    let _ = rustix::process::kill_process(holder, Signal::KILL);
    let _ = rustix::process::waitpid(Some(holder), WaitOptions::empty());
}

/// Containers of the sandbox see the holder as process 1, so it must be no way out: an empty root, no privileges.
fn confine() -> io::Result<()> {
    close_to_others()?;
    rustix::thread::set_name(c"waybill-holder")?;
    // In a user namespace we are nobody yet, whose files cannot be.
    become_user(0)?;
    sys::unshare(UnshareFlags::NEWNS)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSUID;
    rustix::mount::mount("waybill", SOMEWHERE, "tmpfs", flags, None)?;
    rustix::process::chdir(SOMEWHERE)?;
    sys::pivot_to_current_directory()?;
    become_user(NOBODY)?;
    rustix::thread::set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, none)?;
    // Changing users may have opened us.
    close_to_others()
}

fn become_user(id: u32) -> io::Result<()> {
    rustix::thread::set_thread_groups(&[])?;
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

fn close_to_others() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Reaps whoever is left behind, until it is killed and the namespace ends with it.
fn hold() -> ! {
    let Ok(signals) = sys::child_signals() else { sys::exit_now(1) };
    let _ = rustix::io::ioctl_fionbio(&signals, false);
    loop {
        let _ = rustix::io::read(&signals, &mut [0; 512]);
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
    }
}

/// Refuses what would change the machine instead of the sandbox.
pub(super) fn check_sysctls<'a>(
    names: impl Iterator<Item = &'a String>,
    own_network: bool,
    own_ipc: bool,
) -> Result<(), String> {
    for name in names {
        let plain = name.split('.').all(|part| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        });
        if !plain {
            return Err(format!("sysctl {name:?} is not a dotted name"));
        }
        let (namespace, own) = if name.starts_with("net.") {
            ("network", own_network)
        } else if is_ipc(name) {
            ("IPC", own_ipc)
        } else {
            return Err(format!(
                "sysctl {name:?} belongs to no namespace of a sandbox; set it on the machine"
            ));
        };
        if !own {
            return Err(format!(
                "sysctl {name:?} would change the machine, because the sandbox shares its {namespace} namespace"
            ));
        }
    }
    Ok(())
}

fn is_ipc(name: &str) -> bool {
    name.starts_with("fs.mqueue.")
        || name.starts_with("kernel.shm")
        || name.starts_with("kernel.msg")
        || name == "kernel.sem"
}

/// Kills a holder, unless it is gone and its number belongs to somebody else.
pub(super) fn kill_holder(pid: i32, start: u64) {
    let Some(process) = Pid::from_raw(pid) else { return };
    let Ok(fd) = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()) else {
        return;
    };
    if ProcessStat::read(pid).is_some_and(|stat| stat.start == start) {
        let _ = rustix::process::pidfd_send_signal(fd, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sysctl_must_belong_to_a_namespace_of_the_sandbox() {
        let check =
            |name: &str, network, ipc| check_sysctls([name.to_owned()].iter(), network, ipc);
        assert!(check("net.ipv4.ip_unprivileged_port_start", true, false).is_ok());
        assert!(check("kernel.shm_rmid_forced", false, true).is_ok());
        assert!(check("fs.mqueue.msg_max", false, true).is_ok());
        assert!(check("net.core.somaxconn", false, true).unwrap_err().contains("machine"));
        assert!(check("kernel.msgmax", true, false).unwrap_err().contains("IPC"));
        for bad in ["vm.swappiness", "kernel.hostname", "net..a", "net/ipv4/x", "net.ipv4.../x"] {
            assert!(check(bad, true, true).is_err(), "{bad}");
        }
    }
}
