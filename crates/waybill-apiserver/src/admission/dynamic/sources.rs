//! The rules that administrators have written, compiled, as of the last change.
//!
//! Changes are told by the feed of the objects, before anybody reads them, so that a rule holds as soon
//! as whoever wrote it is answered. The feed is never kept waiting: what changed is compiled by the next
//! request. As long as there are no rules, and none changed, a request pays for one atomic load.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwap;
use serde_json::Value;
use waybill_policy::{
    policy::{ActivePolicy, Binding, Policy},
    webhook::Webhook,
};

use crate::{
    document::metadata,
    kinds::{
        admission_policy::VALIDATING_ADMISSION_POLICIES,
        admission_policy_binding::VALIDATING_ADMISSION_POLICY_BINDINGS,
        webhook_configuration::{
            MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS,
        },
    },
    registry::Resource,
};

/// The group whose objects are rules. They are judged by none, so that a broken rule can be taken back.
pub(crate) const RULES_GROUP: &str = "admissionregistration.k8s.io";

/// Everything that judges requests.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(super) mutating: Vec<Arc<Webhook>>,
    pub(super) validating: Vec<Arc<Webhook>>,
    pub(super) policies: Vec<ActivePolicy>,
}

impl Rules {
    fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty() && self.policies.is_empty()
    }
}

/// Where rules come from.
#[derive(Default)]
pub(crate) struct RuleSources {
    written: Mutex<Written>,
    current: ArcSwap<Rules>,
    /// There is nothing in `current`, and nothing newer.
    empty: AtomicBool,
    /// Something was written after `current` was made.
    stale: AtomicBool,
}

/// The objects by name, which is the order in which they count.
#[derive(Default)]
struct Written {
    /// Whether they count yet.
    active: bool,
    mutating: BTreeMap<String, Entry<Vec<Arc<Webhook>>>>,
    validating: BTreeMap<String, Entry<Vec<Arc<Webhook>>>>,
    policies: BTreeMap<String, Entry<Arc<Policy>>>,
    bindings: BTreeMap<String, Entry<Arc<Binding>>>,
}

/// An object, compiled once it is needed.
enum Entry<T> {
    Document(Value),
    Loaded(Option<T>),
}

impl RuleSources {
    pub(crate) fn new() -> Self {
        Self { empty: AtomicBool::new(true), ..Self::default() }
    }

    /// Takes note of a change of an object of [`RULES_GROUP`].
    pub(crate) fn follow(
        &self,
        resource: &'static Resource,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        let Some(name) = new.or(old).map(|object| metadata(object, "name").to_owned()) else {
            return;
        };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if resource.is(&MUTATING_WEBHOOK_CONFIGURATIONS) {
            put(&mut written.mutating, name, new);
        } else if resource.is(&VALIDATING_WEBHOOK_CONFIGURATIONS) {
            put(&mut written.validating, name, new);
        } else if resource.is(&VALIDATING_ADMISSION_POLICIES) {
            put(&mut written.policies, name, new);
        } else if resource.is(&VALIDATING_ADMISSION_POLICY_BINDINGS) {
            put(&mut written.bindings, name, new);
        }
        self.outdate(&written);
    }

    /// From now on rules count.
    pub(crate) fn activate(&self) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.active = true;
        self.outdate(&written);
    }

    fn outdate(&self, written: &Written) {
        if written.active {
            // In this order: who sees that it is not empty must see that it is stale.
            self.stale.store(true, Ordering::Release);
            self.empty.store(false, Ordering::Release);
        }
    }

    /// The rules, or `None` if there are none.
    pub(super) fn current(&self) -> Option<Arc<Rules>> {
        if self.empty.load(Ordering::Acquire) {
            return None;
        }
        if self.stale.load(Ordering::Acquire) {
            self.compile();
        }
        Some(self.current.load_full()).filter(|rules| !rules.is_empty())
    }

    fn compile(&self) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever waited for the lock finds the work done.
        if !self.stale.load(Ordering::Acquire) {
            return;
        }
        let rules = written.rules();
        self.empty.store(rules.is_empty(), Ordering::Release);
        self.current.store(Arc::new(rules));
        self.stale.store(false, Ordering::Release);
    }
}

impl Written {
    fn rules(&mut self) -> Rules {
        let webhooks = |document: &Value| {
            Webhook::load_all(document).map(|all| all.into_iter().map(Arc::new).collect())
        };
        let mut policies: Vec<_> =
            load_all(&mut self.policies, |document| Policy::load(document).map(Arc::new))
                .into_iter()
                .map(|policy| ActivePolicy { policy, bindings: Vec::new() })
                .collect();
        let bindings =
            load_all(&mut self.bindings, |document| Binding::load(document).map(Arc::new));
        for binding in bindings {
            let bound = policies.iter_mut().find(|active| active.policy.name() == binding.policy());
            if let Some(active) = bound {
                active.bindings.push(binding);
            }
        }
        // One that nothing binds says nothing.
        policies.retain(|active| !active.bindings.is_empty());
        for why in policies.iter().filter_map(|active| active.policy.broken()) {
            tracing::warn!(why, "a policy cannot be compiled, and counts as one that fails");
        }
        Rules {
            mutating: load_all(&mut self.mutating, webhooks).into_iter().flatten().collect(),
            validating: load_all(&mut self.validating, webhooks).into_iter().flatten().collect(),
            policies,
        }
    }
}

fn put<T>(entries: &mut BTreeMap<String, Entry<T>>, name: String, new: Option<&Value>) {
    match new {
        Some(document) => entries.insert(name, Entry::Document(document.clone())),
        None => entries.remove(&name),
    };
}

fn load_all<T: Clone>(
    entries: &mut BTreeMap<String, Entry<T>>,
    load: impl Fn(&Value) -> Result<T, serde_json::Error>,
) -> Vec<T> {
    let mut all = Vec::new();
    for (name, entry) in entries {
        if let Entry::Document(document) = entry {
            let loaded = load(document).map_err(|error| {
                // The schema let it in, so this is for another version to have written.
                tracing::error!(name, %error, "a rule of admission cannot be read, and does not count");
            });
            *entry = Entry::Loaded(loaded.ok());
        }
        if let Entry::Loaded(Some(loaded)) = entry {
            all.push(loaded.clone());
        }
    }
    all
}
