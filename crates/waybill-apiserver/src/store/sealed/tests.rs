//! What a sealed store keeps from the store below it, and from who holds its files.

use std::{fs, io::ErrorKind, path::Path};

use waybill_core::{chain::Chain, secret::SecretBytes};

use super::*;
use crate::store::{Embedded, Expected, Settings};

/// In no file, whatever happens.
const CANARY: &str = "canary-4711-hunter2";

const OLD: &str = "old AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const BOTH: &str = "new AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\n\
                    old AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const NEW: &str = "new AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
const WRONG: &str = "old AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=";

fn ring(text: &str) -> KeyRing {
    KeyRing::parse(&SecretBytes::copy_of(text.as_bytes())).unwrap()
}

/// A store in which everything is sealed.
pub(crate) fn all_sealed(inner: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(Sealed::new(inner, ring(OLD), vec![String::new()]))
}

fn small(path: &Path) -> Arc<dyn Store> {
    let settings = Settings { snapshot_bytes: 20_000, ..Settings::default() };
    Arc::new(Embedded::open(path, settings).unwrap())
}

fn open(path: &Path, keys: &str) -> Sealed {
    Sealed::new(small(path), ring(keys), vec!["/secrets/".into()])
}

async fn put(store: &dyn Store, key: &str, expected: Expected, value: &str) -> ResourceVersion {
    let value = Some(Bytes::copy_from_slice(value.as_bytes()));
    store.write(Write { key: key.into(), expected, value }).await.unwrap()
}

async fn create(store: &dyn Store, key: &str, value: &str) -> ResourceVersion {
    put(store, key, Expected::Absent, value).await
}

/// Which files below `dir` hold `canary`.
fn holders(dir: &Path, canary: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let content = match fs::read(&path) {
            // A snapshot got its name, or what it replaces went: the list is old.
            Err(error) if error.kind() == ErrorKind::NotFound => return holders(dir, canary),
            content => content.unwrap(),
        };
        if content.windows(canary.len()).any(|window| window == canary.as_bytes()) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_of_the_store_holds_a_value() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OLD);
    for at in 0..200 {
        let key = format!("/secrets/{at}");
        let created = create(&store, &key, &format!("{CANARY} {}", "x".repeat(500))).await;
        let written = put(&store, &key, Expected::At(created), CANARY).await;
        if at % 2 == 0 {
            let delete = Write { key, expected: Expected::At(written), value: None };
            store.write(delete).await.unwrap();
        }
    }
    assert_eq!(holders(dir.path(), CANARY), [] as [String; 0], "while it runs");
    drop(store);
    assert_eq!(holders(dir.path(), CANARY), [] as [String; 0], "when it ended");
    let store = open(dir.path(), OLD);
    let objects = store.list("/secrets/").await.unwrap().objects;
    assert_eq!(objects.len(), 100);
    assert!(objects.iter().all(|object| object.value == CANARY));
    // The search does find what is there.
    create(&store, "/configmaps/a", CANARY).await;
    assert_eq!(holders(dir.path(), CANARY).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_values_are_read_and_then_sealed_without_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let plain = small(dir.path());
    create(&*plain, "/secrets/a", CANARY).await;
    create(&*plain, "/secrets/b", CANARY).await;
    drop(plain);
    assert_eq!(holders(dir.path(), CANARY).len(), 1);
    let store = open(dir.path(), OLD);
    let before = store.list("").await.unwrap();
    assert!(before.objects.iter().all(|object| object.value == CANARY));
    assert_eq!(store.forms().await.unwrap().plain, 2);
    assert_eq!(store.rewrite().await.unwrap(), 2);
    assert_eq!((store.rewrite().await.unwrap(), store.to_rewrite.get()), (0, 0));
    let after = store.list("").await.unwrap();
    assert!(after.objects.iter().all(|object| object.value == CANARY));
    assert!(after.revision > before.revision);
    assert_eq!(holders(dir.path(), CANARY), [] as [String; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_replaced_while_the_store_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OLD);
    create(&store, "/secrets/a", CANARY).await;
    let refused = store.set_keys(ring(NEW)).await.unwrap_err();
    let told = Chain(&refused).to_string();
    assert!(told.contains("/secrets/a") && told.contains("under the key old"), "{told}");
    store.set_keys(ring(BOTH)).await.unwrap();
    create(&store, "/secrets/b", CANARY).await;
    let forms = store.forms().await.unwrap();
    assert_eq!((forms.under["old"].values, forms.under["new"].values), (1, 1));
    let mut watch = store.watch("", 0.into()).await.unwrap();
    assert_eq!(store.rewrite().await.unwrap(), 1);
    store.set_keys(ring(NEW)).await.unwrap();
    for _ in 0..2 {
        // Older events are still under the old key: who reads them now is told, and lists again.
        let event = watch.next().await.unwrap();
        match event {
            Ok(Event::Change(change)) => assert_eq!(change.value.unwrap(), CANARY),
            other => assert!(other.is_err()),
        }
    }
    drop(store);
    let objects = open(dir.path(), NEW).list("").await.unwrap().objects;
    assert!(objects.iter().all(|object| object.value == CANARY));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_wrong_key_is_an_error_and_never_an_empty_list() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OLD);
    create(&store, "/secrets/a", CANARY).await;
    drop(store);
    for (keys, words) in [(NEW, "under the key old, which is not there"), (WRONG, "does not open")]
    {
        let store = open(dir.path(), keys);
        let told = Chain(&store.list("").await.unwrap_err()).to_string();
        assert!(told.contains("/secrets/a") && told.contains(words), "{told}");
        assert!(store.get("/secrets/a").await.is_err());
        let mut watch = store.watch("", 0.into()).await.unwrap();
        assert!(watch.next().await.unwrap().is_err());
        let value = Some(Bytes::from_static(b"other"));
        let write = Write { key: "/secrets/a".into(), expected: Expected::Absent, value };
        assert!(matches!(store.write(write).await, Err(WriteError::Store(_))));
    }
}

/// Who can write to the store but has no key cannot make a Secret of theirs out of another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_moved_in_the_store_does_not_open() {
    let dir = tempfile::tempdir().unwrap();
    let below = small(dir.path());
    let store = Sealed::new(Arc::clone(&below), ring(OLD), vec!["/secrets/".into()]);
    create(&store, "/secrets/theirs", CANARY).await;
    let value = below.get("/secrets/theirs").await.unwrap().unwrap().value;
    let write =
        Write { key: "/secrets/mine".into(), expected: Expected::Absent, value: Some(value) };
    below.write(write).await.unwrap();
    let refused = Chain(&store.get("/secrets/mine").await.unwrap_err()).to_string();
    assert!(refused.contains("changed or moved"), "{refused}");
}

/// A store without keys must not write what is to be sealed.
#[tokio::test]
async fn nothing_is_written_plain_for_want_of_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sealed::new(small(dir.path()), KeyRing::default(), vec!["/secrets/".into()]);
    let value = Some(Bytes::from_static(b"x"));
    let write = Write { key: "/secrets/a".into(), expected: Expected::Absent, value };
    assert!(matches!(store.write(write).await, Err(WriteError::Store(StoreError::Sealing))));
    assert_eq!(store.list("").await.unwrap().objects, []);
}

/// What is no longer named is written as it is, and read as it was.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_longer_to_be_sealed_is_written_plain() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), OLD);
    create(&store, "/secrets/a", CANARY).await;
    drop(store);
    let store = Sealed::new(small(dir.path()), ring(OLD), Vec::new());
    assert_eq!(store.rewrite().await.unwrap(), 1);
    assert!(store.forms().await.unwrap().under.is_empty());
    assert_eq!(store.get("/secrets/a").await.unwrap().unwrap().value, CANARY);
}
