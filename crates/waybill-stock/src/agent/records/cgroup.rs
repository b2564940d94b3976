//! The cgroup of a session, seen from outside: who is in it.

use std::{
    fs,
    io::Read,
    path::{Component, Path, PathBuf},
};

use waybill_api::stock::{CGROUP_PREFIX, SessionProcess, SessionRecord, cut_argv};

/// Where cgroups are, for the node.
const ROOT: &str = "/sys/fs/cgroup";

/// The most processes of a session that are told.
const PROCESSES: usize = 64;

/// The most bytes of a command line that are read.
const COMMAND_BYTES: u64 = 8 << 10;

/// A directory that the wrapper made.
pub(super) struct Cgroup(PathBuf);

impl Cgroup {
    /// That of a record, for a process to which the node's `/` is `root`. `None` if it has none of its own.
    pub(super) fn of(root: &Path, record: &SessionRecord) -> Option<Self> {
        let path = Path::new(&record.cgroup);
        let name = path.file_name()?.to_str()?;
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        let is_ours = path.starts_with(ROOT)
            && name.starts_with(CGROUP_PREFIX)
            && path.components().all(plain);
        is_ours.then(|| Self(root.join(path.strip_prefix("/").unwrap_or(path))))
    }

    /// Whether a process is in it, or below it.
    pub(super) fn is_populated(&self) -> bool {
        if let Ok(events) = fs::read_to_string(self.0.join("cgroup.events")) {
            return events.lines().any(|line| line == "populated 1");
        }
        match fs::read_to_string(self.0.join("cgroup.procs")) {
            Ok(pids) => !pids.is_empty(),
            // It is gone; any other reason proves nothing.
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        }
    }

    /// Takes it away. The kernel refuses while somebody is in it.
    pub(super) fn remove(&self) {
        let _ = fs::remove_dir(&self.0);
    }

    /// Who is in it.
    pub(super) fn processes(&self, root: &Path) -> Vec<SessionProcess> {
        let pids = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let pids = pids.lines().filter_map(|line| line.parse().ok()).take(PROCESSES);
        pids.map(|pid| SessionProcess { pid, argv: command(root, pid) }).collect()
    }
}

fn command(root: &Path, pid: u32) -> Vec<String> {
    let mut text = Vec::new();
    let file = fs::File::open(root.join(format!("proc/{pid}/cmdline")));
    let _ = file.and_then(|file| file.take(COMMAND_BYTES).read_to_end(&mut text));
    let words = text.strip_suffix(b"\0").unwrap_or(&text);
    if words.is_empty() {
        return Vec::new();
    }
    let words = words.split(|byte| *byte == 0);
    let words: Vec<_> = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    cut_argv(&words)
}
