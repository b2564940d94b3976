//! Variables for a session on a stock cluster, sealed for the node of the pod.
//!
//! A stock API server knows no variables of sessions and writes commands into logs. So the values are sealed on this machine with a
//! key of the node, and travel as the first word of the command; gate moves the word to its place, and the wrapper of the node
//! opens it.

use anyhow::{Context, Result, bail};
use hpke::{
    Deserializable, Kem, OpModeS, Serializable, aead::ChaCha20Poly1305, kdf::HkdfSha256,
    kem::X25519HkdfSha256, single_shot_seal,
};
use serde_json::Value;
use waybill_api::{
    exec::{ExecVar, PodExecOptions},
    stock::{
        NODE_CONFIG_MAP_KEY, NODE_CONFIG_MAP_PREFIX, SEALED_INFO, SEALED_SECONDS, STOCK_GROUP,
        STOCK_VERSION, SealedVariables, decode_base64url, framed,
    },
};
use waybill_client::{Place, Requests};
use waybill_core::secret::SecretBytes;

use crate::target::pods;

/// Where the agents of nodes publish their keys.
const SYSTEM_NAMESPACE: &str = "waybill-system";

/// Puts the variables of `options` into its command, sealed. Says whether the cluster offers that; if not, nothing is changed.
pub(super) async fn seal(
    requests: &Requests,
    namespace: &str,
    pod: &str,
    options: &mut PodExecOptions,
    now: i64,
) -> Result<bool> {
    let place = Place::Namespace(namespace.to_owned());
    let path = pods().object_path(&place, pod);
    let found = requests.get(&path).await?;
    let Some(key) = node_key(requests, namespace, pod, &found).await? else { return Ok(false) };
    options.container = container(&found, &options.container)?;
    let word = word(&key, &options.container, &options.env, now)?;
    options.env.clear();
    options.command.insert(0, word);
    Ok(true)
}

/// The key of a pod's node, and the life of the pod that is meant.
struct NodeKey {
    kid: String,
    key: Vec<u8>,
    uid: String,
}

/// Asks gate; where its API is not aggregated, reads what the node published. `None` where neither is there.
async fn node_key(
    requests: &Requests,
    namespace: &str,
    pod: &str,
    found: &Value,
) -> Result<Option<NodeKey>> {
    let path =
        format!("/apis/{STOCK_GROUP}/{STOCK_VERSION}/namespaces/{namespace}/pods/{pod}/sealingkey");
    match requests.get(&path).await {
        Ok(answer) => {
            let uid = text(&answer, "/podUID");
            return key_of(&answer, uid).map(Some).context("gate's answer is not understood");
        }
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error).context("gate does not tell the key of the pod's node"),
    }
    let node = text(found, "/spec/nodeName");
    let path =
        format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{NODE_CONFIG_MAP_PREFIX}{node}");
    let Ok(published) = requests.get(&path).await else { return Ok(None) };
    let published = text(&published, &format!("/data/{NODE_CONFIG_MAP_KEY}")).to_owned();
    let published: Value = serde_json::from_str(&published)
        .with_context(|| format!("the key of node {node} is not understood"))?;
    key_of(&published, text(found, "/metadata/uid")).map(Some)
}

fn key_of(answer: &Value, uid: &str) -> Result<NodeKey> {
    let key = decode_base64url(text(answer, "/key")).context("the key of the node is no base64")?;
    Ok(NodeKey { kid: text(answer, "/kid").to_owned(), key, uid: uid.to_owned() })
}

/// The container that is meant, as kubectl understands it.
fn container(pod: &Value, wanted: &str) -> Result<String> {
    if !wanted.is_empty() {
        return Ok(wanted.to_owned());
    }
    let default = text(pod, "/metadata/annotations/kubectl.kubernetes.io~1default-container");
    let first = text(pod, "/spec/containers/0/name");
    match (default, first) {
        ("", "") => bail!("the pod has no container"),
        ("", first) => Ok(first.to_owned()),
        (default, _) => Ok(default.to_owned()),
    }
}

/// The word that carries the variables.
fn word(key: &NodeKey, container: &str, env: &[ExecVar], now: i64) -> Result<String> {
    let mut sealed = SealedVariables {
        kid: key.kid.clone(),
        uid: key.uid.clone(),
        container: container.to_owned(),
        names: env.iter().map(|variable| variable.name().to_owned()).collect(),
        expires_at: now.saturating_add(SEALED_SECONDS),
        encapsulated: Vec::new(),
        ciphertext: Vec::new(),
    };
    sealed.check_names()?;
    let values = SecretBytes::from(framed(env.iter().map(|variable| variable.value().expose())));
    type Node = <X25519HkdfSha256 as Kem>::PublicKey;
    let Ok(node) = Node::from_bytes(&key.key) else {
        bail!("the key of the node is no X25519 key")
    };
    let (encapsulated, ciphertext) =
        single_shot_seal::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeS::Base,
            &node,
            SEALED_INFO,
            values.expose(),
            &sealed.additional_data(),
        )
        .map_err(|error| anyhow::anyhow!("the variables cannot be sealed: {error}"))?;
    sealed.encapsulated = encapsulated.to_bytes().to_vec();
    sealed.ciphertext = ciphertext;
    Ok(sealed.to_word())
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use hpke::{OpModeR, single_shot_open};
    use serde_json::json;
    use waybill_api::stock::unframed;

    use super::*;

    #[test]
    fn the_node_opens_what_was_sealed_for_it_and_nothing_in_the_word_shows_a_value() {
        let (private, public) = X25519HkdfSha256::gen_keypair();
        let key =
            NodeKey { kid: "k".to_owned(), key: public.to_bytes().to_vec(), uid: "u".to_owned() };
        let env = [ExecVar::new("A", "hunter2"), ExecVar::new("B", "")];
        let word = word(&key, "c", &env, 1_000).unwrap();
        let sealed = SealedVariables::parse(&word).unwrap();
        assert_eq!(
            (sealed.names.as_slice(), sealed.expires_at),
            (&["A".to_owned(), "B".to_owned()][..], 1_300)
        );
        assert_eq!((&*sealed.kid, &*sealed.uid, &*sealed.container), ("k", "u", "c"));
        type Encapsulated = <X25519HkdfSha256 as Kem>::EncappedKey;
        let open = |additional: &[u8]| {
            single_shot_open::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
                &OpModeR::Base,
                &private,
                &Encapsulated::from_bytes(&sealed.encapsulated).unwrap(),
                SEALED_INFO,
                &sealed.ciphertext,
                additional,
            )
        };
        let opened = open(&sealed.additional_data()).unwrap();
        assert_eq!(unframed(&opened).unwrap(), [&b"hunter2"[..], b""]);
        let mut moved = sealed.clone();
        moved.container = "d".to_owned();
        assert!(open(&moved.additional_data()).is_err(), "it is bound to its container");
        assert!(!word.contains("hunter2"));
    }

    #[test]
    fn names_are_judged_before_anything_is_sent() {
        let key = NodeKey { kid: String::new(), key: vec![9; 32], uid: String::new() };
        let told = word(&key, "c", &[ExecVar::new("WAYBILL_SESSION_ID", "x")], 0).unwrap_err();
        assert!(told.to_string().contains("reserved"), "{told}");
        let short = NodeKey { key: vec![9; 31], ..key };
        assert!(word(&short, "c", &[ExecVar::new("A", "x")], 0).is_err());
    }

    #[test]
    fn the_container_is_the_one_that_kubectl_would_take() {
        let mut pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        assert_eq!(container(&pod, "").unwrap(), "a");
        assert_eq!(container(&pod, "x").unwrap(), "x");
        pod["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/default-container": "b"});
        assert_eq!(container(&pod, "").unwrap(), "b");
    }
}
