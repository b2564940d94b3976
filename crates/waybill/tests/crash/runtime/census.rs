//! Everything of a runtime that could be left behind on the machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

use waybill_testkit::runtime::Setup;

const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// Where a runtime has all that it has.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// It works there, and everything that it mounts is below.
    directory: PathBuf,
    run: PathBuf,
    state: PathBuf,
    cgroup: String,
    /// Of a node above it, if there is one.
    pods: Option<PathBuf>,
    /// Whether descriptors of the runtime and its spawner count: it has no other clients than ours.
    descriptors: bool,
}

impl Place {
    pub(crate) fn of(setup: &Setup, cgroup: &str) -> Self {
        let (run, state) = (setup.run_dir(), setup.state_dir());
        Self {
            directory: run.parent().map(Path::to_owned).unwrap_or_default(),
            run,
            state,
            cgroup: cgroup.to_owned(),
            pods: None,
            descriptors: true,
        }
    }

    /// The same where others are connected, or different versions take turns.
    pub(crate) fn without_descriptors(self) -> Self {
        Self { descriptors: false, ..self }
    }

    /// The same with the directory where a node keeps its pods.
    pub(crate) fn with_pods(self, pods: PathBuf) -> Self {
        Self { pods: Some(pods), ..self }
    }
}

/// What there is; two are compared.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    mounts: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    /// Those of containers and their monitors.
    processes: BTreeSet<String>,
    /// How many are the runtime and its spawner, which are others after each kill.
    own_processes: usize,
    /// Of these processes.
    namespaces: BTreeSet<String>,
    /// What monitors, and the runtime and its spawner, have open: how many of each kind.
    descriptors: BTreeSet<String>,
    /// Entries of the run and state directories that stand for a container or sandbox, or are half written.
    files: BTreeSet<String>,
}

impl Census {
    pub(crate) fn take(place: &Place) -> Self {
        let mut census = Self::default();
        census.count_mounts(place);
        census.count_cgroups(&place.cgroup);
        census.count_processes(place);
        census.count_files(place);
        census
    }

    /// What `self` has and `before` has not, and the other way round.
    pub(crate) fn beyond(&self, before: &Self) -> String {
        let own =
            format!("own processes: {}, before {}\n", self.own_processes, before.own_processes);
        let mut text = own;
        let kinds = [
            ("mounts", &self.mounts, &before.mounts),
            ("cgroups", &self.cgroups, &before.cgroups),
            ("processes", &self.processes, &before.processes),
            ("namespaces", &self.namespaces, &before.namespaces),
            ("descriptors", &self.descriptors, &before.descriptors),
            ("files", &self.files, &before.files),
        ];
        for (kind, now, before) in kinds {
            let (more, less): (Vec<_>, Vec<_>) =
                (now.difference(before).collect(), before.difference(now).collect());
            if !more.is_empty() || !less.is_empty() {
                let _ = writeln!(text, "{kind}: left {more:?}, lost {less:?}");
            }
        }
        text
    }

    /// Those below the directory; the runtime's own tmpfs stays.
    fn count_mounts(&mut self, place: &Place) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("proc is mounted");
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4).map(Path::new));
        let below = points.filter(|it| it.starts_with(&place.directory) && *it != place.run);
        self.mounts.extend(below.map(|it| it.display().to_string()));
    }

    fn count_cgroups(&mut self, cgroup: &str) {
        let root = Path::new("/sys/fs/cgroup");
        let below = fs::read_dir(root).expect("cgroups are mounted");
        let hierarchies = below.map(|it| it.expect("readable").path()).chain([root.to_owned()]);
        for hierarchy in hierarchies {
            self.count_directories(&hierarchy.join(cgroup.trim_start_matches('/')));
        }
    }

    fn count_directories(&mut self, directory: &Path) {
        for below in entries(directory) {
            if below.is_dir() {
                self.count_directories(&below);
            }
        }
        if directory.is_dir() {
            self.cgroups.insert(directory.display().to_string());
        }
    }

    fn count_processes(&mut self, place: &Place) {
        for process in entries(Path::new("/proc")) {
            let read = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
            let stat = read("stat");
            let dead = stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'));
            let cwd = fs::read_link(process.join("cwd")).unwrap_or_default();
            let name = read("comm").trim().to_owned();
            if !dead && place.directory == cwd {
                self.own_processes += 1;
                if place.descriptors {
                    self.count_descriptors(&process, &name);
                }
            }
            if dead || !(cwd.starts_with(&place.run) || read("cgroup").contains(&place.cgroup)) {
                continue;
            }
            let pid = process.file_name().unwrap_or_default().display().to_string();
            if name == "waybill-monitor" {
                self.count_descriptors(&process, &format!("{name} {pid}"));
            }
            self.processes.insert(format!("{pid} {name} in {}", cwd.display()));
            for kind in NAMESPACES {
                let namespace = fs::read_link(process.join("ns").join(kind));
                self.namespaces.extend(namespace.ok().map(|it| it.display().to_string()));
            }
        }
    }

    fn count_descriptors(&mut self, process: &Path, whose: &str) {
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for descriptor in entries(&process.join("fd")) {
            let Ok(target) = fs::read_link(descriptor) else { continue };
            let target = target.display().to_string();
            // A socket or pipe has a number behind its kind, and a file its path.
            let kind = target.split_once(":[").map_or(target.as_str(), |(kind, _)| kind);
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
        let told = kinds.into_iter().map(|(kind, count)| format!("{whose}: {count} {kind}"));
        self.descriptors.extend(told);
    }

    fn count_files(&mut self, place: &Place) {
        let Place { run, state, .. } = place;
        let own = [
            run.join("containers"),
            run.join("sandboxes"),
            run.join("cri/containers"),
            run.join("cri/sandboxes"),
            state.join("containers"),
        ];
        for parent in own.iter().chain(&place.pods) {
            self.files.extend(entries(parent).iter().map(|path| path.display().to_string()));
        }
        let sessions = entries(&run.join("sessions")).into_iter();
        let half_written = sessions.filter(|it| it.extension().is_none_or(|it| it != "json"));
        self.files.extend(half_written.map(|path| path.display().to_string()));
    }
}

/// What is in a directory; nothing if it is not there, or is gone meanwhile.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .map(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    entries.and_then(|entries| entries).unwrap_or_default()
}
