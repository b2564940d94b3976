//! The keys of all replicas, published where agents read them.
//!
//! Each replica makes its own key in memory and writes the public half into the ConfigMap `waybill-gate-keys`, under the key's name
//! and with the time until which it counts. It writes that anew every minute; the key of a replica that is gone counts on until its
//! time is over, which is longer than its last token. A new key signs only when it has been there for a while, so that
//! agents know it first.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::{sleep, timeout};
use waybill_api::stock::{KeySet, PublicKey, STOCK_SECONDS};
use waybill_core::chain::Chain;

use super::{
    Clock,
    signer::{Signer, SignerError},
};

/// The ConfigMap.
pub(super) const CONFIG_MAP: &str = "waybill-gate-keys";

/// How long an entry counts that is not written anew, in seconds.
const ENTRY_SECONDS: i64 = 600;

/// How often ours is written anew.
const REFRESH: Duration = Duration::from_secs(60);

/// How long the API server may take for one write.
const LIMIT: Duration = Duration::from_secs(10);

/// After a write that failed.
const RETRY: Duration = Duration::from_secs(3);

/// How old a key gets, in seconds.
const KEY_SECONDS: i64 = 24 * 60 * 60;

/// The keys of this replica.
pub(super) struct Keys {
    api: Api<ConfigMap>,
    clock: Clock,
    /// How long a key is published before it signs: the time in which agents learn of it.
    lead: Duration,
    state: Mutex<State>,
}

struct State {
    /// What signs; `None` until it is published for long enough.
    signer: Option<Arc<Signer>>,
    /// When the key was made.
    made: i64,
    /// Until when agents believe it.
    until: i64,
    fault: String,
    /// What was last read of all replicas, and when.
    known: Option<(i64, KeySet)>,
}

/// What the ConfigMap says of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// Seconds since 1970.
    until: i64,
    key: PublicKey,
}

impl Keys {
    pub(super) fn new(client: Client, namespace: &str, lead: Duration, clock: Clock) -> Self {
        let state = State {
            signer: None,
            made: 0,
            until: 0,
            fault: "its key has not been published yet".to_owned(),
            known: None,
        };
        Self { api: Api::namespaced(client, namespace), clock, lead, state: Mutex::new(state) }
    }

    /// What signs a token now, so that nodes believe it until it is over.
    pub(super) fn signer(&self) -> Result<Arc<Signer>, String> {
        let state = self.lock();
        let lasts = state.until > (self.clock)().saturating_add(STOCK_SECONDS);
        state.signer.clone().filter(|_| lasts).ok_or_else(|| state.fault.clone())
    }

    /// Why nothing can be signed; `None` if it can.
    pub(super) fn fault(&self) -> Option<String> {
        self.signer().err()
    }

    /// Makes, publishes and renews keys, for ever.
    pub(super) async fn keep(&self) {
        loop {
            let wait = match self.turn().await {
                Ok(()) => REFRESH,
                Err(error) => {
                    let fault = format!("its key cannot be published: {}", Chain(&error));
                    tracing::warn!(error = %Chain(&error), "the key of this gate cannot be published");
                    self.lock().fault = fault;
                    RETRY
                }
            };
            sleep(wait).await;
        }
    }

    async fn turn(&self) -> Result<(), KeysError> {
        let (signer, made) = {
            let state = self.lock();
            (state.signer.clone(), state.made)
        };
        let now = (self.clock)();
        match signer.filter(|_| now.saturating_sub(made) < KEY_SECONDS) {
            Some(signer) => {
                let until = self.publish(signer.public()).await?;
                self.lock().until = until;
            }
            None => {
                let signer = Signer::generate().map_err(KeysError::Signer)?;
                let until = self.publish(signer.public()).await?;
                sleep(self.lead).await;
                let mut state = self.lock();
                state.signer = Some(Arc::new(signer));
                (state.made, state.until) = (now, until);
                state.known = None;
            }
        }
        Ok(())
    }

    /// Writes one key, and removes those that are over. Returns until when it counts.
    async fn publish(&self, key: &PublicKey) -> Result<i64, KeysError> {
        let now = (self.clock)();
        let entry = Entry { until: now.saturating_add(ENTRY_SECONDS), key: key.clone() };
        let written = async {
            let Some(found) = self.api.get_opt(CONFIG_MAP).await? else {
                let mut fresh = ConfigMap::default();
                fresh.metadata.name = Some(CONFIG_MAP.to_owned());
                fresh.data = Some([(key.kid.clone(), entry.text())].into());
                return self.api.create(&PostParams::default(), &fresh).await.map(drop);
            };
            // Only entries that we name are touched, so replicas do not disturb one another.
            let patch = change(&found.data.unwrap_or_default(), key, &entry, now);
            self.api
                .patch(CONFIG_MAP, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .map(drop)
        };
        let written = timeout(LIMIT, written).await.map_err(|_| KeysError::Slow)?;
        written.map_err(|source| KeysError::Write(Box::new(source)))?;
        Ok(entry.until)
    }

    /// The keys of all replicas, as of a moment ago.
    pub(super) async fn all(&self) -> Result<KeySet, KeysError> {
        let now = (self.clock)();
        if let Some((read, keys)) = &self.lock().known
            && *read == now
        {
            return Ok(keys.clone());
        }
        let found = timeout(LIMIT, self.api.get_opt(CONFIG_MAP)).await;
        let found = found.map_err(|_| KeysError::Slow)?;
        let found = found.map_err(|source| KeysError::Write(Box::new(source)))?;
        let data = found.and_then(|found| found.data).unwrap_or_default();
        let keys = KeySet { keys: live(&data, now) };
        self.lock().known = Some((now, keys.clone()));
        Ok(keys)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Why the keys are not where they should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeysError {
    #[error("no key")]
    Signer(#[source] SignerError),
    #[error("the API server did not answer")]
    Slow,
    #[error("the API server refused it")]
    Write(#[source] Box<kube::Error>),
}

/// The change of the ConfigMap: our entry, and no entry that is over.
fn change(data: &BTreeMap<String, String>, key: &PublicKey, entry: &Entry, now: i64) -> Value {
    let mut changed = Map::new();
    let is_over = |text: &str| {
        // What is not understood may be newer than we are.
        serde_json::from_str::<Entry>(text).is_ok_and(|entry| entry.until <= now)
    };
    for (name, _) in data.iter().filter(|(_, text)| is_over(text)) {
        changed.insert(name.clone(), Value::Null);
    }
    changed.insert(key.kid.clone(), entry.text().into());
    json!({"data": changed})
}

/// The keys that count.
fn live(data: &BTreeMap<String, String>, now: i64) -> Vec<PublicKey> {
    let entries = data.iter().filter_map(|(name, text)| {
        let entry: Entry = serde_json::from_str(text).ok()?;
        (entry.until > now && entry.key.kid == *name).then_some(entry.key)
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> PublicKey {
        PublicKey::es256(name, &[1; 32], &[2; 32])
    }

    fn entry(name: &str, until: i64) -> (String, String) {
        (name.to_owned(), Entry { until, key: key(name) }.text())
    }

    #[test]
    fn keys_count_until_their_time_is_over() {
        let mut data: BTreeMap<_, _> = [entry("a", 100), entry("b", 101)].into();
        data.insert("c".to_owned(), "not ours".to_owned());
        data.insert("d".to_owned(), entry("other", 200).1);
        let names =
            |now| -> Vec<String> { live(&data, now).into_iter().map(|key| key.kid).collect() };
        assert_eq!(names(99), ["a", "b"]);
        assert_eq!(names(100), ["b"]);
        assert!(names(101).is_empty());
    }

    #[test]
    fn a_replica_writes_its_own_key_and_clears_away_what_is_over() {
        let mut data: BTreeMap<_, _> = [entry("dead", 50), entry("other", 500)].into();
        data.insert("newer".to_owned(), "{\"version\":9}".to_owned());
        let ours = Entry { until: 700, key: key("own") };
        assert_eq!(
            change(&data, &key("own"), &ours, 100),
            json!({"data": {"dead": null, "own": ours.text()}})
        );
    }

    /// A dead replica's key must outlive its last token, and one that cannot write must stop before its key is forgotten.
    #[test]
    fn entries_outlive_tokens() {
        const { assert!(ENTRY_SECONDS > 2 * STOCK_SECONDS + 2 * 60) }
    }
}
