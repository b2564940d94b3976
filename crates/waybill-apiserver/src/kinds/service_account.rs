//! ServiceAccounts.

use super::{Kind, Shape};

use crate::{
    patch::schema as patch,
    protobuf::tables,
    registry::{Resource, Subresource},
    schema::{self, KindSchema},
};

static SERVICE_ACCOUNTS_SCHEMAS: [KindSchema; 2] =
    schema::of::<k8s_openapi::api::core::v1::ServiceAccount>();

pub(crate) static SERVICE_ACCOUNTS: Resource = Resource {
    plural: "serviceaccounts",
    singular: "serviceaccount",
    kind: "ServiceAccount",
    short_names: &["sa"],
    subresources: &[Subresource {
        name: "token",
        group_version: Some(("authentication.k8s.io", "v1")),
        kind: "TokenRequest",
        verbs: &["create"],
    }],
    schemas: &SERVICE_ACCOUNTS_SCHEMAS,
    protobuf: Some(&tables::core_v1::SERVICE_ACCOUNT),
    rules: Some(&ServiceAccount),
    patch: patch::core_v1::SERVICE_ACCOUNT,
    ..Resource::BASE
};

pub(super) struct ServiceAccount;

impl Kind for ServiceAccount {
    fn shape(&self) -> Shape {
        Shape::NAMESPACED
    }
}
