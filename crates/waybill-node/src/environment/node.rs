//! What the node itself knows and adds.

use std::collections::BTreeMap;

use waybill_core::{
    env::{
        merge::EnvVar,
        name::{EnvName, NameRules},
        origin::Origin,
        value::EnvValue,
    },
    quantity::Quantity,
};

/// What variables and volumes may tell of the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeFacts {
    /// Its name in the API.
    pub(crate) name: String,
    /// Its addresses, the main one first.
    pub(crate) addresses: Vec<String>,
    /// What pods may use, by resource, such as `cpu` and `memory`.
    pub(crate) allocatable: BTreeMap<String, Quantity>,
    /// Where programs in pods find the API server, if there is one.
    pub(crate) api_endpoint: Option<ApiEndpoint>,
}

/// An address of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiEndpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl NodeFacts {
    /// The variables by which clients inside pods find the API server. There are no Services, so there
    /// are no others.
    pub(super) fn variables(&self) -> impl Iterator<Item = EnvVar> {
        let endpoint = self.api_endpoint.as_ref();
        let pairs = endpoint.map(|endpoint| {
            [
                ("KUBERNETES_SERVICE_HOST", endpoint.host.clone()),
                ("KUBERNETES_SERVICE_PORT", endpoint.port.to_string()),
            ]
        });
        pairs.into_iter().flatten().filter_map(|(name, value)| {
            Some(EnvVar {
                name: EnvName::parse(name, NameRules::Strict).ok()?,
                value: EnvValue::plain(value.into_bytes()).ok()?,
                origin: Origin::Node,
            })
        })
    }
}
