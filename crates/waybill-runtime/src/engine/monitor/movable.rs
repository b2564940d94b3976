//! Whether root in a container could move processes between cgroups, so that a session's cgroup proves less.
//!
//! A container sees of cgroups its own leaf at most (ADR 0021). What leads around that are rights over the kernel or the machine, and
//! the machine's cgroups themselves, mounted with a volume. When in doubt, the answer is yes.

use std::path::Path;

use oci_spec::runtime::Capability;

use crate::{
    capability,
    engine::volume::{Access, Volume},
    procfs::MountTable,
};

/// Capabilities with which root reaches the kernel or the machine around all mounts; those that the wrapper around runc looks for.
const CAPABILITIES: [Capability; 7] = [
    Capability::SysAdmin,
    Capability::SysModule,
    Capability::SysPtrace,
    Capability::SysRawio,
    Capability::DacReadSearch,
    Capability::Bpf,
    Capability::SysBoot,
];

/// Whether a bounding set leads there. In a user namespace of a pod no capability does.
pub(super) fn by_rights(bounding: u64, own_users: bool) -> bool {
    !own_users && CAPABILITIES.into_iter().any(|it| bounding & capability::bit(it) != 0)
}

/// Whether cgroups come with a volume for writing, by the table of mounts in which all of them are at their places.
pub(super) fn by_volumes(volumes: &[Volume], table: &MountTable) -> bool {
    let writable = |point: &Path| {
        volumes.iter().any(|volume| match volume.access {
            Access::Writable => point.starts_with(volume.place()),
            // What is mounted below it is as writable as ever.
            Access::Locked => point.starts_with(volume.place()) && point != volume.place(),
            Access::LockedThroughout => false,
        })
    };
    let is_cgroup = |kind: &[u8]| matches!(kind, b"cgroup" | b"cgroup2");
    table.mounts().any(|mount| is_cgroup(mount.kind) && writable(&mount.point))
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::{MountBuilder, SpecBuilder};

    use super::*;
    use crate::engine::{request::STAGE, volume};

    #[test]
    fn rights_over_the_machine_count_unless_the_pod_has_users_of_its_own() {
        let bits = |all: &[Capability]| all.iter().map(|it| capability::bit(*it)).sum::<u64>();
        let usual = bits(&[Capability::Chown, Capability::Mknod, Capability::SysChroot]);
        assert!(!by_rights(usual, false));
        for capability in CAPABILITIES {
            assert!(by_rights(usual | bits(&[capability]), false), "{capability}");
            assert!(!by_rights(usual | bits(&[capability]), true), "{capability}");
        }
    }

    /// One volume with this option, and what is mounted at its place and below it.
    #[track_caller]
    fn check(option: &str, mounts: &[(&str, &str)], expected: bool) {
        let options: Vec<_> = ["rbind", "rprivate", option].map(str::to_owned).into();
        let mount = MountBuilder::default().destination("/x").source("/y").options(options);
        let mut spec = SpecBuilder::default().mounts(vec![mount.build().unwrap()]).build().unwrap();
        let volumes = volume::take_out(&mut spec);
        let lines = mounts.iter().map(|(below, kind)| {
            format!("36 25 0:31 / {STAGE}/0{below} rw,nosuid - {kind} source rw\n")
        });
        let outside = "37 25 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n".to_owned();
        let table = lines.chain([outside]).collect::<String>();
        let table = MountTable::from_mountinfo(table.into_bytes());
        assert_eq!(by_volumes(&volumes, &table), expected, "{option} {mounts:?}");
    }

    #[test]
    fn cgroups_count_wherever_they_come_from() {
        check("rw", &[("", "ext4")], false);
        check("rw", &[("", "cgroup2")], true);
        check("rw", &[("", "ext4"), ("/sys/fs/cgroup/pids", "cgroup")], true);
        check("ro", &[("", "cgroup2")], false);
        check("ro", &[("", "tmpfs"), ("/unified", "cgroup2")], true);
        check("rro", &[("", "tmpfs"), ("/unified", "cgroup2")], false);
        // Of another volume than ours.
        check("rw", &[("0", "cgroup2")], false);
    }
}
