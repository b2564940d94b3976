//! What a machine has of what a cluster needs, and how to get what it lacks.

use std::{
    env, fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
};

use rustix::{
    process::geteuid,
    system::{sysinfo, uname},
};

/// The bit of `CAP_SYS_ADMIN` in `/proc/self/status`, which mounts need.
const SYS_ADMIN: u64 = 1 << 21;

/// The oldest kernel that we test on: Debian 12's.
const TESTED_KERNEL: (u32, u32) = (6, 1);

/// Where `waybill up` listens first.
const API_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6443);

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// What it is.
    pub(crate) subject: &'static str,
    pub(crate) verdict: Verdict,
    /// What was seen, or what is wrong.
    pub(crate) seen: String,
    /// What to do about it; empty if nothing has to be done.
    pub(crate) remedy: &'static str,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    /// A cluster runs without it, and something is lost.
    Less,
    /// Nothing runs without it.
    Missing,
}

/// What a cluster cannot do without, as far as it is missing. `containers` says whether ours is the runtime.
pub(crate) fn missing(containers: bool) -> Vec<Finding> {
    let mut needed = Machine::here().needed(containers);
    needed.retain(|it| it.verdict == Verdict::Missing);
    needed
}

/// Everything that is worth knowing before a cluster is started here.
pub(crate) fn examine() -> Vec<Finding> {
    let machine = Machine::here();
    let mut findings = machine.needed(true);
    findings.extend(machine.useful());
    findings
}

/// What matters of a machine.
struct Machine {
    uid: u32,
    capabilities: u64,
    /// Those of containers that the kernel does not have.
    missing_namespaces: Vec<&'static str>,
    has_overlay: bool,
    /// Where it is mounted.
    cgroup_v2: Option<String>,
    kernel: String,
    has_btf: bool,
    has_seccomp: bool,
    has_user_namespaces: bool,
    /// In bytes.
    swap: u64,
    busybox: Option<PathBuf>,
    kubectl: Option<PathBuf>,
    port_is_free: bool,
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
            cgroup_v2: cgroup_v2(&read("/proc/self/mountinfo")),
            kernel: uname().release().to_string_lossy().into_owned(),
            has_btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
            has_seccomp: Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
            has_user_namespaces: Path::new("/proc/self/ns/user").exists()
                && read("/proc/sys/user/max_user_namespaces").trim() != "0",
            swap: swap_bytes(),
            busybox: program("busybox"),
            kubectl: program("kubectl"),
            port_is_free: TcpListener::bind(API_SERVER).is_ok(),
        }
    }

    fn needed(&self, containers: bool) -> Vec<Finding> {
        let mut needed = vec![self.root()];
        if !containers {
            return needed;
        }
        needed.push(match self.missing_namespaces.as_slice() {
            [] => good("namespaces", ""),
            missing => lacking(
                "namespaces",
                format!("the kernel was built without those of the kind {}", missing.join(", ")),
                "use a kernel of a distribution",
            ),
        });
        needed.push(match self.has_overlay {
            true => good("overlay", ""),
            false => lacking(
                "overlay",
                "the overlay file system is not there".to_owned(),
                "run `modprobe overlay`, or use a kernel with CONFIG_OVERLAY_FS",
            ),
        });
        needed.push(match &self.cgroup_v2 {
            Some(place) => good("cgroup v2", place),
            None => lacking(
                "cgroup v2",
                "it is not mounted".to_owned(),
                "run `mount -t cgroup2 none /sys/fs/cgroup`, or mount it at /sys/fs/cgroup/unified beside v1",
            ),
        });
        needed
    }

    fn root(&self) -> Finding {
        if self.uid != 0 {
            return lacking(
                "root",
                format!("this is user {}, and containers and mounts need root", self.uid),
                "run `sudo waybill up`",
            );
        }
        if self.capabilities & SYS_ADMIN == 0 {
            return lacking(
                "root",
                "this root has no CAP_SYS_ADMIN and may not mount, as in a container".to_owned(),
                "run it on the host, or with `docker run --privileged`",
            );
        }
        good("root", "")
    }

    /// What a cluster runs without.
    fn useful(&self) -> Vec<Finding> {
        vec![
            self.known_kernel(),
            either(
                "seccomp",
                self.has_seccomp,
                "the kernel filters no system calls, so containers are less confined",
                "use a kernel with CONFIG_SECCOMP_FILTER",
            ),
            either(
                "user namespaces",
                self.has_user_namespaces,
                "pods with `hostUsers: false` are refused",
                "set the sysctl user.max_user_namespaces to more than 0",
            ),
            either(
                "kernel types",
                self.has_btf,
                "there is no /sys/kernel/btf/vmlinux, so programs inside sessions are looked for in other ways, which may miss short ones",
                "use a kernel with CONFIG_DEBUG_INFO_BTF, as distributions have",
            ),
            match self.swap {
                0 => good("swap", "none"),
                bytes => less(
                    "swap",
                    format!(
                        "{} MiB: pods and roles keep out of it, other programs that read secrets may not",
                        bytes >> 20
                    ),
                    "encrypt it, or turn it off with `swapoff -a`",
                ),
            },
            found(
                "busybox",
                self.busybox.as_deref(),
                "run `apt-get install busybox-static` for an image to try",
            ),
            found(
                "kubectl",
                self.kubectl.as_deref(),
                "run `apt-get install kubernetes-client`; `waybill get|apply|logs|exec` work without it",
            ),
            either(
                "port 6443",
                self.port_is_free,
                "somebody listens there, perhaps a cluster that runs; another start takes the next free port",
                "",
            ),
        ]
    }

    fn known_kernel(&self) -> Finding {
        match version(&self.kernel) {
            Some(version) if version < TESTED_KERNEL => less(
                "kernel",
                format!("{}, which is older than any we test on", self.kernel),
                "use Linux 6.1 or later",
            ),
            _ => good("kernel", &self.kernel),
        }
    }
}

fn good(subject: &'static str, seen: &str) -> Finding {
    Finding { subject, verdict: Verdict::Good, seen: seen.to_owned(), remedy: "" }
}

fn less(subject: &'static str, seen: String, remedy: &'static str) -> Finding {
    Finding { subject, verdict: Verdict::Less, seen, remedy }
}

fn lacking(subject: &'static str, seen: String, remedy: &'static str) -> Finding {
    Finding { subject, verdict: Verdict::Missing, seen, remedy }
}

fn either(subject: &'static str, is_there: bool, otherwise: &str, remedy: &'static str) -> Finding {
    if is_there { good(subject, "") } else { less(subject, otherwise.to_owned(), remedy) }
}

fn found(subject: &'static str, program: Option<&Path>, remedy: &'static str) -> Finding {
    match program {
        Some(path) => good(subject, &path.display().to_string()),
        None => less(subject, "is not on the PATH".to_owned(), remedy),
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
fn cgroup_v2(mountinfo: &str) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let at = head.split(' ').nth(4)?;
        (at.starts_with("/sys/fs/cgroup") && tail.starts_with("cgroup2 ")).then(|| at.to_owned())
    })
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn swap_bytes() -> u64 {
    let info = sysinfo();
    info.totalswap.saturating_mul(u64::from(info.mem_unit))
}

#[expect(clippy::disallowed_methods, reason = "programs are where the user's shell looks for them")]
fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good_machine() -> Machine {
        Machine {
            uid: 0,
            capabilities: u64::MAX,
            missing_namespaces: Vec::new(),
            has_overlay: true,
            cgroup_v2: Some("/sys/fs/cgroup".to_owned()),
            kernel: "6.1.0-37-amd64".to_owned(),
            has_btf: true,
            has_seccomp: true,
            has_user_namespaces: true,
            swap: 0,
            busybox: Some("/bin/busybox".into()),
            kubectl: Some("/usr/bin/kubectl".into()),
            port_is_free: true,
        }
    }

    #[track_caller]
    fn check(findings: Vec<Finding>, expected: &[(&str, Verdict, &str)]) {
        let bad: Vec<_> = findings.into_iter().filter(|it| it.verdict != Verdict::Good).collect();
        assert_eq!(bad.len(), expected.len(), "{bad:?}");
        for (finding, (subject, verdict, part)) in bad.iter().zip(expected) {
            assert_eq!((finding.subject, finding.verdict), (*subject, *verdict));
            let told = format!("{}; {}", finding.seen, finding.remedy);
            assert!(told.contains(part), "{part}: {told}");
        }
    }

    #[test]
    fn each_thing_that_is_missing_is_said_with_its_remedy() {
        use Verdict::Missing;
        check(good_machine().needed(true), &[]);
        let user = Machine { uid: 1000, ..good_machine() };
        check(user.needed(true), &[("root", Missing, "user 1000")]);
        let contained = Machine { capabilities: 0, ..good_machine() };
        check(contained.needed(true), &[("root", Missing, "docker run --privileged")]);
        let bare = Machine {
            missing_namespaces: vec!["pid", "net"],
            has_overlay: false,
            cgroup_v2: None,
            ..good_machine()
        };
        let expected = [
            ("namespaces", Missing, "pid, net"),
            ("overlay", Missing, "modprobe overlay"),
            ("cgroup v2", Missing, "mount -t cgroup2"),
        ];
        check(bare.needed(true), &expected);
        check(bare.needed(false), &[]);
    }

    #[test]
    fn what_a_cluster_runs_without_is_no_reason_to_fail() {
        use Verdict::Less;
        check(good_machine().useful(), &[]);
        let poor = Machine {
            kernel: "5.10.0-35-amd64".to_owned(),
            has_btf: false,
            has_seccomp: false,
            has_user_namespaces: false,
            swap: 3 << 30,
            busybox: None,
            kubectl: None,
            port_is_free: false,
            ..good_machine()
        };
        let expected = [
            ("kernel", Less, "6.1 or later"),
            ("seccomp", Less, "CONFIG_SECCOMP_FILTER"),
            ("user namespaces", Less, "hostUsers: false"),
            ("kernel types", Less, "CONFIG_DEBUG_INFO_BTF"),
            ("swap", Less, "3072 MiB"),
            ("busybox", Less, "busybox-static"),
            ("kubectl", Less, "kubernetes-client"),
            ("port 6443", Less, "next free port"),
        ];
        check(poor.useful(), &expected);
    }

    #[test]
    fn facts_are_read_from_what_the_kernel_shows() {
        assert_eq!(capabilities("Name:\tx\nCapEff:\t000001ffffffffff\n"), 0x1ff_ffff_ffff);
        assert_eq!(capabilities(""), 0);
        assert!(has_overlay("nodev\tsysfs\nnodev\toverlay\n") && !has_overlay("nodev\tsysfs\n"));
        let line = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        assert_eq!(cgroup_v2(line).as_deref(), Some("/sys/fs/cgroup"));
        assert_eq!(cgroup_v2(&line.replace("cgroup2", "cgroup")), None);
        assert_eq!(version("6.1.0-37-amd64"), Some((6, 1)));
        assert_eq!(version("6.18.5"), Some((6, 18)));
        assert_eq!(version("rolling"), None);
    }
}
