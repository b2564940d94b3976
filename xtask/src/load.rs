//! `cargo xtask load`: a command again and again while other processes want the processor.
//!
//! All of them are in a cgroup of their own, which gets about half of a busy machine: the command competes with the load,
//! and whoever else uses the machine hardly notices.

use std::{
    fs,
    num::NonZeroU32,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail};

use crate::{process, repository::Repository};

/// What runs without a command: servers that are killed, and who is named for what ran.
const SUITES: [&[&str]; 2] = [
    &["test", "--package", "waybill", "--test", "crash"],
    &["test", "--package", "waybill", "--test", "e2e", "attribution"],
];

/// Ends whatever is in the cgroup and removes it once standard input ends, which it does however we end.
const JANITOR: &str = "read -r _
until rmdir \"$1\" 2>/dev/null; do
    [ -d \"$1\" ] || exit 0
    kill -9 $(cat \"$1/cgroup.procs\") 2>/dev/null
    sleep 0.1
done";

/// Goes into a cgroup and becomes something else.
const ENTER: &str = "echo $$ >\"$1/cgroup.procs\" && shift && exec \"$@\"";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many processes do nothing but use the processor
    #[arg(long, value_name = "N", default_value = "20")]
    processes: u32,

    /// How often the command runs
    #[arg(long, value_name = "N", default_value = "10")]
    times: NonZeroU32,

    /// What to run; the crash and attribution suites by default
    #[arg(last = true)]
    command: Vec<String>,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let commands: Vec<Vec<String>> = if args.command.is_empty() {
        let cargo =
            |suite: &[&str]| ["cargo"].iter().chain(suite).map(ToString::to_string).collect();
        // Not under load: only the tests are of interest.
        for suite in SUITES {
            process::run(repository.cargo(suite).args(["--no-run"]))?;
        }
        SUITES.into_iter().map(cargo).collect()
    } else {
        vec![args.command.clone()]
    };
    let load = Load::start(args.processes)?;
    let mut failed = 0;
    for time in 1..=args.times.get() {
        let start = Instant::now();
        let mut ended = Ok(());
        for command in &commands {
            ended = ended.and(process::run(load.enter(command).current_dir(repository.path(""))));
        }
        let seconds = start.elapsed().as_secs();
        match ended {
            Ok(()) => println!("time {time} of {}: passed after {seconds} s", args.times),
            Err(error) => {
                failed += 1;
                println!("time {time} of {}: failed after {seconds} s: {error:#}", args.times);
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} times failed beside {} processes", args.times, args.processes);
    }
    println!("{} times passed beside {} processes", args.times, args.processes);
    Ok(())
}

/// Processes that only use the processor, in a cgroup of their own. Both end with this value, and with this process.
pub(crate) struct Load {
    cgroup: PathBuf,
    janitor: Child,
    processes: Vec<Child>,
}

impl Load {
    pub(crate) fn start(count: u32) -> Result<Self> {
        let cgroup = make_cgroup().context("a cgroup for the load needs root")?;
        let janitor = Command::new("setsid")
            .args(["sh", "-c", JANITOR, "sh"])
            .arg(&cgroup)
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot start who clears the cgroup away")?;
        let mut load = Self { cgroup, janitor, processes: Vec::new() };
        for _ in 0..count {
            let busy = ["sh", "-c", "while :; do :; done"].map(str::to_owned);
            load.processes.push(load.enter(&busy).spawn().context("cannot start the load")?);
        }
        Ok(load)
    }

    /// `command`, in the cgroup from its first instruction.
    pub(crate) fn enter(&self, command: &[String]) -> Command {
        let mut sh = Command::new("sh");
        sh.args(["-c", ENTER, "sh"]).arg(&self.cgroup).args(command);
        sh
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Its input ends.
        drop(self.janitor.stdin.take());
        for process in &mut self.processes {
            let _ = process.wait();
        }
        let _ = self.janitor.wait();
    }
}

/// Makes a cgroup that weighs as much as two busy processes for each processor.
fn make_cgroup() -> Result<PathBuf> {
    let processors = thread::available_parallelism()?.get();
    let name = format!("waybill-load-{}", std::process::id());
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers");
    let (root, file, one) = if unified.exists() {
        let root = Path::new("/sys/fs/cgroup");
        fs::write(root.join("cgroup.subtree_control"), "+cpu")?;
        (root, "cpu.weight", 100)
    } else {
        let roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cpu.shares").exists());
        (root.context("no cgroup hierarchy has the controller `cpu`")?, "cpu.shares", 1024)
    };
    let cgroup = root.join(name);
    fs::create_dir(&cgroup)?;
    fs::write(cgroup.join(file), (2 * processors * one).to_string())?;
    Ok(cgroup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_load_is_left() {
        // Without root there is no load.
        let Ok(load) = Load::start(2) else { return };
        let cgroup = load.cgroup.clone();
        let inside = load.enter(&["cat".to_owned(), "/proc/self/cgroup".to_owned()]);
        let inside = process::output(&mut { inside }).unwrap();
        assert!(inside.contains("/waybill-load-"), "{inside}");
        let busy = loop {
            let busy = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap();
            // They come one after the other.
            if busy.lines().count() == 2 {
                break busy;
            }
        };
        drop(load);
        assert!(!cgroup.exists());
        for pid in busy.lines() {
            assert!(!Path::new("/proc").join(pid).exists());
        }
    }
}
