//! The same on a machine with cgroup v2 alone, as far as this one can pass for one: where cgroup v1 is hidden, the
//! unified hierarchy has no limits to set, but everything else.

use std::{env, process::Command};

use crate::cri_lab::CriLab;

const HIDE_OLDER_CGROUPS: &str = "umount -l -R /sys/fs/cgroup && \
    mount -t cgroup2 none /sys/fs/cgroup && exec \"$@\"";

/// Among them one that is refused a device, which here a program in its cgroup must do, and a pod with users of its own, whose root
/// mounts a view of its cgroup itself.
const TESTS: [&str; 5] = [
    "cri_container::a_container_is_created_runs_ends_and_goes",
    "cri_exec::",
    "cri_privilege::",
    "cri_users::root_of_a_pod_is_nobody_on_the_machine",
    "cri_sandbox::a_sandbox_may_share_processes_or_the_machines_namespaces",
];

#[tokio::test]
async fn containers_run_and_are_kept_from_devices_by_cgroup_v2_alone() {
    let Some(lab) = CriLab::open().await else { return };
    lab.close().await;
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", HIDE_OLDER_CGROUPS, "sh"])
        .arg(env::current_exe().unwrap())
        .args(["--test-threads", "2"])
        .args(TESTS)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("opens_only_its_own ... ok"), "{said}");
}
