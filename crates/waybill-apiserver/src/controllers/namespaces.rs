//! Namespaces get their default service account and the cluster's certificate, and are emptied
//! before they go.

mod leftovers;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior};
use waybill_api::status::Status;

use self::leftovers::Leftovers;
use super::actor::{Actor, route_of};
use crate::{
    cache::{Cache, CachedObject},
    document::{is_terminating, items, put, time},
    kinds::{namespace::NAMESPACES, pod::PODS},
    registry::Resource,
    route::ResourceRoute,
    write::{DeleteOptions, Part},
};

/// How often everything is looked at, whether or not something was heard.
const ROUND: Duration = Duration::from_secs(5);

/// Who furnishes and empties namespaces.
pub(super) struct Actors {
    pub(super) accounts: Actor,
    pub(super) certificates: Actor,
    pub(super) namespaces: Actor,
    pub(super) ca_certificate: String,
}

pub(super) async fn run(actors: Actors) {
    let Some(cache) = actors.namespaces.cache(&NAMESPACES) else { return };
    loop {
        let (listing, mut watcher) = cache.list_and_watch(|_| true);
        for namespace in &listing.objects {
            tend(&actors, namespace).await;
        }
        // A round comes also while there is always something to hear.
        let mut round = tokio::time::interval_at(Instant::now() + ROUND, ROUND);
        round.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                told = watcher.next() => {
                    let Some(told) = told else { break };
                    if let Some(namespace) = cache.get(&told.change.object.key) {
                        tend(&actors, &namespace).await;
                    }
                }
                _ = round.tick() => {
                    for namespace in cache.list("", None, usize::MAX, |_| true).objects {
                        tend(&actors, &namespace).await;
                    }
                }
            }
        }
    }
}

async fn tend(actors: &Actors, namespace: &CachedObject) {
    let document = namespace.document();
    let name = &*namespace.key.name;
    let result = if is_terminating(&document) {
        empty(&actors.namespaces, name).await
    } else {
        furnish(actors, name).await
    };
    if let Err(status) = result {
        tracing::debug!(namespace = name, message = status.message(), "a namespace has to wait");
    }
}

async fn furnish(actors: &Actors, namespace: &str) -> Result<(), Status> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": namespace},
    });
    actors.accounts.create_missing(account).await?;
    let data = json!({"ca.crt": actors.ca_certificate});
    let certificate = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kube-root-ca.crt", "namespace": namespace},
        "data": data,
    });
    let route = route_of(&certificate)?;
    match actors.certificates.get(&route) {
        None => actors.certificates.create_missing(certificate).await,
        Some(found) if found.document().get("data") == Some(&data) => Ok(()),
        Some(_) => {
            let restored = |old: &Value| {
                let mut new = old.clone();
                put(&mut new, "/data", data.clone());
                Ok(new)
            };
            actors.certificates.update(&route, Part::Main, restored).await
        }
    }
}

/// Deletes what is inside, pods first; when nothing is left, lets the namespace go. What is left is told in its
/// status.
///
/// As long as there are pods, all else stays: what runs may rely on it, such as a NetworkPolicy or a webhook's Service
/// that guards the pod (KEP-5080).
async fn empty(actor: &Actor, namespace: &str) -> Result<(), Status> {
    let inside = || actor.objects().caches().filter(|(resource, _)| resource.is_namespaced());
    let (pods, rest): (Vec<_>, Vec<_>) = inside().partition(|(resource, _)| resource.is(&PODS));
    let mut left = Leftovers::default();
    clear(actor, namespace, &pods, &mut left).await;
    if left.is_nothing() {
        clear(actor, namespace, &rest, &mut left).await;
    }
    if left.is_nothing() {
        return release(actor, namespace).await;
    }
    tell(actor, namespace, &left).await
}

/// Deletes all objects of some resources, and counts those that do not go at once.
async fn clear(
    actor: &Actor,
    namespace: &str,
    resources: &[(&'static Resource, &Cache)],
    left: &mut Leftovers,
) {
    for (resource, cache) in resources {
        for object in cache.list(namespace, None, usize::MAX, |_| true).objects {
            let route = ResourceRoute::to(resource, namespace, &object.key.name);
            match actor.delete(&route, &DeleteOptions::default()).await {
                Ok(()) => {}
                Err(status) if status.code() == 404 => {}
                Err(status) => left.refusals.push(status.message().to_owned()),
            }
        }
    }
    for (resource, cache) in resources {
        let objects = cache.list(namespace, None, usize::MAX, |_| true).objects;
        left.count(&resource.qualified(), &objects);
    }
}

/// Puts what is left into the status of the namespace, if it is not there.
async fn tell(actor: &Actor, namespace: &str, left: &Leftovers) -> Result<(), Status> {
    let route = ResourceRoute::to(&NAMESPACES, "", namespace);
    let now = time(actor.now());
    let told = |old: &Value| {
        let mut new = old.clone();
        let conditions = left.conditions(items(old, "/status/conditions"), &now);
        put(&mut new, "/status/conditions", conditions);
        Ok(new)
    };
    match actor.update(&route, Part::Status, told).await {
        Err(status) if status.code() != 404 => Err(status),
        _ => Ok(()),
    }
}

/// Takes our finalizer off, which is what holds an empty namespace.
async fn release(actor: &Actor, namespace: &str) -> Result<(), Status> {
    let route = ResourceRoute::to(&NAMESPACES, "", namespace);
    let released = |old: &Value| {
        let mut new = old.clone();
        put(&mut new, "/spec/finalizers", json!([]));
        Ok(new)
    };
    match actor.update(&route, Part::Finalize, released).await {
        Ok(()) => Ok(()),
        Err(status) if status.code() == 404 => Ok(()),
        Err(status) => Err(status),
    }
}
