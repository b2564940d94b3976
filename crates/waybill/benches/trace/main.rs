//! The record of what runs in sessions: whether every program is in it, and what keeping it costs.
//!
//! `cargo bench -p waybill --bench trace`. Needs root and busybox-static. One stack without a collector; this starts collectors beside it, so
//! that the same machine is measured with and without one. `--program PATH` measures another `waybill` than the one that was built for
//! this, `--test` does a little of everything once, `--only-crowd`, `--only-exec` and `--only-rates` leave out the others.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement for people; a step that fails ends it"
)]

mod collector;
mod crowd;
mod rates;

#[path = "../stack/numbers.rs"]
mod numbers;
#[expect(dead_code, reason = "shared with the measurement of the whole stack")]
#[path = "../stack/pods.rs"]
mod pods;
#[expect(dead_code, reason = "shared with the measurement of the whole stack")]
#[path = "../stack/up.rs"]
mod up;

use std::time::{Duration, Instant};

use waybill_api::exec::PodExecOptions;
use waybill_client::exec::{Executor, Local};
use waybill_stream::outcome::Outcome;

use self::{collector::Collector, numbers::Times, pods::Pods, up::Up};

pub(crate) const POD: &str = "box";

/// How much is done.
#[derive(Clone, Copy)]
struct Size {
    users: usize,
    sessions: usize,
    programs: usize,
    rounds: usize,
    execs: usize,
    rate: Duration,
    rest: Duration,
}

const WHOLE: Size = Size {
    users: 20,
    sessions: 50,
    programs: 20,
    rounds: 10,
    execs: 40,
    rate: Duration::from_secs(10),
    rest: Duration::from_secs(20),
};

const SMOKE: Size = Size {
    users: 2,
    sessions: 3,
    programs: 5,
    rounds: 1,
    execs: 5,
    rate: Duration::from_secs(1),
    rest: Duration::from_secs(1),
};

fn main() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: containers need root");
        return;
    }
    let size = if has_argument("--test") { SMOKE } else { WHOLE };
    let mut named = std::env::args().skip_while(|argument| argument != "--program").skip(1);
    let program = named.next().unwrap_or_else(|| up::PROGRAM.to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(measure(&program, size));
}

fn has_argument(wanted: &str) -> bool {
    std::env::args().any(|argument| argument == wanted)
}

/// Whether a part is to be measured.
fn does(part: &str) -> bool {
    let mut only = std::env::args().filter(|argument| argument.starts_with("--only-"));
    only.next().is_none_or(|argument| argument == format!("--only-{part}"))
}

async fn measure(program: &str, size: Size) {
    let mut up = Up::start_program(
        program,
        &["--no-collector", "--built-in-images", "busybox", "--node-flag=--pod-max-pids=8192"],
    );
    let pods = Pods::connect(&up.options()).await;
    pods.run(POD).await;
    if does("exec") {
        overhead(program, &up, size).await;
    }
    if does("rates") {
        rates::measure(program, &up, size.rate, size.rest).await;
    }
    if does("crowd") {
        for source in ["ebpf", "connector", "scan"] {
            crowd::measure(program, &up, source, size.users, size.sessions, size.programs).await;
        }
    }
    pods.delete(POD).await;
    up.stop();
}

/// Sessions while somebody records, and while nobody does, in turns.
async fn overhead(program: &str, up: &Up, size: Size) {
    let executor = Executor::new(&up.options()).await.unwrap();
    let script = "exec /bin/true";
    for _ in 0..size.execs {
        session(&executor, script).await;
    }
    let [mut with, mut without] = [const { Times::new() }; 2];
    for round in 0..2 * size.rounds {
        let collector = (round % 2 == 0).then(|| Collector::start(program, up, "ebpf"));
        for at in 0..size.execs + 5 {
            let time = session(&executor, script).await;
            // The first ones warm up.
            match &collector {
                _ if at < 5 => {}
                Some(_) => with.add(time),
                None => without.add(time),
            }
        }
    }
    let ratio = with.median() / without.median();
    println!("exec of sh and /bin/true with the collector: {with}");
    println!("  without: {without}, ratio {ratio:.3} (goal 1.03)");
}

/// Runs a script to its end.
pub(crate) async fn session(executor: &Executor, script: &str) -> Duration {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    let options = PodExecOptions { stdout: true, command, ..PodExecOptions::default() };
    let begin = Instant::now();
    let session = executor.start("default", POD, &options).await.unwrap();
    let (stdout, stderr) = (tokio::io::sink(), tokio::io::sink());
    let local = Local { stdin: None::<tokio::io::Empty>, stdout, stderr, sizes: None };
    assert_eq!(session.run(local).await.unwrap(), Outcome::Success);
    begin.elapsed()
}
