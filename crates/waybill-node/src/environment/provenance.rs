//! Who shipped what: for every container that was started, its variables with their origins, and the
//! definitions that lost. Never a value.
//!
//! It is kept in memory and is gone when the node is restarted, until the container starts again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use serde_json::Value;
use waybill_core::{
    env::{
        merge::{Environment, Tier},
        origin::Origin,
    },
    id::PodUid,
};

use crate::{pod::Pod, server::ProvenanceLookup};

/// What every container was started with.
#[derive(Debug, Default)]
pub(crate) struct Provenance {
    pods: Mutex<Pods>,
}

type Pods = HashMap<PodUid, BTreeMap<String, Arc<ContainerProvenance>>>;

/// The variables of one container, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ContainerProvenance {
    pub(crate) variables: Vec<VariableProvenance>,
}

/// One variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct VariableProvenance {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) definition: Definition,
    /// Whether its value must not be shown: it is from a Secret, an env file or a driver, or made of such.
    pub(crate) sensitive: bool,
    /// Definitions of the same name that lost, the first one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) shadowed: Vec<Definition>,
}

/// Somebody's word on a variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Definition {
    pub(crate) tier: TierView,
    pub(crate) origin: OriginView,
    /// The origin as a line for people.
    pub(crate) from: String,
}

/// [`Tier`], as JSON has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum TierView {
    Baseline,
    Caller,
    ApiServer,
    Node,
    Runtime,
}

/// [`Origin`], as JSON has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(crate) enum OriginView {
    ApiServer,
    Caller,
    ConfigMap { name: String, key: String },
    Csi { driver: String, class: String, key: String },
    Field { path: String },
    File { volume: String, path: String, key: String },
    Image,
    Literal,
    Node,
    Resource { resource: String },
    Runtime,
    Secret { name: String, key: String },
    Other,
}

impl Provenance {
    /// Notes what a container starts with, in place of what it started with before.
    pub(crate) fn record(&self, pod: &PodUid, container: &str, environment: &Environment) {
        let provenance = Arc::new(ContainerProvenance::of(environment));
        self.lock().entry(pod.clone()).or_default().insert(container.to_owned(), provenance);
    }

    /// What a container was started with, if this node started it since its own start.
    pub(crate) fn of(&self, pod: &PodUid, container: &str) -> Option<Arc<ContainerProvenance>> {
        self.lock().get(pod)?.get(container).cloned()
    }

    /// Called when a pod is gone.
    pub(crate) fn forget(&self, pod: &PodUid) {
        self.lock().remove(pod);
    }

    fn lock(&self) -> MutexGuard<'_, Pods> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProvenanceLookup for Provenance {
    fn find(&self, pod: &Pod, container: &str) -> Option<Value> {
        serde_json::to_value(&*self.of(pod.uid(), container)?).ok()
    }
}

impl ContainerProvenance {
    fn of(environment: &Environment) -> Self {
        let mut shadowed: HashMap<&[u8], Vec<Definition>> = HashMap::new();
        for loser in environment.shadowed() {
            let definition = Definition::new(loser.tier(), loser.origin());
            shadowed.entry(loser.name().as_bytes()).or_default().push(definition);
        }
        let variables = environment.iter().map(|entry| VariableProvenance {
            name: entry.name().to_string(),
            definition: Definition::new(entry.tier(), entry.origin()),
            sensitive: entry.value().is_secret(),
            shadowed: shadowed.remove(entry.name().as_bytes()).unwrap_or_default(),
        });
        Self { variables: variables.collect() }
    }
}

impl Definition {
    fn new(tier: Tier, origin: &Origin) -> Self {
        Self { tier: tier.into(), origin: origin.into(), from: origin.to_string() }
    }
}

impl From<Tier> for TierView {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Baseline => Self::Baseline,
            Tier::Caller => Self::Caller,
            Tier::ApiServer => Self::ApiServer,
            Tier::Node => Self::Node,
            Tier::Runtime => Self::Runtime,
        }
    }
}

impl From<&Origin> for OriginView {
    fn from(origin: &Origin) -> Self {
        let owned = |text: &str| text.to_owned();
        match origin {
            Origin::ApiServer => Self::ApiServer,
            Origin::Caller => Self::Caller,
            Origin::ConfigMap { name, key } => {
                Self::ConfigMap { name: owned(name), key: owned(key) }
            }
            Origin::Csi { driver, class, key } => {
                Self::Csi { driver: owned(driver), class: owned(class), key: owned(key) }
            }
            Origin::Field { path } => Self::Field { path: owned(path) },
            Origin::File { volume, path, key } => {
                Self::File { volume: owned(volume), path: owned(path), key: owned(key) }
            }
            Origin::Image => Self::Image,
            Origin::Literal => Self::Literal,
            Origin::Node => Self::Node,
            Origin::Resource { resource } => Self::Resource { resource: owned(resource) },
            Origin::Runtime => Self::Runtime,
            Origin::Secret { name, key } => Self::Secret { name: owned(name), key: owned(key) },
            // The type may grow; the line for people says what it is.
            _ => Self::Other,
        }
    }
}
