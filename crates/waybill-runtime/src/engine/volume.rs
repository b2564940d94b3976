//! Which mounts of a specification are volumes, and what each asks for. How they get into a container:
//! `monitor/volumes.rs`.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};
use serde::{Deserialize, Serialize};

use super::request::STAGE;

const DEV: &str = "/dev";

/// Files below `/proc` that tools such as lxcfs show containers with their own numbers; runc's list.
pub(crate) const EMULATED_IN_PROC: [&str; 10] = [
    "cpuinfo",
    "diskstats",
    "loadavg",
    "meminfo",
    "slabinfo",
    "stat",
    "swaps",
    "sys/crypto/fips_enabled",
    "sys/kernel/ns_last_pid",
    "uptime",
];

/// A part of the machine that a container gets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Volume {
    number: usize,
    pub(super) source: PathBuf,
    pub(super) destination: PathBuf,
    /// With what is mounted below it.
    pub(super) recursive: bool,
    pub(super) access: Access,
    pub(super) propagation: Propagation,
    /// Whether its files are shown under the ids of the container's user namespace.
    #[serde(default)]
    pub(super) mapped: bool,
    /// Whether nothing in it is run, gives its owner's rights, or is a device.
    #[serde(default)]
    pub(super) inert: bool,
    /// Whether it is mounted when libcontainer has done its work.
    pub(super) late: bool,
}

/// What a container may do there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum Access {
    Writable,
    /// Read-only, but not in what is mounted below it.
    Locked,
    /// Read-only, also in what is mounted below it.
    LockedThroughout,
}

/// Which way mounts go that are made later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum Propagation {
    Private,
    /// From the machine to the container.
    Slave,
    /// Both ways.
    Shared,
}

impl Volume {
    /// Where libcontainer finds it, in the creator's mount namespace.
    pub(super) fn place(&self) -> PathBuf {
        Path::new(STAGE).join(self.number.to_string())
    }
}

/// The volumes of `spec`, whose sources become their places. Those that come late are no mounts of it any
/// more.
pub(super) fn take_out(spec: &mut Spec) -> Vec<Volume> {
    let Some(mounts) = spec.mounts().clone() else { return Vec::new() };
    let (mut volumes, mut kept): (Vec<Volume>, Vec<Mount>) = (Vec::new(), Vec::new());
    for mut mount in mounts {
        let Some(volume) = volume(&mount, &volumes) else {
            kept.push(mount);
            continue;
        };
        if !volume.late {
            mount.set_source(Some(volume.place()));
            mount.set_uid_mappings(None).set_gid_mappings(None);
            kept.push(mount);
        }
        volumes.push(volume);
    }
    spec.set_mounts(Some(kept));
    volumes
}

/// `None` if the mount says nothing about its propagation, and is none of the machine's directories.
fn volume(mount: &Mount, before: &[Volume]) -> Option<Volume> {
    let options = mount.options().as_ref()?;
    let has = |name: &str| options.iter().any(|option| option == name);
    let propagation = if has("rprivate") {
        Propagation::Private
    } else if has("rslave") {
        Propagation::Slave
    } else if has("rshared") {
        Propagation::Shared
    } else {
        return None;
    };
    let destination = mount.destination().clone();
    // What lies below it would be hidden, so it waits, too.
    let dev_is_late = before.iter().any(|volume| volume.late);
    Some(Volume {
        number: before.len(),
        source: mount.source().clone()?,
        recursive: has("rbind"),
        access: match (has("rro"), has("ro")) {
            (true, _) => Access::LockedThroughout,
            (false, true) => Access::Locked,
            (false, false) => Access::Writable,
        },
        propagation,
        mapped: mount.uid_mappings().is_some(),
        inert: ["nosuid", "noexec", "nodev"].into_iter().all(has),
        late: destination == Path::new(DEV) || (dev_is_late && destination.starts_with(DEV)),
        destination,
    })
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::{MountBuilder, SpecBuilder};

    use super::*;

    fn mount(inside: &str, options: &[&str]) -> Mount {
        let options: Vec<_> = options.iter().map(|&option| option.to_owned()).collect();
        MountBuilder::default().destination(inside).source("/b").options(options).build().unwrap()
    }

    fn taken(mounts: Vec<Mount>) -> (Vec<Volume>, Vec<PathBuf>) {
        let mut spec = SpecBuilder::default().mounts(mounts).build().unwrap();
        let volumes = take_out(&mut spec);
        let left = spec.mounts().iter().flatten().map(|it| it.source().clone().unwrap()).collect();
        (volumes, left)
    }

    #[test]
    fn every_volume_gets_a_place_and_keeps_its_propagation() {
        let (volumes, left) = taken(vec![
            mount("/proc", &["nosuid"]),
            mount("/a", &["rbind", "rprivate", "ro"]),
            mount("/b", &["bind", "rslave", "rw"]),
            mount("/c", &["rbind", "rshared", "rro"]),
        ]);
        let shown: Vec<_> =
            volumes.iter().map(|it| (it.propagation, it.recursive, it.access)).collect();
        let expected = [
            (Propagation::Private, true, Access::Locked),
            (Propagation::Slave, false, Access::Writable),
            (Propagation::Shared, true, Access::LockedThroughout),
        ];
        assert_eq!(shown, expected);
        assert!(volumes.iter().all(|it| !it.late && it.source == Path::new("/b")));
        let places = ["0", "1", "2"].map(|number| Path::new(STAGE).join(number));
        assert_eq!(left[0], Path::new("/b"));
        assert_eq!(left[1..], places);
    }

    #[test]
    fn a_volume_on_dev_comes_late_with_all_that_lies_below_it() {
        let bind = ["rbind", "rprivate"];
        let (volumes, left) = taken(vec![
            mount("/dev/shm", &bind),
            mount("/dev", &bind),
            mount("/dev/termination-log", &["rbind", "rprivate", "nosuid", "noexec", "nodev"]),
            mount("/data", &bind),
        ]);
        let late: Vec<_> = volumes.iter().map(|it| it.late).collect();
        assert_eq!(late, [false, true, true, false]);
        let inert: Vec<_> = volumes.iter().map(|it| it.inert).collect();
        assert_eq!(inert, [false, false, true, false]);
        assert_eq!(left, ["0", "3"].map(|number| Path::new(STAGE).join(number)));
    }
}
