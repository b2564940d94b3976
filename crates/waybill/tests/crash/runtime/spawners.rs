//! Kills spawners, under runtimes that go on.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::sleep;
use tonic::{Code, Status};
use waybill_testkit::runtime::Setup;

use super::{Dice, kill};

const NAME: &str = "waybill-spawner";

#[derive(Clone)]
pub(crate) struct Spawners {
    /// Where the runtime works, and so does its spawner.
    directory: PathBuf,
    killed: Arc<AtomicUsize>,
}

impl Spawners {
    pub(crate) fn new(setup: &Setup) -> Self {
        let directory = setup.run_dir().parent().map(Path::to_owned).unwrap_or_default();
        Self { directory, killed: Arc::default() }
    }

    /// Kills the spawner now and then, until it is aborted.
    pub(crate) async fn kill_some(&self, mut dice: Dice) {
        loop {
            sleep(Duration::from_millis(u64::from(dice.up_to(400)) + 30)).await;
            self.kill();
        }
    }

    /// Kills the spawner, if there is one.
    pub(crate) fn kill(&self) {
        for pid in self.living() {
            // Noted first, because others see what comes of it at once.
            self.killed.fetch_add(1, Ordering::SeqCst);
            kill(&pid, || self.is_one(&pid));
        }
    }

    /// Whether a killed spawner explains an error.
    pub(crate) fn explain(&self, status: &Status) -> bool {
        self.count() > 0
            && status.code() == Code::Unavailable
            && status.message().contains("the spawner process died")
    }

    /// How many were killed.
    pub(crate) fn count(&self) -> usize {
        self.killed.load(Ordering::SeqCst)
    }

    /// Those who serve a runtime; what they fork is called the same for a moment.
    fn living(&self) -> Vec<String> {
        let processes = fs::read_dir("/proc").expect("proc is mounted").filter_map(Result::ok);
        let pids = processes.map(|process| process.file_name().display().to_string());
        pids.filter(|pid| self.is_one(pid)).collect()
    }

    fn is_one(&self, pid: &str) -> bool {
        let cwd = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        cwd == self.directory
            && name(pid) == NAME
            && parent(pid).is_some_and(|parent| name(&parent) != NAME)
    }
}

fn name(pid: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn parent(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1).map(str::to_owned)
}
