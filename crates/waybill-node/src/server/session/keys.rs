//! The keys with which the API server signs sessions, asked for at the start and when something
//! does not fit what is known of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError},
};

use http::Request;
use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::{
    DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet},
};
use kube::Client;
use serde::Deserialize;
use tokio::{sync::Mutex, time::timeout};
use waybill_api::exec::{SESSION_KEYS_PATH, SessionKind};

use crate::{Clock, server::authn::REVIEW_LIMIT};

/// How old an answer may be that decides against a session, or for one without token. So a change at
/// the API server is noticed soon, and nobody can make the node ask more often than this.
const RECENT: SignedDuration = SignedDuration::from_secs(10);

/// The same if there was no answer.
const RETRY: SignedDuration = SignedDuration::from_secs(1);

/// What the API server signs sessions with.
pub(super) struct KeySet {
    /// By their names.
    pub(super) verifying: HashMap<String, DecodingKey>,
    kinds: Vec<String>,
}

impl KeySet {
    /// Whether it signs sessions of this kind.
    pub(super) fn signs(&self, kind: SessionKind) -> bool {
        self.kinds.iter().any(|signed| signed == kind.name())
    }
}

/// What the API server says of its keys.
#[derive(Clone)]
pub(super) enum Published {
    Keys(Arc<KeySet>),
    /// It signs no sessions.
    Nothing,
    /// It could not be asked.
    Unknown(Arc<str>),
}

/// Asks for keys, and remembers them.
pub(super) struct Keys {
    client: Client,
    clock: Clock,
    known: StdMutex<Option<(Timestamp, Published)>>,
    /// Held by whoever asks; the others wait for the answer.
    asking: Mutex<()>,
}

impl Keys {
    pub(super) fn new(client: Client, clock: Clock) -> Self {
        Self { client, clock, known: StdMutex::default(), asking: Mutex::default() }
    }

    /// A key that is known already.
    pub(super) fn find(&self, id: &str) -> Option<DecodingKey> {
        match &*self.known() {
            Some((_, Published::Keys(keys))) => keys.verifying.get(id).cloned(),
            _ => None,
        }
    }

    /// What the API server says now, or said a moment ago.
    pub(super) async fn recent(&self) -> Published {
        if let Some(known) = self.fresh() {
            return known;
        }
        let _asking = self.asking.lock().await;
        if let Some(known) = self.fresh() {
            return known;
        }
        let said = self.ask().await;
        self.remember(said)
    }

    fn fresh(&self) -> Option<Published> {
        let known = self.known();
        let (at, published) = known.as_ref()?;
        let lifetime = match published {
            Published::Keys(_) | Published::Nothing => RECENT,
            Published::Unknown(_) => RETRY,
        };
        let age = (self.clock)().duration_since(*at);
        // A clock that was put back makes nothing younger.
        (SignedDuration::ZERO..lifetime).contains(&age).then(|| published.clone())
    }

    fn remember(&self, said: Published) -> Published {
        let mut known = self.known();
        let published = match (said, known.take()) {
            // Sessions with keys that were good go on while the API server does not answer.
            (Published::Unknown(fault), Some((_, Published::Keys(keys)))) => {
                tracing::warn!(%fault, "the keys of sessions cannot be asked for again");
                Published::Keys(keys)
            }
            (said, before) => {
                told(before.map(|(_, before)| before).as_ref(), &said);
                said
            }
        };
        *known = Some(((self.clock)(), published.clone()));
        published
    }

    async fn ask(&self) -> Published {
        let request = match Request::get(SESSION_KEYS_PATH).body(Vec::new()) {
            Ok(request) => request,
            Err(error) => return Published::Unknown(error.to_string().into()),
        };
        match timeout(REVIEW_LIMIT, self.client.request_text(request)).await {
            Ok(Ok(text)) => read(&text),
            // A server that does not know the path refuses it or does not find it, depending on what
            // nodes may read. Ours refuses it to no node.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 403 | 404) => {
                Published::Nothing
            }
            Ok(Err(error)) => Published::Unknown(error.to_string().into()),
            Err(_) => Published::Unknown("it did not answer in time".into()),
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<(Timestamp, Published)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a JSON Web Key Set. Keys of other kinds than ours are left out.
fn read(text: &str) -> Published {
    let set = serde_json::from_str::<JwkSet>(text);
    let (Ok(set), Ok(Said { kinds })) = (set, serde_json::from_str(text)) else {
        return Published::Unknown("its answer is no set of keys".into());
    };
    let verifying = set.keys.iter().filter_map(key).collect();
    Published::Keys(Arc::new(KeySet { verifying, kinds }))
}

/// What stands beside the keys.
#[derive(Deserialize)]
struct Said {
    /// [`SESSION_KINDS_MEMBER`](waybill_api::exec::SESSION_KINDS_MEMBER)
    #[serde(rename = "sessions", default = "exec_alone")]
    kinds: Vec<String>,
}

/// What API servers sign that do not say it.
fn exec_alone() -> Vec<String> {
    vec![SessionKind::Exec.name().to_owned()]
}

fn key(jwk: &Jwk) -> Option<(String, DecodingKey)> {
    match &jwk.algorithm {
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            Some((jwk.common.key_id.clone()?, DecodingKey::from_jwk(jwk).ok()?))
        }
        _ => None,
    }
}

/// Administrators read in the log which sessions are served.
fn told(before: Option<&Published>, now: &Published) {
    match (before, now) {
        (Some(Published::Keys(_)), Published::Keys(_))
        | (Some(Published::Nothing), Published::Nothing) => {}
        (_, Published::Keys(keys)) => {
            let (count, kinds) = (keys.verifying.len(), keys.kinds.join(","));
            tracing::info!(keys = count, kinds, "the API server signs sessions");
        }
        (_, Published::Nothing) => tracing::info!("the API server signs no sessions"),
        (_, Published::Unknown(fault)) => {
            tracing::warn!(%fault, "the keys of sessions cannot be asked for");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn names(set: &Value) -> Option<Vec<String>> {
        match read(&set.to_string()) {
            Published::Keys(keys) => {
                let mut names: Vec<_> = keys.verifying.keys().cloned().collect();
                names.sort();
                Some(names)
            }
            Published::Nothing | Published::Unknown(_) => None,
        }
    }

    #[test]
    fn keys_of_our_kind_with_a_name_are_read() {
        let (x, y) = ("A".repeat(43), "A".repeat(43));
        let p256 = |kid: &str| json!({"kty": "EC", "crv": "P-256", "kid": kid, "x": x, "y": y});
        let nameless = json!({"kty": "EC", "crv": "P-256", "x": x, "y": y});
        let p384 = json!({"kty": "EC", "crv": "P-384", "kid": "c", "x": x, "y": y});
        let secret = json!({"kty": "oct", "kid": "d", "k": "AAAA"});
        let set = json!({"keys": [p256("a"), p256("b"), nameless, p384, secret]});
        assert_eq!(names(&set).unwrap(), ["a", "b"]);
        assert_eq!(names(&json!({"keys": []})).unwrap(), [""; 0]);
        let unreadable = json!({"keys": [], "sessions": "attach"});
        for rubbish in [json!({}), json!([]), json!("keys"), json!({"keys": 1}), unreadable] {
            assert_eq!(names(&rubbish), None, "{rubbish}");
        }
    }

    #[test]
    fn which_kinds_are_signed_stands_beside_the_keys() {
        let signs = |set: &Value| match read(&set.to_string()) {
            Published::Keys(keys) => SessionKind::ALL.map(|kind| keys.signs(kind)),
            Published::Nothing | Published::Unknown(_) => [false; 2],
        };
        assert_eq!(signs(&json!({"keys": [], "sessions": ["exec", "attach", "x"]})), [true, true]);
        assert_eq!(signs(&json!({"keys": []})), [true, false]);
    }
}
