//! What the containers of a test leave on the machine when nobody ends them: processes, mounts, cgroups.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::kubectl::PATIENCE;

/// The places where things of one runtime are found. Tests that fail end in the middle, so whoever owns containers clears them away
/// when it is dropped by a panic.
#[derive(Clone, Debug)]
pub struct Remains {
    /// Monitors work below it, and everything that is mounted is below it.
    directory: PathBuf,
    /// Above those of all containers; without a name there are none.
    cgroup: String,
}

impl Remains {
    /// What has its directories in `directory` and its cgroups in `cgroup`.
    pub fn of(directory: &Path, cgroup: &str) -> Self {
        Self { directory: directory.to_owned(), cgroup: cgroup.trim_matches('/').to_owned() }
    }

    /// Ends and removes all of it: no process, no mount and no cgroup is left. Whether that was done in time.
    pub fn clear(&self) -> bool {
        eventually(|| self.end_processes())
            && eventually(|| self.unmount())
            && eventually(|| self.remove_cgroups())
    }

    /// The same if the test fails: for those who are dropped.
    pub fn clear_if_panicking(&self) {
        if thread::panicking() && !self.clear() {
            println!("something is left of {} and {}", self.directory.display(), self.cgroup);
        }
    }

    /// Where its cgroup is, in every hierarchy of the machine that has it.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        if self.cgroup.is_empty() {
            return Vec::new();
        }
        let root = Path::new("/sys/fs/cgroup");
        let below = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        let places = below.chain([root.to_owned()]).map(|it| it.join(&self.cgroup));
        places.filter(|place| place.exists()).collect()
    }

    /// Whether none is left; the others are killed.
    fn end_processes(&self) -> bool {
        let living = self.processes();
        for pid in &living {
            // It may be gone by now.
            quietly(Command::new("kill").args(["-KILL", &pid.to_string()]));
        }
        living.is_empty()
    }

    /// Monitors work in the directory; all others are in the cgroups.
    fn processes(&self) -> Vec<u32> {
        let inside = format!("/{}/", self.cgroup);
        let is_ours = |pid: &u32| {
            let cwd = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            let in_cgroup = !self.cgroup.is_empty() && groups.contains(&inside);
            *pid != std::process::id()
                && is_alive(*pid)
                && (cwd.starts_with(&self.directory) || in_cgroup)
        };
        processes().into_iter().filter(is_ours).collect()
    }

    fn unmount(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        let points: Vec<_> =
            points.filter(|point| Path::new(point).starts_with(&self.directory)).collect();
        for point in points.iter().rev() {
            quietly(Command::new("umount").args(["-l", point]));
        }
        points.is_empty()
    }

    fn remove_cgroups(&self) -> bool {
        let places = self.cgroups();
        for place in &places {
            quietly(Command::new("find").arg(place).args(["-depth", "-type", "d", "-delete"]));
        }
        places.is_empty()
    }
}

/// All processes of the machine.
pub(crate) fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// One that only waits to be waited for is gone.
pub(crate) fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains("zombie"))
}

fn eventually(holds: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// What fails is tried again, and in the end it is the result that counts.
fn quietly(command: &mut Command) {
    let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that works in a directory is ended, and nobody else is.
    #[test]
    fn only_what_belongs_to_a_test_is_cleared_away() {
        let [ours, theirs] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let start = |dir: &Path| {
            let mut sleep = Command::new("sleep");
            sleep.arg("1000").current_dir(dir).spawn().expect("`sleep` starts")
        };
        let (mut mine, mut other) = (start(ours.path()), start(theirs.path()));
        // Without the name of a cgroup nothing is looked for in cgroups.
        let remains = Remains::of(ours.path(), "/");
        assert!(remains.clear());
        assert!(remains.cgroups().is_empty());
        assert!(!mine.wait().expect("it has ended").success());
        assert!(other.try_wait().expect("it can be asked").is_none());
        other.kill().expect("it runs");
        other.wait().expect("it has ended");
    }
}
