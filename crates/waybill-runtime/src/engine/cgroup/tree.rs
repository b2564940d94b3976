//! A cgroup and those below it, as directories: who lives there, ending them, removing it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, Signal, kill_process},
};

pub(super) fn kill_below(directory: &Path) -> io::Result<()> {
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

pub(super) fn is_populated(directory: &Path) -> io::Result<bool> {
    match fs::read(directory.join("cgroup.events")) {
        Ok(events) => Ok(has_populated(&events)),
        Err(error) if is_gone(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Waits until no process lives there. False when that took longer than `patience`.
pub(super) fn wait_until_empty(directory: &Path, patience: Duration) -> io::Result<bool> {
    let mut events = match File::open(directory.join("cgroup.events")) {
        Err(error) if is_gone(&error) => return Ok(true),
        opened => opened?,
    };
    let end = Instant::now() + patience;
    while is_populated(directory)? {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&events, PollFlags::PRI)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // So that the next event is noticed.
        match events.read_to_end(&mut Vec::new()) {
            Err(error) if is_gone(&error) => return Ok(true),
            read => read?,
        };
    }
    Ok(true)
}

pub(super) fn has_populated(events: &[u8]) -> bool {
    events.split(|&byte| byte == b'\n').any(|line| line == b"populated 1")
}

/// A file of a cgroup that was removed while it was open reads as "no such device".
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

pub(super) fn remove_tree(directory: &Path) -> io::Result<()> {
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
pub(super) fn directories_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn populated_is_read_from_its_own_line() {
        assert!(has_populated(b"populated 1\nfrozen 0\n"));
        assert!(!has_populated(b"populated 0\nfrozen 1\n"));
        assert!(!has_populated(b"unpopulated 1\n"));
    }
}
