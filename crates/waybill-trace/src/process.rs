//! What the kernel tells about processes, as far as it says who is behind them. Facts alone; [`judge`](crate::judge) draws
//! the conclusions.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// How the kernel tells times of processes, whatever it uses itself (`USER_HZ`).
pub(crate) const TICKS_PER_SECOND: u64 = 100;

/// A process of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveProcess {
    /// As the machine counts.
    pub pid: u32,
    /// Its command line as it is now, cut if it is long; a process may rewrite it.
    pub command: Vec<String>,
}

impl LiveProcess {
    /// Looks up the command line, which is empty once the process is gone. A long one is cut, and ends with a mark.
    pub fn of(pid: u32) -> Self {
        Self { pid, command: read_command(&format!("/proc/{pid}/cmdline")).unwrap_or_default() }
    }
}

/// So much of a command line is read: it may have megabytes, and there may be thousands of processes.
const COMMAND_LINE: u64 = 4 << 10;

/// Stands after the last word of a command line that was cut.
const CUT: &str = "…";

fn read_command(path: &str) -> io::Result<Vec<String>> {
    let mut line = Vec::new();
    File::open(path)?.take(COMMAND_LINE + 1).read_to_end(&mut line)?;
    let is_cut = line.len() as u64 > COMMAND_LINE;
    line.truncate(usize::try_from(COMMAND_LINE).unwrap_or(usize::MAX));
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
    Ok(words.chain(is_cut.then(|| CUT.to_owned())).collect())
}

/// What cannot be chosen by a process itself, but by moving it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    /// As the machine counts.
    pub pid: u32,
    /// The process that made it, or who took over when that was gone.
    pub parent: u32,
    /// When it was made, in clock ticks after boot.
    pub began: u64,
    /// The IDs of its cgroup in the unified hierarchy and of those above, innermost first, without the root.
    pub cgroups: Vec<u64>,
    /// Its PID namespace.
    pub pid_namespace: u64,
    /// Whether it is the first of that namespace, which takes over children of those that are gone.
    pub is_first: bool,
}

/// All processes of the machine, as they were when the kernel was asked.
pub fn read_processes() -> io::Result<Vec<ProcessFacts>> {
    let mut cgroups = CgroupIds::find()?;
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end while it is looked at.
        all.extend(facts(pid, &mut cgroups));
    }
    Ok(all)
}

fn facts(pid: u32, cgroups: &mut CgroupIds) -> Option<ProcessFacts> {
    let read = |name: &str| read_lossy(&format!("/proc/{pid}/{name}")).ok();
    let (parent, began) = parse_stat(&read("stat")?)?;
    let path = read("cgroup")?;
    let namespace = fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    Some(ProcessFacts {
        pid,
        parent,
        began,
        cgroups: cgroups.above(unified_path(&path)?),
        // Of a process that is just ending there is none, and of others it is not for everybody to see.
        pid_namespace: namespace.and_then(|link| parse_namespace(link.to_str()?)).unwrap_or(0),
        is_first: read("status").is_some_and(|status| is_first(&status)),
    })
}

/// A file of `/proc` in which a process may have put bytes that are no text, such as its name.
pub(crate) fn read_lossy(path: &str) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// Parent and beginning, unless the process is dead. One whose first thread ended looks dead but for its other threads.
pub(crate) fn parse_stat(stat: &str) -> Option<(u32, u64)> {
    // The name in parentheses may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let threads: u64 = fields.nth(15)?.parse().ok()?;
    let began = fields.nth(1)?.parse().ok()?;
    let lives = !matches!(state, "Z" | "X") || threads > 1;
    lives.then_some((parent, began))
}

/// The unified hierarchy is the line with number 0.
pub(crate) fn unified_path(cgroups: &str) -> Option<&str> {
    cgroups.lines().find_map(|line| line.strip_prefix("0::"))
}

pub(crate) fn parse_namespace(link: &str) -> Option<u64> {
    link.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// The last number is the one in the process's own namespace.
fn is_first(status: &str) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.and_then(|numbers| numbers.split_whitespace().next_back()) == Some("1")
}

/// IDs of cgroups, each looked up once.
#[derive(Debug)]
pub(crate) struct CgroupIds {
    mount: PathBuf,
    known: HashMap<PathBuf, Option<u64>>,
}

impl CgroupIds {
    pub(crate) fn find() -> io::Result<Self> {
        let mount = unified_mount(&fs::read_to_string("/proc/self/mountinfo")?).ok_or_else(|| {
            let reason = "no cgroup v2 hierarchy is mounted as a whole; run this in the machine's own namespaces";
            io::Error::new(io::ErrorKind::Unsupported, reason)
        })?;
        Ok(Self { mount, known: HashMap::new() })
    }

    /// Looks all of them up again from now on.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }

    /// A cgroup's and of those above it. One that is gone has none.
    pub(crate) fn above(&mut self, path: &str) -> Vec<u64> {
        let relative = Path::new(path.trim_start_matches('/'));
        let all = relative.ancestors().filter(|it| !it.as_os_str().is_empty());
        all.filter_map(|it| self.id(it)).collect()
    }

    fn id(&mut self, relative: &Path) -> Option<u64> {
        if let Some(known) = self.known.get(relative) {
            return *known;
        }
        // The number of a directory's inode is the cgroup's ID.
        let id = fs::symlink_metadata(self.mount.join(relative)).ok().map(|it| it.ino());
        self.known.insert(relative.to_owned(), id);
        id
    }
}

/// Where the whole of it is mounted; other mounts may show a part.
fn unified_mount(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let mut fields = head.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let kind = tail.split(' ').next()?;
        let whole = kind == "cgroup2" && root == "/" && point.starts_with("/sys/fs/cgroup");
        whole.then(|| PathBuf::from(point))
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_name_does_not_confuse_the_numbers_and_the_dead_are_left_out() {
        let stat = |state: &str| {
            let rest = "1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9";
            format!("7 (a) Z (b) {state} {rest}")
        };
        assert_eq!(parse_stat(&stat("S")), Some((1, 4711)));
        assert_eq!(parse_stat(&stat("Z")), None);
        assert_eq!(parse_stat("7 (a"), None);
    }

    /// A program that ended its first thread and went on in another was not seen.
    #[test]
    fn a_process_lives_as_long_as_one_of_its_threads() {
        let stat = |threads: u32| {
            format!("7 (a) Z 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 4711 9")
        };
        assert_eq!(parse_stat(&stat(1)), None);
        assert_eq!(parse_stat(&stat(2)), Some((1, 4711)));
    }

    /// A process that gave itself a name that is no text was not seen.
    #[test]
    fn a_name_that_is_no_text_hides_nobody() {
        let name = fs::read("/proc/self/comm").unwrap();
        fs::write("/proc/self/comm", b"\xff) S").unwrap();
        let found = CgroupIds::find().ok().map(|mut ids| facts(std::process::id(), &mut ids));
        let started = crate::process_started(std::process::id(), jiff::Timestamp::now());
        fs::write("/proc/self/comm", name.trim_ascii_end()).unwrap();
        assert!(started.is_ok());
        assert!(found.is_none_or(|found| found.is_some()));
    }

    /// Hole: a session of processes with megabytes of arguments made the one who asked run out of memory.
    #[test]
    fn a_long_command_line_is_cut_and_marked() {
        let long = "x".repeat(100_000);
        // It says that it runs, and lives as long as there is something to read from.
        let mut child = Command::new("sh")
            .args(["-c", "echo; read line", "short", &long, &long])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let LiveProcess { command, .. } = LiveProcess::of(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(command[..4], ["sh", "-c", "echo; read line", "short"].map(str::to_owned));
        assert_eq!(command.last().unwrap(), CUT);
        assert!(command.concat().len() <= 4 << 10);
        let whole = LiveProcess::of(std::process::id()).command;
        assert_ne!(whole.last().unwrap(), CUT);
    }

    #[test]
    fn the_first_process_of_a_namespace_is_number_one_in_it() {
        assert!(is_first("Pid:\t77\nNSpid:\t77\t1\n"));
        assert!(!is_first("Pid:\t1\nNSpid:\t77\t11\n"));
        assert!(!is_first("Pid:\t1\n"));
        assert_eq!(parse_namespace("pid:[4026531836]"), Some(4_026_531_836));
    }

    #[test]
    fn the_unified_hierarchy_is_found_where_it_is_mounted_as_a_whole() {
        let mounts = "29 25 0:8 /pods/x /sys/fs/cgroup/part rw - cgroup2 cgroup2 rw\n\
                      27 25 0:7 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
                      28 25 0:8 / /sys/fs/cgroup/unified rw shared:1 - cgroup2 cgroup2 rw\n";
        assert_eq!(unified_mount(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(unified_path("12:pids:/exec-1\n0::/a/b\n"), Some("/a/b"));
    }

    #[test]
    fn this_process_is_among_those_of_the_machine() {
        let Ok(all) = read_processes() else { return };
        let own = all.iter().find(|it| it.pid == std::process::id()).unwrap();
        assert!(own.began > 0 && own.pid_namespace > 0);
    }
}
