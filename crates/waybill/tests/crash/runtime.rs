//! The runtime is killed again and again while containers are made, run commands and end, and so are its spawners and
//! monitors: no container is lost, no exit code is lost or wrong, nothing is left behind. The same with a node above it: `node`.
//!
//! A container whose monitor was killed is told to be such a one, because nobody knows how it would have ended. What a spawner was
//! making when it was killed is refused and not there.

mod census;
mod client;
mod image;
mod ledger;
mod monitors;
mod node;
mod spawners;
mod upgrade;
mod worker;

use std::{
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};
use waybill_testkit::runtime::{Runtime, Setup};

use self::{
    census::{Census, Place},
    client::{Client, Script},
    ledger::Ledger,
    monitors::Monitors,
    spawners::Spawners,
    worker::Worker,
};
use crate::{PATIENCE, rounds};

const WORKERS: usize = 4;

/// A container that outlives every kill; the names of others begin like this, too.
const ELDER: &str = "elder";

/// Containers and their sessions go on without a runtime that dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_container_and_no_exit_code_is_lost_when_runtimes_spawners_and_monitors_are_killed() {
    let Some(busybox) = image::busybox() else { return };
    let dir = tempfile::tempdir().expect("the temporary directory is writable");
    let setup = Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path());
    let _witness = Witness(&setup);
    let cgroup = format!("/waybill-crash-{}", std::process::id());
    let mut runtime = setup.start();
    let client = Client::connect(&setup, &cgroup).await;
    client.import(busybox).await;
    let elder = client.start_elder(ELDER, Script::Elder).await;
    let place = Place::of(&setup, &cgroup);
    let before = settled(&place).await;
    let (monitors, spawners) = (Monitors::new(&setup, &elder.id), Spawners::new(&setup));
    for round in 0..rounds() {
        let dice = Dice::new(round);
        let ledger = Ledger::new(&monitors, &spawners);
        let workers = start_workers(&setup, &cgroup, round, &ledger).await;
        let killing = async {
            tokio::join!(monitors.kill_some(dice), spawners.kill_some(dice.other()));
        };
        kill_in_the_middle(&setup, runtime, workers, dice, killing, &ledger).await;
        runtime = start_again(&setup, dice).await;
        let client = Client::connect(&setup, &cgroup).await;
        client.check_elder(&elder).await;
        ledger.settle(&client).await;
        client.check_sessions(&elder, round).await;
        client.remove_sandboxes_but(&[&elder.sandbox]).await;
        nothing_is_left(&setup, &place, &before, round).await;
    }
    let client = Client::connect(&setup, &cgroup).await;
    client.remove_sandboxes_but(&[]).await;
    drop(runtime);
    eventually_gone(&setup, &place).await;
    let (monitors, spawners) = (monitors.count(), spawners.count());
    println!("{} rounds, {monitors} monitors and {spawners} spawners killed", rounds());
}

/// Workers, and what gets a permit for each step that one of them has done.
struct Workers {
    tasks: JoinSet<()>,
    done: Arc<Semaphore>,
}

async fn start_workers(setup: &Setup, cgroup: &str, round: usize, ledger: &Ledger) -> Workers {
    let mut workers = Workers { tasks: JoinSet::new(), done: Arc::new(Semaphore::new(0)) };
    for number in 0..WORKERS {
        let client = Client::connect(setup, cgroup).await;
        let (name, done) = (format!("r{round}-w{number}"), Arc::clone(&workers.done));
        workers.tasks.spawn(Worker::new(client, ledger.clone(), done, name).work());
    }
    workers
}

/// Lets something else be killed until enough was done, and then kills the runtime in the middle.
async fn kill_in_the_middle(
    setup: &Setup,
    mut runtime: Runtime,
    mut workers: Workers,
    mut dice: Dice,
    killing: impl Future<Output = ()>,
    ledger: &Ledger,
) {
    let steps = dice.up_to(40) + 10;
    let enough = async {
        tokio::select! {
            permits = workers.done.acquire_many(steps) => permits.is_ok(),
            () = killing => false,
            Some(ended) = workers.tasks.join_next() => {
                panic!("a worker gave up: {ended:?}\n{}", setup.log())
            }
        }
    };
    let enough = timeout(PATIENCE, enough).await;
    assert_eq!(enough, Ok(true), "the runtime takes {steps} steps in time:\n{}", setup.log());
    // Anywhere in what follows, and not right after an answer.
    sleep(Duration::from_millis(dice.up_to(40).into())).await;
    ledger.expect_kill();
    runtime.kill();
    while let Some(ended) = workers.tasks.join_next().await {
        ended.unwrap_or_else(|error| panic!("{error}\n{}", setup.log()));
    }
}

/// Starts the runtime; in some rounds it is killed once more while it finds what is there.
async fn start_again(setup: &Setup, mut dice: Dice) -> Runtime {
    if dice.up_to(3) == 0 {
        let mut early = setup.start_only();
        sleep(Duration::from_millis(dice.up_to(120).into())).await;
        early.kill();
    }
    setup.start()
}

/// What there is once helpers that made the first container are gone: twice the same, a while apart.
async fn settled(place: &Place) -> Census {
    let mut seen = Census::take(place);
    loop {
        sleep(Duration::from_millis(500)).await;
        let now = Census::take(place);
        if now == seen {
            return now;
        }
        seen = now;
    }
}

async fn nothing_is_left(setup: &Setup, place: &Place, before: &Census, round: usize) {
    let end = Instant::now() + PATIENCE;
    loop {
        let now = Census::take(place);
        if now == *before {
            return;
        }
        assert!(Instant::now() < end, "round {round}: {}\n{}", now.beyond(before), setup.log());
        sleep(Duration::from_millis(20)).await;
    }
}

/// After the last container: no process, no cgroup, no mount but the runtime's own tmpfs.
async fn eventually_gone(setup: &Setup, place: &Place) {
    nothing_is_left(setup, place, &Census::default(), rounds()).await;
    let unmounted = Command::new("umount").arg(setup.run_dir()).status();
    assert!(unmounted.expect("umount is installed").success());
}

/// Kills a process if it is still who it was: on a busy machine numbers come again within minutes.
fn kill(pid: &str, is_it: impl Fn() -> bool) {
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    let Some(Ok(held)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return };
    if is_it() {
        // It may be gone by now.
        let _ = pidfd_send_signal(held, Signal::KILL);
    }
}

/// Shows what the runtime did when a test fails: its directory goes with the test.
struct Witness<'a>(&'a Setup);

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.0.log();
            let lines: Vec<_> = log.lines().collect();
            let end = lines.get(lines.len().saturating_sub(200)..).unwrap_or_default();
            println!("the end of the runtime's log:\n{}", end.join("\n"));
        }
    }
}

/// Small numbers that differ from round to round, and are the same in each run.
#[derive(Clone, Copy)]
struct Dice(u64);

impl Dice {
    fn new(round: usize) -> Self {
        Self(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(round as u64 + 1))
    }

    /// Others, for what happens at the same time.
    fn other(self) -> Self {
        Self(self.0.rotate_left(32) | 1)
    }

    /// Less than `bound`.
    fn up_to(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(bound)).expect("less than a u32")
    }
}
