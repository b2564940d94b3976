//! How the processes of a container run, taken from its OCI spec: whoever joins the container later must run
//! exactly as its first process does.

use std::{collections::HashSet, io};

use oci_spec::runtime::{Capability, LinuxCapabilities, PosixRlimitType, Process, Spec};
use rustix::process::{Gid, Resource, Uid};
use serde::{Deserialize, Serialize};

use super::seccomp::Filter;
use crate::{IdMap, capability::bit, procfs};

/// User, limits and privileges of a container's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Settings {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    pub(super) umask: u32,
    pub(super) cwd: String,
    pub(super) no_new_privileges: bool,
    pub(super) oom_score_adj: Option<i32>,
    pub(super) apparmor_profile: Option<String>,
    /// Without one there is no limit to what they may call.
    #[serde(default)]
    pub(super) seccomp: Option<Filter>,
    pub(super) capabilities: Capabilities,
    pub(super) rlimits: Vec<Rlimit>,
}

/// The five sets, as the kernel numbers capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Capabilities {
    pub(super) bounding: u64,
    pub(super) effective: u64,
    pub(super) permitted: u64,
    pub(super) inheritable: u64,
    pub(super) ambient: u64,
}

/// A resource limit, by the position of its type in [`RESOURCES`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Rlimit {
    pub(super) resource: usize,
    pub(super) soft: u64,
    pub(super) hard: u64,
}

const DEFAULT_UMASK: u32 = 0o022;

impl Settings {
    pub(super) fn of(process: &Process) -> Self {
        let user = process.user();
        Self {
            uid: user.uid(),
            gid: user.gid(),
            groups: user.additional_gids().clone().unwrap_or_default(),
            umask: user.umask().unwrap_or(DEFAULT_UMASK),
            cwd: process.cwd().to_string_lossy().into_owned(),
            no_new_privileges: process.no_new_privileges().unwrap_or(false),
            oom_score_adj: process.oom_score_adj(),
            apparmor_profile: process.apparmor_profile().clone(),
            seccomp: None,
            capabilities: process.capabilities().as_ref().map(Capabilities::of).unwrap_or_default(),
            rlimits: process
                .rlimits()
                .iter()
                .flatten()
                .filter_map(|limit| {
                    let resource = RESOURCES.iter().position(|(typ, _)| *typ == limit.typ())?;
                    Some(Rlimit { resource, soft: limit.soft(), hard: limit.hard() })
                })
                .collect(),
        }
    }
}

impl Settings {
    /// Who the machine takes the user for, if `map` says how it calls those of the container.
    pub(super) fn owner(&self, map: Option<IdMap>) -> io::Result<(Uid, Gid)> {
        let outside = |id| map.map_or(Some(id), |map| map.on_the_machine(id));
        match (outside(self.uid), outside(self.gid)) {
            (Some(uid), Some(gid)) => Ok((Uid::from_raw(uid), Gid::from_raw(gid))),
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }
}

impl Capabilities {
    fn of(sets: &LinuxCapabilities) -> Self {
        let mask = |set: &Option<HashSet<Capability>>| {
            set.iter().flatten().fold(0, |all, &capability| all | bit(capability))
        };
        Self {
            bounding: mask(sets.bounding()),
            effective: mask(sets.effective()),
            permitted: mask(sets.permitted()),
            inheritable: mask(sets.inheritable()),
            ambient: mask(sets.ambient()),
        }
    }
}

/// Takes out of a spec the capabilities that this process itself cannot give, and names them. Nobody can be
/// given what the runtime does not have, and the kernel would refuse the whole set.
pub(super) fn drop_unavailable_capabilities(spec: &mut Spec) -> io::Result<Vec<String>> {
    let available = procfs::own_bounding_set()?.unwrap_or(u64::MAX);
    let Some(process) = spec.process_mut() else { return Ok(Vec::new()) };
    let Some(mut sets) = process.capabilities().clone() else { return Ok(Vec::new()) };
    let mut dropped = HashSet::new();
    let mut filter = |set: &Option<HashSet<Capability>>| {
        set.as_ref().map(|set| {
            let (kept, gone): (HashSet<_>, HashSet<_>) =
                set.iter().copied().partition(|&capability| bit(capability) & available != 0);
            dropped.extend(gone);
            kept
        })
    };
    let (bounding, effective) = (filter(sets.bounding()), filter(sets.effective()));
    let (permitted, inheritable) = (filter(sets.permitted()), filter(sets.inheritable()));
    let ambient = filter(sets.ambient());
    sets.set_bounding(bounding);
    sets.set_effective(effective);
    sets.set_permitted(permitted);
    sets.set_inheritable(inheritable);
    sets.set_ambient(ambient);
    process.set_capabilities(Some(sets));
    let mut dropped: Vec<String> = dropped.iter().map(|name| format!("CAP_{name}")).collect();
    dropped.sort_unstable();
    Ok(dropped)
}

/// The limits that a spec can name.
pub(super) const RESOURCES: [(PosixRlimitType, Resource); 16] = [
    (PosixRlimitType::RlimitCpu, Resource::Cpu),
    (PosixRlimitType::RlimitFsize, Resource::Fsize),
    (PosixRlimitType::RlimitData, Resource::Data),
    (PosixRlimitType::RlimitStack, Resource::Stack),
    (PosixRlimitType::RlimitCore, Resource::Core),
    (PosixRlimitType::RlimitRss, Resource::Rss),
    (PosixRlimitType::RlimitNproc, Resource::Nproc),
    (PosixRlimitType::RlimitNofile, Resource::Nofile),
    (PosixRlimitType::RlimitMemlock, Resource::Memlock),
    (PosixRlimitType::RlimitAs, Resource::As),
    (PosixRlimitType::RlimitLocks, Resource::Locks),
    (PosixRlimitType::RlimitSigpending, Resource::Sigpending),
    (PosixRlimitType::RlimitMsgqueue, Resource::Msgqueue),
    (PosixRlimitType::RlimitNice, Resource::Nice),
    (PosixRlimitType::RlimitRtprio, Resource::Rtprio),
    (PosixRlimitType::RlimitRttime, Resource::Rttime),
];

#[cfg(test)]
mod tests {
    use oci_spec::runtime::{LinuxCapabilitiesBuilder, ProcessBuilder};

    use super::*;

    #[test]
    fn capabilities_that_we_lack_are_dropped_and_named() {
        let sets = LinuxCapabilitiesBuilder::default()
            .bounding(HashSet::from([Capability::Chown]))
            .build()
            .unwrap();
        let process = ProcessBuilder::default().capabilities(sets).build().unwrap();
        let mut spec = Spec::default();
        spec.set_process(Some(process));
        let dropped = drop_unavailable_capabilities(&mut spec).unwrap();
        let left = Settings::of(spec.process().as_ref().unwrap()).capabilities.bounding;
        assert_eq!(left == 1, dropped.is_empty());
    }
}
