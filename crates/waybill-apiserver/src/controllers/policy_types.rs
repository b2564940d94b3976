//! Tells the authors of ValidatingAdmissionPolicies, in the status, which expressions do not fit the kinds that a policy is about.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use waybill_api::status::Status;
use waybill_policy::policy::{CheckedKind, ExpressionWarning, check_types};

use super::actor::Actor;
use crate::{
    cache::{CachedObject, ChangeKind},
    document::{at, put},
    kinds::admission_policy::VALIDATING_ADMISSION_POLICIES,
    registry,
    route::ResourceRoute,
    schema,
    write::Part,
};

/// How long to wait before a watch that ended is begun anew.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn run(actor: Actor) {
    let Some(cache) = actor.cache(&VALIDATING_ADMISSION_POLICIES) else { return };
    loop {
        let (listing, mut watcher) = cache.list_and_watch(|_| true);
        for policy in &listing.objects {
            settle(&actor, policy).await;
        }
        while let Some(told) = watcher.next().await {
            if told.change.kind != ChangeKind::Deleted {
                settle(&actor, &told.change.object).await;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn settle(actor: &Actor, policy: &Arc<CachedObject>) {
    if let Err(status) = check(actor, policy).await {
        let (policy, message) = (&policy.key.name, status.message());
        tracing::debug!(%policy, message, "its types are not checked");
    }
}

async fn check(actor: &Actor, policy: &CachedObject) -> Result<(), Status> {
    let document = policy.content();
    let generation = at(&document, "/metadata/generation").as_i64().unwrap_or(0);
    let observed = at(&document, "/status/observedGeneration").as_i64().unwrap_or(-1);
    if observed >= generation {
        return Ok(());
    }
    // Expressions are parsed on threads of their own, which are waited for.
    let checked = tokio::task::spawn_blocking(move || check_types(&document, kind, params));
    let failed = |error: &dyn std::error::Error| Status::internal(error.to_string());
    let checked = checked.await.map_err(|error| failed(&error))?;
    let found = told(&checked.map_err(|error| failed(&error))?);
    let route = ResourceRoute::to(&VALIDATING_ADMISSION_POLICIES, "", &policy.key.name);
    let checked = |old: &Value| {
        let mut new = old.clone();
        put(&mut new, "/status/observedGeneration", generation);
        put(&mut new, "/status/typeChecking", found.clone());
        Ok(new)
    };
    actor.update(&route, Part::Status, checked).await
}

/// As the status says it; that nothing is wrong is said, too.
fn told(warnings: &[ExpressionWarning]) -> Value {
    let warnings: Vec<_> = warnings
        .iter()
        .map(|it| json!({"fieldRef": it.field_ref, "warning": it.warning}))
        .collect();
    if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) }
}

/// The kind of a resource that we serve.
fn kind(group: &str, version: &str, resource: &str) -> Option<CheckedKind> {
    let found = registry::find(group, version, resource)?;
    Some(CheckedKind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: found.kind.to_owned(),
        object: Arc::new(found.schema()?.object_type()),
    })
}

fn params(api_version: &str, kind: &str) -> Option<Arc<waybill_policy::cel::ObjectType>> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    schema::lookup(group, version, kind).map(|schema| Arc::new(schema.object_type()))
}
