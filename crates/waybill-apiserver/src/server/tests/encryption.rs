//! Secrets at rest: what lies on the disk, and what happens to who loses the keys.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;
use waybill_core::chain::Chain;

use super::{Config, Encryption, Server, StoreConfig, TestServer, config};
use crate::server::StoreKeys;

const CANARY: &str = "canary-0815-hunter2";
const CANARY_BASE64: &str = "Y2FuYXJ5LTA4MTUtaHVudGVyMg==";

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Files below `dir` that hold `text`.
fn holders(dir: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holders(&path, text));
        } else if path.is_file() {
            // One that a snapshot replaced meanwhile is gone.
            let content = fs::read(&path).unwrap_or_default();
            if content.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path);
            }
        }
    }
    found
}

#[track_caller]
fn check_no_value(dir: &Path) {
    for text in [CANARY, CANARY_BASE64] {
        assert_eq!(holders(dir, text), [] as [PathBuf; 0], "{text}");
    }
}

async fn create(server: &TestServer, name: &str) {
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"{name}"}},"stringData":{{"k":"{CANARY}"}}}}"#
    );
    server.send("admin", "POST", SECRETS, &body).await.created();
}

async fn value(server: &TestServer, name: &str) -> String {
    let reply = server.send("admin", "GET", &format!("{SECRETS}/{name}"), "").await;
    reply.json()["data"]["k"].as_str().unwrap_or_default().to_owned()
}

/// Stops a server and says why another one does not start in its place.
async fn refusal(server: TestServer, change: impl FnOnce(&TempDir, &mut Config)) -> String {
    let TestServer { dir, server, .. } = server;
    server.stop().await;
    let mut config = config(dir.path());
    change(&dir, &mut config);
    let refused = Server::start(config).await.err().expect("it must not start");
    Chain(&refused).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_of_the_state_directory_holds_the_value_of_a_secret() {
    let server = TestServer::start().await;
    create(&server, "a").await;
    assert_eq!(value(&server, "a").await, CANARY_BASE64);
    check_no_value(server.dir.path());
    let server = server.restart().await;
    assert_eq!(value(&server, "a").await, CANARY_BASE64);
    check_no_value(server.dir.path());
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"canary-0815-hunter2"}}"#;
    let maps = SECRETS.replace("secrets", "configmaps");
    server.send("admin", "POST", &maps, body).await.created();
    assert_eq!(holders(server.dir.path(), CANARY).len(), 1, "the search finds what is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_from_before_encryption_are_encrypted_when_it_begins() {
    let off = |config: &mut Config| config.encryption.resources.clear();
    let server = TestServer::start_with(off).await;
    create(&server, "a").await;
    assert_eq!(holders(server.dir.path(), CANARY_BASE64).len(), 1);
    assert!(!server.dir.path().join("encryption").exists());
    let server = server.restart().await;
    while !holders(&server.dir.path().join("store"), CANARY_BASE64).is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    check_no_value(server.dir.path());
    assert_eq!(value(&server, "a").await, CANARY_BASE64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_takes_a_new_key_and_encrypts_everything_under_it() {
    let server = TestServer::start().await;
    create(&server, "a").await;
    let dir = server.dir.path();
    let keys = StoreKeys::new(dir, StoreConfig::Embedded, Encryption::default()).unwrap();
    let old = keys.ids().unwrap().remove(0);
    let store = dir.join("store");
    assert!(!holders(&store, &old).is_empty());
    let new = keys.add("2026-11-17T10:00:00Z".parse().unwrap()).unwrap();
    while holders(&store, &new).is_empty() || !holders(&store, &old).is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(value(&server, "a").await, CANARY_BASE64);
    check_no_value(dir);
    assert!(keys.prune().await.is_err(), "the store is in use");
    let TestServer { dir, server, .. } = server;
    server.stop().await;
    assert_eq!(keys.prune().await.unwrap(), [old]);
    let (uses, plain) = keys.uses().await.unwrap();
    assert_eq!((uses.len(), uses[0].id.as_str(), plain), (1, new.as_str(), 0));
    assert!(uses[0].values >= 1 && uses[0].in_file);
    let server = TestServer::start_in(dir).await;
    assert_eq!(value(&server, "a").await, CANARY_BASE64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_its_keys_does_not_start_and_says_why() {
    let server = TestServer::start().await;
    create(&server, "a").await;
    let told = refusal(server, |dir, _| {
        fs::remove_file(dir.path().join("encryption/keys")).unwrap();
    })
    .await;
    for words in ["encryption/keys is missing", "under the key", "put the file back"] {
        assert!(told.contains(words), "{told}");
    }

    let server = TestServer::start().await;
    create(&server, "a").await;
    let told = refusal(server, |dir, _| {
        let path = dir.path().join("encryption/keys");
        let text = fs::read_to_string(&path).unwrap();
        let id = text.lines().last().unwrap().split_once(' ').unwrap().0.to_owned();
        fs::write(path, format!("{id} AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=")).unwrap();
    })
    .await;
    for words in ["encryption/keys", "/registry/core/secrets/default/a", "does not open"] {
        assert!(told.contains(words), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_encrypted_must_be_known_and_the_keys_elsewhere() {
    let server = TestServer::start().await;
    let told = refusal(server, |_, config| config.encryption.resources.push("secret".into())).await;
    assert!(told.contains("no resource \"secret\" is stored"), "{told}");
    let server = TestServer::start().await;
    let told = refusal(server, |dir, config| {
        config.encryption.key_file = Some(dir.path().join("store/keys"));
    })
    .await;
    assert!(told.contains("lies in the directory of the store"), "{told}");
}

/// Keys that are taken away while the server runs are not forgotten, and nothing is written plain.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_keeps_its_keys_when_the_file_is_gone() {
    let server = TestServer::start().await;
    let path = server.dir.path().join("encryption/keys");
    fs::rename(&path, path.with_extension("away")).unwrap();
    let failing = async || {
        let metrics = server.send("admin", "GET", "/metrics", "").await;
        String::from_utf8_lossy(&metrics.body).contains("\nwaybill_store_keys_failing 1")
    };
    while !failing().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    create(&server, "a").await;
    check_no_value(server.dir.path());
    fs::rename(path.with_extension("away"), &path).unwrap();
    while failing().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(value(&server, "a").await, CANARY_BASE64);
}
