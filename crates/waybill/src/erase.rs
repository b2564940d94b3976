//! `waybill erase`: everything of a cluster that `waybill up` made on this machine, and nothing else (ADR 0080).
//!
//! What could surprise is looked at before the first thing is removed: a cluster that runs, entries that are not ours, mounts
//! of others. Removal itself cannot leave the file system of the state directory, whatever is mounted there meanwhile.

mod cgroups;
mod mounts;
mod processes;
mod remove;

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use rustix::process::geteuid;

use self::mounts::Mounts;
use crate::{
    Outcome,
    state_dir::{no_links, trusted_directory},
    up::cgroup_root,
};

/// What `waybill up` and its roles make in a state directory.
const OURS: &[&str] = &[
    "audit",
    "ca.crt",
    "encryption",
    "kubeconfig",
    "logs",
    "node",
    "pki",
    "run",
    "runtime",
    "store",
    "trace",
    "up.json",
    "up.lock",
    "up.new",
];

/// Remove everything that `waybill up` made on this machine.
///
/// Objects, keys, images, logs, the audit log and the record of sessions are gone afterwards, and cannot be had back: see the
/// guide of operations for a backup. Without --yes it only says what it would remove.
///
/// It refuses while `waybill up` runs, if the directory holds something that is not a cluster's, and if something of others is
/// mounted below it. It never removes anything through a mount. Objects in an etcd of yours stay, as does this program.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill erase                                  # says what there is
  waybill erase --yes
  waybill erase --state-dir /srv/waybill --yes --kill

To take Waybill off a cluster whose components are not ours: waybill uninstall")]
pub(crate) struct Args {
    /// State directory of `waybill up`.
    #[arg(long, value_name = "DIR", env = "WAYBILL_STATE_DIR", default_value = "/var/lib/waybill")]
    state_dir: PathBuf,

    /// Do it.
    #[arg(long)]
    yes: bool,

    /// End containers that still run because `waybill up` was killed; without this it refuses.
    #[arg(long)]
    kill: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    if !geteuid().is_root() {
        bail!("`waybill erase` removes what root made; run it as root");
    }
    let dir = trusted_directory(&args.state_dir)?;
    if !dir.join("up.lock").is_file() {
        bail!(
            "{} is no state directory of `waybill up`; name the right one with --state-dir",
            dir.display()
        );
    }
    let _lock = lock(&dir)?;
    check_entries(&dir)?;
    let mounts = Mounts::below(&dir)?;
    mounts.check()?;
    let cgroup = cgroup_root(&dir);
    let running = cgroups::is_populated(&cgroup);
    if !args.yes {
        return say_what(&dir, &mounts, &cgroup, running);
    }
    if running && !args.kill {
        bail!(
            "containers of this cluster still run; end them with `waybill up --state-dir {}` and Ctrl-C, or at once with --kill",
            dir.display()
        );
    }
    cgroups::kill(&cgroup)?;
    processes::end(&dir)?;
    mounts.unmount()?;
    let removed = remove::tree(&dir)?;
    cgroups::remove(&cgroup)?;
    let mut output = io::stdout();
    writeln!(output, "removed {removed} files and directories of {}", dir.display())?;
    if dir.exists() {
        writeln!(output, "{} is a mount itself and stays, empty", dir.display())?;
    }
    Ok(Outcome::Success)
}

/// Nobody starts the cluster while it is removed.
fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("up.lock");
    let mut options = File::options();
    let file = options.append(true).custom_flags(no_links()).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("`waybill up` runs with {}; stop it first (Ctrl-C)", dir.display())
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// A wrong --state-dir must cost nobody their files.
fn check_entries(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let name = entry?.file_name();
        if !OURS.iter().any(|ours| name == *ours) {
            let path = dir.join(name);
            bail!("{} is not a cluster's; move it elsewhere first", path.display());
        }
    }
    Ok(())
}

fn say_what(dir: &Path, mounts: &Mounts, cgroup: &str, running: bool) -> Result<Outcome> {
    let mut output = io::stdout();
    writeln!(output, "would remove:")?;
    writeln!(output, "  {} and all that is in it", dir.display())?;
    for place in mounts.places() {
        writeln!(output, "  the mount {}", place.display())?;
    }
    if cgroups::exists(cgroup) {
        writeln!(output, "  the cgroups below {cgroup}")?;
    }
    let flags = if running { "--yes --kill" } else { "--yes" };
    if running {
        writeln!(output, "containers of it still run, and would be killed")?;
    }
    writeln!(output, "nothing was removed; with {flags} it is")?;
    Ok(Outcome::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_something_else_in_it_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["pki", "store", "up.lock"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        check_entries(dir.path()).unwrap();
        fs::write(dir.path().join("thesis.txt"), "").unwrap();
        let told = check_entries(dir.path()).unwrap_err().to_string();
        assert!(told.contains("thesis.txt is not a cluster's"), "{told}");
    }

    #[test]
    fn a_cluster_that_runs_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let held = File::create(dir.path().join("up.lock")).unwrap();
        held.try_lock().unwrap();
        let told = lock(dir.path()).unwrap_err().to_string();
        assert!(told.contains("stop it first"), "{told}");
        drop(held);
        lock(dir.path()).unwrap();
    }
}
