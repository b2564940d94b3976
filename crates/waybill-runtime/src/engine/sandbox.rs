//! The namespaces of a sandbox: made by a child of the spawner, pinned as files, so that no process is needed to keep
//! them. Only a PID namespace needs one, which holds it and reaps orphans.

use std::{fs, io, os::fd::AsFd, path::Path};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, UnmountFlags},
    process::{Gid, Pid, Signal, Uid, WaitOptions},
    thread::{CapabilitySet, CapabilitySets, UnshareFlags},
};

use super::{
    message::SandboxPlan,
    sys::{self, Fork},
};

/// Names of the pins, beside one another in a sandbox's directory.
pub(super) const NETWORK: &str = "net";
pub(super) const IPC: &str = "ipc";
pub(super) const UTS: &str = "uts";
pub(super) const PID: &str = "pid";

/// The user that holds a PID namespace: nobody.
const NOBODY: u32 = 65534;

/// Runs in a process of its own. The holder of the PID namespace if there is one, or what went wrong; then nothing is left.
pub(super) fn make(plan: &SandboxPlan) -> Result<Option<i32>, String> {
    let made = make_namespaces(plan);
    if made.is_err() {
        for name in [NETWORK, IPC, UTS, PID] {
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
    sys::unshare(flags).map_err(told("make namespaces"))?;
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
            pin(plan, name, name).map_err(told("pin a namespace"))?;
        }
    }
    if plan.pid { hold_pids(plan).map(Some) } else { Ok(None) }
}

/// Runs in a process of its own: makes a network as sandboxes have it, which goes with the process.
pub(super) fn try_network() -> Result<(), String> {
    sys::unshare(UnshareFlags::NEWNET).map_err(told("make a network namespace"))?;
    sys::raise_loopback().map_err(told("bring up the loopback device"))
}

fn told(action: &'static str) -> impl Fn(io::Error) -> String {
    move |error| format!("cannot {action}: {error}")
}

fn pin(plan: &SandboxPlan, name: &str, link: &str) -> io::Result<()> {
    let namespace = Path::new("/proc/self/ns").join(link);
    rustix::mount::mount_bind(&namespace, plan.pins.join(name))?;
    Ok(())
}

fn hold_pids(plan: &SandboxPlan) -> Result<i32, String> {
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
            let confined = confine(&plan.pins);
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
    let pinned = if confined {
        pin(plan, PID, "pid_for_children").map_err(told("pin the PID namespace"))
    } else {
        Err("cannot confine the holder of the PID namespace".to_owned())
    };
    if pinned.is_err() {
        let _ = rustix::process::kill_process(holder, Signal::KILL);
        let _ = rustix::process::waitpid(Some(holder), WaitOptions::empty());
    }
    pinned.map(|()| holder.as_raw_nonzero().get())
}

/// Containers of the sandbox see the holder as process 1, so it must be no way out: an empty root, no privileges.
fn confine(somewhere: &Path) -> io::Result<()> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    rustix::thread::set_name(c"waybill-holder")?;
    sys::unshare(UnshareFlags::NEWNS)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSUID;
    rustix::mount::mount("waybill", somewhere, "tmpfs", flags, None)?;
    rustix::process::chdir(somewhere)?;
    sys::pivot_to_current_directory()?;
    rustix::thread::set_thread_groups(&[])?;
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    rustix::thread::set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, none)?;
    Ok(())
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

/// When a process was started, in clock ticks after boot; with its number it names one process for ever.
pub(super) fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Kills a holder, unless it is gone and its number belongs to somebody else.
pub(super) fn kill_holder(pid: i32, start: u64) {
    let Some(process) = Pid::from_raw(pid) else { return };
    let Ok(fd) = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()) else {
        return;
    };
    if start_time(pid) == Some(start) {
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

    #[test]
    fn a_process_is_known_by_its_number_and_start() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(start_time(own).is_some_and(|start| start > 0));
        assert_eq!(start_time(i32::MAX), None);
    }
}
