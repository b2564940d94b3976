//! Values for the references of a pod, from the drivers of this node: what is checked before one is asked, the call, and
//! what its answer must be. Nothing of it is kept here.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use tokio::{net::UnixStream, time::timeout};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;
use waybill_api::{
    pod::CsiSecretSelector,
    provider_class::{KIND, ProviderClass, RESOURCE, UseDenied},
    stock::Reference,
};
use waybill_core::{id::DriverName, secret::SecretBytes};
use waybill_proto::csi::{
    EnvVarQuery, EnvVarResult, GetPluginInfoRequest, NodeGetEnvVarsRequest,
    identity_client::IdentityClient, node_client::NodeClient,
};

use super::pods::KnownPod;
use crate::gate::rights::{Rights, RightsError};

/// The entry of the context that holds tokens.
pub(super) const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// For one call to a driver. A kubelet waits two minutes for a volume.
const CALL: Duration = Duration::from_secs(20);

/// For one question to the API server.
const ASK: Duration = Duration::from_secs(10);

/// One variable has less than this, and so have all of a pod.
const VALUE_BYTES: usize = 128 << 10;
const ALL_BYTES: usize = 2 << 20;
const MESSAGE_BYTES: usize = 4 << 20;

/// Values by class and key.
pub(super) type Values = BTreeMap<(String, String), SecretBytes>;

/// Where values come from.
pub(super) struct Drivers {
    client: Client,
    rights: Rights,
    group: String,
    /// Below it each driver has a directory with its socket.
    plugins: PathBuf,
    node: String,
}

/// Why there are no values. What a driver says is passed on, cut; values are in none.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("ProviderClass {class:?} cannot be read: {why}")]
    Class { class: String, why: String },
    #[error(transparent)]
    Denied(#[from] UseDenied),
    #[error("the API server could not be asked whether the service account may use {class:?}")]
    Rights {
        class: String,
        #[source]
        source: RightsError,
    },
    #[error("driver {driver:?} is not here: {why}")]
    Driver { driver: String, why: String },
    #[error("driver {driver:?}: {why}")]
    Refused { driver: String, why: String },
}

impl FetchError {
    /// Whether the pod may not have its values, rather than that nobody can tell.
    pub(super) fn is_denial(&self) -> bool {
        matches!(self, Self::Denied(_))
    }
}

impl Drivers {
    pub(super) fn new(client: Client, group: String, plugins: PathBuf, node: String) -> Self {
        Self { rights: Rights::new(client.clone(), group.clone()), client, group, plugins, node }
    }

    /// All values of a pod, each class asked once; or the first reason why not.
    pub(super) async fn fetch(
        &self,
        pod: &KnownPod,
        tokens: Option<&SecretBytes>,
    ) -> Result<Values, FetchError> {
        let mut classes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for reference in pod.references() {
            classes.entry(reference.class().as_str()).or_default().push(reference.key());
        }
        let mut values = Values::new();
        for (class, keys) in classes {
            let found = self.class(class).await?;
            check(&found, class, &keys, &pod.namespace)?;
            let right = self.rights.check(&pod.namespace, &pod.service_account, class).await;
            right.map_err(|source| FetchError::Rights { class: class.to_owned(), source })??;
            let answers = self.ask(&found, class, &keys, pod, tokens).await?;
            for (key, value) in keys.iter().zip(answers) {
                values.insert((class.to_owned(), (*key).to_owned()), value);
            }
        }
        Ok(values)
    }

    async fn class(&self, name: &str) -> Result<ProviderClass, FetchError> {
        let failed = |why: String| FetchError::Class { class: name.to_owned(), why };
        let kind = GroupVersionKind::gvk(&self.group, "v1", KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, RESOURCE);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let found = timeout(ASK, api.get_opt(name)).await;
        let found = found.map_err(|_| failed("the API server did not answer".to_owned()))?;
        let found = found.map_err(|error| failed(error.to_string()))?;
        let found = found.ok_or_else(|| UseDenied::NotFound(name.to_owned()))?;
        let class = serde_json::to_value(found).and_then(serde_json::from_value);
        class.map_err(|_| failed("it is not understood".to_owned()))
    }

    async fn ask(
        &self,
        class: &ProviderClass,
        name: &str,
        keys: &[&str],
        pod: &KnownPod,
        tokens: Option<&SecretBytes>,
    ) -> Result<Vec<SecretBytes>, FetchError> {
        let driver = class.spec.driver.as_str();
        let refused = |why: String| FetchError::Refused { driver: driver.to_owned(), why };
        let channel = self.dial(driver).await?;
        let mut identity = IdentityClient::new(channel.clone());
        let info = timeout(CALL, identity.get_plugin_info(GetPluginInfoRequest {})).await;
        let info = info.map_err(|_| refused("it does not answer".to_owned()))?;
        let info = info.map_err(|status| refused(shown(status.message())))?.into_inner();
        if info.name != driver {
            return Err(refused(format!("{:?} answers in its place", shown(&info.name))));
        }
        let query = |(place, key): (usize, &&str)| EnvVarQuery {
            name: format!("V{place}"),
            key: (*key).to_owned(),
            ..EnvVarQuery::default()
        };
        let request = NodeGetEnvVarsRequest {
            provider_class_name: name.to_owned(),
            class_parameters: class.spec.parameters.clone().into_iter().collect(),
            queries: keys.iter().enumerate().map(query).collect(),
            pod_context: self.context(pod, tokens),
            version: info.vendor_version,
        };
        let mut node = NodeClient::new(channel).max_decoding_message_size(MESSAGE_BYTES);
        let answer = timeout(CALL, node.node_get_env_vars(request)).await;
        let answer = answer.map_err(|_| refused("it does not answer".to_owned()))?;
        let answer = answer.map_err(|status| refused(shown(status.message())))?;
        read(answer.into_inner().results, keys.len()).map_err(refused)
    }

    fn context(&self, pod: &KnownPod, tokens: Option<&SecretBytes>) -> BTreeMap<String, String> {
        let facts = [
            ("namespace", &pod.namespace),
            ("serviceAccount", &pod.service_account),
            ("podName", &pod.name),
            ("podUID", &pod.uid),
            ("nodeName", &self.node),
        ];
        let facts = facts.map(|(name, fact)| (name.to_owned(), fact.clone()));
        let mut context = BTreeMap::from(facts);
        if let Some(tokens) = tokens
            && let Ok(text) = std::str::from_utf8(tokens.expose())
        {
            context.insert(TOKENS.to_owned(), text.to_owned());
        }
        context
    }

    /// Connects to the socket of a driver, if who answers there is root or has the directory.
    async fn dial(&self, driver: &str) -> Result<Channel, FetchError> {
        let failed =
            |why: &str| FetchError::Driver { driver: driver.to_owned(), why: why.to_owned() };
        // It becomes part of a path.
        DriverName::parse(driver).map_err(|_| failed("it has no possible name"))?;
        let folder = self.plugins.join(driver);
        let owner = owner(&folder).map_err(&failed)?;
        let stream = timeout(ASK, UnixStream::connect(folder.join("csi.sock"))).await;
        let stream = stream.map_err(|_| failed("its socket does not answer"))?;
        let stream = stream.map_err(|error| failed(&error.kind().to_string()))?;
        let peer = stream.peer_cred().map_err(|_| failed("nobody knows who answers"))?;
        if peer.uid() != 0 && peer.uid() != owner {
            return Err(failed("somebody else answers at its socket"));
        }
        let mut stream = Some(TokioIo::new(stream));
        let connector = service_fn(move |_| {
            let closed = || std::io::Error::from(std::io::ErrorKind::NotConnected);
            let stream = stream.take().ok_or_else(closed);
            async move { stream }
        });
        // The name is for headers alone.
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = endpoint.connect_with_connector(connector).await;
        channel.map_err(|_| failed("its socket speaks something else"))
    }
}

/// Whose a directory is, unless others can write it.
fn owner(folder: &Path) -> Result<u32, &'static str> {
    let found = fs::symlink_metadata(folder).map_err(|_| "it has no directory here")?;
    match found.is_dir() && found.mode() & 0o022 == 0 {
        true => Ok(found.uid()),
        false => Err("others can write its directory"),
    }
}

/// The class must be for this namespace and these keys.
fn check(
    class: &ProviderClass,
    name: &str,
    keys: &[&str],
    namespace: &str,
) -> Result<(), UseDenied> {
    for key in keys {
        let selector = CsiSecretSelector {
            driver: class.spec.driver.clone(),
            provider_class_name: name.to_owned(),
            key: (*key).to_owned(),
            ..CsiSecretSelector::default()
        };
        class.check_use(&selector, namespace)?;
    }
    Ok(())
}

/// A value for each query, in order; all are wiped if one is not as it must be.
fn read(results: Vec<EnvVarResult>, wanted: usize) -> Result<Vec<SecretBytes>, String> {
    let mut room = ALL_BYTES;
    if results.len() != wanted {
        return Err(format!("{} results for {wanted} queries", results.len()));
    }
    let values = results.into_iter().enumerate().map(|(place, mut result)| {
        let value = SecretBytes::from(std::mem::take(&mut result.value));
        if result.name != format!("V{place}") {
            return Err("a result has another name than its query".to_owned());
        }
        if !result.error.is_empty() {
            return Err(shown(&result.error));
        }
        let text = std::str::from_utf8(value.expose());
        if !text.is_ok_and(|text| !text.contains('\0')) {
            return Err("a value is not text, or has NUL in it".to_owned());
        }
        room = room.checked_sub(value.len()).ok_or("the values are too large")?;
        match value.len() <= VALUE_BYTES {
            true => Ok(value),
            false => Err("a value is too large".to_owned()),
        }
    });
    values.collect()
}

/// Words of others, cut and without control characters.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// What a wrapper asks for, and what a pod has.
pub(super) fn key_of(reference: &Reference) -> (String, String) {
    (reference.class().as_str().to_owned(), reference.key().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, value: &[u8], error: &str) -> EnvVarResult {
        let mut result = EnvVarResult::default();
        result.name = name.to_owned();
        result.value = value.to_vec();
        result.error = error.to_owned();
        result
    }

    #[track_caller]
    fn refused(results: Vec<EnvVarResult>, wanted: usize, part: &str) {
        match read(results, wanted) {
            Ok(_) => panic!("it was taken"),
            Err(why) => assert!(why.contains(part), "{why}"),
        }
    }

    #[test]
    fn an_answer_is_whole_or_refused() {
        let values = read(vec![result("V0", b"a", ""), result("V1", b"", "")], 2).unwrap();
        assert!(values[0].constant_time_eq(b"a") && values[1].is_empty());
        refused(vec![result("V0", b"a", "")], 2, "1 results for 2");
        refused(vec![result("V1", b"a", "")], 1, "another name");
        refused(vec![result("V0", b"", "no\nsuch key")], 1, "nosuch key");
        refused(vec![result("V0", b"\xff", "")], 1, "not text");
        refused(vec![result("V0", b"a\0b", "")], 1, "NUL");
        refused(vec![result("V0", &[b'a'; VALUE_BYTES + 1], "")], 1, "too large");
        let many = (0..17).map(|place| result(&format!("V{place}"), &[b'a'; VALUE_BYTES], ""));
        refused(many.collect(), 17, "the values are too large");
    }
}
