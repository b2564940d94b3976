//! The tokens that a node asks for: those of its pods.

use serde_json::Value;

use super::NodeRestrictionError;
use crate::authz::node::graph::text;

/// Checks that the `TokenRequest` of `node` is bound to `pod`, which runs there. Who asks for a pod
/// that does not exist asks for none.
pub(crate) fn check_token(
    node: &str,
    request: &Value,
    find_pod: impl FnOnce(&str) -> Option<Value>,
) -> Result<Option<Value>, NodeRestrictionError> {
    let bound = request.pointer("/spec/boundObjectRef").unwrap_or(&Value::Null);
    let name = text(bound, "/name");
    if text(bound, "/apiVersion") != "v1" || text(bound, "/kind") != "Pod" || name.is_empty() {
        return Err(NodeRestrictionError::TokenWithoutPod);
    }
    let uid = text(bound, "/uid");
    if uid.is_empty() {
        return Err(NodeRestrictionError::TokenWithoutUid);
    }
    let Some(pod) = find_pod(name) else { return Ok(None) };
    if text(&pod, "/metadata/uid") != uid {
        return Err(NodeRestrictionError::TokenUid(uid.to_owned()));
    }
    if text(&pod, "/spec/nodeName") != node {
        return Err(NodeRestrictionError::TokenOfOtherNode);
    }
    Ok(Some(pod))
}

/// The one audience that is asked for; empty for the API server, which has the names `own`.
pub(crate) fn requested_audience<'a>(
    request: &'a Value,
    own: &[String],
) -> Result<&'a str, NodeRestrictionError> {
    let audiences = request.pointer("/spec/audiences").and_then(Value::as_array);
    let audience = match audiences.map(Vec::as_slice).unwrap_or_default() {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return Err(NodeRestrictionError::Audiences),
    };
    Ok(if own.iter().any(|own| own == audience) { "" } else { audience })
}
