//! The server is killed under load, again and again, and so is etcd: what was acknowledged is there
//! afterwards, versions never go back, and watches go on or say that they cannot. The same is done to the container
//! runtime and to whole stacks, in modules of their own.
//!
//! `WAYBILL_CRASH_ROUNDS` sets the number of kills; `cargo xtask crash` does many.

#![cfg(test)]

mod client;
mod etcd;
mod flood;
mod full_disk;
mod ledger;
mod runtime;
mod stack;
mod writer;

use std::{sync::Arc, time::Duration};

use tokio::{sync::Semaphore, task::JoinSet, time::timeout};
use waybill_testkit::{
    apiserver::{ApiServer, Setup},
    etcd::EtcdServer,
};

use crate::{
    client::Client,
    ledger::{Ledger, version},
    writer::{Answer, WRITTEN, Writer},
};

/// Clients that write at the same time.
const WRITERS: usize = 8;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_kills_on_the_embedded_store() {
    let dir = tempfile::tempdir().expect("the temporary directory is writable");
    kill_again_and_again(&Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_kills_on_etcd() {
    let Some(etcd) = EtcdServer::start() else { return };
    let dir = tempfile::tempdir().expect("the temporary directory is writable");
    let setup = Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path());
    kill_again_and_again(&setup.flag(format!("--store=etcd={}", etcd.url()))).await;
}

async fn kill_again_and_again(setup: &Setup) {
    let ledger = Ledger::default();
    let mut newest = 0;
    for round in 0..rounds() {
        let server = setup.start();
        newest = check(&server, &ledger, newest).await;
        write_until_killed(server, round, &ledger).await;
        assert!(ledger.newest() > newest, "round {round} wrote nothing");
    }
    let server = setup.start();
    check(&server, &ledger, newest).await;
    println!("{} rounds, {} objects at the end", rounds(), ledger.written_after(0).len());
}

/// Checks what is there, and what a watch since `before` shows, and returns the newest
/// resourceVersion.
async fn check(server: &ApiServer, ledger: &Ledger, before: u64) -> u64 {
    let mut client = Client::connect(server).await.expect("the server takes connections");
    let (code, list) = client.send("GET", WRITTEN, "").await.expect("the server answers");
    assert_eq!(code, 200, "{list}");
    let newest = version(&list);
    assert!(newest >= before, "the resourceVersion went back from {before} to {newest}");
    assert!(newest >= ledger.newest(), "the list at {newest} is older than what it should hold");
    ledger.check(&list);
    if before > 0 {
        let watched = timeout(PATIENCE, resume(client, ledger, before, newest)).await;
        watched.expect("a watch shows in time what was written");
    }
    newest
}

/// A watch from `after` shows every write since then, each once and in order, or is gone.
async fn resume(client: Client, ledger: &Ledger, after: u64, until: u64) {
    let mut missing = ledger.written_after(after);
    let path = format!("{WRITTEN}&watch=1&allowWatchBookmarks=true&resourceVersion={after}");
    let mut watch = client.watch(&path).await.expect("the server answers");
    let mut last = after;
    while !missing.is_empty() {
        let event = watch.next().await.expect("the watch goes on");
        let object = &event["object"];
        if event["type"] == "ERROR" {
            assert_eq!(object["code"], 410, "{event}");
            assert_eq!(last, after, "a watch that has begun goes on");
            return;
        }
        let seen = version(object);
        assert!(seen > last || event["type"] == "BOOKMARK", "{seen} came after {last}");
        last = seen;
        assert!(last <= until, "{last} is newer than the list, which is at {until}");
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if missing.get(name) == Some(&seen) {
            missing.remove(name);
        }
    }
}

/// Writes with all clients until the server has taken some, then kills it in the middle.
async fn write_until_killed(mut server: ApiServer, round: usize, ledger: &Ledger) {
    let mut writers = JoinSet::new();
    let enough = Arc::new(Semaphore::new(0));
    for number in 0..WRITERS {
        let prefix = format!("r{round}-w{number}");
        let mut writer = Writer::connect(&server, ledger, &enough, prefix).await;
        writers.spawn(async move {
            loop {
                match writer.write().await {
                    Answer::Acknowledged => {}
                    Answer::Refused(code, answer) => panic!("{code}: {answer}"),
                    Answer::Lost => return,
                }
            }
        });
    }
    // At another point in each round, with writes on their way in any case.
    let writes = u32::try_from(40 + round * 7 % 50).expect("a small number");
    let waited = timeout(PATIENCE, enough.acquire_many(writes)).await;
    assert!(waited.is_ok(), "the server takes {writes} writes in time");
    server.kill();
    while let Some(ended) = writers.join_next().await {
        ended.expect("every answer before the kill was a success");
    }
}

#[expect(clippy::disallowed_methods, reason = "the length of a test is set from outside")]
fn rounds() -> usize {
    std::env::var("WAYBILL_CRASH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5)
}
