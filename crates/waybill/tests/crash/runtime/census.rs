//! Everything of a runtime that could be left behind on the machine.

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

use waybill_testkit::runtime::Setup;

const NAMESPACES: [&str; 6] = ["cgroup", "ipc", "mnt", "net", "pid", "uts"];

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
    /// Entries of the run and state directories that stand for a container or sandbox, or are half written.
    files: BTreeSet<String>,
}

impl Census {
    pub(crate) fn take(setup: &Setup, cgroup: &str) -> Self {
        let mut census = Self::default();
        census.count_mounts(&setup.run_dir());
        census.count_cgroups(cgroup);
        census.count_processes(setup, cgroup);
        census.count_files(setup);
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

    /// Those below the run directory; its own tmpfs stays.
    fn count_mounts(&mut self, run: &Path) {
        let below = format!("{}/", run.display());
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("proc is mounted");
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        self.mounts.extend(points.filter(|it| it.starts_with(&below)).map(str::to_owned));
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

    fn count_processes(&mut self, setup: &Setup, cgroup: &str) {
        let run = setup.run_dir();
        for process in entries(Path::new("/proc")) {
            let read = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
            let stat = read("stat");
            let dead = stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'));
            let cwd = fs::read_link(process.join("cwd")).unwrap_or_default();
            if !dead && run.parent() == Some(&cwd) {
                self.own_processes += 1;
            }
            if dead || !(cwd.starts_with(&run) || read("cgroup").contains(cgroup)) {
                continue;
            }
            let pid = process.file_name().unwrap_or_default().display();
            self.processes.insert(format!("{pid} {} in {}", read("comm").trim(), cwd.display()));
            for kind in NAMESPACES {
                let namespace = fs::read_link(process.join("ns").join(kind));
                self.namespaces.extend(namespace.ok().map(|it| it.display().to_string()));
            }
        }
    }

    fn count_files(&mut self, setup: &Setup) {
        let (run, state) = (setup.run_dir(), setup.state_dir());
        for parent in [
            run.join("containers"),
            run.join("sandboxes"),
            run.join("cri/containers"),
            run.join("cri/sandboxes"),
            state.join("containers"),
        ] {
            self.files.extend(entries(&parent).iter().map(|path| path.display().to_string()));
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
