//! Numbers, for a person to read:
//! `cargo test --release -p waybill-apiserver --lib store::measure -- --ignored --nocapture`.

use std::{path::Path, sync::Arc, time::Instant};

use bytes::Bytes;
use futures_util::future::join_all;

use super::{
    Expected, Store, Write,
    embedded::{Embedded, Settings},
    etcd,
};

const CLIENTS: u32 = 16;
const ROUNDS: u32 = 1000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a while and checks nothing"]
async fn durable_creates() {
    for _ in 0..3 {
        let directory = tempfile::tempdir().unwrap();
        let started = Instant::now();
        let store = open(directory.path());
        println!("embedded: open of an empty store {:?}", started.elapsed());
        println!("embedded: {:.0} creates/s", creates_per_second(Arc::new(store)).await);
        if let Some((etcd, _server)) = etcd::open_for_tests().await {
            println!("etcd: {:.0} creates/s", creates_per_second(Arc::new(etcd)).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a while and checks nothing"]
async fn opening_20_000_objects() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    for round in 0..80 {
        let writes = (0..250).map(|at| store.write(create(format!("/{round}/{at}"), 4096)));
        assert!(join_all(writes).await.iter().all(Result::is_ok));
    }
    drop(store);
    for _ in 0..3 {
        let started = Instant::now();
        let store = open(directory.path());
        let opened = started.elapsed();
        let started = Instant::now();
        let objects = store.list("").await.unwrap().objects.len();
        println!("embedded: open of {objects} objects {opened:?}, list {:?}", started.elapsed());
    }
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        println!("{} {}", entry.path().display(), entry.metadata().unwrap().len());
    }
}

async fn creates_per_second(store: Arc<dyn Store>) -> f64 {
    let started = Instant::now();
    let client = async |client: u32| {
        for at in 0..ROUNDS {
            store.write(create(format!("/{client}/{at}"), 1024)).await.unwrap();
        }
    };
    join_all((0..CLIENTS).map(client)).await;
    f64::from(CLIENTS * ROUNDS) / started.elapsed().as_secs_f64()
}

fn open(directory: &Path) -> Embedded {
    Embedded::open(directory, Settings::default()).unwrap()
}

fn create(key: String, size: usize) -> Write {
    Write { key, expected: Expected::Absent, value: Some(Bytes::from(vec![b'x'; size])) }
}
