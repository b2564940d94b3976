//! Namespaces get their default service account and the cluster's certificate, and are emptied
//! before they go.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use waybill_api::status::Status;

use super::{basics::create_missing, system_user};
use crate::{
    api::Api,
    audit::AuditNotes,
    cache::CachedObject,
    document::{is_terminating, put},
    query::DryRun,
    registry::find,
    rest::{Change, DeleteOptions, Part},
    route::ResourceRoute,
};

/// How often everything is looked at, whether or not something was heard.
const ROUND: Duration = Duration::from_secs(5);

pub(super) async fn run(api: Arc<Api>, ca_certificate: String) {
    let Some(cache) = find("", "v1", "namespaces").and_then(|it| api.reader.objects.cache(it))
    else {
        return;
    };
    loop {
        let (listing, mut watcher) = cache.list_and_watch(|_| true);
        for namespace in &listing.objects {
            tend(&api, namespace, &ca_certificate).await;
        }
        loop {
            match tokio::time::timeout(ROUND, watcher.next()).await {
                Ok(Some(told)) => {
                    if let Some(namespace) = cache.get(&told.change.object.key) {
                        tend(&api, &namespace, &ca_certificate).await;
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    for namespace in cache.list("", None, usize::MAX, |_| true).objects {
                        tend(&api, &namespace, &ca_certificate).await;
                    }
                }
            }
        }
    }
}

async fn tend(api: &Arc<Api>, namespace: &CachedObject, ca_certificate: &str) {
    let document = namespace.document();
    let name = &*namespace.key.name;
    let result = if is_terminating(&document) {
        empty(api, name).await
    } else {
        furnish(api, name, ca_certificate).await
    };
    if let Err(status) = result {
        tracing::debug!(namespace = name, message = status.message(), "a namespace has to wait");
    }
}

async fn furnish(api: &Arc<Api>, namespace: &str, ca_certificate: &str) -> Result<(), Status> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": namespace},
    });
    create_missing(api, account).await?;
    let certificate = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kube-root-ca.crt", "namespace": namespace},
        "data": {"ca.crt": ca_certificate},
    });
    create_missing(api, certificate).await
}

/// Deletes what is inside; when nothing is left, lets the namespace go.
async fn empty(api: &Arc<Api>, namespace: &str) -> Result<(), Status> {
    let user = system_user("system:serviceaccount:kube-system:namespace-controller");
    for (resource, cache) in api.reader.objects.caches() {
        if !resource.is_namespaced() {
            continue;
        }
        for object in cache.list(namespace, None, usize::MAX, |_| true).objects {
            let route = ResourceRoute {
                resource,
                namespace: namespace.to_owned(),
                name: object.key.name.to_string(),
                subresource: String::new(),
            };
            let change = Change {
                route: &route,
                user: &user,
                dry_run: DryRun::No,
                notes: &AuditNotes::default(),
            };
            match api.rest.delete(change, &DeleteOptions::default()).await {
                Ok(_) => {}
                Err(status) if status.code() == 404 => {}
                Err(status) => return Err(status),
            }
        }
    }
    let nothing_left = api
        .reader
        .objects
        .caches()
        .filter(|(resource, _)| resource.is_namespaced())
        .all(|(_, cache)| cache.list(namespace, None, 1, |_| true).objects.is_empty());
    if nothing_left { release(api, namespace).await } else { Ok(()) }
}

/// Takes our finalizer off, which is what holds an empty namespace.
async fn release(api: &Arc<Api>, namespace: &str) -> Result<(), Status> {
    let resource = find("", "v1", "namespaces").ok_or_else(Status::no_such_path)?;
    let route = ResourceRoute {
        resource,
        namespace: String::new(),
        name: namespace.to_owned(),
        subresource: String::new(),
    };
    let user = system_user("system:serviceaccount:kube-system:namespace-controller");
    let change =
        Change { route: &route, user: &user, dry_run: DryRun::No, notes: &AuditNotes::default() };
    let released = |old: &Value| {
        let mut new = old.clone();
        put(&mut new, "/spec/finalizers", json!([]));
        Ok(new)
    };
    match api.rest.update(change, Part::Finalize, released).await {
        Ok(_) => Ok(()),
        Err(status) if status.code() == 404 => Ok(()),
        Err(status) => Err(status),
    }
}
