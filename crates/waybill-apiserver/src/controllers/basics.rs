//! The objects that every cluster has: four namespaces and the bootstrap roles.

use std::sync::Arc;

use serde_json::{Value, json};
use waybill_api::status::Status;

use super::system_user;
use crate::{
    api::Api,
    audit::AuditNotes,
    authz::bootstrap::{
        self,
        reconcile::{Reconciled, reconcile},
    },
    authz::provider_class::manager_role,
    document::text,
    query::DryRun,
    registry::RESOURCES,
    rest::{Change, DeleteOptions, Part},
    route::ResourceRoute,
};

const NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates what is missing, and brings the bootstrap roles to hold at least what they should.
pub(crate) async fn ensure_basics(api: &Arc<Api>) -> Result<(), Status> {
    for name in NAMESPACES {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create_missing(api, namespace).await?;
    }
    for wanted in bootstrap::objects().into_iter().chain([manager_role()]) {
        let route = route_of(&wanted)?;
        let Ok(existing) = api.reader.get(&route) else {
            create_missing(api, wanted).await?;
            continue;
        };
        let user = system_user("system:apiserver");
        let change = Change {
            route: &route,
            user: &user,
            dry_run: DryRun::No,
            notes: &AuditNotes::default(),
        };
        match reconcile(&existing.document(), &wanted) {
            Reconciled::Keep => {}
            Reconciled::Update(next) => {
                api.rest.update(change, Part::Main, |_| Ok(next.clone())).await?;
            }
            Reconciled::Recreate(next) => {
                api.rest.delete(change, &DeleteOptions::default()).await?;
                create_missing(api, next).await?;
            }
        }
    }
    Ok(())
}

/// Creates `document` unless an object of that name exists.
pub(super) async fn create_missing(api: &Arc<Api>, document: Value) -> Result<(), Status> {
    let route = route_of(&document)?;
    if !route.name.is_empty() && api.reader.get(&route).is_ok() {
        return Ok(());
    }
    let user = system_user("system:apiserver");
    let change =
        Change { route: &route, user: &user, dry_run: DryRun::No, notes: &AuditNotes::default() };
    match api.rest.create(change, document).await {
        Ok(_) => Ok(()),
        Err(status) if status.reason() == "AlreadyExists" => Ok(()),
        Err(status) => Err(status),
    }
}

pub(super) fn route_of(document: &Value) -> Result<ResourceRoute, Status> {
    let api_version = text(document, "/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = text(document, "/kind");
    let resource = RESOURCES.iter().find(|resource| {
        resource.group == group && resource.version == version && resource.kind == kind
    });
    Ok(ResourceRoute {
        resource: resource.ok_or_else(Status::no_such_path)?,
        namespace: text(document, "/metadata/namespace").to_owned(),
        name: text(document, "/metadata/name").to_owned(),
        subresource: String::new(),
    })
}
