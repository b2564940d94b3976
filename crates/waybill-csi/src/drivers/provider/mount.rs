//! One call to a provider.

use std::{collections::BTreeMap, error::Error, mem::take, path::Path, time::Duration};

use serde_json::{Map, Value, json};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use waybill_core::{
    provider::{ALLOWED_FIELDS, ALLOWED_NAMESPACES},
    secret::SecretBytes,
};
use waybill_proto::provider::{
    MountRequest, MountResponse, csi_driver_provider_client::CsiDriverProviderClient,
};

use super::{PROVIDER, objects::Objects};
use crate::driver::{Call, FetchError};

/// The kubelet gives up after five seconds.
const PATIENCE: Duration = Duration::from_secs(4);

/// Every provider parses it and fails without one, although no file is made.
const PERMISSION: &str = "420";

/// Providers that write files themselves must fail: the kernel makes nothing below a device.
const NOWHERE: &str = "/dev/null/waybill";

/// Parameters that are for us, and no provider's.
const OURS: [&str; 4] = [PROVIDER, ALLOWED_FIELDS, ALLOWED_NAMESPACES, "cacheTTL"];

/// The like: hints for the node, and what only a kubelet says of a pod.
const OURS_BELOW: [&str; 2] = ["envInjection.", "csi.storage.k8s.io/"];

/// The content of files by their paths.
pub(super) type Files = BTreeMap<String, SecretBytes>;

/// A connection that is made when it is used, and made again when it breaks.
pub(super) fn channel(socket: &Path) -> Result<Channel, FetchError> {
    let unusable = || FetchError::invalid(format!("{} is not a socket's path", socket.display()));
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
    let endpoint = endpoint.map_err(|_| unusable())?;
    // Servers of Go refuse a path as authority.
    let localhost = "http://localhost".parse().map_err(|_| unusable())?;
    Ok(endpoint.origin(localhost).connect_timeout(PATIENCE).timeout(PATIENCE).connect_lazy())
}

/// The files of the objects that become `keys`, or of all objects if nobody knows which do.
pub(super) async fn mount(
    channel: &Channel,
    call: &Call,
    objects: Option<&Objects>,
    keys: &[&str],
) -> Result<Files, FetchError> {
    let attributes = attributes(call, objects, keys)?;
    let request = MountRequest {
        attributes,
        secrets: "null".into(),
        target_path: format!("{NOWHERE}/{}", call.pod.uid),
        permission: PERMISSION.into(),
        current_object_version: Vec::new(),
    };
    let mut client = CsiDriverProviderClient::new(channel.clone());
    let response = client.mount(request).await.map_err(|status| refusal(&status))?;
    files(response.into_inner())
}

/// The parameters of the class under what a kubelet says of a pod with a volume.
fn attributes(call: &Call, objects: Option<&Objects>, keys: &[&str]) -> Result<String, FetchError> {
    let is_ours = |name: &str| {
        OURS.contains(&name) || OURS_BELOW.iter().any(|prefix| name.starts_with(prefix))
    };
    let parameters = call.parameters.iter().filter(|(name, _)| !is_ours(name));
    let mut all: Map<String, Value> =
        parameters.map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    if let Some((name, text)) = objects.and_then(|objects| objects.giving(keys)) {
        all.insert(name.into(), text.into());
    }
    let pod = &call.pod;
    let said = [
        ("csi.storage.k8s.io/pod.name", pod.name.as_str()),
        ("csi.storage.k8s.io/pod.namespace", &pod.namespace),
        ("csi.storage.k8s.io/pod.uid", &pod.uid),
        ("csi.storage.k8s.io/serviceAccount.name", &pod.service_account),
        ("csi.storage.k8s.io/ephemeral", "true"),
        ("secretProviderClass", &call.class),
    ];
    all.extend(said.map(|(name, value)| (name.to_owned(), value.into())));
    if !call.tokens.is_empty() {
        all.insert("csi.storage.k8s.io/serviceAccount.tokens".into(), tokens(call)?.into());
    }
    Ok(Value::Object(all).to_string())
}

/// JSON in a string of JSON, as the kubelet writes it.
fn tokens(call: &Call) -> Result<String, FetchError> {
    let mut all = Map::new();
    for (audience, token) in &call.tokens {
        let text = str::from_utf8(token.token.expose())
            .map_err(|_| FetchError::invalid("a token of the pod is not text"))?;
        let token = json!({"token": text, "expirationTimestamp": token.expires});
        all.insert(audience.clone(), token);
    }
    Ok(Value::Object(all).to_string())
}

fn files(response: MountResponse) -> Result<Files, FetchError> {
    // All of them first, so that what nobody wants is wiped too.
    let contents: Vec<_> = response
        .files
        .into_iter()
        .map(|mut file| (take(&mut file.path), SecretBytes::from(take(&mut file.contents))))
        .collect();
    // Its code is a text of its own, and may be anything.
    if response.error.is_some_and(|error| !error.code.is_empty()) {
        return Err(FetchError::backend("the provider failed; its log says why"));
    }
    if response.object_version.is_empty() {
        return Err(FetchError::backend(
            "the provider named no version of any object, which it must",
        ));
    }
    if contents.is_empty() {
        return Err(FetchError::invalid(
            "the provider answered without files: it writes them itself; start it so that it does \
             not (the provider of AWS with --driver-writes-secrets=true)",
        ));
    }
    let count = contents.len();
    let files: Files = contents.into_iter().collect();
    if files.len() < count {
        return Err(FetchError::backend("the provider answered with two files of one path"));
    }
    Ok(files)
}

/// Codes only: what providers say of a failure is theirs, and nobody knows what is in it.
fn refusal(status: &Status) -> FetchError {
    let code = status.code();
    match code {
        Code::NotFound => {
            FetchError::not_found("the provider has not found an object of the class")
        }
        Code::PermissionDenied | Code::Unauthenticated => {
            FetchError::denied(format!("the provider refused ({code:?}); see its log"))
        }
        Code::InvalidArgument => FetchError::invalid(
            "the provider does not understand the parameters of the class; see its log",
        ),
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::ResourceExhausted
        | Code::Aborted => {
            FetchError::unavailable(format!("the provider does not answer ({code:?})"))
        }
        // Of tonic, which says so of what is larger than 4 MiB.
        Code::OutOfRange => {
            FetchError::backend("the provider answered with more than 4 MiB, which is not read")
        }
        // The connection broke; the code is only that of an error nobody sent.
        _ if status.source().is_some() => FetchError::unavailable("the provider does not answer"),
        _ => FetchError::backend(format!("the provider failed ({code:?}); see its log")),
    }
}
