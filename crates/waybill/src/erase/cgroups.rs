//! The cgroups of a cluster's pods, in every hierarchy of this machine.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// How long killed processes may take to be gone.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// `cgroup` as `waybill up` names it, such as `/waybill`.
pub(super) fn exists(cgroup: &str) -> bool {
    hierarchies().iter().any(|root| at(root, cgroup).is_dir())
}

/// Whether processes are in it. Older hierarchies have the same ones.
pub(super) fn is_populated(cgroup: &str) -> bool {
    hierarchies().iter().any(|root| {
        let events = fs::read_to_string(at(root, cgroup).join("cgroup.events"));
        events.is_ok_and(|text| text.lines().any(|line| line == "populated 1"))
    })
}

/// Kills what is in it, and waits until it is gone.
pub(super) fn kill(cgroup: &str) -> Result<()> {
    let start = Instant::now();
    while is_populated(cgroup) {
        for root in hierarchies() {
            let kill = at(&root, cgroup).join("cgroup.kill");
            if kill.exists() {
                fs::write(&kill, "1")
                    .with_context(|| format!("cannot write {}", kill.display()))?;
            }
        }
        if start.elapsed() > PATIENCE {
            bail!("processes below the cgroup {cgroup} do not end; nothing was removed");
        }
        sleep(PAUSE);
    }
    Ok(())
}

/// Removes it, which the kernel does for those that are empty only.
pub(super) fn remove(cgroup: &str) -> Result<()> {
    for root in hierarchies() {
        remove_tree(&at(&root, cgroup))?;
    }
    Ok(())
}

fn remove_tree(path: &Path) -> Result<()> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot read {}", path.display()))?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(path).with_context(|| format!("cannot remove the cgroup {}", path.display()))
}

fn at(root: &Path, cgroup: &str) -> PathBuf {
    root.join(cgroup.trim_start_matches('/'))
}

/// Where they are mounted. A machine has one of version 2, and may have older ones.
fn hierarchies() -> Vec<PathBuf> {
    roots(&fs::read_to_string("/proc/self/mounts").unwrap_or_default())
}

fn roots(mounts: &str) -> Vec<PathBuf> {
    let roots = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let place = words.nth(1)?;
        // Those of containers lie elsewhere, and are views of these.
        let is_root = place.starts_with("/sys/fs/cgroup");
        matches!(words.next()?, "cgroup" | "cgroup2").then_some(place).filter(|_| is_root)
    });
    roots.map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_those_of_the_machine() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs ro 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
                      cgroup2 /tmp/container/sys/fs/cgroup cgroup2 rw 0 0\n";
        let expected = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory"].map(PathBuf::from);
        assert_eq!(roots(mounts), expected);
    }
}
