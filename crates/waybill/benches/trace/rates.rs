//! What a collector costs while nothing, something and very much is started.

use std::{
    fs,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use waybill_client::exec::Executor;

use crate::{collector::Collector, session, up::Up};

/// Whether the kernel counts how long programs like ours run.
const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// So many sessions start programs.
const SESSIONS: usize = 4;

pub(crate) async fn measure(program: &str, up: &Up, time: Duration, rest: Duration) {
    let before = fs::read_to_string(STATISTICS).ok();
    let _ = fs::write(STATISTICS, "1");
    let collector = Collector::start(program, up, "ebpf");
    let (resident, own, ring) = collector.memory();
    println!(
        "the collector after its start: {resident:.1} MB resident ({own:.1} its own, {ring:.1} shared with the kernel)"
    );
    at_rest(&collector, rest).await;
    let executor = Executor::new(&up.options()).await.unwrap();
    for rate in [100, 2000] {
        run(&collector, &executor, rate, time).await;
    }
    at_rest(&collector, rest).await;
    drop(collector);
    if let Some(before) = before {
        let _ = fs::write(STATISTICS, before);
    }
}

async fn at_rest(collector: &Collector, time: Duration) {
    let (before, begin) = (collector.cost(), Instant::now());
    tokio::time::sleep(time).await;
    tell("0 programs a second", collector, before, begin.elapsed());
}

fn tell(what: &str, collector: &Collector, before: crate::collector::Cost, time: Duration) {
    let now = collector.cost();
    let share = |part: Duration| 100.0 * part.as_secs_f64() / time.as_secs_f64();
    let processor = share(now.processor.saturating_sub(before.processor));
    let kernel = share(now.kernel.saturating_sub(before.kernel));
    let runs = now.runs.saturating_sub(before.runs).max(1);
    let each = now.kernel.saturating_sub(before.kernel).as_nanos() / u128::from(runs);
    let (resident, own, _) = collector.memory();
    println!(
        "{what}: {processor:.2} % of a core, and {kernel:.2} % in the kernel ({runs} runs of {each} ns each); {resident:.1} MB resident, \
         {own:.1} its own (goal 15 MB)"
    );
}

async fn run(collector: &Collector, executor: &Executor, rate: usize, time: Duration) {
    let each = rate * usize::try_from(time.as_secs().max(1)).unwrap() / SESSIONS;
    // As many as shall run in a tenth of a second, and then a pause; the highest rate is what the machine can do.
    let pause = if rate >= 1000 {
        String::new()
    } else {
        format!("[ $((i % {})) -ne 0 ] || usleep 100000;", rate / 10 / SESSIONS.min(rate / 10))
    };
    let scripts: Vec<_> = (0..SESSIONS)
        .map(|at| {
            format!("i=0; while [ $i -lt {each} ]; do /bin/busybox true rate{rate}_{at}_$i; i=$((i+1)); {pause} done")
        })
        .collect();
    let (before, begin) = (collector.cost(), Instant::now());
    join_all(scripts.iter().map(|script| session(executor, script))).await;
    let taken = begin.elapsed();
    let expected = each * SESSIONS;
    let reached = expected as f64 / taken.as_secs_f64();
    tell(&format!("{rate} programs a second, {reached:.0} reached"), collector, before, taken);
    let mut found = 0;
    let mut lost = 0;
    for _ in 0..20 {
        let (_, processes, counted) = collector.read().await;
        let mark = format!("rate{rate}_");
        let is_marked = |words: &[String]| words.get(2).is_some_and(|it| it.starts_with(&mark));
        found = processes.iter().filter(|process| is_marked(&process.arguments)).count();
        lost = counted;
        if found >= expected {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    println!("  {found} of {expected} on record, {lost} counted as lost");
}
