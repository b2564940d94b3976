//! Pods that ask for variables, and who signs their tokens.

use std::{collections::BTreeMap, path::Path};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::KeyPair;
use serde_json::json;
use waybill_core::secret::SecretBytes;
use waybill_csi::{
    driver::{Answer, Call, FailureKind, FetchError, PodIdentity, PodToken, Query},
    http::AllowedAddresses,
};
use waybill_testkit::driver_conformance::Target;

/// Signs tokens of service accounts, as the API server does.
pub(crate) struct Issuer(KeyPair);

impl Issuer {
    pub(crate) fn new() -> Self {
        Self(KeyPair::generate().unwrap())
    }

    pub(crate) fn public_pem(&self) -> String {
        self.0.public_key_pem()
    }

    pub(crate) fn token(&self, pod: &PodIdentity, audience: &str) -> PodToken {
        let PodIdentity { namespace, service_account, .. } = pod;
        let claims = json!({
            "iss": "https://kubernetes.default.svc",
            "sub": format!("system:serviceaccount:{namespace}:{service_account}"),
            "aud": [audience],
            "iat": 1,
            "nbf": 1,
            "exp": 4_102_444_800_u64,
        });
        let key = EncodingKey::from_ec_pem(self.0.serialize_pem().as_bytes()).unwrap();
        let token = encode(&Header::new(Algorithm::ES256), &claims, &key).unwrap();
        PodToken { token: token.into_bytes().into(), expires: "2100-01-01T00:00:00Z".into() }
    }

    /// A call of a pod that uses a class, with a token for `audience`.
    pub(crate) fn call(
        &self,
        pod: PodIdentity,
        audience: &str,
        parameters: &[(&str, &str)],
    ) -> Call {
        let tokens = [(audience.to_owned(), self.token(&pod, audience))].into();
        Call { tokens, ..call(pod, parameters) }
    }
}

/// A call of a pod without tokens.
pub(crate) fn call(pod: PodIdentity, parameters: &[(&str, &str)]) -> Call {
    Call { class: "class".into(), parameters: map(parameters), pod, tokens: BTreeMap::new() }
}

/// The same call for the suite of cases, over a socket.
pub(crate) fn target(socket: &Path, call: &Call, keys: &[&str]) -> Target {
    let token = |(audience, token): (&String, &PodToken)| {
        let text = str::from_utf8(token.token.expose()).unwrap();
        (audience.clone(), json!({"token": text, "expirationTimestamp": token.expires}))
    };
    let tokens: serde_json::Map<_, _> = call.tokens.iter().map(token).collect();
    let mut context = map(&[
        ("namespace", &call.pod.namespace),
        ("serviceAccount", &call.pod.service_account),
        ("podName", &call.pod.name),
        ("podUID", &call.pod.uid),
        ("nodeName", &call.pod.node),
    ]);
    if !tokens.is_empty() {
        let tokens = serde_json::Value::Object(tokens).to_string();
        context.insert("csi.storage.k8s.io/serviceAccount.tokens".into(), tokens);
    }
    let mut target = Target::new(socket, keys);
    target.parameters.clone_from(&call.parameters);
    target.context = context;
    target
}

/// A pod of an account in the namespace `shop`.
pub(crate) fn pod(service_account: &str) -> PodIdentity {
    PodIdentity {
        namespace: "shop".into(),
        service_account: service_account.into(),
        name: format!("{service_account}-0"),
        uid: "7d0fb9a6-1111-4000-8000-000000000001".into(),
        node: "node-1".into(),
    }
}

pub(crate) fn query(key: &str, parameters: &[(&str, &str)]) -> Query {
    Query { key: key.into(), parameters: map(parameters) }
}

/// Values as text.
#[track_caller]
pub(crate) fn values(answers: Result<Vec<Answer>, FetchError>) -> Vec<String> {
    let text = |value: SecretBytes| String::from_utf8(value.expose().to_vec()).unwrap();
    answers.unwrap().into_iter().map(|answer| text(answer.unwrap())).collect()
}

/// What went wrong, for all queries or for the first that failed.
#[track_caller]
pub(crate) fn failure(answers: Result<Vec<Answer>, FetchError>) -> (FailureKind, String) {
    let error = match answers {
        Err(error) => error,
        Ok(answers) => answers.into_iter().find_map(Result::err).expect("something failed"),
    };
    (error.kind, error.message)
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

/// A server of ours is on this machine, which drivers leave alone unless the owner of the node names it.
pub(crate) fn only(address: &str) -> AllowedAddresses {
    AllowedAddresses::only([address]).unwrap()
}
