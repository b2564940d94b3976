//! The whole stack, as `waybill up` starts it: how soon pods run and commands answer, and what it costs at
//! rest, beside `nsenter` and plain CRI in the same run.
//!
//! `cargo bench -p waybill --bench stack`. Needs root and busybox-static. The machine is shared by the
//! stack and this client, and often by others, so ratios tell more than times; `docs/performance.md`
//! records both. `--test` does a little of everything once, `--only-exec` leaves out pods and rest,
//! `--only-files` all but env files, `--only-drivers` all but variables of drivers. `--against PROGRAM` does
//! nothing but compare with another `waybill`.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement for people; a step that fails ends it"
)]

mod against;
mod drivers;
mod files;
mod numbers;
mod pods;
mod processes;
mod sessions;
mod up;

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use self::{numbers::Times, pods::Pods, up::Up};

/// How much is done.
#[derive(Clone, Copy)]
struct Size {
    pods: usize,
    crowd: usize,
    execs: usize,
    files: usize,
    drivers: usize,
    rest: Duration,
}

fn main() {
    let smoke = has_argument("--test");
    let size = if smoke {
        Size { pods: 1, crowd: 3, execs: 4, files: 1, drivers: 1, rest: Duration::from_millis(200) }
    } else {
        Size {
            pods: 30,
            crowd: 100,
            execs: 400,
            files: 15,
            drivers: 60,
            rest: Duration::from_secs(30),
        }
    };
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: containers need root");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut arguments = std::env::args().skip_while(|argument| argument != "--against").skip(1);
    runtime.block_on(async {
        match arguments.next() {
            Some(other) => against::measure(&other, size.pods, size.execs).await,
            None => measure(size).await,
        }
    });
}

async fn measure(size: Size) {
    let begin = Instant::now();
    let mut up = Up::start(&[]);
    let pods = Pods::connect(&up.options()).await;
    pods.run("first").await;
    println!(
        "`waybill up` on nothing to the first pod Running: {:.2?} (goal 2 s)",
        begin.elapsed()
    );
    pods.delete("first").await;

    if has_argument("--only-files") {
        files::measure(&pods, size.files).await;
        return up.stop();
    }
    if has_argument("--only-drivers") {
        drivers::measure(&pods, size.drivers).await;
        return up.stop();
    }
    if !has_argument("--only-exec") {
        rest(&up, size.rest).await;
        one_by_one(&pods, size.pods).await;
        files::measure(&pods, size.files).await;
        drivers::measure(&pods, size.drivers).await;
        crowd(&pods, size.crowd).await;
    }
    sessions::latency(&up, &pods, size.execs).await;
    up.stop();
    sessions::overhead(size.execs).await;
}

fn has_argument(wanted: &str) -> bool {
    std::env::args().any(|argument| argument == wanted)
}

/// What an idle stack costs.
async fn rest(up: &Up, time: Duration) {
    let before = processes::processor_time(up.pid());
    tokio::time::sleep(time).await;
    let busy = processes::processor_time(up.pid()).saturating_sub(before);
    let share = 100.0 * busy.as_secs_f64() / time.as_secs_f64();
    let (resident, proportional) = processes::memory(up.pid());
    println!("at rest: {resident:.1} MB resident, {proportional:.1} MB proportional (goal 70 MB)");
    println!("  {share:.2} % of a core (goal 1 %)");
    for (name, resident, proportional) in processes::each(up.pid()) {
        println!("  {name:<20} {resident:>6.1} MB resident, {proportional:>6.1} MB proportional");
    }
}

async fn one_by_one(pods: &Pods, count: usize) {
    let mut times = Times::default();
    for at in 0..count {
        let name = format!("one-{at}");
        let begin = Instant::now();
        pods.run(&name).await;
        times.add(begin.elapsed());
        pods.delete(&name).await;
    }
    println!("a pod, created to Running: {times} (goal p50 70 ms)");
}

async fn crowd(pods: &Pods, count: usize) {
    let names: Vec<_> = (0..count).map(|at| format!("crowd-{at}")).collect();
    let begin = Instant::now();
    join_all(names.iter().map(|name| pods.run(name))).await;
    println!("{count} pods at once, all Running: {:.2?} (goal 100 in 10 s)", begin.elapsed());
    let begin = Instant::now();
    join_all(names.iter().map(|name| pods.delete(name))).await;
    println!("  and all gone again: {:.2?}", begin.elapsed());
}
