//! What a container must not get at of the machine: files by which the kernel of all is told what to do, and what it keeps to itself.

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use crate::Outcome;

/// By writing to one of these a process has the kernel run a program outside of every container, or stops the machine. Nothing is
/// written: being let in is enough.
const LEVERS: [&str; 12] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hotplug",
    "/proc/sys/kernel/poweroff_cmd",
    "/proc/sys/vm/panic_on_oom",
    "/proc/sys/fs/binfmt_misc/register",
    "/proc/sysrq-trigger",
    "/proc/irq/default_smp_affinity",
    "/sys/kernel/uevent_helper",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/power/state",
    "/dev/mem",
];

/// What every container is kept from seeing.
const HIDDEN: [&str; 8] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/proc/interrupts",
    "/proc/acpi",
    "/proc/scsi",
    "/sys/firmware",
];

/// Opens each lever for writing.
pub(crate) fn levers(_arguments: &[String]) -> Outcome {
    let open = |path: &&Path| {
        // Never to wait, and never to make what is not there.
        File::options().write(true).custom_flags(NONBLOCKING).open(path).is_ok()
    };
    told(LEVERS.iter().map(Path::new).filter(open), "no file of the machine can be written")
}

/// Reads what is hidden.
pub(crate) fn hidden(_arguments: &[String]) -> Outcome {
    told(HIDDEN.iter().map(Path::new).filter(|path| shows(path)), "nothing of the machine is shown")
}

fn shows(path: &Path) -> bool {
    if path.is_dir() {
        return fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    }
    let mut byte = [0];
    File::open(path).is_ok_and(|mut file| file.read(&mut byte).is_ok_and(|read| read > 0))
}

/// Has the kernel keep the program that it runs, as the machine, when a cgroup is empty: writes back what is there already.
pub(crate) fn release_agent(_arguments: &[String]) -> Outcome {
    let agents = below(Path::new("/sys/fs/cgroup"), 0);
    let write = |path: &&PathBuf| {
        fs::read(path).is_ok_and(|program| {
            let nothing = program.is_empty();
            fs::write(path, if nothing { b"\n" } else { &program[..] }).is_ok()
        })
    };
    told(agents.iter().filter(write).map(PathBuf::as_path), "no release_agent can be written")
}

/// The files of that name, some steps down.
fn below(directory: &Path, depth: usize) -> Vec<PathBuf> {
    const DEEPEST: usize = 3;
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name() == "release_agent" {
            found.push(path);
        } else if depth < DEEPEST && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(below(&path, depth + 1));
        }
    }
    found
}

fn told<'a>(found: impl Iterator<Item = &'a Path>, otherwise: &str) -> Outcome {
    let found: Vec<String> = found.map(|path| path.display().to_string()).collect();
    if found.is_empty() { Err(otherwise.to_owned()) } else { Ok(found.join("\n")) }
}

/// `O_NONBLOCK`.
const NONBLOCKING: i32 = 0o4000;
