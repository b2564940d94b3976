//! The keys of all replicas, published where agents read them.
//!
//! Each replica makes its own key in memory and writes the public half into the ConfigMap `waybill-gate-keys`, under the key's name
//! and with the time until which it counts. It writes that anew every minute; the key of a replica that is gone counts on until its
//! time is over, which is longer than its last token. A new key signs only when it has been there for a while, so that
//! agents know it first.

use std::{
    collections::{BTreeMap, BTreeSet},
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

/// A replica that has not written its entry anew for so long is gone, in seconds.
const GONE_SECONDS: i64 = 150;

/// How old may be what is known about the places of replicas, in seconds.
const ADDRESS_SECONDS: i64 = 5;

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
    /// Where other replicas find this one, until it leaves.
    address: Mutex<Option<String>>,
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
    known: Option<(i64, Published)>,
}

/// What all replicas publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Published {
    keys: KeySet,
    /// Where replicas are, each once.
    addresses: BTreeSet<String>,
}

/// What the ConfigMap says of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// Seconds since 1970.
    until: i64,
    key: PublicKey,
    /// Where the replica is, for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

impl Keys {
    pub(super) fn new(
        client: Client,
        namespace: &str,
        address: Option<String>,
        lead: Duration,
        clock: Clock,
    ) -> Self {
        let state = State {
            signer: None,
            made: 0,
            until: 0,
            fault: "its key has not been published yet".to_owned(),
            known: None,
        };
        let (api, state) = (Api::namespaced(client, namespace), Mutex::new(state));
        Self { api, clock, lead, address: Mutex::new(address), state }
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

    /// Says that this replica is not to be asked any more. Its key counts on, for what it has signed.
    pub(super) async fn leave(&self) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let signer = self.lock().signer.clone();
        if let Some(signer) = signer
            && let Err(error) = self.publish(signer.public()).await
        {
            tracing::warn!(error = %Chain(&error), "other gates will look for this one for a while");
        }
    }

    /// Writes one key, and removes those that are over. Returns until when it counts.
    async fn publish(&self, key: &PublicKey) -> Result<i64, KeysError> {
        let now = (self.clock)();
        let until = now.saturating_add(ENTRY_SECONDS);
        let address = self.address.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let entry = Entry { until, key: key.clone(), address };
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
        Ok(self.published(0).await?.keys)
    }

    /// The same, if `kid` is among those that were known some seconds ago.
    pub(super) async fn with(&self, kid: &str) -> Result<KeySet, KeysError> {
        let keys = self.published(ADDRESS_SECONDS).await?.keys;
        if keys.find(kid).is_some() { Ok(keys) } else { self.all().await }
    }

    /// Where replicas are, as of some seconds ago; those that ended lately among them.
    pub(super) async fn addresses(&self) -> Result<BTreeSet<String>, KeysError> {
        Ok(self.published(ADDRESS_SECONDS).await?.addresses)
    }

    async fn published(&self, most_seconds: i64) -> Result<Published, KeysError> {
        let now = (self.clock)();
        if let Some((read, published)) = &self.lock().known
            && (0..=most_seconds).contains(&now.saturating_sub(*read))
        {
            return Ok(published.clone());
        }
        let found = timeout(LIMIT, self.api.get_opt(CONFIG_MAP)).await;
        let found = found.map_err(|_| KeysError::Slow)?;
        let found = found.map_err(|source| KeysError::Write(Box::new(source)))?;
        let published = live(&found.and_then(|found| found.data).unwrap_or_default(), now);
        self.lock().known = Some((now, published.clone()));
        Ok(published)
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

/// The keys that count, and where those are who wrote anew what they publish.
fn live(data: &BTreeMap<String, String>, now: i64) -> Published {
    let mut published = Published::default();
    for (name, text) in data {
        let Ok(Entry { until, key, address }) = serde_json::from_str(text) else { continue };
        if until <= now || key.kid != *name {
            continue;
        }
        published.keys.keys.push(key);
        let is_there = until.saturating_sub(now) > ENTRY_SECONDS - GONE_SECONDS;
        published.addresses.extend(address.filter(|_| is_there));
    }
    published
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> PublicKey {
        PublicKey::es256(name, &[1; 32], &[2; 32])
    }

    fn entry(name: &str, until: i64) -> (String, String) {
        (name.to_owned(), Entry { until, key: key(name), address: None }.text())
    }

    #[test]
    fn keys_count_until_their_time_is_over() {
        let mut data: BTreeMap<_, _> = [entry("a", 100), entry("b", 101)].into();
        data.insert("c".to_owned(), "not ours".to_owned());
        data.insert("d".to_owned(), entry("other", 200).1);
        let names = |now| -> Vec<String> {
            live(&data, now).keys.keys.into_iter().map(|key| key.kid).collect()
        };
        assert_eq!(names(99), ["a", "b"]);
        assert_eq!(names(100), ["b"]);
        assert!(names(101).is_empty());
    }

    #[test]
    fn a_replica_writes_its_own_key_and_clears_away_what_is_over() {
        let mut data: BTreeMap<_, _> = [entry("dead", 50), entry("other", 500)].into();
        data.insert("newer".to_owned(), "{\"version\":9}".to_owned());
        let ours = Entry { until: 700, key: key("own"), address: Some("10.0.0.1:1".to_owned()) };
        assert_eq!(
            change(&data, &key("own"), &ours, 100),
            json!({"data": {"dead": null, "own": ours.text()}})
        );
    }

    /// Whoever wants records would wait for it each time.
    #[test]
    fn a_replica_that_is_gone_is_not_asked() {
        let at = |name: &str, until: i64| {
            let address = Some(format!("{name}:8443"));
            (name.to_owned(), Entry { until, key: key(name), address }.text())
        };
        let data: BTreeMap<_, _> = [at("a", 1_000), at("b", 600), entry("c", 1_000)].into();
        let found = live(&data, 401);
        assert_eq!(found.keys.keys.len(), 3, "its key counts");
        assert_eq!(found.addresses, BTreeSet::from(["a:8443".to_owned()]));
    }

    /// A dead replica's key must outlive its last token, and one that cannot write must stop before its key is forgotten.
    #[test]
    fn entries_outlive_tokens() {
        const { assert!(ENTRY_SECONDS > 2 * STOCK_SECONDS + 2 * 60) }
    }
}
