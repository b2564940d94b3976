//! Keeps the memory of roles that hold values out of swap, which is a disk.

use std::fs;

use rustix::{
    mm::{MlockAllFlags, mlockall},
    process::{Resource, getrlimit},
    thread::{CapabilitySet, capabilities},
};

/// Locks the memory of this process, as far as the kernel lets us. Without swap there is nothing to keep it out of, and memory that
/// is not locked can be given back (see `rest`).
pub(crate) fn stay_out() {
    if !has_swap(&fs::read_to_string("/proc/swaps").unwrap_or_default()) {
        return;
    }
    // With a limit, memory could be refused later, in the middle of something. Root in a container may have one.
    let may_lock =
        capabilities(None).is_ok_and(|it| it.effective.contains(CapabilitySet::IPC_LOCK));
    let unlimited = getrlimit(Resource::Memlock).current.is_none() || may_lock;
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if !unlimited || mlockall(flags).is_err() {
        tracing::warn!(
            "this machine has swap, and values in the memory of this process may get there"
        );
    }
}

/// By the kernel's table, which has one line for its columns.
fn has_swap(table: &str) -> bool {
    table.lines().count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_swap_if_its_table_has_more_than_a_head() {
        let head = "Filename\tType\tSize\tUsed\tPriority\n";
        assert!(!has_swap("") && !has_swap(head));
        assert!(has_swap(&format!("{head}/dev/sda2 partition 1 0 -2\n")));
    }
}
