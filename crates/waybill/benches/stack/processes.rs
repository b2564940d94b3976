//! What the kernel says about a process and its descendants.

use std::{fs, time::Duration};

/// Resident and proportional memory in megabytes.
pub(crate) fn memory(root: u32) -> (f64, f64) {
    each(root).iter().fold((0.0, 0.0), |(all, shared), (_, resident, proportional)| {
        (all + resident, shared + proportional)
    })
}

/// The same of each process, by its name.
pub(crate) fn each(root: u32) -> Vec<(String, f64, f64)> {
    let tree = tree(root).into_iter();
    tree.map(|pid| {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let field = |name: &str| {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name));
            let kibibytes = line.and_then(|rest| rest.split_whitespace().next());
            kibibytes.and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0) * 1024.0 / 1e6
        };
        (command(pid), field("Rss:"), field("Pss:"))
    })
    .collect()
}

/// Of the processes that live.
pub(crate) fn processor_time(root: u32) -> Duration {
    let mut nanoseconds = 0;
    for pid in tree(root) {
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let first = text.split_whitespace().next().unwrap_or("0");
            nanoseconds += first.parse::<u64>().unwrap_or(0);
        }
    }
    Duration::from_nanos(nanoseconds)
}

/// A process of the machine with these arguments; those of containers descend from nobody.
pub(crate) fn with_arguments(arguments: &[&str]) -> Option<u32> {
    let wanted: Vec<u8> = arguments.iter().flat_map(|it| it.bytes().chain([0])).collect();
    let found = parents().into_iter().map(|(pid, _)| pid);
    let is_it = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|it| it == wanted);
    found.into_iter().find(is_it)
}

/// `waybill node` and so on.
fn command(pid: u32) -> String {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = command.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    format!("{program} {}", words.next().unwrap_or_default())
}

/// A process and all that descend from it.
fn tree(root: u32) -> Vec<u32> {
    let parents = parents();
    let mut tree = vec![root];
    let mut at = 0;
    while let Some(pid) = tree.get(at).copied() {
        tree.extend(parents.iter().filter(|(_, parent)| *parent == pid).map(|(pid, _)| *pid));
        at += 1;
    }
    tree
}

/// Every process and its parent.
fn parents() -> Vec<(u32, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let parents = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name in the second field may hold anything.
        let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
        Some((pid, parent))
    });
    parents.collect()
}
