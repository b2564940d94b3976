//! etcd is killed under load while the server lives on.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};
use waybill_testkit::{
    apiserver::{ApiServer, Setup},
    etcd::EtcdServer,
};

use crate::{
    PATIENCE, WRITERS,
    client::Client,
    ledger::{Ledger, version},
    writer::{Answer, WRITTEN, Writer},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_etcd_costs_no_acknowledged_write_and_the_server_recovers() {
    let Some(mut etcd) = EtcdServer::start() else { return };
    let dir = tempfile::tempdir().expect("the temporary directory is writable");
    let setup = Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path());
    let server = setup.flag(format!("--store=etcd={}", etcd.url())).start();
    let watcher = Client::connect(&server).await.expect("the server takes connections");
    let mut watch = watcher.watch(&format!("{WRITTEN}&watch=1")).await.expect("the server answers");

    let ledger = Ledger::default();
    let (acknowledged, refused) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let stop = Arc::new(Semaphore::new(0));
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let mut writer =
            Writer::connect(&server, &ledger, &acknowledged, format!("w{number}")).await;
        let (refused, stop) = (Arc::clone(&refused), Arc::clone(&stop));
        writers.spawn(async move {
            while stop.available_permits() == 0 {
                match writer.write().await {
                    Answer::Acknowledged => {}
                    // What a refused write left open, later writes to the same object run into.
                    Answer::Refused(404 | 409, _) => {}
                    Answer::Refused(code, status) => {
                        assert!(matches!(code, 503 | 504), "{code}: {status}");
                        assert_eq!(status["kind"], "Status", "{status}");
                        let message = status["message"].as_str().unwrap_or_default();
                        assert!(message.contains("the store") || code == 504, "{status}");
                        refused.add_permits(1);
                        sleep(Duration::from_millis(20)).await;
                    }
                    Answer::Lost => panic!("the server lives and answers"),
                }
            }
        });
    }

    wait_for(&acknowledged, 40).await;
    etcd.kill();
    wait_for(&refused, 20).await;
    reads_go_on(&server).await;
    etcd.restart();
    // What was acknowledged before the kill is used up, so these come after it.
    let spare = u32::try_from(acknowledged.available_permits()).expect("a small number");
    wait_for(&acknowledged, spare).await;
    wait_for(&acknowledged, 100).await;
    stop.add_permits(1);
    while let Some(ended) = writers.join_next().await {
        ended.expect("every refusal is a clear Status");
    }

    let mut client = Client::connect(&server).await.expect("the server takes connections");
    let (code, list) = client.send("GET", WRITTEN, "").await.expect("the server answers");
    assert_eq!(code, 200, "{list}");
    let mut missing = ledger.written_after(0);
    ledger.check(&list);
    let watched = timeout(PATIENCE, async {
        while !missing.is_empty() {
            let event = watch.next().await.expect("the watch goes on");
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
            if missing.get(name) == Some(&version(&event["object"])) {
                missing.remove(name);
            }
        }
    });
    watched.await.expect("a watch that was open all the time shows every write");
}

async fn wait_for(permits: &Semaphore, count: u32) {
    let permits = timeout(PATIENCE, permits.acquire_many(count)).await;
    permits.expect("the count is reached in time").expect("it is never closed").forget();
}

/// Reads come from memory.
async fn reads_go_on(server: &ApiServer) {
    let mut client = Client::connect(server).await.expect("the server takes connections");
    let (code, list) = client.send("GET", WRITTEN, "").await.expect("the server answers");
    assert_eq!(code, 200, "{list}");
}
