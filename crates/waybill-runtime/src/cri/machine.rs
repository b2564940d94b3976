//! What this machine can do, looked up once at the start.

use std::{fs, path::Path};

use rustix::system::uname;

use super::{OpenFiles, UnsetSeccompProfile, apparmor::AppArmor};

/// Facts about the kernel, and settings of the runtime, that decide what a request may ask for and what it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Whether all controllers are in the one hierarchy of cgroup v2.
    pub(crate) unified: bool,
    /// Whether containers are kept from devices that they were not given, also when they make nodes of them.
    pub(crate) guards_devices: bool,
    /// Whether huge pages can be limited.
    pub(crate) hugetlb: bool,
    /// Whether swap can be limited.
    pub(crate) swap: bool,
    pub(crate) selinux: bool,
    pub(crate) apparmor: AppArmor,
    /// Whether a whole tree of mounts can be made read-only at once: Linux 5.12.
    pub(crate) recursive_read_only: bool,
    /// Whether pods can have users of their own, or what is in the way.
    pub(crate) user_namespaces: Result<(), String>,
    /// The number of the last capability that the kernel knows.
    pub(crate) last_capability: u32,
    pub(crate) hostname: String,
    /// How many files containers may open, if that is not what this process may.
    pub(crate) container_open_files: Option<OpenFiles>,
    pub(crate) unset_seccomp_profile: UnsetSeccompProfile,
}

impl Machine {
    pub(crate) fn look_up(guards_devices: bool) -> Self {
        let cgroup = Path::new("/sys/fs/cgroup");
        let controllers = fs::read_to_string(cgroup.join("cgroup.controllers")).ok();
        let unified = controllers.is_some();
        let has = |name: &str| match &controllers {
            Some(list) => list.split_whitespace().any(|it| it == name),
            None => cgroup.join(name).is_dir(),
        };
        let last = fs::read_to_string("/proc/sys/kernel/cap_last_cap");
        Self {
            unified,
            guards_devices,
            hugetlb: has("hugetlb"),
            swap: if unified {
                Path::new("/proc/swaps").exists()
            } else {
                cgroup.join("memory/memory.memsw.limit_in_bytes").exists()
            },
            selinux: Path::new("/sys/fs/selinux/enforce").exists(),
            apparmor: AppArmor::look_up(Path::new("/")),
            recursive_read_only: kernel_at_least(&uname().release().to_string_lossy(), (5, 12)),
            user_namespaces: Err("nobody has tried yet".to_owned()),
            last_capability: last.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(40),
            hostname: uname().nodename().to_string_lossy().into_owned(),
            container_open_files: None,
            unset_seccomp_profile: UnsetSeccompProfile::default(),
        }
    }
}

/// Whether the running kernel can have an overlay over directories whose ids are mapped: Linux 5.19.
pub(crate) fn maps_layers() -> Result<(), String> {
    match kernel_at_least(&uname().release().to_string_lossy(), (5, 19)) {
        true => Ok(()),
        false => Err("the root file systems of containers need Linux 5.19 or newer".to_owned()),
    }
}

fn kernel_at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= wanted,
        _ => false,
    }
}

#[cfg(test)]
impl Machine {
    /// A machine with cgroup v2 and no security modules, for tests.
    pub(crate) fn plain() -> Self {
        Self {
            unified: true,
            guards_devices: true,
            hugetlb: true,
            swap: true,
            selinux: false,
            apparmor: AppArmor::default(),
            recursive_read_only: true,
            user_namespaces: Ok(()),
            last_capability: 40,
            hostname: "node-1".into(),
            container_open_files: None,
            unset_seccomp_profile: UnsetSeccompProfile::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_are_compared_by_number() {
        assert!(kernel_at_least("6.1.0-13-amd64", (5, 12)));
        assert!(kernel_at_least("5.12.0", (5, 12)));
        assert!(!kernel_at_least("5.4.0-1", (5, 12)));
        assert!(!kernel_at_least("nonsense", (5, 12)));
    }

    #[test]
    fn this_machine_can_be_looked_up() {
        assert!(!Machine::look_up(true).hostname.is_empty());
    }
}
