//! Gate's public keys, for the wrapper. A key that gate does not show any more stays for a while: what it signed is good
//! for two minutes, and one replica of several may be asked that does not know another's yet.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use http::Request;
use kube::Client;
use tokio::time::timeout;
use waybill_api::stock::{KeySet, PublicKey, STOCK_GROUP, STOCK_VERSION};

/// How long a key is kept that is not shown any more.
const KEPT: Duration = Duration::from_secs(600);

/// The longest wait for gate.
const LIMIT: Duration = Duration::from_secs(5);

/// Keys that were seen, and when.
#[derive(Debug, Default)]
pub(super) struct SeenKeys {
    seen: BTreeMap<String, (PublicKey, Instant)>,
}

impl SeenKeys {
    /// Takes what gate shows now; returns the set for the wrapper if that is another than before.
    pub(super) fn take(&mut self, shown: KeySet, now: Instant) -> Option<KeySet> {
        let before = self.set();
        for key in shown.keys {
            self.seen.insert(key.kid.clone(), (key, now));
        }
        self.seen.retain(|_, (_, seen)| now.saturating_duration_since(*seen) < KEPT);
        let after = self.set();
        (after != before).then_some(after)
    }

    fn set(&self) -> KeySet {
        KeySet { keys: self.seen.values().map(|(key, _)| key.clone()).collect() }
    }
}

/// Asks gate, by way of the API server.
pub(super) async fn fetch(client: &Client) -> Result<KeySet, String> {
    let path = format!("/apis/{STOCK_GROUP}/{STOCK_VERSION}/keys");
    let request = Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    match timeout(LIMIT, client.request::<KeySet>(request)).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err("gate did not answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(kids: &[&str]) -> KeySet {
        KeySet { keys: kids.iter().map(|kid| PublicKey::es256(kid, &[1; 32], &[2; 32])).collect() }
    }

    #[test]
    fn a_key_that_is_not_shown_any_more_stays_for_a_while() {
        let (mut seen, start) = (SeenKeys::default(), Instant::now());
        assert_eq!(seen.take(set(&["a"]), start), Some(set(&["a"])));
        assert_eq!(seen.take(set(&["a"]), start), None);
        assert_eq!(seen.take(set(&["b"]), start + KEPT / 2), Some(set(&["a", "b"])));
        assert_eq!(seen.take(set(&["b"]), start + KEPT), Some(set(&["b"])));
    }
}
