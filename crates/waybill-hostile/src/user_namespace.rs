//! A user namespace of one's own gives every capability inside it, and with it mounts and cgroup namespaces.

use nix::sched::{CloneFlags, unshare};

use crate::Outcome;

/// Enters a new user namespace.
pub(crate) fn enter(_arguments: &[String]) -> Outcome {
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|errno| format!("unshare: {errno}"))?;
    std::fs::read_link("/proc/self/ns/user")
        .map(|namespace| namespace.display().to_string())
        .map_err(|error| format!("/proc/self/ns/user: {error}"))
}
