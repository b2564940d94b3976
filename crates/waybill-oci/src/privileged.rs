//! Whether root in a container could move processes between cgroups, so that a session's cgroup proves less.
//!
//! runc and crun only know cgroups below the container's own, and their files belong to root. What keeps root inside from writing them
//! is that they are mounted read-only there and cannot be mounted again. When in doubt, the answer is yes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::fs::statfs;
use serde_json::Value;

/// Capabilities with which root reaches the kernel or the node around all mounts.
const CAPABILITIES: [&str; 7] = [
    "CAP_SYS_ADMIN",
    "CAP_SYS_MODULE",
    "CAP_SYS_PTRACE",
    "CAP_SYS_RAWIO",
    "CAP_DAC_READ_SEARCH",
    "CAP_BPF",
    "CAP_SYS_BOOT",
];

/// Calls by which a cgroup file system is mounted once more, in a user namespace of one's own.
const MOUNTING: [&str; 2] = ["mount", "fsmount"];

/// Where cgroups are.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Whether it could, by the description of the container and the mounts of this machine.
pub(crate) fn is_privileged(spec: &Value) -> bool {
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    has_capability(spec)
        || MOUNTING.iter().any(|call| !is_denied(spec, call))
        || has_cgroups(spec, mounts)
}

fn has_capability(spec: &Value) -> bool {
    let bounding = spec.pointer("/process/capabilities/bounding");
    list(bounding).any(|held| CAPABILITIES.iter().any(|capability| held == capability))
}

/// Whether the seccomp filter refuses a call whatever its arguments are.
fn is_denied(spec: &Value, call: &str) -> bool {
    let filter = spec.pointer("/linux/seccomp");
    let refuses = |action: Option<&Value>| {
        matches!(
            action.and_then(Value::as_str),
            Some(
                "SCMP_ACT_ERRNO"
                    | "SCMP_ACT_KILL"
                    | "SCMP_ACT_KILL_PROCESS"
                    | "SCMP_ACT_KILL_THREAD"
                    | "SCMP_ACT_TRAP"
            )
        )
    };
    let rules = list(filter.and_then(|filter| filter.get("syscalls")));
    let about: Vec<_> =
        rules.filter(|rule| list(rule.get("names")).any(|name| name == call)).collect();
    let always = |rule: &&Value| list(rule.get("args")).next().is_none();
    let by_rule = about.iter().copied().any(|rule| always(&rule) && refuses(rule.get("action")));
    let by_default = refuses(filter.and_then(|filter| filter.get("defaultAction")));
    about.iter().all(|rule| refuses(rule.get("action"))) && (by_rule || by_default)
}

/// Whether a cgroup file system is mounted in the container for writing: by itself, or with a directory of the node.
fn has_cgroups(spec: &Value, mounts: impl Fn() -> String) -> bool {
    let mut sources = Vec::new();
    for mount in list(spec.get("mounts")) {
        if list(mount.get("options")).any(|option| option == "ro" || option == "rro") {
            continue;
        }
        match mount.get("type").and_then(Value::as_str) {
            Some("cgroup" | "cgroup2") => return true,
            _ => sources.extend(mount.get("source").and_then(Value::as_str).and_then(directory)),
        }
    }
    if sources.iter().any(|source| is_cgroups(source)) {
        return true;
    }
    let mounts = if sources.is_empty() { String::new() } else { mounts() };
    let mut places = mounts.lines().filter_map(cgroup_mount).chain([CGROUPS]);
    places.any(|place| sources.iter().any(|source| Path::new(place).starts_with(source)))
}

/// What a source of a mount is on this machine, if it is a directory; devices and names of file systems are none.
fn directory(source: &str) -> Option<PathBuf> {
    let path = Path::new(source);
    if !path.is_absolute() {
        return None;
    }
    let found = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_file = fs::metadata(&found).is_ok_and(|found| !found.is_dir());
    (!is_file).then_some(found)
}

fn is_cgroups(directory: &Path) -> bool {
    // From linux/magic.h; the type of the field depends on the machine.
    const CGROUP: i64 = 0x0027_e0eb;
    const CGROUP2: i64 = 0x6367_7270;
    #[allow(
        clippy::useless_conversion,
        clippy::allow_attributes,
        reason = "i64 here, i32 or u32 elsewhere"
    )]
    let kind = statfs(directory).map(|found| i64::from(found.f_type));
    kind.is_ok_and(|kind| kind == CGROUP || kind == CGROUP2)
}

/// Where a line of mountinfo says that cgroups are mounted.
fn cgroup_mount(line: &str) -> Option<&str> {
    let (mount, about) = line.split_once(" - ")?;
    matches!(about.split(' ').next()?, "cgroup" | "cgroup2")
        .then(|| mount.split(' ').nth(4))
        .flatten()
}

fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As containerd makes them for a pod with `RuntimeDefault`.
    fn usual() -> Value {
        json!({
            "process": {"capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_CHROOT", "CAP_MKNOD"]}},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]},
                {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["relatime", "ro"]},
                {"destination": "/etc/hosts", "type": "bind", "source": "/etc/hosts", "options": ["rbind", "rw"]},
                {"destination": "/data", "type": "bind", "source": "/var/lib/kubelet/pods/u/volumes/x", "options": ["rbind", "rw"]}],
            "linux": {"seccomp": {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
                {"names": ["read", "write", "clone"], "action": "SCMP_ACT_ALLOW"},
                {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}]}},
        })
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Value), expected: bool) {
        let mut spec = usual();
        change(&mut spec);
        assert_eq!(is_privileged(&spec), expected, "{spec}");
    }

    fn mount(source: &str, option: &str) -> impl FnOnce(&mut Value) {
        let mount = json!({"destination": "/x", "type": "bind", "source": source, "options": ["rbind", option]});
        move |spec| spec["mounts"].as_array_mut().unwrap().push(mount)
    }

    #[test]
    fn an_ordinary_container_is_not() {
        check(|_| (), false);
    }

    #[test]
    fn capabilities_that_lead_around_mounts_count() {
        for capability in CAPABILITIES {
            check(|spec| spec["process"]["capabilities"]["bounding"][0] = capability.into(), true);
        }
    }

    #[test]
    fn cgroups_count_wherever_they_come_from() {
        check(|spec| spec["mounts"][2]["options"] = json!(["relatime"]), true);
        for source in ["/sys/fs/cgroup", "/sys", "/", "/sys/fs/../fs/cgroup"] {
            check(mount(source, "rw"), true);
        }
        check(mount("/sys/fs/cgroup", "ro"), false);
        check(mount("/", "ro"), false);
        check(mount("/etc", "rw"), false);
    }

    /// Somebody mounted them a second time, and gives a directory above that to a container.
    #[test]
    fn cgroups_that_are_mounted_elsewhere_count_too() {
        let mounts = || {
            "36 25 0:31 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n\
             99 25 0:31 / /srv/agent/cg rw - cgroup cgroup rw,pids\n40 25 0:5 / /data rw - ext4 /dev/sda rw"
                .to_owned()
        };
        let has = |source: &str| {
            let mut spec = usual();
            mount(source, "rw")(&mut spec);
            has_cgroups(&spec, mounts)
        };
        assert!(has("/srv") && has("/srv/agent/cg") && has("/sys/fs"));
        assert!(!has("/data") && !has("/srv/agent/other"));
    }

    /// What counts is whether a file system can be mounted, in a user namespace of one's own.
    #[test]
    fn a_filter_counts_if_it_lets_nobody_mount() {
        let filter = |filter: Value| move |spec: &mut Value| spec["linux"]["seccomp"] = filter;
        check(filter(Value::Null), true);
        check(|spec| drop(spec["linux"].as_object_mut().unwrap().remove("seccomp")), true);
        let rule = |action: &str, names: &[&str]| json!({"names": names, "action": action});
        let with =
            |default: &str, rules: &[Value]| json!({"defaultAction": default, "syscalls": rules});
        check(filter(with("SCMP_ACT_ALLOW", &[rule("SCMP_ACT_ERRNO", &["kexec_load"])])), true);
        check(filter(with("SCMP_ACT_ALLOW", &[rule("SCMP_ACT_ERRNO", &["mount"])])), true);
        check(filter(with("SCMP_ACT_LOG", &[])), true);
        let both = rule("SCMP_ACT_ERRNO", &["mount", "fsmount"]);
        check(filter(with("SCMP_ACT_ALLOW", std::slice::from_ref(&both))), false);
        check(filter(with("SCMP_ACT_ERRNO", &[rule("SCMP_ACT_ALLOW", &["fsmount"])])), true);
        let mut sometimes = both;
        sometimes["args"] = json!([{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}]);
        check(filter(with("SCMP_ACT_ALLOW", &[sometimes])), true);
    }
}
