//! A server on a disk that others fill: what it was told it keeps, what it cannot record does not happen,
//! and when there is room again it goes on by itself.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;
use waybill_testkit::{
    apiserver::{ApiServer, Setup},
    disk::SmallDisk,
};

use crate::{
    PATIENCE,
    client::Client,
    ledger::{Ledger, version},
    writer::WRITTEN,
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POD: &str = "/api/v1/namespaces/default/pods/nobody";

/// The holes: a full disk ended the store and the audit log until a restart, sessions went on unrecorded,
/// and `/readyz` said ok.
#[tokio::test]
async fn a_full_disk_refuses_and_says_so_and_the_server_heals_without_a_restart() {
    let Some(disk) = SmallDisk::mount(24) else { return };
    // Its log lies on the full disk, too.
    let setup = Setup::new(env!("CARGO_BIN_EXE_waybill"), disk.path()).on_a_lasting_port();
    let mut server = setup.start();
    let ledger = Ledger::default();
    assert_eq!(create(&server, &ledger, "before").await, 201);
    assert_eq!(ready(&server, "").await.0, 200);

    disk.fill();
    let mut number = 0;
    let refused = until(&server, async || {
        number += 1;
        let code = create(&server, &ledger, &format!("filling-{number}")).await;
        (code != 201).then_some(code)
    });
    assert_eq!(refused.await, 503);
    // Reads go on.
    assert_eq!(ask(&server, "GET", WRITTEN).await.0, 200);
    // Sooner or later the audit log has no room either; what it had is used up by sessions.
    let long = "x".repeat(8_000);
    let (code, status) = until(&server, async || {
        let exec = ask(&server, "GET", &format!("{POD}/exec?command={long}")).await;
        (exec.0 != 404).then_some(exec)
    })
    .await;
    assert_eq!(code, 503, "{status}");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.contains("cannot be recorded"), "{message}");
    let (code, text) = ready(&server, "?verbose").await;
    assert_eq!(code, 500, "{text}");
    for check in ["[+]ping ok", "[-]store failed", "[-]audit failed"] {
        assert!(text.contains(check), "{text}");
    }

    disk.free();
    until(&server, async || (ready(&server, "").await.0 == 200).then_some(())).await;
    assert_eq!(create(&server, &ledger, "after").await, 201);
    assert_eq!(ask(&server, "GET", &format!("{POD}/exec?command=ls")).await.0, 404);

    server.kill();
    let server = setup.start();
    ledger.check(&ask(&server, "GET", WRITTEN).await.1);
    // Every line is whole, and the refusals are on record.
    let log = std::fs::read_to_string(server.state().join("audit/audit.log"));
    let log = log.expect("the audit log is there");
    let events: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let codes = events.iter().map(|event| &event["responseStatus"]["code"]);
    assert!(codes.clone().any(|code| *code == 503) && codes.clone().any(|code| *code == 404));
}

/// It takes another port and has to say so in its kubeconfig, for which there was no room.
#[tokio::test]
async fn a_server_on_any_free_port_starts_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount(24) else { return };
    let setup = Setup::new(env!("CARGO_BIN_EXE_waybill"), disk.path());
    let mut server = setup.start();
    let ledger = Ledger::default();
    assert_eq!(create(&server, &ledger, "before").await, 201);
    // Somebody else takes the port, so that it must be another.
    let old = server.address();
    server.kill();
    let _taken = std::net::TcpListener::bind(old);
    disk.fill();
    let server = setup.start();
    assert_ne!(server.address(), old);
    ledger.check(&ask(&server, "GET", WRITTEN).await.1);
    let kubeconfig = std::fs::read(server.state().join("kubeconfig")).expect("it is there");
    let kubeconfig: Value = serde_json::from_slice(&kubeconfig).expect("it is whole");
    let address = format!("https://{}", server.address());
    assert_eq!(kubeconfig["clusters"][0]["cluster"]["server"], address.as_str());
}

/// Asks until there is an answer.
async fn until<T>(server: &ApiServer, ask: impl AsyncFnMut() -> Option<T>) -> T {
    let (start, mut ask) = (Instant::now(), ask);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "not in time at {}", server.address());
        sleep(Duration::from_millis(5)).await;
    }
}

async fn create(server: &ApiServer, ledger: &Ledger, name: &str) -> u16 {
    let data = "x".repeat(100_000);
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"a":"{data}"}}}}"#
    );
    ledger.ask(name);
    let mut client = Client::connect(server).await.expect("the server takes connections");
    let (code, answer) = client.send("POST", MAPS, &body).await.expect("the server answers");
    if code == 201 {
        ledger.acknowledge(name, Some(version(&answer)));
    }
    code
}

async fn ask(server: &ApiServer, method: &str, path: &str) -> (u16, Value) {
    let mut client = Client::connect(server).await.expect("the server takes connections");
    client.send(method, path, "").await.expect("the server answers")
}

async fn ready(server: &ApiServer, query: &str) -> (u16, String) {
    let mut client = Client::connect(server).await.expect("the server takes connections");
    client.text("GET", &format!("/readyz{query}")).await.expect("the server answers")
}
