//! The objects that every cluster has: four namespaces, two classes of priority and the bootstrap roles.

use std::sync::Arc;

use serde_json::json;
use waybill_api::status::Status;

use super::actor::{Actor, route_of};
use crate::{
    audit::Recorder,
    authz::{
        bootstrap::{
            self,
            reconcile::{Reconciled, reconcile},
        },
        provider_class::manager_role,
    },
    kinds::priority_class::SYSTEM_CLASSES,
    write::{DeleteOptions, Part, Writer},
};

const NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates what is missing, and brings the bootstrap roles to hold at least what they should.
pub(crate) async fn ensure_basics(
    writer: &Arc<Writer>,
    recorder: &Arc<Recorder>,
) -> Result<(), Status> {
    let actor = Actor::new(writer, recorder, "system:apiserver");
    for name in NAMESPACES {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        actor.create_missing(namespace).await?;
    }
    for (name, value, description) in SYSTEM_CLASSES {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value, "description": description,
        });
        actor.create_missing(class).await?;
    }
    for wanted in bootstrap::objects().into_iter().chain([manager_role()]) {
        let route = route_of(&wanted)?;
        let Some(existing) = actor.get(&route) else {
            actor.create_missing(wanted).await?;
            continue;
        };
        match reconcile(&existing.document(), &wanted) {
            Reconciled::Keep => {}
            Reconciled::Update(next) => {
                actor.update(&route, Part::Main, |_| Ok(next.clone())).await?;
            }
            Reconciled::Recreate(next) => {
                actor.delete(&route, &DeleteOptions::default()).await?;
                actor.create_missing(next).await?;
            }
        }
    }
    Ok(())
}
