//! AppArmor on this machine: whether the kernel confines by it, and which profiles are loaded.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The profile of containers that ask for that of the runtime. Who runs the machine loads it; `deploy/apparmor` has one.
pub(crate) const DEFAULT: &str = "waybill-default";

/// What the kernel shows of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AppArmor {
    /// The list of profiles, where the kernel has AppArmor and it is switched on.
    profiles: Option<PathBuf>,
}

impl AppArmor {
    /// Looks below `root`, which is `/` but in tests.
    pub(crate) fn look_up(root: &Path) -> Self {
        let enabled = fs::read(root.join("sys/module/apparmor/parameters/enabled"));
        let profiles = root.join("sys/kernel/security/apparmor/profiles");
        let there = enabled.is_ok_and(|text| text.starts_with(b"Y")) && profiles.exists();
        Self { profiles: there.then_some(profiles) }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.profiles.is_some()
    }

    /// Whether a profile is loaded. The kernel answers anew each time: profiles come and go.
    pub(crate) fn has(&self, profile: &str) -> io::Result<bool> {
        let Some(profiles) = &self.profiles else { return Ok(false) };
        Ok(is_listed(&fs::read_to_string(profiles)?, profile))
    }
}

/// A line is a name, which may have spaces, and its mode in parentheses.
fn is_listed(profiles: &str, profile: &str) -> bool {
    let name = |line: &'_ str| line.rsplit_once(" (").map(|(name, _)| name == profile);
    profiles.lines().any(|line| name(line) == Some(true))
}

#[cfg(test)]
impl AppArmor {
    /// A machine with these profiles, in a directory of its own.
    pub(crate) fn with(directory: &Path, profiles: &[&str]) -> Self {
        let at = |path: &str| directory.join(path);
        fs::create_dir_all(at("sys/module/apparmor/parameters")).unwrap();
        fs::create_dir_all(at("sys/kernel/security/apparmor")).unwrap();
        fs::write(at("sys/module/apparmor/parameters/enabled"), "Y\n").unwrap();
        let list: String = profiles.iter().map(|name| format!("{name} (enforce)\n")).collect();
        fs::write(at("sys/kernel/security/apparmor/profiles"), list).unwrap();
        Self::look_up(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_found_by_their_whole_name() {
        let list = "/usr/sbin/ntpd (enforce)\nwaybill-default (enforce)\nodd name (x) (complain)\n";
        for (name, expected) in [
            ("waybill-default", true),
            ("odd name (x)", true),
            ("odd name", false),
            ("waybill", false),
            ("", false),
        ] {
            assert_eq!(is_listed(list, name), expected, "{name}");
        }
    }

    #[test]
    fn a_machine_has_it_when_the_kernel_does_and_it_is_on() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!AppArmor::look_up(directory.path()).is_there());
        assert!(AppArmor::with(directory.path(), &["a"]).has("a").unwrap());
        let enabled = directory.path().join("sys/module/apparmor/parameters/enabled");
        fs::write(enabled, "N\n").unwrap();
        let off = AppArmor::look_up(directory.path());
        assert!(!off.is_there());
        assert!(!off.has("a").unwrap());
    }
}
