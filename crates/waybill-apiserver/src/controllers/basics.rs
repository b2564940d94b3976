//! The objects that every cluster has: four namespaces and the bootstrap roles.

use std::sync::Arc;

use serde_json::{Value, json};
use waybill_api::status::Status;

use super::system_user;
use crate::{
    api::Api, authz::bootstrap, query::DryRun, registry::find, rest::Change, route::ResourceRoute,
};

const NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates what is missing. What is there stays as its owner made it.
pub(crate) async fn ensure_basics(api: &Arc<Api>) -> Result<(), Status> {
    for name in NAMESPACES {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create_missing(api, namespace).await?;
    }
    for object in bootstrap::objects() {
        create_missing(api, object).await?;
    }
    Ok(())
}

/// Creates `document` unless an object of that name exists.
pub(super) async fn create_missing(api: &Arc<Api>, document: Value) -> Result<(), Status> {
    let text =
        |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let plural = match text("/kind") {
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "ConfigMap" => "configmaps",
        "Event" => "events",
        "Namespace" => "namespaces",
        "Role" => "roles",
        "RoleBinding" => "rolebindings",
        "ServiceAccount" => "serviceaccounts",
        kind => return Err(Status::internal(format!("no way to create a {kind}"))),
    };
    let resource = find(group, version, plural).ok_or_else(Status::no_such_path)?;
    let route = ResourceRoute {
        resource,
        namespace: text("/metadata/namespace").to_owned(),
        name: text("/metadata/name").to_owned(),
        subresource: String::new(),
    };
    if !route.name.is_empty() && api.reader.get(&route).is_ok() {
        return Ok(());
    }
    let user = system_user("system:apiserver");
    let change = Change { route: &route, user: &user, dry_run: DryRun::No };
    match api.rest.create(change, document).await {
        Ok(_) => Ok(()),
        Err(status) if status.reason() == "AlreadyExists" => Ok(()),
        Err(status) => Err(status),
    }
}
