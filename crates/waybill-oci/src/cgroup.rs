//! The cgroup of a session, below that of its container.
//!
//! The runtime moves the process there before its first instruction. No controller is turned on for it: the
//! container's limits hold as they do without it, and on cgroup v2 the container's own processes may stay
//! where they are.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use waybill_api::stock::{CGROUP_PREFIX, SessionId};

use crate::{container::Cgroups, node::Node};

/// A cgroup that was made for one session.
#[derive(Debug)]
pub(crate) struct SessionCgroup {
    /// Every directory that was made; the first one is what the session is known by.
    made: Vec<PathBuf>,
    /// What the kernel calls it.
    pub(crate) id: u64,
    /// What the runtime is told.
    pub(crate) argument: String,
}

impl SessionCgroup {
    /// Makes it, and removes those of sessions that have ended.
    pub(crate) fn make(node: &Node, cgroups: &Cgroups, session: &SessionId) -> io::Result<Self> {
        let name = session.cgroup_name();
        let (parents, argument) = places(cgroups, &name).ok_or(io::ErrorKind::NotFound)?;
        for parent in &parents {
            sweep(node, parent);
        }
        let mut cgroup = Self { made: Vec::new(), id: 0, argument };
        for parent in parents {
            let directory = parent.join(&name);
            let made = fs::create_dir(&directory).and_then(|()| inherit_cpus(&parent, &directory));
            cgroup.made.push(directory);
            if let Err(error) = made {
                cgroup.remove();
                return Err(error);
            }
        }
        cgroup.id = fs::metadata(cgroup.path())?.ino();
        Ok(cgroup)
    }

    /// The directory that the session is known by.
    pub(crate) fn path(&self) -> &Path {
        self.made.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Takes it away again, since nothing will run in it.
    pub(crate) fn remove(&self) {
        for directory in &self.made {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// In which directories the session's must be made, and how the runtime is told.
fn places(cgroups: &Cgroups, name: &str) -> Option<(Vec<PathBuf>, String)> {
    match cgroups {
        Cgroups::Runc(paths) if paths.len() == 1 => {
            let directory = paths.get("")?;
            Some((vec![directory.clone()], name.to_owned()))
        }
        // With cgroup v1 beside it, runc takes a path without a controller for all of them. The hierarchy
        // without controllers is enough to tell processes apart.
        Cgroups::Runc(paths) => {
            let (controller, directory) = ["name=systemd", "pids", "freezer"]
                .iter()
                .find_map(|name| paths.get_key_value(*name))?;
            Some((vec![directory.clone()], format!("{controller}:{name}")))
        }
        Cgroups::Crun(path) => {
            let path = path.trim_start_matches('/');
            let root = Path::new(ROOT);
            if root.join("cgroup.procs").exists() {
                return Some((vec![root.join(path)], name.to_owned()));
            }
            // crun enters a directory of that name in each hierarchy, and leaves the process outside of the
            // container's where there is none: so there must be one in all of them.
            let parents: Vec<_> = hierarchies(root)
                .into_iter()
                .map(|hierarchy| hierarchy.join(path))
                .filter(|parent| parent.is_dir())
                .collect();
            (!parents.is_empty() && !path.is_empty()).then(|| (parents, name.to_owned()))
        }
    }
}

const ROOT: &str = "/sys/fs/cgroup";

/// The hierarchies of a machine that has several, the one for telling processes apart first.
fn hierarchies(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let mut names: Vec<_> = entries.filter(is_directory).map(|entry| entry.path()).collect();
    let rank = |path: &PathBuf| match path.file_name().and_then(|name| name.to_str()) {
        Some("unified") => 0,
        Some("systemd") => 1,
        _ => 2,
    };
    names.sort_by_key(rank);
    names
}

/// In cgroup v1 a new cpuset is empty, and no process can be in it.
fn inherit_cpus(parent: &Path, directory: &Path) -> io::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let inherited = parent.join(file);
        if directory.join("cgroup.clone_children").exists() && inherited.exists() {
            fs::write(directory.join(file), fs::read(inherited)?)?;
        }
    }
    Ok(())
}

/// Removes what sessions left that have ended. The kernel keeps those that have processes; one whose process
/// is still on its way is known by its marker.
fn sweep(node: &Node, parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let session = name.to_str().and_then(|name| name.strip_prefix(CGROUP_PREFIX));
        let Some(session) = session.and_then(|id| SessionId::parse(id).ok()) else { continue };
        if !node.is_beginning(&session) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn runc(paths: &[(&str, &str)]) -> Cgroups {
        Cgroups::Runc(
            paths
                .iter()
                .map(|&(name, path)| (name.to_owned(), path.into()))
                .collect::<BTreeMap<_, _>>(),
        )
    }

    #[test]
    fn runc_is_told_a_plain_name_on_v2_and_a_hierarchy_elsewhere() {
        let told =
            |cgroups| places(&cgroups, "s").map(|(parents, told)| (parents[0].clone(), told));
        assert_eq!(told(runc(&[("", "/c")])), Some(("/c".into(), "s".to_owned())));
        let hybrid = runc(&[("", "/u"), ("name=systemd", "/s"), ("pids", "/p")]);
        assert_eq!(told(hybrid), Some(("/s".into(), "name=systemd:s".to_owned())));
        assert_eq!(
            told(runc(&[("cpu", "/c"), ("pids", "/p")])),
            Some(("/p".into(), "pids:s".to_owned()))
        );
        assert_eq!(told(runc(&[("cpu", "/c"), ("cpuset", "/p")])), None);
        assert_eq!(told(runc(&[("cpu", "/c")])), None);
    }
}
