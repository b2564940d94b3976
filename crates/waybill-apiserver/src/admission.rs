//! What is admitted: checks that need more than the object itself.
//!
//! Mutation comes first and fills in; then the object is validated by its kind; then these checks
//! look at its surroundings: the namespace, the service account, the roles of whoever asks, and the
//! provider classes that its variables name.

mod env_names;
pub(crate) mod ephemeral;
pub(crate) mod exec_env;
mod node_restriction;
mod provider_classes;
mod service_account;

use std::sync::Arc;

use serde_json::Value;
use waybill_api::{
    pod::PodEnvSpec,
    status::{Status, Target},
};

use crate::{
    authz::{Authorizer, forbidden::object_message, node::restriction::NodeWrite},
    document::{at, is_terminating, metadata},
    objects::Objects,
    rest::{Change, Part},
};

/// Namespaces that the cluster cannot do without.
const KEPT_NAMESPACES: &[&str] = &["default", "kube-public", "kube-system"];

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// Judges writes by what else there is.
pub(crate) struct Admission {
    pub(crate) objects: Arc<Objects>,
    pub(crate) authorizer: Arc<Authorizer>,
}

impl Admission {
    /// Fills in what depends on other objects.
    pub(crate) fn mutate_create(
        &self,
        change: Change<'_>,
        document: &mut Value,
    ) -> Result<(), Status> {
        if is_pod(change) {
            self.set_service_account(change, document)?;
        }
        Ok(())
    }

    pub(crate) fn validate_create(
        &self,
        change: Change<'_>,
        document: &Value,
    ) -> Result<(), Status> {
        self.check_namespace(change, document)?;
        self.check_roles(change, None, document)?;
        self.restrict_node(change, "", NodeWrite::Create(document))?;
        self.check_env_names(change, None, document)?;
        if is_pod(change) {
            self.check_provider_classes(change, &read_variables(document)?, document)?;
        }
        Ok(())
    }

    pub(crate) fn validate_update(
        &self,
        change: Change<'_>,
        part: Part,
        new: &Value,
        old: &Value,
    ) -> Result<(), Status> {
        match part {
            Part::Main => {
                self.check_roles(change, Some(old), new)?;
                self.check_env_names(change, Some(old), new)
            }
            Part::EphemeralContainers => {
                let added = ephemeral::added_containers(old, new)?;
                self.check_session_env(change, &added, new)?;
                self.check_provider_classes(change, &added, new)?;
                self.check_env_names(change, Some(old), new)
            }
            Part::Binding | Part::Finalize | Part::Status => Ok(()),
        }
    }

    pub(crate) fn validate_delete(
        &self,
        change: Change<'_>,
        document: &Value,
    ) -> Result<(), Status> {
        let name = metadata(document, "name");
        if change.route.resource.plural == "namespaces" && KEPT_NAMESPACES.contains(&name) {
            return Err(forbidden(change, name, "this namespace may not be deleted"));
        }
        self.restrict_node(change, "", NodeWrite::Delete(document))
    }

    /// Objects are created only in namespaces that exist and are not going away.
    fn check_namespace(&self, change: Change<'_>, document: &Value) -> Result<(), Status> {
        if !change.route.resource.is_namespaced() {
            return Ok(());
        }
        let namespace = &change.route.namespace;
        let Some(found) = self.objects.namespace(namespace) else {
            let target = Target { group: "", resource: "namespaces", name: namespace };
            return Err(Status::not_found(target));
        };
        if is_terminating(&found) {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            return Err(forbidden(change, metadata(document, "name"), &why));
        }
        Ok(())
    }

    /// Nobody hands out rights that they do not have.
    fn check_roles(
        &self,
        change: Change<'_>,
        old: Option<&Value>,
        new: &Value,
    ) -> Result<(), Status> {
        if change.route.resource.group != RBAC_GROUP {
            return Ok(());
        }
        self.authorizer
            .check_rbac_write(change.user, old, new)
            .map_err(|error| forbidden(change, metadata(new, "name"), &error.to_string()))
    }
}

/// A pod without a spec is refused for that; one whose variables cannot be read must not pass.
fn read_variables(pod: &Value) -> Result<PodEnvSpec, Status> {
    match at(pod, "/spec") {
        Value::Null => Ok(PodEnvSpec::default()),
        spec => PodEnvSpec::from_value(spec)
            .map_err(|_| Status::bad_request("spec: its variables cannot be read")),
    }
}

fn is_pod(change: Change<'_>) -> bool {
    let resource = change.route.resource;
    resource.group.is_empty() && resource.plural == "pods"
}

fn forbidden(change: Change<'_>, name: &str, why: &str) -> Status {
    let resource = change.route.resource;
    let message = object_message(resource.group, resource.plural, name, why);
    Status::forbidden(Target { name, ..change.route.status_target() }, message)
}
