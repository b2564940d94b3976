//! The kinds that the server knows: those of its resources, and a few more.

use std::sync::OnceLock;

use k8s_openapi::{
    ListableResource, Resource,
    api::{authentication::v1::TokenRequest, core::v1::Binding, policy::v1::Eviction},
    apimachinery::pkg::apis::meta::v1::{DeleteOptions, Status},
};
use schemars::{JsonSchema, SchemaGenerator};

use super::{
    KindSchema, Versions,
    extensions::{ListOf, PodExecOptions},
};
use crate::registry::RESOURCES;

/// The kinds that are no resource's own: what is sent to subresources, and what is answered.
pub(super) static OTHERS: [KindSchema; 6] = [
    item::<Binding>(),
    named::<PodExecOptions>("", "v1", "PodExecOptions", Versions::Own),
    item::<TokenRequest>(),
    item::<Eviction>(),
    named::<Status>("", "v1", "Status", Versions::Every),
    named::<DeleteOptions>("", "v1", "DeleteOptions", Versions::Every),
];

/// Every kind, each list next to its item.
pub(super) fn all() -> impl Iterator<Item = &'static KindSchema> {
    RESOURCES.iter().flat_map(|resource| resource.schemas).chain(&OTHERS)
}

/// The kind of a resource, and that of its lists.
pub(crate) const fn of<T: ListableResource + JsonSchema>() -> [KindSchema; 2] {
    [item::<T>(), list::<T>()]
}

/// A kind that is never listed.
pub(crate) const fn item<T: Resource + JsonSchema>() -> KindSchema {
    named::<T>(T::GROUP, T::VERSION, T::KIND, Versions::Own)
}

const fn list<T: ListableResource + JsonSchema>() -> KindSchema {
    named::<ListOf<T>>(T::GROUP, T::VERSION, T::LIST_KIND, Versions::Own)
}

const fn named<T: JsonSchema>(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    versions: Versions,
) -> KindSchema {
    KindSchema {
        group,
        version,
        kind,
        versions,
        name: T::schema_name,
        define: define::<T>,
        compiled: OnceLock::new(),
        merge: OnceLock::new(),
    }
}

fn define<T: JsonSchema>(generator: &mut SchemaGenerator) {
    generator.subschema_for::<T>();
}
