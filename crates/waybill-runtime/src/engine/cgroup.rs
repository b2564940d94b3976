//! Control groups: those of containers and, below them, those of exec sessions.
//!
//! A machine has one unified hierarchy (cgroup v2), and may have older ones (v1) beside it. A container
//! has the same path in all of them. Which processes belong to a container or session is asked of the unified
//! hierarchy alone; the older ones only hold limits.

mod stats;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
    time::{Duration, Instant},
};

use libcgroups::common::{CgroupConfig, CgroupManager, ControllerOpt, create_cgroup_manager};
use oci_spec::runtime::LinuxResources;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat},
    io::Errno,
    process::{Pid, Signal, kill_process},
};

use super::MemoryStats;

/// The hierarchies of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchies {
    unified: PathBuf,
    /// Empty on a machine that has the unified one only.
    legacy: Vec<Legacy>,
}

/// A hierarchy of cgroup v1.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Legacy {
    mount: PathBuf,
    controllers: Vec<String>,
}

/// A container's cgroup, in all hierarchies.
#[derive(Clone, Debug)]
pub(super) struct Cgroup {
    hierarchies: Hierarchies,
    /// Below each hierarchy's root.
    path: PathBuf,
}

impl Hierarchies {
    /// Finds them; an error when there is no unified one, because sessions live there.
    pub(super) fn detect() -> io::Result<Self> {
        Self::parse(&fs::read_to_string("/proc/self/mountinfo")?).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "no cgroup v2 hierarchy is mounted; mount one at /sys/fs/cgroup, or at /sys/fs/cgroup/unified beside v1",
            )
        })
    }

    fn parse(mountinfo: &str) -> Option<Self> {
        let mut unified = None;
        let mut legacy = Vec::new();
        for line in mountinfo.lines() {
            let Some((head, tail)) = line.split_once(" - ") else { continue };
            let Some(mount) = head.split(' ').nth(4).filter(|at| at.starts_with("/sys/fs/cgroup"))
            else {
                continue;
            };
            let mut tail = tail.split(' ');
            match tail.next() {
                Some("cgroup2") if unified.is_none() => unified = Some(PathBuf::from(mount)),
                Some("cgroup") => legacy.push(Legacy {
                    mount: PathBuf::from(mount),
                    controllers: tail
                        .nth(1)
                        .unwrap_or_default()
                        .split(',')
                        .map(str::to_owned)
                        .collect(),
                }),
                _ => {}
            }
        }
        Some(Self { unified: unified?, legacy })
    }

    fn legacy_with(&self, controller: &str) -> Option<&Path> {
        self.legacy
            .iter()
            .find(|legacy| legacy.controllers.iter().any(|name| name == controller))
            .map(|legacy| legacy.mount.as_path())
    }

    /// The names by which older hierarchies are mounted.
    pub(super) fn legacy_names(&self) -> impl Iterator<Item = &str> {
        self.legacy.iter().filter_map(Legacy::name)
    }

    /// Whether there is such a cgroup, relative to the root.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.unified.join(path).exists()
    }

    /// Whether the unified hierarchy is the only one.
    pub(super) fn is_unified(&self) -> bool {
        self.legacy.is_empty()
    }

    fn roots(&self) -> impl Iterator<Item = &Path> {
        [self.unified.as_path()]
            .into_iter()
            .chain(self.legacy.iter().map(|legacy| legacy.mount.as_path()))
    }
}

impl Legacy {
    fn name(&self) -> Option<&str> {
        self.mount.file_name()?.to_str()
    }
}

/// Where, beside a container's view of its cgroups, the creator mounts the one of a hierarchy. It does not end with the
/// name of a controller, because that is how libcontainer would know it.
pub(super) fn source_of(view: &Path, hierarchy: &str) -> PathBuf {
    view.with_file_name(format!("of-{hierarchy}"))
}

impl Cgroup {
    /// The cgroup at `path`, which need not exist. Refuses a path that is not absolute and plain, and the root.
    pub(super) fn new(hierarchies: &Hierarchies, path: &Path) -> Option<Self> {
        let relative = path.strip_prefix("/").ok()?;
        let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        (plain && relative.components().next().is_some())
            .then(|| Self { hierarchies: hierarchies.clone(), path: relative.to_owned() })
    }

    /// Makes the cgroup in every hierarchy, parents included.
    pub(super) fn create(&self) -> io::Result<()> {
        for root in self.hierarchies.roots() {
            let unified = root == self.hierarchies.unified;
            let cpuset = self.hierarchies.legacy_with("cpuset") == Some(root);
            let mut parent = root.to_owned();
            for part in self.path.components() {
                if unified && self.hierarchies.legacy.is_empty() {
                    pass_controllers_on(&parent);
                }
                let directory = parent.join(part);
                match fs::create_dir(&directory) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(error);
                    }
                    _ => {}
                }
                if cpuset {
                    inherit_cpuset(&parent, &directory)?;
                }
                parent = directory;
            }
        }
        Ok(())
    }

    /// Opens the directory in the unified hierarchy, to fork into.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        open_directory(&self.unified())
    }

    /// Opens, in each older hierarchy, the file to which a process writes "0" to enter.
    ///
    /// It is `tasks`, not `cgroup.procs`: a thread that moves itself does not wait until every processor has passed
    /// a quiet state, which costs about ten milliseconds. A process with one thread moves completely that way.
    pub(super) fn entrances(&self) -> io::Result<Vec<File>> {
        self.hierarchies
            .legacy
            .iter()
            .map(|legacy| {
                OpenOptions::new().write(true).open(legacy.mount.join(&self.path).join("tasks"))
            })
            .collect()
    }

    /// Opens what reports [`PollFlags::PRI`] when it became empty or populated.
    pub(super) fn open_events(&self) -> io::Result<File> {
        File::open(self.unified().join("cgroup.events"))
    }

    /// Applies limits; what is not named stays as it is.
    pub(super) fn apply(&self, resources: &LinuxResources) -> io::Result<()> {
        let config = CgroupConfig {
            cgroup_path: self.path(),
            systemd_cgroup: false,
            container_name: String::new(),
        };
        let manager = create_cgroup_manager(config).map_err(io::Error::other)?;
        let options = ControllerOpt {
            resources,
            disable_oom_killer: false,
            oom_score_adj: None,
            freezer_state: None,
        };
        manager.apply(&options).map_err(io::Error::other)
    }

    /// Its directory in each older hierarchy, and the name by which that is mounted.
    pub(super) fn legacy_directories(&self) -> impl Iterator<Item = (&str, PathBuf)> {
        let legacy = &self.hierarchies.legacy;
        legacy.iter().filter_map(|one| Some((one.name()?, one.mount.join(&self.path))))
    }

    /// Kills every process in it and below it.
    pub(super) fn kill(&self) -> io::Result<()> {
        kill_below(&self.unified())
    }

    /// Whether any process lives in it or below it.
    pub(super) fn is_populated(&self) -> io::Result<bool> {
        is_populated(&self.unified())
    }

    /// Waits until no process lives in it or below it. False when that took longer than `patience`.
    pub(super) fn wait_until_empty(&self, patience: Duration) -> io::Result<bool> {
        let events = match self.open_events() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            opened => opened?,
        };
        let end = Instant::now() + patience;
        loop {
            if !self.is_populated()? {
                return Ok(true);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&events, PollFlags::PRI)], Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => (&events).read_to_end(&mut Vec::new())?,
                Err(error) => return Err(error.into()),
            };
        }
    }

    /// Removes it and everything below it from every hierarchy. It must be empty of processes.
    pub(super) fn remove(&self) -> io::Result<()> {
        for root in self.hierarchies.roots() {
            remove_tree(&root.join(&self.path))?;
        }
        Ok(())
    }

    /// Removes cgroups that did not exist before, given topmost first, as far as nobody else uses them.
    pub(super) fn remove_made(hierarchies: &Hierarchies, made: &[PathBuf]) {
        for relative in made.iter().rev() {
            for root in hierarchies.roots() {
                let _ = fs::remove_dir(root.join(relative));
            }
        }
    }

    /// How often the kernel killed a process of it for want of memory.
    pub(super) fn oom_kills(&self) -> u64 {
        let file = match self.hierarchies.legacy_with("memory") {
            Some(root) => root.join(&self.path).join("memory.oom_control"),
            None => self.unified().join("memory.events"),
        };
        stats::field(&file, "oom_kill").unwrap_or(0)
    }

    /// Processor time in nanoseconds, memory, number of processes and its limit.
    pub(super) fn usage(&self) -> io::Result<(u64, MemoryStats, u64, Option<u64>)> {
        let of =
            |controller| self.hierarchies.legacy_with(controller).map(|root| root.join(&self.path));
        let unified = self.unified();
        let cpu = match of("cpuacct") {
            Some(directory) => stats::number(&directory.join("cpuacct.usage"))?,
            None => stats::field(&unified.join("cpu.stat"), "usage_usec")?.saturating_mul(1000),
        };
        let memory = match of("memory") {
            Some(directory) => stats::legacy_memory(&directory)?,
            None => stats::unified_memory(&unified)?,
        };
        let pids = of("pids").unwrap_or(unified);
        let limit = stats::limit(&pids.join("pids.max"))?;
        Ok((cpu, memory, stats::number(&pids.join("pids.current"))?, limit))
    }

    /// The cgroups above it, topmost first, relative to the root.
    pub(super) fn above(&self) -> impl Iterator<Item = PathBuf> {
        let mut above: Vec<PathBuf> = self.path.ancestors().skip(1).map(Path::to_owned).collect();
        above.reverse();
        above.into_iter().filter(|path| !path.as_os_str().is_empty())
    }

    pub(super) fn hierarchies(&self) -> &Hierarchies {
        &self.hierarchies
    }

    /// Below each hierarchy's root.
    pub(super) fn relative(&self) -> &Path {
        &self.path
    }

    /// The directory in the unified hierarchy.
    pub(super) fn directory(&self) -> PathBuf {
        self.unified()
    }

    pub(super) fn path(&self) -> PathBuf {
        Path::new("/").join(&self.path)
    }

    fn unified(&self) -> PathBuf {
        self.hierarchies.unified.join(&self.path)
    }
}

/// The cgroup of an exec session.
#[derive(Debug)]
pub(super) struct SessionCgroup {
    parent: OwnedFd,
    name: String,
    directory: OwnedFd,
    events: OwnedFd,
}

impl SessionCgroup {
    pub(super) fn name_of(session: &str) -> String {
        format!("exec-{session}")
    }

    /// Makes it below `parent`, a container's directory in the unified hierarchy.
    pub(super) fn create(parent: &OwnedFd, session: &str) -> io::Result<Self> {
        let name = Self::name_of(session);
        let parent = parent.try_clone()?;
        mkdirat(&parent, &name, Mode::from_raw_mode(0o755))?;
        match Self::open_parts(&parent, &name) {
            Ok((directory, events)) => Ok(Self { parent, name, directory, events }),
            Err(error) => {
                let _ = unlinkat(&parent, &name, AtFlags::REMOVEDIR);
                Err(error)
            }
        }
    }

    fn open_parts(parent: &OwnedFd, name: &str) -> io::Result<(OwnedFd, OwnedFd)> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = openat(parent, name, flags, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let events = openat(&directory, "cgroup.events", flags, Mode::empty())?;
        Ok((directory, events))
    }

    /// To fork into.
    pub(super) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Reports [`PollFlags::PRI`] when it became empty or populated.
    pub(super) fn events(&self) -> &OwnedFd {
        &self.events
    }

    /// Removes it if no process lives in it; false if one does.
    pub(super) fn remove_if_empty(&self) -> io::Result<bool> {
        let mut buffer = [0; 256];
        let count = rustix::io::pread(&self.events, &mut buffer, 0)?;
        if has_populated(buffer.get(..count).unwrap_or_default()) {
            return Ok(false);
        }
        match unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::BUSY) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Kills every process of a session, wherever it went. A session that is gone has none.
pub(super) fn kill_session(container: &Cgroup, session: &str) -> io::Result<()> {
    kill_below(&container.unified().join(SessionCgroup::name_of(session)))
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

fn kill_below(directory: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).open(directory.join("cgroup.kill")) {
        Ok(mut file) => file.write_all(b"1"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if directory.exists() {
                kill_one_by_one(directory)
            } else {
                Ok(())
            }
        }
        Err(error) => Err(error),
    }
}

/// For kernels before 5.14. A process that forks quicker than we read is met in the next round.
fn kill_one_by_one(directory: &Path) -> io::Result<()> {
    for _ in 0..100 {
        if !is_populated(directory)? {
            break;
        }
        for below in directories_below(directory)? {
            let processes = fs::read_to_string(below.join("cgroup.procs")).unwrap_or_default();
            for pid in processes.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
    Ok(())
}

fn is_populated(directory: &Path) -> io::Result<bool> {
    match fs::read(directory.join("cgroup.events")) {
        Ok(events) => Ok(has_populated(&events)),
        Err(error) if is_gone(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn has_populated(events: &[u8]) -> bool {
    events.split(|&byte| byte == b'\n').any(|line| line == b"populated 1")
}

/// A file of a cgroup that was removed while it was open reads as "no such device".
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

fn remove_tree(directory: &Path) -> io::Result<()> {
    let below = match directories_below(directory) {
        Err(error) if is_gone(&error) => return Ok(()),
        below => below?,
    };
    below.iter().rev().try_for_each(|directory| remove_directory(directory))
}

/// The kernel lets go of a process a little later than it reports its end, so a busy cgroup is tried again.
fn remove_directory(directory: &Path) -> io::Result<()> {
    let mut pause = Duration::from_micros(500);
    loop {
        match fs::remove_dir(directory) {
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY)
                    && pause < Duration::from_millis(500) =>
            {
                std::thread::sleep(pause);
                pause *= 2;
            }
            result => return result,
        }
    }
}

/// A directory and all below it, parents first.
fn directories_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = vec![directory.to_owned()];
    let mut at = 0;
    while let Some(parent) = all.get(at).cloned() {
        match fs::read_dir(&parent) {
            Ok(entries) => {
                for entry in entries {
                    let entry = entry?;
                    if entry.file_type()?.is_dir() {
                        all.push(entry.path());
                    }
                }
            }
            Err(error) if at > 0 && is_gone(&error) => {}
            Err(error) => return Err(error),
        }
        at += 1;
    }
    Ok(all)
}

/// Lets children of a v2 cgroup be limited. Best effort: a limit that then cannot be set is reported when it is set.
fn pass_controllers_on(directory: &Path) {
    let available = fs::read_to_string(directory.join("cgroup.controllers")).unwrap_or_default();
    let enabled = fs::read_to_string(directory.join("cgroup.subtree_control")).unwrap_or_default();
    for controller in available.split_whitespace() {
        if !enabled.split_whitespace().any(|name| name == controller) {
            let _ = fs::write(directory.join("cgroup.subtree_control"), format!("+{controller}"));
        }
    }
}

/// No process can enter a v1 cpuset whose processors or memory nodes are not set.
fn inherit_cpuset(parent: &Path, directory: &Path) -> io::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if fs::read_to_string(directory.join(file))?.trim().is_empty() {
            fs::write(directory.join(file), fs::read_to_string(parent.join(file))?.trim())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
25 1 0:5 / /sys/fs/cgroup rw - tmpfs tmpfs rw
26 25 0:6 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:1 - cgroup cgroup rw,cpu,cpuacct
27 25 0:7 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
28 25 0:8 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
29 25 0:8 / /mnt/other rw - cgroup2 cgroup2 rw
";

    #[test]
    fn hierarchies_are_found_by_what_is_mounted() {
        let hybrid = Hierarchies::parse(HYBRID).unwrap();
        assert_eq!(hybrid.unified, Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(hybrid.legacy.len(), 2);
        assert_eq!(hybrid.legacy_with("cpuacct"), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(hybrid.legacy_with("memory"), None);
        let unified = "29 25 0:8 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
        let unified = Hierarchies::parse(unified).unwrap();
        assert!(unified.legacy.is_empty());
        assert_eq!(Hierarchies::parse("25 1 0:5 / /sys/fs/cgroup rw - tmpfs tmpfs rw"), None);
    }

    #[test]
    fn a_cgroup_path_is_absolute_and_plain() {
        let hierarchies = Hierarchies::parse(HYBRID).unwrap();
        let new = |path: &str| Cgroup::new(&hierarchies, Path::new(path)).is_some();
        assert!(new("/pods/a/b"));
        for bad in ["/", "", "pods/a", "/pods/../..", "/.."] {
            assert!(!new(bad), "{bad}");
        }
    }

    #[test]
    fn populated_is_read_from_its_own_line() {
        assert!(has_populated(b"populated 1\nfrozen 0\n"));
        assert!(!has_populated(b"populated 0\nfrozen 1\n"));
        assert!(!has_populated(b"unpopulated 1\n"));
    }
}
