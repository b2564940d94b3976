//! What writers were told, so that it can be compared with what is there.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use serde_json::Value;

/// Shared by all writers.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<BTreeMap<String, Entry>>>);

/// One object.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Its resourceVersion after the last acknowledged write; `None` if that deleted it, or if there
    /// was none.
    acknowledged: Option<u64>,
    /// A write was asked for and not answered: it may have happened or not.
    asked: bool,
}

impl Ledger {
    /// Before a write is sent.
    pub(crate) fn ask(&self, name: &str) {
        self.entries().entry(name.to_owned()).or_default().asked = true;
    }

    /// After its answer: the version written, or `None` if it deleted.
    pub(crate) fn acknowledge(&self, name: &str, version: Option<u64>) {
        self.entries().insert(name.to_owned(), Entry { acknowledged: version, asked: false });
    }

    pub(crate) fn newest(&self) -> u64 {
        let entries = self.entries();
        entries.values().filter_map(|entry| entry.acknowledged).max().unwrap_or(0)
    }

    /// Compares with a list of the server. What was not answered is taken as it is found, as long as
    /// it is no older than what was acknowledged before.
    pub(crate) fn check(&self, list: &Value) {
        let found: BTreeMap<&str, u64> = list["items"]
            .as_array()
            .expect("a list has items")
            .iter()
            .map(|item| (item["metadata"]["name"].as_str().expect("a name"), version(item)))
            .collect();
        let mut entries = self.entries();
        for name in found.keys() {
            assert!(entries.contains_key(*name), "{name} was never asked for");
        }
        for (name, entry) in entries.iter_mut() {
            let there = found.get(&**name).copied();
            match (entry.asked, there) {
                (true, Some(there)) => {
                    let before = entry.acknowledged.unwrap_or(0);
                    assert!(there >= before, "{name} went back from {before} to {there}");
                }
                (true, None) => {}
                (false, there) => {
                    assert_eq!(there, entry.acknowledged, "{name} is not as it was acknowledged");
                }
            }
            *entry = Entry { acknowledged: there, asked: false };
        }
    }

    /// Every object whose last acknowledged write came after `version`.
    pub(crate) fn written_after(&self, version: u64) -> BTreeMap<String, u64> {
        let entries = self.entries();
        let written = |(name, entry): (&String, &Entry)| Some((name.clone(), entry.acknowledged?));
        entries.iter().filter_map(written).filter(|(_, written)| *written > version).collect()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.0.lock().expect("no writer has panicked")
    }
}

/// Of an object or a list.
pub(crate) fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok()).expect("a resourceVersion is a number")
}
