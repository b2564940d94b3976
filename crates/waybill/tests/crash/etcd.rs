//! etcd is killed under load while the server lives on.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use waybill_testkit::{
    apiserver::{ApiServer, Setup},
    etcd::EtcdServer,
};

use crate::{
    PATIENCE, WRITERS,
    client::{Client, Watch},
    ledger::{Ledger, version},
    writer::{Answer, WRITTEN, Writer},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_etcd_costs_no_acknowledged_write_and_the_server_recovers() {
    let Some(mut etcd) = EtcdServer::start() else { return };
    let dir = tempfile::tempdir().expect("the temporary directory is writable");
    let setup = Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path());
    let server = setup.flag(format!("--store=etcd={}", etcd.url())).start();
    let client = Client::connect(&server).await.expect("the server takes connections");
    let watch = client.watch(&format!("{WRITTEN}&watch=1")).await.expect("the server answers");

    let ledger = Ledger::default();
    let (acknowledged, refused) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let stop = CancellationToken::new();
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let prefix = format!("w{number}");
        let writer = Writer::connect(&server, &ledger, &acknowledged, prefix).await;
        writers.spawn(write_until(stop.clone(), writer, Arc::clone(&refused)));
    }
    wait_for(&acknowledged, 40).await;
    etcd.kill();
    wait_for(&refused, 20).await;
    // Reads come from memory.
    list(&server).await;
    acknowledged.forget_permits(usize::MAX);
    etcd.restart();
    wait_for(&acknowledged, 100).await;
    stop.cancel();
    while let Some(ended) = writers.join_next().await {
        ended.expect("every refusal is a clear Status");
    }

    let missing = ledger.written_after(0);
    ledger.check(&list(&server).await);
    let watched = timeout(PATIENCE, see_all(watch, missing)).await;
    watched.expect("a watch that was open all the time shows every write");
}

async fn write_until(stop: CancellationToken, mut writer: Writer, refused: Arc<Semaphore>) {
    while !stop.is_cancelled() {
        match writer.write().await {
            // Later writes to an object run into what a refused one left open.
            Answer::Acknowledged | Answer::Refused(404 | 409, _) => {}
            Answer::Refused(code, status) => {
                assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(code)));
                assert!(matches!(code, 503 | 504), "{status}");
                let message = status["message"].as_str().unwrap_or_default();
                assert!(message.contains("store"), "{status}");
                refused.add_permits(1);
                sleep(Duration::from_millis(20)).await;
            }
            Answer::Lost => panic!("the server lives and answers"),
        }
    }
}

async fn wait_for(permits: &Semaphore, count: u32) {
    let permits = timeout(PATIENCE, permits.acquire_many(count)).await;
    permits.expect("the count is reached in time").expect("it is never closed").forget();
}

async fn list(server: &ApiServer) -> Value {
    let mut client = Client::connect(server).await.expect("the server takes connections");
    let (code, list) = client.send("GET", WRITTEN, "").await.expect("the server answers");
    assert_eq!(code, 200, "{list}");
    list
}

/// Reads `watch` until it has shown each of `missing`, by name and version.
async fn see_all(mut watch: Watch, mut missing: BTreeMap<String, u64>) {
    while !missing.is_empty() {
        let event = watch.next().await.expect("the watch goes on");
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        if missing.get(name) == Some(&version(&event["object"])) {
            missing.remove(name);
        }
    }
}
