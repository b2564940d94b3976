//! Where the few members stand that our program reads, on the kernel that runs. Pure.

use super::btf::{Btf, BtfError};

/// Offsets in bytes, named by structure and member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offsets {
    pub(crate) task_cgroups: u32,
    pub(crate) task_exit_code: u32,
    pub(crate) task_group_leader: u32,
    pub(crate) task_mm: u32,
    pub(crate) task_real_parent: u32,
    pub(crate) task_signal: u32,
    pub(crate) task_start_boottime: u32,
    pub(crate) task_tgid: u32,
    pub(crate) task_thread_pid: u32,
    pub(crate) mm_arg_start: u32,
    pub(crate) mm_arg_end: u32,
    pub(crate) binprm_filename: u32,
    pub(crate) signal_live: u32,
    pub(crate) signal_flags: u32,
    pub(crate) signal_group_exit_code: u32,
    pub(crate) css_set_dfl_cgrp: u32,
    pub(crate) cgroup_kn: u32,
    pub(crate) cgroup_level: u32,
    pub(crate) cgroup_ancestors: u32,
    pub(crate) kernfs_id: u32,
    pub(crate) kernfs_name: u32,
    pub(crate) pid_level: u32,
    pub(crate) pid_numbers: u32,
    pub(crate) upid_size: u32,
    pub(crate) upid_nr: u32,
    pub(crate) upid_ns: u32,
    pub(crate) pid_namespace_inum: u32,
}

impl Offsets {
    pub(crate) fn find(btf: &Btf<'_>) -> Result<Self, BtfError> {
        let task = |member| btf.offset("task_struct", member);
        let signal = |member| btf.offset("signal_struct", member);
        let cgroup = |member| btf.offset("cgroup", member);
        let upid = |member| btf.offset("upid", member);
        Ok(Self {
            task_cgroups: task("cgroups")?,
            task_exit_code: task("exit_code")?,
            task_group_leader: task("group_leader")?,
            task_mm: task("mm")?,
            task_real_parent: task("real_parent")?,
            task_signal: task("signal")?,
            task_start_boottime: task("start_boottime")?,
            task_tgid: task("tgid")?,
            task_thread_pid: task("thread_pid")?,
            mm_arg_start: btf.offset("mm_struct", "arg_start")?,
            mm_arg_end: btf.offset("mm_struct", "arg_end")?,
            binprm_filename: btf.offset("linux_binprm", "filename")?,
            signal_live: signal("live")?,
            signal_flags: signal("flags")?,
            signal_group_exit_code: signal("group_exit_code")?,
            css_set_dfl_cgrp: btf.offset("css_set", "dfl_cgrp")?,
            cgroup_kn: cgroup("kn")?,
            cgroup_level: cgroup("level")?,
            // Since Linux 6.1.
            cgroup_ancestors: cgroup("ancestors")?,
            kernfs_id: btf.offset("kernfs_node", "id")?,
            kernfs_name: btf.offset("kernfs_node", "name")?,
            pid_level: btf.offset("pid", "level")?,
            pid_numbers: btf.offset("pid", "numbers")?,
            upid_size: btf.size("upid")?,
            upid_nr: upid("nr")?,
            upid_ns: upid("ns")?,
            pid_namespace_inum: btf
                .offset("pid_namespace", "ns")?
                .saturating_add(btf.offset("ns_common", "inum")?),
        })
    }
}
