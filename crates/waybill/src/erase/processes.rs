//! Our own processes that outlive `waybill up`: the spawner of the runtime, and a monitor for each container.
//!
//! They are known by their name, which the kernel keeps, and by what they hold open below the state directory. Somebody who
//! reads a log there with another program is left alone.

use std::{
    fs,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, getpid, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// How their names begin.
const NAME: &str = "waybill";

/// Kills them, and waits until they are gone.
pub(super) fn end(dir: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        let found = of(dir);
        if found.is_empty() {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            bail!("processes of the runtime do not end ({found:?}); the files are still there");
        }
        for pid in found {
            // It may be gone by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        sleep(PAUSE);
    }
}

fn of(dir: &Path) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let pids = pids.filter_map(Pid::from_raw).filter(|pid| *pid != getpid());
    pids.filter(|pid| {
        let own = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
        let name = fs::read_to_string(own.join("comm")).unwrap_or_default();
        name.starts_with(NAME) && holds(&own.join("fd"), dir)
    })
    .collect()
}

fn holds(descriptors: &Path, dir: &Path) -> bool {
    let entries = fs::read_dir(descriptors).into_iter().flatten().flatten();
    entries.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|file| file.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_below_a_directory_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let own = Path::new("/proc/self/fd");
        assert!(!holds(own, dir.path()));
        let _file = fs::File::create(dir.path().join("log")).unwrap();
        assert!(holds(own, dir.path()));
    }
}
