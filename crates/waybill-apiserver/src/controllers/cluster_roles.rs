//! Keeps the rules of aggregated cluster roles, as readers see them, up to date.
//!
//! Decisions do not wait for this: the index of roles computes the same rules by itself.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use waybill_api::status::Status;

use super::actor::Actor;
use crate::{
    authz::Authorizer,
    cache::CachedObject,
    document::{at, put},
    kinds::role::CLUSTER_ROLES,
    route::ResourceRoute,
    write::Part,
};

/// How long it may take until a role shows what a change of another one means for it.
const ROUND: Duration = Duration::from_secs(1);

pub(super) async fn run(actor: Actor, authorizer: Arc<Authorizer>) {
    let Some(cache) = actor.cache(&CLUSTER_ROLES) else { return };
    let mut seen = None;
    loop {
        // A change of any role may mean another sum; nothing changed, nothing to do.
        let listing = cache.list("", None, usize::MAX, |_| true);
        let newest = listing.objects.iter().map(|role| role.revision).max();
        if newest != seen {
            for role in &listing.objects {
                if let Err(status) = refresh(&actor, &authorizer, role).await {
                    tracing::debug!(role = %role.key.name, message = status.message(), "not summed up");
                }
            }
            seen = newest;
        }
        tokio::time::sleep(ROUND).await;
    }
}

async fn refresh(
    actor: &Actor,
    authorizer: &Authorizer,
    role: &CachedObject,
) -> Result<(), Status> {
    let Some(rules) = authorizer.rbac().aggregated_rules(&role.key.name) else {
        return Ok(());
    };
    let rules = serde_json::to_value(&rules[..]).unwrap_or_else(|_| json!([]));
    if *at(&role.document(), "/rules") == rules {
        return Ok(());
    }
    let route = ResourceRoute::to(&CLUSTER_ROLES, "", &role.key.name);
    let summed = |old: &Value| {
        let mut new = old.clone();
        put(&mut new, "/rules", rules.clone());
        Ok(new)
    };
    actor.update(&route, Part::Main, summed).await
}
