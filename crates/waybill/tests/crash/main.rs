//! The server is killed under load, again and again: what it acknowledged is there afterwards.
//!
//! `WAYBILL_CRASH_ROUNDS` sets the number of kills; a long run does 200.

#![cfg(test)]

mod client;
mod server;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;
use tokio::task::JoinSet;

use crate::{client::Client, server::Server};

/// Clients that write at the same time.
const WRITERS: usize = 8;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Acknowledged objects and their resourceVersions.
type Acknowledged = Arc<Mutex<BTreeMap<String, u64>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_kills() {
    let dir = tempfile::tempdir().expect("the temporary directory is writable");
    let acknowledged = Acknowledged::default();
    let mut newest = 0;
    for round in 0..rounds() {
        let server = Server::start(&dir);
        newest = check(&server, &acknowledged, newest).await;
        write_until_killed(server, round, &acknowledged).await;
        let highest = acknowledged.lock().unwrap().values().copied().max().unwrap_or(0);
        assert!(highest > newest, "round {round} wrote nothing");
    }
    let server = Server::start(&dir);
    check(&server, &acknowledged, newest).await;
    watch_resumes_or_is_gone(&server).await;
}

/// Checks what is there and returns the newest resourceVersion.
async fn check(server: &Server, acknowledged: &Acknowledged, before: u64) -> u64 {
    let mut client = Client::connect(server).await.expect("the server takes connections");
    let (code, list) = client.send("GET", MAPS, "").await.expect("the server answers");
    assert_eq!(code, 200, "{list}");
    let newest = version(&list);
    let found: BTreeMap<String, u64> = list["items"]
        .as_array()
        .expect("a list has items")
        .iter()
        .map(|item| {
            (item["metadata"]["name"].as_str().unwrap_or_default().to_owned(), version(item))
        })
        .collect();
    let acknowledged = acknowledged.lock().unwrap();
    for (name, version) in acknowledged.iter() {
        assert_eq!(found.get(name), Some(version), "{name} was acknowledged");
        assert!(*version <= newest, "{name} is newer than the list, which is at {newest}");
    }
    assert!(newest >= before, "the resourceVersion went back from {before} to {newest}");
    newest
}

/// Writes with all clients until the server has taken some, then kills it in the middle.
async fn write_until_killed(mut server: Server, round: usize, acknowledged: &Acknowledged) {
    let mut writers = JoinSet::new();
    let enough = Arc::new(tokio::sync::Semaphore::new(0));
    for writer in 0..WRITERS {
        let mut client = Client::connect(&server).await.expect("the server takes connections");
        let (acknowledged, enough) = (Arc::clone(acknowledged), Arc::clone(&enough));
        writers.spawn(async move {
            for number in 0.. {
                let name = format!("r{round}-w{writer}-{number}");
                let object = format!(
                    r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#
                );
                let Ok((code, created)) = client.send("POST", MAPS, &object).await else { return };
                assert_eq!(code, 201, "{created}");
                acknowledged.lock().unwrap().insert(name, version(&created));
                enough.add_permits(1);
            }
        });
    }
    // At another point in each round, with writes on their way in any case.
    let writes = u32::try_from(40 + round * 7 % 50).expect("a small number");
    let waited = tokio::time::timeout(Duration::from_secs(60), enough.acquire_many(writes)).await;
    assert!(waited.is_ok(), "the server takes {writes} writes in time");
    server.kill();
    while let Some(ended) = writers.join_next().await {
        ended.expect("every answer before the kill was a success");
    }
}

/// A watch from the first version either goes on from there or says that it cannot.
async fn watch_resumes_or_is_gone(server: &Server) {
    let mut client = Client::connect(server).await.expect("the server takes connections");
    let path = format!("{MAPS}?watch=1&resourceVersion=1&timeoutSeconds=1");
    let (code, event) = client.send("GET", &path, "").await.expect("the server answers");
    assert_eq!(code, 200, "{event}");
    assert!(event["type"] == "ADDED" || event["object"]["code"] == 410, "{event}");
}

fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok()).expect("a resourceVersion is a number")
}

#[expect(clippy::disallowed_methods, reason = "the length of a test is set from outside")]
fn rounds() -> usize {
    std::env::var("WAYBILL_CRASH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5)
}
