//! CVE-2025-52881, CVE-2019-16884: something else lies where runtimes tell the kernel about a process, so that what they write is lost
//! or goes elsewhere.

use std::{
    fs::{self, OpenOptions},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
};

use nix::libc::O_PATH;

use crate::Outcome;

/// Where labels and the like are written.
const OF_PROCESSES: [&str; 6] = [
    "/proc/self",
    "/proc/self/attr",
    "/proc/self/attr/apparmor/exec",
    "/proc/self/attr/exec",
    "/proc/self/attr/keycreate",
    "/proc/self/oom_score_adj",
];
/// Where sysctls are. Runtimes bind it over itself to make it read-only.
const SYSCTLS: &str = "/proc/sys";

/// Names what is not what the kernel put there.
pub(crate) fn redirected(_arguments: &[String]) -> Outcome {
    let proc = mount_of(Path::new("/proc")).ok_or("there is no /proc")?;
    let elsewhere = |path: &&str| mount_of(Path::new(path)).is_some_and(|mount| mount != proc);
    let mut found: Vec<&str> = OF_PROCESSES.into_iter().filter(elsewhere).collect();
    if !Path::new(SYSCTLS).join("kernel/osrelease").exists() {
        found.push(SYSCTLS);
    }
    match found.as_slice() {
        [] => Err("all of /proc is the kernel's".to_owned()),
        found => Ok(format!("not the kernel's: {}", found.join(" "))),
    }
}

/// The number of the mount that the path leads to, as this process sees it.
fn mount_of(path: &Path) -> Option<String> {
    let file = OpenOptions::new().read(true).custom_flags(O_PATH).open(path).ok()?;
    let told = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    told.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(|id| id.trim().to_owned())
}
