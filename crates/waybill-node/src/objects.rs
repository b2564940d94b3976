//! The objects that pods refer to: ConfigMaps, Secrets, and tokens of service accounts.
//!
//! They are asked for by name, one by one, because a node may read only what its pods need (D11).
//! Nothing here is written to disk or shows a value; errors never repeat what a peer sent as content.

mod cached;
mod cluster;
mod standalone;
#[cfg(test)]
pub(crate) mod testing;
mod watched;

use std::{collections::BTreeMap, pin::Pin, sync::Arc};

use jiff::Timestamp;
use waybill_core::{id::PodUid, secret::SecretBytes};

use crate::pod::Pod;

pub(crate) use self::{
    cached::CachedObjects,
    cluster::ClusterObjects,
    standalone::NoObjects,
    watched::{WatchedError, WatchedObjects},
};

/// An answer that takes a while.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ObjectError>> + Send + 'a>>;

/// Where objects come from: the API server, or nowhere in standalone mode.
pub(crate) trait ObjectSource: Send + Sync {
    fn config_map<'a>(&'a self, wanted: Wanted<'a>) -> Answer<'a, Arc<ConfigMap>>;

    fn secret<'a>(&'a self, wanted: Wanted<'a>) -> Answer<'a, Arc<Secret>>;

    /// A token of a service account, good for as long as the pod lives at most.
    fn token<'a>(&'a self, wanted: WantedToken<'a>) -> Answer<'a, Token>;

    /// Called when a pod is gone.
    fn forget(&self, _pod: &PodUid) {}
}

/// An object, and the pod that needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) pod: &'a PodUid,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> Wanted<'a> {
    /// The object called `name` in the pod's own namespace; pods cannot refer to others.
    pub(crate) fn by(pod: &'a Pod, name: &'a str) -> Self {
        Self { pod: pod.uid(), namespace: pod.namespace(), name }
    }
}

/// A token, and the pod that it is bound to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedToken<'a> {
    pub(crate) pod: &'a PodUid,
    pub(crate) pod_name: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) service_account: &'a str,
    /// Whom it is for; empty for the API server.
    pub(crate) audience: &'a str,
    pub(crate) expiration_seconds: i64,
}

/// The content of a ConfigMap. It is no secret, but nobody has asked us to print it either.
#[derive(Default)]
pub(crate) struct ConfigMap {
    pub(crate) data: BTreeMap<String, SecretBytes>,
    /// In volumes only, never in an environment.
    pub(crate) binary_data: BTreeMap<String, SecretBytes>,
}

/// The content of a Secret.
#[derive(Default)]
pub(crate) struct Secret {
    pub(crate) data: BTreeMap<String, SecretBytes>,
}

/// A token of a service account.
pub(crate) struct Token {
    pub(crate) text: SecretBytes,
    pub(crate) expires: Timestamp,
}

/// The kinds of objects, by the word that users read in errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ObjectKind {
    ConfigMap,
    Secret,
    ServiceAccountToken,
}

impl ObjectKind {
    fn word(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
            Self::ServiceAccountToken => "token of serviceaccount",
        }
    }
}

/// Why there is no object. The texts are those of kubelets where they have one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ObjectError {
    #[error("{} {name:?} not found", kind.word())]
    NotFound { kind: ObjectKind, name: String },
    /// The API server says why.
    #[error("failed to fetch {} {name:?}: {message}", kind.word())]
    Refused { kind: ObjectKind, name: String, message: String },
    /// The text of such an error could hold a part of the object, so it is not kept.
    #[error("failed to fetch {} {name:?}: the API server's answer cannot be read", kind.word())]
    Unreadable { kind: ObjectKind, name: String },
    #[error("{} {name:?} is not available in standalone mode: there is no API server", kind.word())]
    Standalone { kind: ObjectKind, name: String },
}

impl ObjectError {
    /// Whether `optional` excuses it.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}
