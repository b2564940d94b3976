//! What the server knows about each kind of object that it serves.
//!
//! One small file per kind says what users may leave out, what the server fills in, and what is
//! refused. Everything here is pure: documents come in, documents and field errors go out. A
//! document may have any shape; nothing here panics or stops at the first fault.

pub(crate) mod admission_policy;
pub(crate) mod admission_policy_binding;
mod admission_rules;
pub(crate) mod certificate_request;
pub(crate) mod config_map;
pub(crate) mod csi_driver;
pub(crate) mod csi_node;
mod document;
pub(crate) mod endpoint_slice;
pub(crate) mod endpoints;
pub(crate) mod event;
pub(crate) mod lease;
mod meta;
pub(crate) mod namespace;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod pod_template;
pub(crate) mod priority_class;
pub(crate) mod provider_class;
pub(crate) mod review;
pub(crate) mod role;
pub(crate) mod role_binding;
pub(crate) mod runtime_class;
pub(crate) mod secret;
mod selector;
pub(crate) mod service;
pub(crate) mod service_account;
mod taint;
pub(crate) mod webhook_configuration;

#[cfg(test)]
mod testing;

use serde_json::Value;
use waybill_api::{field::ErrorList, gates::FeatureGates, pod::EnvOptions};

use self::document::Field;
pub(crate) use self::meta::NameRule;
pub(crate) use self::{
    certificate_request::{prepare_approval, validate_approval},
    namespace::{prepare_finalize, validate_finalize},
    pod::{
        bind, prepare_ephemeral_containers_update, prepare_resize, validate_binding,
        validate_ephemeral_containers_update, validate_resize,
    },
};
use crate::registry::Scope;

/// The rules of one kind.
///
/// A request that writes goes through `default`, then `prepare_*`, then `validate_*`. Most kinds
/// state their [`Shape`] and implement the two `check` methods only.
pub(crate) trait Kind: Send + Sync {
    /// What the kind has in common with others.
    fn shape(&self) -> Shape;

    /// Fills what users leave out; doing it twice changes nothing more.
    fn default(&self, _object: &mut Value) {}

    /// Makes `object` ready to be born: nothing in it that only the server may say.
    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        meta::prepare_create(self.shape(), object);
    }

    /// Makes `new` ready to replace `old`: what only the server may change stays as it was.
    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        meta::prepare_update(self.shape(), new, old);
    }

    /// As [`Kind::prepare_update`], for the `status` subresource.
    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        meta::prepare_status_update(new, old);
    }

    /// Everything that is wrong with a new object.
    fn validate_create(&self, object: &Value, context: &Context) -> ErrorList {
        let mut errors = meta::validate_create(self.shape(), object);
        self.check(Field::root(object), context, &mut errors);
        errors
    }

    /// Everything that is wrong with `new` in place of `old`.
    fn validate_update(&self, new: &Value, old: &Value, context: &Context) -> ErrorList {
        let mut errors = meta::validate_update(new, old);
        self.check(Field::root(new), context, &mut errors);
        self.check_change(Field::root(new), Field::root(old), &mut errors);
        errors
    }

    /// As [`Kind::validate_update`], for the `status` subresource.
    fn validate_status_update(&self, new: &Value, old: &Value, _context: &Context) -> ErrorList {
        meta::validate_update(new, old)
    }

    /// What is legal but likely a mistake.
    fn warnings(&self, _object: &Value, _context: &Context) -> Vec<String> {
        Vec::new()
    }

    /// What must hold for every object of the kind, its metadata aside.
    fn check(&self, _object: Field<'_, '_>, _context: &Context, _errors: &mut ErrorList) {}

    /// What must hold between two versions of an object, its metadata aside.
    fn check_change(&self, _new: Field<'_, '_>, _old: Field<'_, '_>, _errors: &mut ErrorList) {}
}

/// What validation depends on besides the documents; the same for a whole request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(crate) gates: FeatureGates,
    pub(crate) env: EnvOptions,
}

/// What distinguishes kinds that otherwise work alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) scope: Scope,
    pub(crate) names: NameRule,
    pub(crate) generation: Generation,
    pub(crate) status: Status,
    /// Whether `PUT` to a name that does not exist creates the object.
    pub(crate) create_on_update: bool,
    /// Whether an update may leave out the `resourceVersion`.
    pub(crate) unconditional_update: bool,
}

impl Shape {
    /// The usual shape of kinds in namespaces.
    const NAMESPACED: Self = Self {
        scope: Scope::Namespaced,
        names: NameRule::Subdomain,
        generation: Generation::Unused,
        status: Status::Absent,
        create_on_update: false,
        unconditional_update: true,
    };

    /// The usual shape of kinds of the whole cluster.
    const CLUSTER: Self = Self { scope: Scope::Cluster, ..Self::NAMESPACED };
}

/// Whether `metadata.generation` counts the changes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// From 1, with each change of this field.
    Of(&'static str),
    /// From 1, with each change of the `spec`.
    OfSpec,
    /// The kind has none.
    Unused,
}

/// Who writes `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The kind has none.
    Absent,
    /// It may come with a new object, and afterwards changes by its subresource only.
    AtCreation,
    /// Its subresource only.
    Subresource,
}
