//! What keeps a namespace from going, in the conditions that users of Kubernetes know.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    cache::CachedObject,
    document::{items, text},
};

/// How many refusals are told.
const TOLD: usize = 3;

/// What is left in a namespace after everything in it was deleted.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Why objects could not be deleted.
    pub(super) refusals: Vec<String>,
    /// How many objects of a resource.
    objects: BTreeMap<String, usize>,
    /// How many objects a finalizer holds.
    finalizers: BTreeMap<String, usize>,
}

impl Leftovers {
    /// Counts the objects of a resource, which is called as in `pods.` or `leases.coordination.k8s.io`.
    pub(super) fn count(&mut self, resource: &str, objects: &[Arc<CachedObject>]) {
        if objects.is_empty() {
            return;
        }
        self.objects.insert(resource.to_owned(), objects.len());
        for object in objects {
            for finalizer in items(&object.document(), "/metadata/finalizers") {
                let finalizer = finalizer.as_str().unwrap_or_default().to_owned();
                *self.finalizers.entry(finalizer).or_default() += 1;
            }
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.refusals.is_empty() && self.objects.is_empty()
    }

    /// The conditions of the namespace: those of others as they are, and ours, whose times change with their
    /// status alone.
    pub(super) fn conditions(&self, old: &[Value], now: &str) -> Vec<Value> {
        let ours = self.ours();
        let is_ours =
            |condition: &&Value| ours.iter().any(|(kind, ..)| text(condition, "/type") == *kind);
        let mut conditions: Vec<_> = old.iter().filter(|found| !is_ours(found)).cloned().collect();
        for (kind, is_true, reason, message) in &ours {
            let status = if *is_true { "True" } else { "False" };
            let before = old.iter().find(|found| text(found, "/type") == *kind);
            let since = before
                .filter(|before| text(before, "/status") == status)
                .map_or(now, |before| text(before, "/lastTransitionTime"));
            conditions.push(json!({"type": kind, "status": status, "reason": reason,
                "message": message, "lastTransitionTime": since}));
        }
        conditions
    }

    fn ours(&self) -> [(&'static str, bool, &'static str, String); 3] {
        let counted = |counts: &BTreeMap<String, usize>, joint: &str, tail: &str| {
            let parts: Vec<_> =
                counts.iter().map(|(name, count)| format!("{name}{joint}{count}{tail}")).collect();
            parts.join(", ")
        };
        let told: Vec<_> = self.refusals.iter().take(TOLD).map(String::as_str).collect();
        let more = self.refusals.len() - told.len();
        let failure = match (told.is_empty(), more) {
            (true, _) => {
                "All content successfully deleted, may be waiting on finalization".to_owned()
            }
            (false, 0) => format!("Failed to delete all resource types: {}", told.join("; ")),
            (false, more) => {
                format!("Failed to delete all resource types: {}; and {more} more", told.join("; "))
            }
        };
        let remaining = match self.objects.is_empty() {
            true => "All content successfully removed".to_owned(),
            false => format!(
                "Some resources are remaining: {}",
                counted(&self.objects, " has ", " resource instances")
            ),
        };
        let held = match self.finalizers.is_empty() {
            true => "All content-preserving finalizers finished".to_owned(),
            false => format!(
                "Some content in the namespace has finalizers remaining: {}",
                counted(&self.finalizers, " in ", " resource instances")
            ),
        };
        let reason =
            |is_true: bool, yes: &'static str, no: &'static str| if is_true { yes } else { no };
        let (failed, some, finalizers) =
            (!told.is_empty(), !self.objects.is_empty(), !self.finalizers.is_empty());
        [
            (
                "NamespaceDeletionContentFailure",
                failed,
                reason(failed, "ContentDeletionFailed", "ContentDeleted"),
                failure,
            ),
            (
                "NamespaceContentRemaining",
                some,
                reason(some, "SomeResourcesRemain", "ContentRemoved"),
                remaining,
            ),
            (
                "NamespaceFinalizersRemaining",
                finalizers,
                reason(finalizers, "SomeFinalizersRemain", "ContentHasNoFinalizers"),
                held,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::kinds::config_map::CONFIG_MAPS;

    fn config_map() -> Arc<CachedObject> {
        let document = json!({"metadata": {"name": "c", "finalizers": ["a/b"]}});
        let stored = Bytes::from(document.to_string());
        Arc::new(CachedObject::new(&CONFIG_MAPS, stored, 1.into()).unwrap())
    }

    #[test]
    fn a_namespace_says_what_holds_it() {
        let mut left = Leftovers::default();
        assert!(left.is_nothing());
        left.count("configmaps.", &[config_map(), config_map()]);
        left.count("pods.", &[]);
        let other = json!({"type": "Mine", "status": "True"});
        let first = left.conditions(std::slice::from_ref(&other), "t1");
        let message = |at: usize| first[at]["message"].as_str().unwrap();
        assert_eq!(first[0], other);
        assert_eq!(first[1]["status"], "False");
        assert_eq!(
            message(2),
            "Some resources are remaining: configmaps. has 2 resource instances"
        );
        assert_eq!(
            message(3),
            "Some content in the namespace has finalizers remaining: a/b in 2 resource instances"
        );
        assert_eq!(left.conditions(&first, "t2"), first, "nothing has changed since");
        left.refusals.extend((0..5).map(|number| format!("no {number}")));
        let failed = left.conditions(&first, "t2");
        assert_eq!(
            failed[1]["message"],
            "Failed to delete all resource types: no 0; no 1; no 2; and 2 more"
        );
        assert_eq!(failed[1]["lastTransitionTime"], "t2");
        assert_eq!(failed[2]["lastTransitionTime"], "t1");
    }
}
