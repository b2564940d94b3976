//! Many users with many sessions at once, each of which runs a script of short programs: how many of them are on record, as whose.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use waybill_client::{ActingAs, Options, exec::Executor};

use crate::{collector::Collector, session, up::Up};

/// So many sessions run at the same time.
const AT_ONCE: usize = 20;

pub(crate) async fn measure(
    program: &str,
    up: &Up,
    source: &str,
    users: usize,
    sessions: usize,
    programs: usize,
) {
    let collector = Collector::start(program, up, source);
    let before = collector.cost();
    let mut executors = Vec::new();
    for user in 0..users {
        let groups = vec!["system:masters".to_owned()];
        let acting_as = Some(ActingAs { user: format!("user-{user}"), groups });
        executors.push(Executor::new(&Options { acting_as, ..up.options() }).await.unwrap());
    }
    let all = (0..sessions).flat_map(|at| {
        executors.iter().enumerate().map(move |(user, executor)| (user, executor, at))
    });
    let begin = Instant::now();
    stream::iter(all)
        .for_each_concurrent(AT_ONCE, |(user, executor, at)| {
            let script = format!(
                "i=0; while [ $i -lt {programs} ]; do /bin/busybox true {source}_{user}_{at}_$i; i=$((i+1)); done"
            );
            async move {
                session(executor, &script).await;
            }
        })
        .await;
    let time = begin.elapsed();
    let expected = users * sessions * programs;
    let (right, wrong, lost) = settle(&collector, source, expected).await;
    let missing = expected - right.min(expected);
    let spent = collector.cost().processor.saturating_sub(before.processor);
    let (resident, own, ring) = collector.memory();
    println!(
        "{users} users x {sessions} sessions x {programs} programs in {time:.1?}, by {source}: {right} of {expected} under the right \
         user and session, {wrong} under a wrong one, {missing} missing, {lost} counted as lost"
    );
    println!(
        "  the collector used {spent:.2?}, and has {resident:.1} MB resident ({own:.1} its own, {ring:.1} shared with the kernel)"
    );
}

/// Waits until everything is there, or nothing comes any more.
async fn settle(collector: &Collector, source: &str, expected: usize) -> (usize, usize, u64) {
    let mut last = (0, 0, 0);
    for _ in 0..10 {
        let now = count(collector, source).await;
        // Who asked for the last sessions is known a moment later.
        if now.0 >= expected || (now == last && now.0 > 0) {
            return now;
        }
        last = now;
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    last
}

async fn count(collector: &Collector, source: &str) -> (usize, usize, u64) {
    let (sessions, processes, lost) = collector.read().await;
    let users: HashMap<_, _> =
        sessions.iter().map(|it| (it.id.as_str(), it.trace.user().unwrap_or_default())).collect();
    // The first program with a mark says which session of which user this is.
    let mut places: HashMap<&str, &str> = HashMap::new();
    let (mut right, mut wrong) = (0, 0);
    for process in &processes {
        let Some(mark) = process.arguments.get(2).filter(|mark| mark.starts_with(source)) else {
            continue;
        };
        let Some((place, _)) = mark.rsplit_once('_') else { continue };
        let user = place.split('_').nth(1).map(|user| format!("user-{user}"));
        let is_of_user = users.get(process.session.as_str()).copied() == user.as_deref();
        let is_of_session = *places.entry(process.session.as_str()).or_insert(place) == place;
        if is_of_user && is_of_session { right += 1 } else { wrong += 1 }
    }
    (right, wrong, lost)
}
