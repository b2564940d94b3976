//! A caller of a driver that remembers what it was told.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Mutex,
    time::Duration,
};

use tonic::{
    Request, Status,
    transport::{self, Channel, Endpoint},
};
use waybill_proto::csi::{
    EnvVarQuery, EnvVarResult, NodeGetCapabilitiesRequest, NodeGetEnvVarsRequest,
    identity_client::IdentityClient,
    node_client::NodeClient,
    node_service_capability::{Type, rpc},
};

use super::{Key, Target};

/// As long as the longest that a driver may ask for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Shorter values stand in many texts by chance.
const TELLING_BYTES: usize = 8;

/// A connection to a driver.
pub struct Client {
    pub(super) target: Target,
    pub(super) identity: IdentityClient<Channel>,
    pub(super) node: NodeClient<Channel>,
    values: Mutex<BTreeSet<String>>,
    texts: Mutex<Vec<String>>,
}

/// Nobody answers at the socket.
#[derive(Debug, thiserror::Error)]
#[error("no driver answers at {}", socket.display())]
pub struct DriverUnreachable {
    socket: PathBuf,
    #[source]
    source: transport::Error,
}

impl Client {
    pub(super) async fn connect(target: &Target) -> Result<Self, DriverUnreachable> {
        let failed = |source| DriverUnreachable { socket: target.socket.clone(), source };
        let address = format!("unix://{}", target.socket.display());
        let endpoint = Endpoint::try_from(address).map_err(failed)?;
        let channel = endpoint.connect().await.map_err(failed)?;
        Ok(Self {
            target: target.clone(),
            identity: IdentityClient::new(channel.clone()),
            node: NodeClient::new(channel),
            values: Mutex::default(),
            texts: Mutex::default(),
        })
    }

    /// Whether the driver says that it serves variables.
    pub(super) async fn has_capability(&self) -> bool {
        let found = self.node.clone().node_get_capabilities(NodeGetCapabilitiesRequest {}).await;
        found.is_ok_and(|found| {
            let kinds = found.into_inner().capabilities.into_iter().filter_map(|it| it.r#type);
            let wanted = i32::from(rpc::Type::EnvVarInjection);
            kinds.into_iter().any(|kind| matches!(kind, Type::Rpc(rpc) if rpc.r#type == wanted))
        })
    }

    /// A whole request for `keys`, named `V0`, `V1` and so on.
    pub(super) fn request(&self, keys: &[Key]) -> NodeGetEnvVarsRequest {
        let query = |(at, key): (usize, &Key)| EnvVarQuery {
            name: format!("V{at}"),
            key: key.key.clone(),
            query_parameters: key.parameters.clone(),
            optional: false,
        };
        let context = [
            ("namespace", "waybill-conformance"),
            ("serviceAccount", "default"),
            ("podName", "conformance"),
            ("podUID", "00000000-0000-4000-8000-000000000000"),
            ("nodeName", "conformance"),
        ];
        let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let mut pod_context: BTreeMap<_, _> = context.into_iter().map(text).collect();
        pod_context.extend(self.target.context.clone());
        // A class always has parameters.
        let mut class_parameters: BTreeMap<_, _> = [text(("allowedNamespaces", "*"))].into();
        class_parameters.extend(self.target.parameters.clone());
        NodeGetEnvVarsRequest {
            provider_class_name: "waybill-conformance".to_owned(),
            class_parameters,
            queries: keys.iter().enumerate().map(query).collect(),
            pod_context,
            version: String::new(),
        }
    }

    /// Makes the call, and remembers values and texts of failures for [`Client::told_value`].
    pub(super) async fn call(
        &self,
        message: NodeGetEnvVarsRequest,
    ) -> Result<Vec<EnvVarResult>, Status> {
        let mut request = Request::new(message);
        request.set_timeout(PATIENCE);
        let found = self.node.clone().node_get_env_vars(request).await;
        let mut texts = self.texts.lock().expect("nobody panics with it");
        match found {
            Ok(response) => {
                let results = response.into_inner().results;
                let mut values = self.values.lock().expect("nobody panics with it");
                for result in &results {
                    texts.push(result.error.clone());
                    values.insert(String::from_utf8_lossy(&result.value).into_owned());
                }
                Ok(results)
            }
            Err(status) => {
                texts.push(status.message().to_owned());
                texts.push(String::from_utf8_lossy(status.details()).into_owned());
                Err(status)
            }
        }
    }

    /// The values of `keys`, once the reply has the form that it must have.
    pub(super) async fn values(&self, keys: &[Key]) -> Result<Vec<Vec<u8>>, String> {
        let found = self.call(self.request(keys)).await;
        let results = found.map_err(|status| format!("it failed with {}", told(&status)))?;
        if results.len() != keys.len() {
            return Err(format!("{} results to {} queries", results.len(), keys.len()));
        }
        for (at, result) in results.iter().enumerate() {
            if result.name != format!("V{at}") {
                return Err(format!("result {at} is of {:?} and not of \"V{at}\"", result.name));
            }
            if !result.error.is_empty() {
                return Err(format!("result {at} has the error {:?}", result.error));
            }
            if result.value.contains(&0) || std::str::from_utf8(&result.value).is_err() {
                return Err(format!("the value of result {at} is no text"));
            }
        }
        Ok(results.into_iter().map(|mut result| std::mem::take(&mut result.value)).collect())
    }

    /// A text of a failure that has a value in it; keys may have one by themselves.
    pub(super) fn told_value(&self) -> Option<String> {
        let values = self.values.lock().expect("nobody panics with it");
        let texts = self.texts.lock().expect("nobody panics with it");
        let in_a_key = |value: &str| self.target.keys.iter().any(|key| key.key.contains(value));
        let mut telling =
            values.iter().filter(|value| value.len() >= TELLING_BYTES && !in_a_key(value.as_str()));
        telling.find_map(|value| texts.iter().find(|text| text.contains(value.as_str()))).cloned()
    }
}

/// Code and text of a status.
pub(super) fn told(status: &Status) -> String {
    format!("{:?}, {:?}", status.code(), status.message())
}
