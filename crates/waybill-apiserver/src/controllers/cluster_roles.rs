//! Keeps the rules of aggregated cluster roles, as readers see them, up to date.
//!
//! Decisions do not wait for this: the index of roles computes the same rules by itself.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use waybill_api::status::Status;

use super::system_user;
use crate::{
    api::Api,
    audit::AuditNotes,
    cache::CachedObject,
    document::{at, put},
    query::DryRun,
    registry::{Resource, find},
    rest::{Change, Part},
    route::ResourceRoute,
};

/// How long it may take until a role shows what a change of another one means for it.
const ROUND: Duration = Duration::from_secs(1);

pub(super) async fn run(api: Arc<Api>) {
    let Some(resource) = find("rbac.authorization.k8s.io", "v1", "clusterroles") else { return };
    let Some(cache) = api.reader.objects.cache(resource) else { return };
    let mut seen = None;
    loop {
        // A change of any role may mean another sum; nothing changed, nothing to do.
        let listing = cache.list("", None, usize::MAX, |_| true);
        let newest = listing.objects.iter().map(|role| role.revision).max();
        if newest != seen {
            for role in &listing.objects {
                if let Err(status) = refresh(&api, resource, role).await {
                    tracing::debug!(role = %role.key.name, message = status.message(), "not summed up");
                }
            }
            seen = newest;
        }
        tokio::time::sleep(ROUND).await;
    }
}

async fn refresh(
    api: &Arc<Api>,
    resource: &'static Resource,
    role: &CachedObject,
) -> Result<(), Status> {
    let Some(rules) = api.authorizer.rbac().aggregated_rules(&role.key.name) else {
        return Ok(());
    };
    let rules = serde_json::to_value(&rules[..]).unwrap_or_else(|_| json!([]));
    if *at(&role.document(), "/rules") == rules {
        return Ok(());
    }
    let route = ResourceRoute {
        resource,
        namespace: String::new(),
        name: role.key.name.to_string(),
        subresource: String::new(),
    };
    let user = system_user("system:serviceaccount:kube-system:clusterrole-aggregation-controller");
    let change =
        Change { route: &route, user: &user, dry_run: DryRun::No, notes: &AuditNotes::default() };
    let summed = |old: &Value| {
        let mut new = old.clone();
        put(&mut new, "/rules", rules.clone());
        Ok(new)
    };
    api.rest.update(change, Part::Main, summed).await.map(drop)
}
