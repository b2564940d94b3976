//! Cgroup file systems mounted again: whoever has a user namespace of their own may mount them, and sees from the root of
//! their cgroup namespace downwards.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    unistd::{getgid, getuid},
};

use crate::Outcome;

/// Where mounts are made, in the image's own file system.
const PLACE: &str = "/tmp";

/// Files by which a container is limited, and what takes the limit away.
const LIMITS: [(&str, &str); 6] = [
    ("memory.memsw.limit_in_bytes", "-1"),
    ("memory.limit_in_bytes", "-1"),
    ("memory.max", "max"),
    ("pids.max", "max"),
    ("cpu.cfs_quota_us", "-1"),
    ("cpu.max", "max"),
];

/// Names every cgroup of the unified hierarchy that can be reached, besides the one that this process is in.
pub(crate) fn see(_arguments: &[String]) -> Outcome {
    let root = mount_again("cgroup2", None)?;
    let names: Vec<String> = below(&root).iter().map(|it| it.display().to_string()).collect();
    if names.is_empty() { Err("no other cgroup is below".to_owned()) } else { Ok(names.join("\n")) }
}

/// Moves this process into a cgroup that has a word in its name, and stays in it for a while.
pub(crate) fn enter(arguments: &[String]) -> Outcome {
    let word = arguments.first().ok_or("name a cgroup")?;
    let root = mount_again("cgroup2", None)?;
    let found = below(&root).into_iter().find(|it| it.to_string_lossy().contains(word.as_str()));
    let found = found.ok_or_else(|| format!("no cgroup is called {word}"))?;
    fs::write(found.join("cgroup.procs"), "0").map_err(|error| format!("{found:?}: {error}"))?;
    Ok(found.display().to_string())
}

/// Takes every limit away that can be reached, in every hierarchy. Whether that lifts the container's own is for the test to see.
pub(crate) fn lift(_arguments: &[String]) -> Outcome {
    let mut roots = vec![mount_again("cgroup2", None)?];
    for controller in ["memory", "pids", "cpu"] {
        // Where all controllers are in the unified hierarchy these are not there.
        roots.extend(mount_in(controller, "cgroup", Some(controller)));
    }
    let mut written = Vec::new();
    for directory in roots.iter().flat_map(|root| [below(root), vec![root.clone()]].concat()) {
        for (file, nothing) in LIMITS {
            let file = directory.join(file);
            if file.exists() && fs::write(&file, nothing).is_ok() {
                written.push(file.display().to_string());
            }
        }
    }
    if written.is_empty() {
        Err("no limit can be written".to_owned())
    } else {
        Ok(written.join("\n"))
    }
}

/// Enters namespaces of its own, and mounts a cgroup file system there.
fn mount_again(kind: &str, options: Option<&str>) -> Result<PathBuf, String> {
    let (uid, gid) = (getuid(), getgid());
    let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWCGROUP;
    unshare(flags).map_err(|errno| format!("unshare: {errno}"))?;
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {uid} 1")),
        ("gid_map", format!("0 {gid} 1")),
    ] {
        fs::write(Path::new("/proc/self").join(file), text)
            .map_err(|error| format!("{file}: {error}"))?;
    }
    mount(Some("none"), PLACE, Some("tmpfs"), MsFlags::empty(), None::<&str>)
        .map_err(|errno| format!("mount tmpfs: {errno}"))?;
    mount_in("unified", kind, options)
}

fn mount_in(name: &str, kind: &str, options: Option<&str>) -> Result<PathBuf, String> {
    let place = Path::new(PLACE).join(name);
    fs::create_dir(&place).map_err(|error| format!("{place:?}: {error}"))?;
    mount(Some("none"), &place, Some(kind), MsFlags::empty(), options)
        .map_err(|errno| format!("mount {kind}: {errno}"))?;
    Ok(place)
}

/// Every directory below one.
fn below(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.push(entry.path());
            all.extend(below(&entry.path()));
        }
    }
    all
}
