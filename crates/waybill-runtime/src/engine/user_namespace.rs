//! How the user namespace of a pod comes to be, with the namespaces that belong to it.
//!
//! Only who is outside may say which ids of the machine a user namespace has, and only who is inside makes namespaces that belong
//! to it. So a process founds them and does nothing else: it is told apart from its parent by what it may do, and lives until the
//! parent has pinned what it made. It keeps the user of the machine's root, whom nobody in the namespace can be.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
};

use rustix::{
    process::{DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions},
    thread::{ThreadNameSpaceType, UnshareFlags},
};

use super::sys::{self, Fork};
use crate::id_map::{IdMap, UNIT};

/// A process in a user namespace, which it founded, and in further ones that belong to that. It dies with this value; what was
/// pinned of them stays.
pub(super) struct Founder {
    pid: Pid,
    process: OwnedFd,
    /// Its end lets the founder go.
    connection: UnixStream,
    told: i32,
}

impl Founder {
    /// Founds a user namespace with the ids of `map`, and `others` in it. The founder also does `work`, whose number is
    /// remembered.
    pub(super) fn start(
        map: IdMap,
        others: UnshareFlags,
        work: impl FnOnce() -> Result<i32, String>,
    ) -> Result<Self, String> {
        let (connection, theirs) = UnixStream::pair().map_err(told("make a socket"))?;
        let parent = rustix::process::getpid();
        let pid = match sys::fork().map_err(told("fork"))? {
            Fork::Child => {
                drop(connection);
                found(parent, theirs, others, work)
            }
            Fork::Parent(pid) => pid,
        };
        drop(theirs);
        let process = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(error) => {
                end(pid);
                return Err(told("watch a process")(error.into()));
            }
        };
        let mut founder = Self { pid, process, connection, told: 0 };
        founder.told = founder.introduce(map)?;
        Ok(founder)
    }

    /// What its work told.
    pub(super) fn told(&self) -> i32 {
        self.told
    }

    /// The file of one of its namespaces, by the name that it has in `/proc/<pid>/ns`.
    pub(super) fn namespace(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/{name}", self.pid.as_raw_nonzero()))
    }

    /// Enters namespaces that it made, but not that of users.
    pub(super) fn join(&self, others: UnshareFlags) -> io::Result<()> {
        let mut joined = ThreadNameSpaceType::empty();
        for (made, kind) in [
            (UnshareFlags::NEWNET, ThreadNameSpaceType::NETWORK),
            (UnshareFlags::NEWIPC, ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION),
            (UnshareFlags::NEWUTS, ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME),
        ] {
            joined.set(kind, others.contains(made));
        }
        if joined.is_empty() {
            return Ok(());
        }
        Ok(rustix::thread::move_into_thread_name_spaces(self.process.as_fd(), joined)?)
    }

    /// Gives its namespace the ids, and waits until it has made the rest.
    fn introduce(&self, map: IdMap) -> Result<i32, String> {
        self.hear("make a user namespace")?;
        let process = PathBuf::from(format!("/proc/{}", self.pid.as_raw_nonzero()));
        for file in ["uid_map", "gid_map"] {
            fs::write(process.join(file), map.line())
                .map_err(|error| format!("cannot write {file} of a user namespace: {error}"))?;
        }
        (&self.connection).write_all(&[GO]).map_err(told("tell a founder to go on"))?;
        self.hear("make namespaces")
    }

    /// One answer: a number, or what went wrong.
    fn hear(&self, action: &'static str) -> Result<i32, String> {
        let mut answer = [0; 5];
        (&self.connection).read_exact(&mut answer).map_err(told(action))?;
        let [kind, number @ ..] = answer;
        let number = i32::from_ne_bytes(number);
        if kind == DONE {
            return Ok(number);
        }
        let mut reason = vec![0; usize::try_from(number).unwrap_or(0).min(LONGEST_REASON)];
        (&self.connection).read_exact(&mut reason).map_err(told(action))?;
        Err(String::from_utf8_lossy(&reason).into_owned())
    }
}

impl Drop for Founder {
    fn drop(&mut self) {
        end(self.pid);
    }
}

const GO: u8 = 1;
const DONE: u8 = 1;
const FAILED: u8 = 0;
const LONGEST_REASON: usize = 4096;

fn end(pid: Pid) {
    let _ = rustix::process::kill_process(pid, Signal::KILL);
    let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
}

/// Runs in the founder, and does not come back.
fn found(
    parent: Pid,
    mut connection: UnixStream,
    others: UnshareFlags,
    work: impl FnOnce() -> Result<i32, String>,
) -> ! {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if rustix::process::getppid() != Some(parent) {
        sys::exit_now(1);
    }
    let answer = enter_own(&mut connection)
        .and_then(|()| sys::unshare(others).map_err(told("make namespaces")))
        .and_then(|()| work());
    let _ = tell(&mut connection, &answer);
    // Until the parent lets go, or kills.
    let _ = connection.read(&mut [0]);
    sys::exit_now(0)
}

fn enter_own(connection: &mut UnixStream) -> Result<(), String> {
    // Whoever is root in the namespace may look at all who are in there, unless they are closed.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| told("close a process to others")(errno.into()))?;
    sys::unshare(UnshareFlags::NEWUSER).map_err(told("make a user namespace"))?;
    tell(connection, &Ok(0)).map_err(told("tell of a user namespace"))?;
    connection.read_exact(&mut [0]).map_err(told("wait for the ids of a user namespace"))
}

fn tell(connection: &mut UnixStream, answer: &Result<i32, String>) -> io::Result<()> {
    let (kind, number, reason) = match answer {
        Ok(number) => (DONE, *number, ""),
        Err(reason) => {
            let reason = reason.get(..LONGEST_REASON).unwrap_or(reason);
            (FAILED, i32::try_from(reason.len()).unwrap_or(0), reason)
        }
    };
    let message = [&[kind][..], &number.to_ne_bytes(), reason.as_bytes()].concat();
    connection.write_all(&message)
}

/// Runs in a process of its own: whether pods can have user namespaces, with images and volumes that lie on the file system of
/// `directory`. An error says what is in the way.
pub(super) fn try_out(directory: &Path) -> Result<(), String> {
    check_dumpable(Path::new("/proc/sys/fs/suid_dumpable"))?;
    let map = IdMap::parse(UNIT, UNIT).map_err(|error| error.to_string())?;
    let founder = Founder::start(map, UnshareFlags::empty(), || Ok(0))?;
    let namespace = File::open(founder.namespace("user")).map_err(told("open a user namespace"))?;
    let mount = sys::clone_mount(directory, 0).map_err(told("clone a mount"))?;
    sys::map_ids(mount.as_fd(), namespace.as_fd()).map_err(|error| {
        format!("the kernel cannot map the ids of files in {}: {error}", directory.display())
    })
}

/// Where it is 1, a process that changes users is open to all who have its new user, and so is what it has in memory: we change
/// users on our way into a pod.
fn check_dumpable(setting: &Path) -> Result<(), String> {
    match fs::read_to_string(setting).as_deref().map(str::trim) {
        Ok("1") => Err("fs.suid_dumpable is 1, so processes on their way into a pod are open to it; set it to 0 or 2".to_owned()),
        _ => Ok(()),
    }
}

fn told(action: &'static str) -> impl Fn(io::Error) -> String {
    move |error| format!("cannot {action}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_open_processes_to_their_new_user_have_no_user_namespaces() {
        let directory = tempfile::tempdir().unwrap();
        let setting = directory.path().join("suid_dumpable");
        for (value, good) in [("0\n", true), ("1\n", false), ("2\n", true)] {
            fs::write(&setting, value).unwrap();
            assert_eq!(check_dumpable(&setting).is_ok(), good, "{value}");
        }
    }
}
