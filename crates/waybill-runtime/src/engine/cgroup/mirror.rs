//! Copies limits from a cgroup to one below it, for those who read them there.

use std::{fs, path::Path};

/// What programs read to size themselves, and what decides how the kernel ends them. Of v1 and of v2; those that a hierarchy
/// does not have are skipped. A limit of memory comes before that of memory with swap, which must not be less.
const LIMITS: [&str; 20] = [
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.soft_limit_in_bytes",
    "memory.swappiness",
    "cpu.shares",
    "cpu.cfs_period_us",
    "cpu.cfs_quota_us",
    "cpuset.cpus",
    "cpuset.mems",
    "pids.max",
    "memory.max",
    "memory.high",
    "memory.low",
    "memory.min",
    "memory.swap.max",
    "memory.oom.group",
    "cpu.weight",
    "cpu.max",
    "cpu.idle",
    "io.weight",
];

/// Copies all that there are of the controllers that a hierarchy has; to look for others would take longer than all else here.
/// One that the kernel refuses is tried once more after the others, which may stand in its way.
pub(super) fn copy_limits(from: &Path, to: &Path, has: impl Fn(&str) -> bool) {
    let of_it = |file: &&str| file.split_once('.').is_some_and(|(controller, _)| has(controller));
    let files = LIMITS.into_iter().filter(of_it);
    let refused: Vec<_> = files.filter(|file| !copy(from, to, file)).collect();
    for file in refused {
        copy(from, to, file);
    }
}

/// Copies one file, unless it says the same already; false if the kernel refuses.
pub(super) fn copy(from: &Path, to: &Path, file: &str) -> bool {
    let Ok(text) = fs::read_to_string(from.join(file)) else { return true };
    match fs::read_to_string(to.join(file)) {
        Ok(before) if before != text => fs::write(to.join(file), text.trim_end()).is_ok(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_cgroups_have_of_a_controller_is_copied() {
        let (above, below) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, text) in [("memory.max", "1024\n"), ("pids.max", "7\n"), ("cgroup.procs", "1\n")]
        {
            fs::write(above.path().join(name), text).unwrap();
        }
        fs::write(below.path().join("memory.max"), "max\n").unwrap();
        fs::write(below.path().join("pids.max"), "max\n").unwrap();
        copy_limits(above.path(), below.path(), |controller| controller == "memory");
        assert_eq!(fs::read_to_string(below.path().join("memory.max")).unwrap(), "1024");
        assert_eq!(fs::read_to_string(below.path().join("pids.max")).unwrap(), "max\n");
        assert_eq!(fs::read_dir(below.path()).unwrap().count(), 2);
    }
}
