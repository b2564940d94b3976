//! What the proposal asks of a driver, one case for each rule.

use std::{future::Future, pin::Pin, time::Duration};

use tonic::Code;
use waybill_proto::csi::{
    EnvVarInjection, GetPluginInfoRequest, NodeGetCapabilitiesRequest, NodeGetEnvVarsRequest,
    NodeGetInfoRequest, ProbeRequest, node_service_capability::Type,
};

use super::{
    Key,
    client::{Client, told},
};

/// One rule, and how to see whether it holds.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) requirement: &'static str,
    /// Whether it says something about drivers of variables only.
    pub(super) needs_capability: bool,
    pub(super) check: for<'c> fn(&'c Client) -> Checking<'c>,
}

/// `Err` says what was seen instead.
type Checking<'c> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'c>>;

/// What is wrong with a request.
type Change = fn(&mut NodeGetEnvVarsRequest);

/// How many ask at the same time.
const CALLERS: usize = 16;

/// Larger than any request may be, and small enough to be read (CSI-44).
const OVERSIZE: usize = 2 << 20;

macro_rules! case {
    ($name:literal, $requirement:literal, $check:ident) => {
        case!($name, $requirement, $check, true)
    };
    ($name:literal, $requirement:literal, $check:ident, $needs_capability:literal) => {
        Case {
            name: $name,
            requirement: $requirement,
            needs_capability: $needs_capability,
            check: |client| Box::pin($check(client)),
        }
    };
}

/// Every case, in the order of the requirements; the last one looks at what the others were told.
pub(super) const CASES: &[Case] = &[
    case!("it has a name and a version, and is ready", "CSI-01", identity, false),
    case!("it says on which node it is", "CSI-01", node, false),
    case!("a request without one of its parts is refused", "CSI-02", incomplete),
    case!("a context without one of its parts is refused", "CSI-04", incomplete_context),
    case!("a result for each query, in their order", "CSI-05", order),
    case!("the same key may be asked for twice", "CSI-05", repetition),
    case!("it says that it serves variables", "CSI-06", capability),
    case!("its hints can be kept", "CSI-07", hints, false),
    case!("asking again gives the same", "CSI-08", idempotence),
    case!("many may ask at the same time", "CSI-08", concurrency),
    case!("one required key that is missing fails the call", "CSI-28", all_or_nothing),
    case!("an optional key that is missing does not", "CSI-29", optional),
    case!("an optional key that is refused fails the call", "CSI-39", refused_optional),
    case!("a missing key is not found", "CSI-44", missing),
    case!("a request that is too large is refused", "CSI-44", oversize),
    case!("pods of other namespaces are refused", "CSI-45", other_namespace),
    case!("keys outside allowedFields are refused and named", "CSI-45", other_field),
    case!("keys that lead out of allowedFields are refused", "CSI-45", look_alikes),
    case!("a list that is not understood allows nothing", "CSI-45", bad_list),
    case!("no failure tells a value", "CSI-49", silence),
];

async fn identity(client: &Client) -> Result<(), String> {
    let mut identity = client.identity.clone();
    let info = identity.get_plugin_info(GetPluginInfoRequest {}).await;
    let info = info.map_err(|status| told(&status))?.into_inner();
    let fit = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    if info.name.is_empty() || info.name.len() > 63 || !info.name.chars().all(fit) {
        return Err(format!("{:?} is not a domain name of at most 63 characters", info.name));
    }
    if info.vendor_version.is_empty() {
        return Err("it has no version".to_owned());
    }
    let probe = identity.probe(ProbeRequest {}).await.map_err(|status| told(&status))?;
    match probe.into_inner().ready {
        Some(false) => Err("it says that it is not ready".to_owned()),
        Some(true) | None => Ok(()),
    }
}

async fn node(client: &Client) -> Result<(), String> {
    let info = client.node.clone().node_get_info(NodeGetInfoRequest {}).await;
    let info = info.map_err(|status| told(&status))?.into_inner();
    if info.node_id.is_empty() { Err("it has no node ID".to_owned()) } else { Ok(()) }
}

async fn incomplete(client: &Client) -> Result<(), String> {
    let changes: [(&str, Change); 6] = [
        ("provider_class_name", |it| it.provider_class_name.clear()),
        ("class_parameters", |it| it.class_parameters.clear()),
        ("queries", |it| it.queries.clear()),
        ("pod_context", |it| it.pod_context.clear()),
        ("queries[0].name", |it| it.queries.iter_mut().for_each(|query| query.name.clear())),
        ("queries[0].key", |it| it.queries.iter_mut().for_each(|query| query.key.clear())),
    ];
    for (part, change) in changes {
        let mut request = client.request(&client.target.keys);
        change(&mut request);
        refused(client, request, Code::InvalidArgument, &format!("without {part}")).await?;
    }
    Ok(())
}

async fn incomplete_context(client: &Client) -> Result<(), String> {
    for part in ["namespace", "serviceAccount", "podName", "podUID"] {
        let mut request = client.request(&client.target.keys);
        request.pod_context.remove(part);
        refused(client, request, Code::InvalidArgument, &format!("without {part}")).await?;
    }
    Ok(())
}

async fn order(client: &Client) -> Result<(), String> {
    let keys = &client.target.keys;
    let together = client.values(keys).await?;
    for (key, value) in keys.iter().zip(&together) {
        let alone = client.values(std::slice::from_ref(key)).await?;
        if alone.first() != Some(value) {
            return Err(format!("key {:?} has another value alone than among others", key.key));
        }
    }
    let reversed: Vec<Key> = keys.iter().rev().cloned().collect();
    let values = client.values(&reversed).await?;
    if values.iter().eq(together.iter().rev()) {
        return Ok(());
    }
    Err("keys in reverse order have other values".to_owned())
}

async fn repetition(client: &Client) -> Result<(), String> {
    let twice: Vec<Key> = client.target.keys.iter().chain(&client.target.keys).cloned().collect();
    let values = client.values(&twice).await?;
    let (first, second) = values.split_at(values.len() / 2);
    if first == second { Ok(()) } else { Err("the second time the values differ".to_owned()) }
}

async fn capability(client: &Client) -> Result<(), String> {
    if client.has_capability().await { Ok(()) } else { Err("it does not".to_owned()) }
}

async fn hints(client: &Client) -> Result<(), String> {
    let found = client.node.clone().node_get_capabilities(NodeGetCapabilitiesRequest {}).await;
    let found = found.map_err(|status| told(&status))?.into_inner().capabilities;
    for capability in found {
        if let Some(Type::EnvVarInjection(hints)) = capability.r#type {
            check_hints(&hints)?;
        }
    }
    Ok(())
}

/// Zero says nothing; what is beyond the ceilings is not kept to (OP-30).
fn check_hints(hints: &EnvVarInjection) -> Result<(), String> {
    for (name, number, ceiling) in [
        ("max_payload_bytes", hints.max_payload_bytes, 1 << 20),
        ("max_value_bytes", hints.max_value_bytes, 1 << 20),
        ("max_in_flight", hints.max_in_flight, 1000),
    ] {
        if !(0..=ceiling).contains(&number) {
            return Err(format!("{name} is {number}, and not from 0 to {ceiling}"));
        }
    }
    match hints.rpc_timeout.map(Duration::try_from) {
        None => Ok(()),
        Some(Ok(timeout)) if timeout <= Duration::from_secs(60) => Ok(()),
        Some(_) => Err("rpc_timeout is not from 0 s to 60 s".to_owned()),
    }
}

async fn idempotence(client: &Client) -> Result<(), String> {
    let first = client.values(&client.target.keys).await?;
    for _ in 0..3 {
        if client.values(&client.target.keys).await? != first {
            return Err("the values differ".to_owned());
        }
    }
    Ok(())
}

async fn concurrency(client: &Client) -> Result<(), String> {
    let first = client.values(&client.target.keys).await?;
    let mut calls: Vec<Pin<Box<dyn Future<Output = _> + Send>>> = Vec::new();
    for _ in 0..CALLERS {
        calls.push(Box::pin(client.values(&client.target.keys)));
    }
    for values in futures_util::future::join_all(calls).await {
        if values? != first {
            return Err("the values differ".to_owned());
        }
    }
    Ok(())
}

async fn all_or_nothing(client: &Client) -> Result<(), String> {
    let keys: Vec<Key> =
        client.target.keys.iter().chain([&client.target.missing]).cloned().collect();
    refused(client, client.request(&keys), Code::NotFound, "with a key that is missing").await
}

async fn optional(client: &Client) -> Result<(), String> {
    let keys: Vec<Key> =
        [&client.target.missing].into_iter().chain(&client.target.keys).cloned().collect();
    let mut request = client.request(&keys);
    if let Some(query) = request.queries.first_mut() {
        query.optional = true;
    }
    let results = client.call(request).await.map_err(|status| told(&status))?;
    let [missing, rest @ ..] = results.as_slice() else { return Err("no results".to_owned()) };
    if results.len() != keys.len() {
        return Err(format!("{} results to {} queries", results.len(), keys.len()));
    }
    if missing.error.is_empty() || !missing.value.is_empty() {
        return Err("the missing key has no error, or a value".to_owned());
    }
    match rest.iter().find(|result| !result.error.is_empty()) {
        Some(result) => Err(format!("{} has the error {:?}", result.name, result.error)),
        None => Ok(()),
    }
}

async fn refused_optional(client: &Client) -> Result<(), String> {
    let mut request = with_parameter(client, "allowedFields", "waybill-conformance/nothing");
    request.queries.iter_mut().for_each(|query| query.optional = true);
    refused(client, request, Code::PermissionDenied, "for optional keys").await
}

async fn missing(client: &Client) -> Result<(), String> {
    let request = client.request(std::slice::from_ref(&client.target.missing));
    refused(client, request, Code::NotFound, "for a key that is missing").await
}

async fn oversize(client: &Client) -> Result<(), String> {
    let mut request = client.request(&client.target.keys);
    request.class_parameters.insert("padding".to_owned(), "x".repeat(OVERSIZE));
    refused(client, request, Code::InvalidArgument, "of 2 MiB").await
}

async fn other_namespace(client: &Client) -> Result<(), String> {
    for list in ["waybill-other", ""] {
        let request = with_parameter(client, "allowedNamespaces", list);
        let status = failure(client, request, "of a namespace that is not on the list").await?;
        let text = "Unauthorized: namespace not in allowedNamespaces";
        if status.code() != Code::PermissionDenied || status.message() != text {
            return Err(format!("{} instead of PermissionDenied, {text:?}", told(&status)));
        }
    }
    Ok(())
}

async fn other_field(client: &Client) -> Result<(), String> {
    let request = with_parameter(client, "allowedFields", "waybill-conformance/nothing");
    let status = failure(client, request, "for a key that is not on the list").await?;
    let first = client.target.keys.first().map_or("", |key| key.key.as_str());
    let text = format!(
        "Key '{}' not in allowedFields pattern 'waybill-conformance/nothing'",
        first.escape_debug()
    );
    if status.code() == Code::PermissionDenied && status.message().contains(&text) {
        return Ok(());
    }
    Err(format!("{} instead of PermissionDenied, {text:?}", told(&status)))
}

/// Keys of which a backend could make another path than the list does.
async fn look_alikes(client: &Client) -> Result<(), String> {
    let Some(key) = client.target.keys.first() else { return Err("no key is known".to_owned()) };
    for start in
        ["allowed/../", "allowed/%2e%2e/", "allowed/..%2f", "allowed//../", "allowed\\..\\"]
    {
        let alike = Key { key: format!("{start}{}", key.key), parameters: key.parameters.clone() };
        let mut request = client.request(&[alike]);
        request.class_parameters.insert("allowedFields".to_owned(), "allowed/**".to_owned());
        refused(client, request, Code::PermissionDenied, &format!("for a key with {start:?}"))
            .await?;
    }
    Ok(())
}

async fn bad_list(client: &Client) -> Result<(), String> {
    for (list, text) in [("allowedNamespaces", "*,,"), ("allowedFields", "**,{a}")] {
        let request = with_parameter(client, list, text);
        failure(client, request, &format!("with {list} {text:?}")).await?;
    }
    Ok(())
}

async fn silence(client: &Client) -> Result<(), String> {
    match client.told_value() {
        Some(_) => Err("the text of a failure has a value in it".to_owned()),
        None => Ok(()),
    }
}

fn with_parameter(client: &Client, name: &str, value: &str) -> NodeGetEnvVarsRequest {
    let mut request = client.request(&client.target.keys);
    request.class_parameters.insert(name.to_owned(), value.to_owned());
    request
}

async fn refused(
    client: &Client,
    request: NodeGetEnvVarsRequest,
    code: Code,
    which: &str,
) -> Result<(), String> {
    let status = failure(client, request, which).await?;
    if status.code() == code {
        return Ok(());
    }
    Err(format!("a call {which} fails with {} instead of {code:?}", told(&status)))
}

async fn failure(
    client: &Client,
    request: NodeGetEnvVarsRequest,
    which: &str,
) -> Result<tonic::Status, String> {
    match client.call(request).await {
        Ok(_) => Err(format!("a call {which} is answered")),
        Err(status) => Ok(status),
    }
}
