//! What a machine must have, and how to get what it lacks.

use std::{fs, path::Path};

use rustix::process::geteuid;

use super::RuntimeChoice;

/// The bit of `CAP_SYS_ADMIN` in `/proc/self/status`, which mounts need.
const SYS_ADMIN: u64 = 1 << 21;

/// One line for each thing that is missing, with what to do about it.
pub(super) fn missing(runtime: &RuntimeChoice) -> Vec<String> {
    Machine::here().missing(runtime == &RuntimeChoice::Embedded)
}

/// What matters of a machine.
struct Machine {
    uid: u32,
    capabilities: u64,
    /// Those of containers that the kernel does not have.
    missing_namespaces: Vec<&'static str>,
    has_overlay: bool,
    has_cgroup_v2: bool,
}

impl Machine {
    fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let namespaces = ["cgroup", "ipc", "mnt", "net", "pid", "uts"];
        let is_missing = |name: &&str| !Path::new("/proc/self/ns").join(name).exists();
        Self {
            uid: geteuid().as_raw(),
            capabilities: capabilities(&read("/proc/self/status")),
            missing_namespaces: namespaces.into_iter().filter(is_missing).collect(),
            has_overlay: has_overlay(&read("/proc/filesystems"))
                || Path::new("/sys/module/overlay").exists(),
            has_cgroup_v2: has_cgroup_v2(&read("/proc/self/mountinfo")),
        }
    }

    fn missing(&self, containers: bool) -> Vec<String> {
        let mut missing = Vec::new();
        if self.uid != 0 {
            missing.push(format!(
                "  - root: this is user {}, and containers and mounts need root; run `sudo waybill up`",
                self.uid
            ));
        } else if self.capabilities & SYS_ADMIN == 0 {
            missing.push(
                "  - the capability SYS_ADMIN: this root may not mount, as in a container; run it on the \
                 host, or with `docker run --privileged`"
                    .to_owned(),
            );
        }
        if !containers {
            return missing;
        }
        if !self.missing_namespaces.is_empty() {
            missing.push(format!(
                "  - namespaces of the kind {}: the kernel was built without them; use a kernel of a \
                 distribution",
                self.missing_namespaces.join(", ")
            ));
        }
        if !self.has_overlay {
            missing.push(
                "  - the overlay file system: run `modprobe overlay`, or use a kernel with \
                 CONFIG_OVERLAY_FS"
                    .to_owned(),
            );
        }
        if !self.has_cgroup_v2 {
            missing.push(
                "  - cgroup v2: run `mount -t cgroup2 none /sys/fs/cgroup`, or mount it at \
                 /sys/fs/cgroup/unified beside v1"
                    .to_owned(),
            );
        }
        missing
    }
}

fn capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

fn has_overlay(filesystems: &str) -> bool {
    filesystems.lines().any(|line| line.split_whitespace().last() == Some("overlay"))
}

/// Where the runtime looks for it.
fn has_cgroup_v2(mountinfo: &str) -> bool {
    mountinfo.lines().any(|line| {
        let Some((head, tail)) = line.split_once(" - ") else { return false };
        let at = head.split(' ').nth(4).unwrap_or_default();
        at.starts_with("/sys/fs/cgroup") && tail.starts_with("cgroup2 ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Machine = Machine {
        uid: 0,
        capabilities: u64::MAX,
        missing_namespaces: Vec::new(),
        has_overlay: true,
        has_cgroup_v2: true,
    };

    #[track_caller]
    fn check(machine: &Machine, containers: bool, parts: &[&str]) {
        let missing = machine.missing(containers);
        assert_eq!(missing.len(), parts.len(), "{missing:?}");
        for (line, part) in missing.iter().zip(parts) {
            assert!(line.contains(part), "{part}: {line}");
        }
    }

    #[test]
    fn each_thing_that_is_missing_is_said_with_its_remedy() {
        check(&GOOD, true, &[]);
        check(&Machine { uid: 1000, ..GOOD }, true, &["user 1000"]);
        check(&Machine { capabilities: 0, ..GOOD }, true, &["docker run --privileged"]);
        let bare = Machine {
            missing_namespaces: vec!["pid", "net"],
            has_overlay: false,
            has_cgroup_v2: false,
            ..GOOD
        };
        check(&bare, true, &["pid, net", "modprobe overlay", "mount -t cgroup2"]);
        check(&bare, false, &[]);
    }

    #[test]
    fn facts_are_read_from_what_the_kernel_shows() {
        assert_eq!(capabilities("Name:\tx\nCapEff:\t000001ffffffffff\n"), 0x1ff_ffff_ffff);
        assert_eq!(capabilities(""), 0);
        assert!(has_overlay("nodev\tsysfs\nnodev\toverlay\n") && !has_overlay("nodev\tsysfs\n"));
        let line = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        assert!(has_cgroup_v2(line) && !has_cgroup_v2(&line.replace("cgroup2", "cgroup")));
    }
}
