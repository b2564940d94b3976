//! What tokens are bound to, answered from the caches.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    authn::service_account::{Existing, ExistingPod, Objects as BoundObjects},
    cache::ObjectKey,
    document::{metadata, text},
    kinds::{node::NODES, pod::PODS, secret::SECRETS, service_account::SERVICE_ACCOUNTS},
    objects::Objects,
    registry::Resource,
};

/// The caches, as the authenticator sees them.
pub(crate) struct TokenObjects(pub(crate) Arc<Objects>);

impl TokenObjects {
    fn find(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Value> {
        let cache = self.0.cache(resource)?;
        Some(cache.get(&ObjectKey::new(namespace, name))?.document())
    }
}

impl BoundObjects for TokenObjects {
    fn service_account(&self, namespace: &str, name: &str) -> Option<Existing> {
        self.find(&SERVICE_ACCOUNTS, namespace, name).as_ref().map(existing)
    }

    fn pod(&self, namespace: &str, name: &str) -> Option<ExistingPod> {
        let pod = self.find(&PODS, namespace, name)?;
        let spec = |pointer: &str| text(&pod, pointer).to_owned();
        Some(ExistingPod {
            existing: existing(&pod),
            service_account: spec("/spec/serviceAccountName"),
            node: spec("/spec/nodeName"),
        })
    }

    fn secret(&self, namespace: &str, name: &str) -> Option<Existing> {
        self.find(&SECRETS, namespace, name).as_ref().map(existing)
    }

    fn node(&self, name: &str) -> Option<Existing> {
        self.find(&NODES, "", name).as_ref().map(existing)
    }
}

fn existing(document: &Value) -> Existing {
    let deleted: Option<Timestamp> = metadata(document, "deletionTimestamp").parse().ok();
    Existing { uid: metadata(document, "uid").to_owned(), deleted }
}
