//! `pods/eviction`: deletes a pod politely.

use serde_json::Value;
use waybill_api::status::Status;

use super::{Change, DeleteOptions, Writer, delete::Ask};
use crate::{
    document::{at, metadata},
    query::DryRun,
    route::ResourceRoute,
};

impl Writer {
    /// Evicts the pod that `change` names as `eviction` says, which has been decoded.
    pub(crate) async fn evict(&self, change: Change<'_>, eviction: Value) -> Result<(), Status> {
        let read = |eviction: &Value| DeleteOptions::read(at(eviction, "/deleteOptions"), None);
        // A deletion that is only tried must be one for admission, too.
        let (_, said) = read(&eviction)?;
        let dry_run = if said == DryRun::All { said } else { change.dry_run };
        let change = Change { dry_run, ..change };
        let check = |eviction: &Value| check_place(eviction, change.route);
        check(&eviction)?;
        let eviction = self.admit_create(change, eviction, check).await?;
        let (options, _) = read(&eviction)?;
        let pod = change.route.with_subresource("");
        self.delete_if(Change { route: &pod, ..change }, &options, Ask::Nobody).await.map(drop)
    }
}

/// Whom an eviction names, and who is evicted, must be the same; the texts are upstream's.
fn check_place(eviction: &Value, route: &ResourceRoute) -> Result<(), Status> {
    if metadata(eviction, "name") != route.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let namespace = metadata(eviction, "namespace");
    if !namespace.is_empty() && namespace != route.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
