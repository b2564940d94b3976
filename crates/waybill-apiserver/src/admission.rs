//! What is admitted: checks that need more than the object itself. Every write passes here, whoever makes
//! it: clients, nodes and our own controllers, objects and parts of them, sessions and tokens.
//!
//! There are two phases. Mutation comes first and fills in; then the object is validated by its kind; then
//! validation looks at its surroundings: the namespace, the service account, the roles of whoever asks, and
//! the provider classes that its variables name. Each phase is a list of built-in rules in a fixed order,
//! followed by those that administrators add ([`DynamicAdmission`]).

mod attributes;
mod certificates;
mod dynamic;
mod env_names;
pub(crate) mod ephemeral;
pub(crate) mod exec_env;
mod namespaces;
mod node_restriction;
mod policy_params;
mod priority;
mod provider_classes;
mod roles;
mod runtime_class;
mod service_account;

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use waybill_api::{pod::PodEnvSpec, status::Status};

pub(crate) use self::{
    attributes::{Attributes, ObjectKind, Operation, Remarks, Tracking, WriteOptions},
    dynamic::{
        AdmissionMetrics, DynamicAdmission, Enforcer, RULES_GROUP, RuleSources, WebhookClient,
        WebhookTls,
    },
};
use crate::{
    authz::Authorizer,
    convert,
    document::{at, put},
    objects::Objects,
    schema::{self, FieldValidation},
};

/// Judges writes by what else there is.
pub(crate) struct Admission {
    pub(crate) objects: Arc<Objects>,
    pub(crate) authorizer: Arc<Authorizer>,
    /// Who the API server is to service account tokens.
    pub(crate) audiences: Vec<String>,
    pub(crate) dynamic: Arc<dyn DynamicAdmission>,
}

type Mutation = fn(&Admission, &mut Attributes<'_>) -> Result<(), Status>;
type Validation = fn(&Admission, &Attributes<'_>) -> Result<(), Status>;

/// In this order. Each rule looks by itself whether a write concerns it.
const MUTATIONS: &[Mutation] = &[
    |admission, attributes| admission.check_namespace(attributes),
    // Before anything is quietly kept as it was: a node is told what it may not change.
    |admission, attributes| admission.restrict_node_update(attributes),
    Admission::set_service_account,
    Admission::set_priority,
    Admission::apply_runtime_class,
    Admission::set_requestor,
];

/// In this order.
const VALIDATIONS: &[Validation] = &[
    Admission::check_policy_params,
    Admission::check_roles,
    Admission::restrict_node,
    Admission::restrict_node_token,
    Admission::check_session_env,
    Admission::check_provider_classes,
    Admission::check_env_names,
    Admission::check_default_class,
    Admission::check_signer,
    Admission::restrict_subject,
];

impl Admission {
    /// The first phase. True if rules that administrators added have changed the object, which may be
    /// anything of its kind then.
    pub(crate) async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<bool, Status> {
        self.mutate_built_in(attributes)?;
        if !self.dynamic.watches(attributes) {
            return Ok(false);
        }
        let resource = attributes.resource;
        let object = convert::from_storage(resource, std::mem::take(&mut attributes.object));
        let old = convert::from_storage(resource, attributes.old.clone());
        let mut shown = Attributes { object, old: &old, ..*attributes };
        let changed = self.dynamic.mutate(&mut shown, self).await?;
        let object = if changed { read_again(&mut shown)? } else { shown.object };
        attributes.object = convert::to_storage(resource, object);
        Ok(changed)
    }

    /// What is built in of the first phase.
    pub(crate) fn mutate_built_in(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        MUTATIONS.iter().try_for_each(|rule| rule(self, attributes))
    }

    /// The second phase: the object stays as it is.
    pub(crate) async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        VALIDATIONS.iter().try_for_each(|rule| rule(self, attributes))?;
        if !self.dynamic.watches(attributes) {
            return Ok(());
        }
        let resource = attributes.resource;
        if std::ptr::eq(resource, resource.storage()) {
            return self.dynamic.validate(attributes, self).await;
        }
        let object = convert::from_storage(resource, attributes.object.clone());
        let old = convert::from_storage(resource, attributes.old.clone());
        self.dynamic.validate(&Attributes { object, old: &old, ..*attributes }, self).await
    }

    /// Both phases for a session or a path of a node, whose `options` are shown only to whom wants to see
    /// them. Returns the options to go on with.
    pub(crate) async fn connect<T: Serialize + DeserializeOwned>(
        &self,
        attributes: &mut Attributes<'_>,
        options: T,
    ) -> Result<T, Status> {
        self.mutate_built_in(attributes)?;
        VALIDATIONS.iter().try_for_each(|rule| rule(self, attributes))?;
        if !self.dynamic.watches(attributes) {
            return Ok(options);
        }
        let kind = attributes.kind().kind;
        attributes.object = serde_json::to_value(&options).map_err(|error| {
            Status::bad_request(format!("admission cannot be shown these {kind}: {error}"))
        })?;
        put(&mut attributes.object, "/apiVersion", "v1");
        put(&mut attributes.object, "/kind", kind);
        let changed = self.dynamic.mutate(attributes, self).await?;
        self.dynamic.validate(attributes, self).await?;
        if !changed {
            return Ok(options);
        }
        serde_json::from_value(std::mem::take(&mut attributes.object)).map_err(|error| {
            Status::internal(format!("admission made something else of the {kind}: {error}"))
        })
    }
}

/// The object after rules of administrators, as if a client had sent it: unknown fields are dropped, and
/// one of another shape is refused.
fn read_again(attributes: &mut Attributes<'_>) -> Result<Value, Status> {
    let ObjectKind { group, version, kind } = attributes.kind();
    let object = std::mem::take(&mut attributes.object);
    let Some(schema) = schema::lookup(group, version, kind).filter(|_| !object.is_null()) else {
        return Ok(object);
    };
    let read = schema.check(object, FieldValidation::Ignore).map_err(|error| {
        Status::internal(format!("admission made something else of the {kind}: {error}"))
    })?;
    Ok(read.object)
}

/// A pod without a spec is refused for that; one whose variables cannot be read must not pass.
fn read_variables(pod: &Value) -> Result<PodEnvSpec, Status> {
    match at(pod, "/spec") {
        Value::Null => Ok(PodEnvSpec::default()),
        spec => PodEnvSpec::from_value(spec)
            .map_err(|_| Status::bad_request("spec: its variables cannot be read")),
    }
}
