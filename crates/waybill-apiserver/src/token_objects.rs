//! What tokens are bound to, answered from the caches.

use std::sync::Arc;

use serde::Deserialize;

use crate::{
    authn::service_account::{Existing, ExistingPod, Objects as BoundObjects},
    cache::ObjectKey,
    kinds::{node::NODES, pod::PODS, secret::SECRETS, service_account::SERVICE_ACCOUNTS},
    objects::Objects,
    registry::Resource,
};

/// The caches, as the authenticator sees them.
pub(crate) struct TokenObjects(pub(crate) Arc<Objects>);

/// What is read of an object; a pod has much more, and it is asked for with each request of the pod.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Bound {
    metadata: BoundMetadata,
    spec: BoundSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BoundMetadata {
    uid: String,
    deletion_timestamp: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BoundSpec {
    service_account_name: String,
    node_name: String,
}

impl TokenObjects {
    fn find(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Bound> {
        let cache = self.0.cache(resource)?;
        cache.get(&ObjectKey::new(namespace, name))?.read()
    }
}

impl BoundObjects for TokenObjects {
    fn service_account(&self, namespace: &str, name: &str) -> Option<Existing> {
        self.find(&SERVICE_ACCOUNTS, namespace, name).map(existing)
    }

    fn pod(&self, namespace: &str, name: &str) -> Option<ExistingPod> {
        let Bound { metadata, spec } = self.find(&PODS, namespace, name)?;
        Some(ExistingPod {
            existing: existing(Bound { metadata, ..Bound::default() }),
            service_account: spec.service_account_name,
            node: spec.node_name,
        })
    }

    fn secret(&self, namespace: &str, name: &str) -> Option<Existing> {
        self.find(&SECRETS, namespace, name).map(existing)
    }

    fn node(&self, name: &str) -> Option<Existing> {
        self.find(&NODES, "", name).map(existing)
    }
}

fn existing(Bound { metadata, .. }: Bound) -> Existing {
    Existing { uid: metadata.uid, deleted: metadata.deletion_timestamp.parse().ok() }
}
