//! Kills monitors, and remembers whose.

use std::{
    collections::HashSet,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::sleep;
use waybill_testkit::runtime::Setup;

use super::{Dice, kill};

#[derive(Clone)]
pub(crate) struct Monitors {
    containers: PathBuf,
    /// The container whose monitor lives on.
    spared: String,
    killed: Arc<Mutex<HashSet<String>>>,
}

impl Monitors {
    pub(crate) fn new(setup: &Setup, spared: &str) -> Self {
        let containers = setup.run_dir().join("containers");
        Self { containers, spared: spared.to_owned(), killed: Arc::default() }
    }

    /// Kills one now and then, until it is aborted.
    pub(crate) async fn kill_some(&self, mut dice: Dice) {
        loop {
            sleep(Duration::from_millis(u64::from(dice.up_to(300)) + 20)).await;
            self.kill_one(&mut dice);
        }
    }

    /// Kills one of those there are, if any.
    pub(crate) fn kill_one(&self, dice: &mut Dice) {
        let living = self.living();
        let count = u32::try_from(living.len()).ok().filter(|&count| count > 0);
        let chosen = count.and_then(|count| living.get(dice.up_to(count) as usize));
        let Some((pid, container)) = chosen else { return };
        // Noted first, because others see what comes of it at once.
        self.killed().insert(container.clone());
        kill(pid, || self.container_of(pid).as_ref() == Some(container));
    }

    /// Whether the container's monitor was killed.
    pub(crate) fn was_killed(&self, container: &str) -> bool {
        self.killed().contains(container)
    }

    /// Whether a message tells of a container whose monitor was killed.
    pub(crate) fn explain(&self, message: &str) -> bool {
        self.killed().iter().any(|container| message.contains(container.as_str()))
    }

    /// How many were killed.
    pub(crate) fn count(&self) -> usize {
        self.killed().len()
    }

    /// Process and container of each. A child that a monitor has just forked counts as one.
    fn living(&self) -> Vec<(String, String)> {
        let processes = fs::read_dir("/proc").expect("proc is mounted").filter_map(Result::ok);
        let pids = processes.map(|process| process.file_name().display().to_string());
        pids.filter_map(|pid| Some((self.container_of(&pid)?, pid)))
            .filter(|(container, _)| *container != self.spared)
            .map(|(container, pid)| (pid, container))
            .collect()
    }

    /// Whose monitor a process is, if it is one.
    fn container_of(&self, pid: &str) -> Option<String> {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        let cwd = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        // A child may have gone further down.
        let below = cwd.strip_prefix(&self.containers).ok()?;
        let container = below.iter().next()?.to_str()?.to_owned();
        (comm.trim() == "waybill-monitor").then_some(container)
    }

    fn killed(&self) -> MutexGuard<'_, HashSet<String>> {
        self.killed.lock().expect("nobody has panicked")
    }
}
