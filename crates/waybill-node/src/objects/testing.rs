//! Objects, pods and a node for tests.

use std::{
    collections::BTreeMap,
    future::ready,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use waybill_core::quantity::Quantity;

use super::{
    Answer, ConfigMap, ObjectError, ObjectKind, ObjectSource, Secret, Token, Wanted, WantedToken,
};
use crate::{
    environment::{ApiEndpoint, NodeFacts},
    pod::{Pod, PodOrigin},
};

/// Objects that a test can change.
#[derive(Default)]
pub(crate) struct FakeObjects {
    config_maps: Mutex<BTreeMap<String, Arc<ConfigMap>>>,
    secrets: Mutex<BTreeMap<String, Arc<Secret>>>,
    /// When tokens are issued; they are good for as long as was asked. None are, without it.
    pub(crate) tokens_from: Mutex<Option<Timestamp>>,
    /// How often anything was asked for.
    pub(crate) asked: AtomicUsize,
}

impl FakeObjects {
    pub(crate) fn with_config_map(self, name: &str, data: &[(&str, &str)]) -> Self {
        self.set_config_map(name, data);
        self
    }

    pub(crate) fn with_secret(self, name: &str, data: &[(&str, &str)]) -> Self {
        self.set_secret(name, data);
        self
    }

    pub(crate) fn set_config_map(&self, name: &str, data: &[(&str, &str)]) {
        let object = ConfigMap { data: content(data), ..ConfigMap::default() };
        self.config_maps.lock().unwrap().insert(name.to_owned(), Arc::new(object));
    }

    pub(crate) fn set_secret(&self, name: &str, data: &[(&str, &str)]) {
        let object = Secret { data: content(data) };
        self.secrets.lock().unwrap().insert(name.to_owned(), Arc::new(object));
    }
}

fn content(data: &[(&str, &str)]) -> BTreeMap<String, waybill_core::secret::SecretBytes> {
    data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec().into())).collect()
}

impl ObjectSource for FakeObjects {
    fn config_map<'a>(&'a self, wanted: Wanted<'a>) -> Answer<'a, Arc<ConfigMap>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let found = self.config_maps.lock().unwrap().get(wanted.name).cloned();
        answer(found, ObjectKind::ConfigMap, wanted.name)
    }

    fn secret<'a>(&'a self, wanted: Wanted<'a>) -> Answer<'a, Arc<Secret>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let found = self.secrets.lock().unwrap().get(wanted.name).cloned();
        answer(found, ObjectKind::Secret, wanted.name)
    }

    fn token<'a>(&'a self, wanted: WantedToken<'a>) -> Answer<'a, Token> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let token = self.tokens_from.lock().unwrap().map(|issued| Token {
            text: format!("token-{number}-{}", wanted.audience).into_bytes().into(),
            expires: issued + SignedDuration::from_secs(wanted.expiration_seconds),
        });
        answer(token, ObjectKind::ServiceAccountToken, wanted.service_account)
    }
}

fn answer<'a, T: Send + 'a>(found: Option<T>, kind: ObjectKind, name: &str) -> Answer<'a, T> {
    let missing = || ObjectError::NotFound { kind, name: name.to_owned() };
    Box::pin(ready(found.ok_or_else(missing)))
}

/// A pod called `web` in `shop`.
pub(crate) fn pod(spec: Value) -> Pod {
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "9d5e1a2c-uid",
            "labels": {"app": "web", "tier": "a\"b\\c\nd\u{7f}"},
            "annotations": {"note": "hello"},
        },
    });
    object["spec"] = spec;
    Pod::from_value(object, PodOrigin::ApiServer).unwrap()
}

/// A node of 2 processors and 4 GiB.
pub(crate) fn node() -> NodeFacts {
    let amount = |text| Quantity::parse(text).unwrap();
    NodeFacts {
        name: "node-1".to_owned(),
        addresses: vec!["192.0.2.1".to_owned(), "2001:db8::1".to_owned()],
        allocatable: [
            ("cpu".to_owned(), amount("2")),
            ("memory".to_owned(), amount("4Gi")),
            ("ephemeral-storage".to_owned(), amount("10Gi")),
        ]
        .into(),
        api_endpoint: Some(ApiEndpoint { host: "192.0.2.9".to_owned(), port: 6443 }),
    }
}
