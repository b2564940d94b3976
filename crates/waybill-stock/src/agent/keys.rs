//! Gate's public keys, for the wrapper: from the ConfigMap in which gates publish them, so that they arrive while no gate
//! answers, too. A key that is taken out there does not count any more.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde::Deserialize;
use tokio::time::timeout;
use waybill_api::stock::{KeySet, PublicKey};

use super::NAMESPACE;

/// Where gates publish: an entry for each key.
const CONFIG_MAP: &str = "waybill-gate-keys";

/// The longest wait for the API server.
const LIMIT: Duration = Duration::from_secs(5);

/// An entry of the ConfigMap.
#[derive(Deserialize)]
struct Published {
    /// Until when it counts, in seconds since 1970.
    until: u64,
    key: PublicKey,
}

/// The keys that count at `now`, in seconds since 1970.
pub(super) async fn fetch(client: &Client, now: u64) -> Result<KeySet, String> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    match timeout(LIMIT, api.get_opt(CONFIG_MAP)).await {
        Ok(Ok(Some(published))) => Ok(read(&published, now)),
        Ok(Ok(None)) => Err("no gate has published any".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the API server did not answer".to_owned()),
    }
}

/// What is not understood does not count.
fn read(published: &ConfigMap, now: u64) -> KeySet {
    let entries = published.data.iter().flatten();
    let keys = entries.filter_map(|(kid, text)| {
        let Published { until, key } = serde_json::from_str(text).ok()?;
        (until > now && key.kid == *kid).then_some(key)
    });
    KeySet { keys: keys.collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_count_until_their_time_and_under_their_names() {
        let key = |kid: &str| PublicKey::es256(kid, &[1; 32], &[2; 32]);
        let entry = |until: u64, kid: &str| json!({"until": until, "key": key(kid)}).to_string();
        let data =
            json!({"a": entry(100, "a"), "b": entry(99, "b"), "c": entry(200, "d"), "e": "?"});
        let map: ConfigMap = serde_json::from_value(json!({"data": data})).unwrap();
        assert_eq!(read(&map, 99).keys, [key("a")]);
        assert_eq!(read(&map, 100).keys, []);
    }
}
