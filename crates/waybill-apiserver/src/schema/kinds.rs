//! The kinds that the server knows, one line each.

use std::sync::OnceLock;

use k8s_openapi::{
    ListableResource, Resource,
    api::{
        authentication::v1::{SelfSubjectReview, TokenRequest, TokenReview},
        authorization::v1::{
            LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview,
            SubjectAccessReview,
        },
        coordination::v1::Lease,
        core::v1::{
            Binding, ConfigMap, Event as CoreEvent, Namespace, Node, Pod, PodTemplate, Secret,
            ServiceAccount,
        },
        events::v1::Event,
        policy::v1::Eviction,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
        storage::v1::{CSIDriver, CSINode},
    },
    apimachinery::pkg::apis::meta::v1::{DeleteOptions, Status},
};
use schemars::{JsonSchema, SchemaGenerator};

use super::{
    KindSchema, Versions,
    extensions::{ListOf, PodExecOptions, ProviderClass, V1, V1Alpha1},
};

/// Every kind, each list next to its item.
pub(super) static KINDS: [KindSchema; 48] = [
    item::<Namespace>(),
    list::<Namespace>(),
    item::<Node>(),
    list::<Node>(),
    item::<Pod>(),
    list::<Pod>(),
    item::<PodTemplate>(),
    list::<PodTemplate>(),
    item::<ConfigMap>(),
    list::<ConfigMap>(),
    item::<Secret>(),
    list::<Secret>(),
    item::<ServiceAccount>(),
    list::<ServiceAccount>(),
    item::<CoreEvent>(),
    list::<CoreEvent>(),
    item::<Binding>(),
    named::<PodExecOptions>("", "v1", "PodExecOptions", Versions::Own),
    item::<Event>(),
    list::<Event>(),
    item::<Lease>(),
    list::<Lease>(),
    item::<Role>(),
    list::<Role>(),
    item::<RoleBinding>(),
    list::<RoleBinding>(),
    item::<ClusterRole>(),
    list::<ClusterRole>(),
    item::<ClusterRoleBinding>(),
    list::<ClusterRoleBinding>(),
    item::<TokenReview>(),
    item::<TokenRequest>(),
    item::<SelfSubjectReview>(),
    item::<SubjectAccessReview>(),
    item::<LocalSubjectAccessReview>(),
    item::<SelfSubjectAccessReview>(),
    item::<SelfSubjectRulesReview>(),
    item::<Eviction>(),
    item::<CSIDriver>(),
    list::<CSIDriver>(),
    item::<CSINode>(),
    list::<CSINode>(),
    item::<ProviderClass<V1>>(),
    list::<ProviderClass<V1>>(),
    item::<ProviderClass<V1Alpha1>>(),
    list::<ProviderClass<V1Alpha1>>(),
    named::<Status>("", "v1", "Status", Versions::Every),
    named::<DeleteOptions>("", "v1", "DeleteOptions", Versions::Every),
];

const fn item<T: Resource + JsonSchema>() -> KindSchema {
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
    }
}

fn define<T: JsonSchema>(generator: &mut SchemaGenerator) {
    generator.subschema_for::<T>();
}
