//! `delete`: at once, after a grace period, or when the finalizers are done.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use waybill_api::status::{Status, StatusDetails};
use waybill_core::id::ResourceVersion;

use super::{Change, RETRIES, Writer, modified_by_others, store_failure};
use crate::{
    admission::{Operation, WriteOptions},
    document::{
        at, has_finalizers, is_terminating, items, metadata, put, set_metadata, text, time,
        with_version,
    },
    objects::CommitError,
    query::DryRun,
    store::Expected,
};

/// What a client may say about a deletion, by query or body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_period: Option<i64>,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// What becomes of objects that this one owns; said to admission only.
    pub(crate) propagation: String,
}

/// Who is asked about a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Admission,
    /// Admission has been asked about what causes the deletion.
    Nobody,
}

/// How a deletion ended.
pub(crate) enum Deletion {
    /// The object is gone.
    Gone(Box<Status>),
    /// It is marked and goes later.
    Marked(Value),
}

impl DeleteOptions {
    /// Reads a document that is `DeleteOptions`; null says nothing.
    pub(crate) fn read(
        document: &Value,
        query_grace: Option<i64>,
    ) -> Result<(Self, DryRun), Status> {
        let owned = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let dry_run: Vec<String> = items(document, "/dryRun").iter().map(owned).collect();
        let options = Self {
            grace_period: at(document, "/gracePeriodSeconds").as_i64().or(query_grace),
            uid: text(document, "/preconditions/uid").to_owned(),
            resource_version: text(document, "/preconditions/resourceVersion").to_owned(),
            propagation: text(document, "/propagationPolicy").to_owned(),
        };
        Ok((options, DryRun::parse(&dry_run)?))
    }

    /// Adds them to the object that stands for them in admission.
    pub(crate) fn describe(&self, object: &mut Map<String, Value>) {
        if let Some(seconds) = self.grace_period {
            object.insert("gracePeriodSeconds".to_owned(), seconds.into());
        }
        if !self.propagation.is_empty() {
            object.insert("propagationPolicy".to_owned(), self.propagation.as_str().into());
        }
        let mut conditions = json!({});
        for (field, text) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if !text.is_empty() {
                put(&mut conditions, &format!("/{field}"), text.as_str());
            }
        }
        if conditions != json!({}) {
            object.insert("preconditions".to_owned(), conditions);
        }
    }
}

impl Writer {
    pub(crate) async fn delete(
        &self,
        change: Change<'_>,
        options: &DeleteOptions,
    ) -> Result<Deletion, Status> {
        self.delete_if(change, options, Ask::Admission).await
    }

    /// Deletes what `ask` lets go.
    pub(super) async fn delete_if(
        &self,
        change: Change<'_>,
        options: &DeleteOptions,
        ask: Ask,
    ) -> Result<Deletion, Status> {
        for _ in 0..RETRIES {
            let current = self.current(change)?;
            let document = current.document();
            check_preconditions(change, options, &document)?;
            if ask == Ask::Admission {
                self.admit_delete(change, options, &document).await?;
            }
            let next = after_delete(&document, options.grace_period, (self.clock)());
            let uid = metadata(&document, "uid").to_owned();
            if change.dry_run == DryRun::All {
                return Ok(outcome(change, next, uid, current.revision));
            }
            if next.as_ref() == Some(&document) {
                return Ok(Deletion::Marked(document));
            }
            let expected = Expected::At(current.revision);
            let key = change.key();
            match self.commit(change, &key, expected, next.as_ref()).await {
                Ok(revision) => return Ok(outcome(change, next, uid, revision)),
                Err(CommitError::Conflict(_)) if options.resource_version.is_empty() => {}
                Err(CommitError::Conflict(_)) => break,
                Err(error) => return Err(store_failure(&error)),
            }
        }
        Err(modified_by_others(change))
    }

    async fn admit_delete(
        &self,
        change: Change<'_>,
        options: &DeleteOptions,
        old: &Value,
    ) -> Result<(), Status> {
        let deletion = Some(options);
        let change = Change { options: WriteOptions { deletion, ..change.options }, ..change };
        let mut attributes = change.attributes(Operation::Delete, "", Value::Null, old);
        self.admission.mutate(&mut attributes).await?;
        self.admission.validate(&attributes).await
    }
}

fn outcome(
    change: Change<'_>,
    next: Option<Value>,
    uid: String,
    revision: ResourceVersion,
) -> Deletion {
    match next {
        Some(document) => Deletion::Marked(with_version(document, revision)),
        None => {
            let details = StatusDetails {
                name: change.route.name.clone(),
                group: change.route.resource.group.to_owned(),
                kind: change.route.resource.plural.to_owned(),
                uid,
                ..StatusDetails::default()
            };
            Deletion::Gone(Box::new(Status::success(details)))
        }
    }
}

/// The object after a DELETE; `None` if nothing holds it.
fn after_delete(document: &Value, wanted: Option<i64>, now: Timestamp) -> Option<Value> {
    let grace = grace_period(document, wanted);
    if grace == 0 && !has_finalizers(document) {
        return None;
    }
    let mut marked = document.clone();
    let shorter = at(document, "/metadata/deletionGracePeriodSeconds")
        .as_i64()
        .is_none_or(|running| grace < running);
    if !is_terminating(document) || shorter {
        let end = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
        set_metadata(&mut marked, "deletionTimestamp", time(end));
        set_metadata(&mut marked, "deletionGracePeriodSeconds", grace);
        // Whoever follows the generation learns that the object is to go.
        if let Some(generation) = at(document, "/metadata/generation").as_i64() {
            set_metadata(&mut marked, "generation", generation.saturating_add(1));
        }
    }
    if text(&marked, "/kind") == "Namespace" {
        put(&mut marked, "/status/phase", "Terminating");
    }
    Some(marked)
}

/// Only a pod on a node gets time to end: its node confirms with a grace period of zero.
fn grace_period(document: &Value, wanted: Option<i64>) -> i64 {
    let on_a_node = !text(document, "/spec/nodeName").is_empty();
    let ended = matches!(text(document, "/status/phase"), "Failed" | "Succeeded");
    if text(document, "/kind") != "Pod" || !on_a_node || ended {
        return 0;
    }
    let default = at(document, "/spec/terminationGracePeriodSeconds").as_i64().unwrap_or(30);
    let grace = wanted.unwrap_or(default);
    // As upstream: less than nothing is as little as there is, and not deletion at once.
    if grace < 0 { 1 } else { grace }
}

fn check_preconditions(
    change: Change<'_>,
    options: &DeleteOptions,
    document: &Value,
) -> Result<(), Status> {
    let checks = [
        ("UID", "uid", &options.uid),
        ("ResourceVersion", "resourceVersion", &options.resource_version),
    ];
    for (label, field, wanted) in checks {
        let found = metadata(document, field);
        if !wanted.is_empty() && wanted != found {
            let why = format!(
                "Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {found}"
            );
            return Err(Status::conflict(change.route.status_target(), why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(node: &str) -> Value {
        json!({
            "kind": "Pod",
            "metadata": {"name": "p", "generation": 2},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 30},
        })
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_pod_on_a_node_gets_its_grace_period() {
        let marked = after_delete(&pod("n"), None, now()).unwrap();
        assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
        assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
        assert_eq!(marked["metadata"]["generation"], 3);
        let sooner = after_delete(&marked, Some(5), now()).unwrap();
        assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 5);
        let later = after_delete(&sooner, Some(60), now()).unwrap();
        assert_eq!(later, sooner, "a running grace period is never extended");
        assert_eq!(after_delete(&sooner, Some(0), now()), None);
        let never = after_delete(&pod("n"), Some(i64::MAX), now()).unwrap();
        assert_eq!(never["metadata"]["deletionTimestamp"], "9999-12-30T22:00:00Z");
    }

    /// The sum of now and a grace period near 2^63 is beyond every calendar.
    #[test]
    fn any_grace_period_can_be_told() {
        for (asked, grace) in [(i64::MIN, 1), (-1, 1), (i64::MAX, i64::MAX)] {
            let marked = after_delete(&pod("n"), Some(asked), now()).unwrap();
            assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], grace, "{asked}");
            let end: Timestamp =
                marked["metadata"]["deletionTimestamp"].as_str().unwrap().parse().unwrap();
            assert!(end > now(), "{asked}");
            assert_eq!(after_delete(&marked, Some(0), now()), None, "{asked}");
        }
    }

    #[test]
    fn what_runs_nowhere_goes_at_once() {
        assert_eq!(after_delete(&pod(""), None, now()), None);
        let mut ended = pod("n");
        ended["status"]["phase"] = "Succeeded".into();
        assert_eq!(after_delete(&ended, None, now()), None);
        let secret = json!({"kind": "Secret", "metadata": {"name": "s"}});
        assert_eq!(after_delete(&secret, Some(30), now()), None);
    }

    #[test]
    fn finalizers_hold_an_object() {
        let held = json!({"kind": "ConfigMap", "metadata": {"name": "c", "finalizers": ["a/b"]}});
        let marked = after_delete(&held, None, now()).unwrap();
        assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
        assert_eq!(after_delete(&marked, None, now()), Some(marked), "marked once");
        let namespace = json!({"kind": "Namespace", "metadata": {"name": "n"},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        let marked = after_delete(&namespace, None, now()).unwrap();
        assert_eq!(marked["status"]["phase"], "Terminating");
    }
}
