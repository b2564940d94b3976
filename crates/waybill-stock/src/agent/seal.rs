//! The key pair to which clients seal the variables of an exec. The private key is in memory alone: in the directory of
//! the wrapper, and nowhere in this process once it is there.

use std::{collections::BTreeMap, fs, io, time::SystemTime};

use aws_lc_rs::agreement::{PrivateKey, X25519};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use waybill_api::stock::{
    NODE_CONFIG_MAP_KEY, NODE_CONFIG_MAP_PREFIX, NODE_RECORDS_KEY, RecordsEndpoint, SessionId,
    encode_base64url,
};
use waybill_core::secret::SecretBytes;

use super::{MANAGER, NAMESPACE, directory::RunDirectory};

/// A public key of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeKey {
    pub(super) kid: String,
    pub(super) public: Vec<u8>,
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub(super) enum SealError {
    #[error("the system gives no random numbers")]
    Random,
    #[error("the private key cannot be kept")]
    Keep(#[source] io::Error),
}

/// Makes a new pair. The key before it stays, since clients may hold it for a few minutes; older ones go.
pub(super) fn renew(directory: &RunDirectory) -> Result<NodeKey, SealError> {
    let mut bytes = vec![0; 32];
    let mut name = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| SealError::Random)?;
    getrandom::fill(&mut name).map_err(|_| SealError::Random)?;
    let private = SecretBytes::from(bytes);
    let pair = PrivateKey::from_private_key(&X25519, private.expose());
    let pair = pair.map_err(|_| SealError::Random)?;
    let public = pair.compute_public_key().map_err(|_| SealError::Random)?;
    let kid = SessionId::from_random(name).to_string();
    let seals = directory.layout().seals();
    directory.write(&seals.join(&kid), private.expose()).map_err(SealError::Keep)?;
    forget_older(&seals).map_err(SealError::Keep)?;
    Ok(NodeKey { kid, public: public.as_ref().to_vec() })
}

/// Two keys stay.
fn forget_older(seals: &std::path::Path) -> io::Result<()> {
    let mut keys = Vec::new();
    for entry in fs::read_dir(seals)? {
        let entry = entry?;
        let made = entry.metadata()?.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        keys.push((made, entry.path()));
    }
    keys.sort();
    let surplus = keys.len().saturating_sub(2);
    keys.iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path))
}

/// Tells the cluster: gate gives the key to clients, and asks where records are. What is published ends with the node.
pub(super) async fn publish(
    client: &Client,
    (node, uid): (&str, &str),
    key: &NodeKey,
    records: Option<&RecordsEndpoint>,
) -> Result<(), kube::Error> {
    let name = format!("{NODE_CONFIG_MAP_PREFIX}{node}");
    let sealing = json!({"kid": key.kid, "key": encode_base64url(&key.public)}).to_string();
    let mut data = BTreeMap::from([(NODE_CONFIG_MAP_KEY, sealing)]);
    data.extend(records.map(|records| (NODE_RECORDS_KEY, json!(records).to_string())));
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid});
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "waybill-agent"}, "ownerReferences": [owner]},
        "data": data,
    });
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await.map(drop)
}
