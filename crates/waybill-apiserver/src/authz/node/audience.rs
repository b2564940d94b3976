//! The audiences for which a pod wants tokens: those of its projected volumes and of its drivers.

use std::collections::BTreeSet;

use serde_json::Value;
use waybill_api::pod::PodEnvSpec;

use super::graph::text;

/// Whether a volume of `pod` or a driver of its variables wants tokens for `audience` (OP-41); the API server, which has the names `own`,
/// is meant by an empty one. `driver` finds the `CSIDriver` of a name.
pub(crate) fn pod_uses_audience(
    pod: &Value,
    audience: &str,
    own: &[String],
    driver: impl Fn(&str) -> Option<Value>,
) -> bool {
    let is_wanted = |found: &str| {
        found == audience || (audience.is_empty() && own.iter().any(|own| own == found))
    };
    let is_wanted_by = |name: &str| {
        driver(name).is_some_and(|driver| {
            let mut requests = list(&driver, "/spec/tokenRequests").iter();
            requests.any(|request| is_wanted(text(request, "/audience")))
        })
    };
    let volumes = list(pod, "/spec/volumes");
    let in_volume = volumes.iter().any(|volume| {
        let projected = list(volume, "/projected/sources").iter();
        let mut tokens = projected.filter_map(|source| source.get("serviceAccountToken"));
        let name = text(volume, "/csi/driver");
        tokens.any(|token| is_wanted(text(token, "/audience")))
            || (!name.is_empty() && is_wanted_by(name))
    });
    in_volume || drivers_of_variables(pod).iter().any(|name| is_wanted_by(name))
}

/// The drivers that fetch variables of `pod`.
fn drivers_of_variables(pod: &Value) -> BTreeSet<String> {
    let spec = pod.pointer("/spec").and_then(|spec| PodEnvSpec::from_value(spec).ok());
    spec.map(|spec| spec.csi_drivers().map(str::to_owned).collect()).unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// CSI-46: a driver that fetches variables gets the token that it asks for, and no other (OP-41).
    #[test]
    fn drivers_of_variables_count_as_those_of_volumes_do_csi_46_op_41() {
        let pod = |kind: &str| {
            json!({"spec": {kind: [{"name": "c", "env": [{"name": "A", "valueFrom": {
                "csiSecretRef": {"driver": "vault", "providerClassName": "p", "key": "k"}}}]}]}})
        };
        let driver = |name: &str| {
            (name == "vault").then(|| json!({"spec": {"tokenRequests": [{"audience": "bao"}]}}))
        };
        for kind in ["containers", "initContainers", "ephemeralContainers"] {
            assert!(pod_uses_audience(&pod(kind), "bao", &[], driver), "{kind}");
            assert!(!pod_uses_audience(&pod(kind), "aws", &[], driver), "{kind}");
            assert!(!pod_uses_audience(&pod(kind), "bao", &[], |_| None), "{kind}");
        }
    }

    #[test]
    fn audiences_come_from_projected_tokens_and_from_drivers() {
        let pod = json!({"spec": {"volumes": [
            {"projected": {"sources": [
                {"configMap": {"name": "c"}},
                {"serviceAccountToken": {"path": "a"}},
                {"serviceAccountToken": {"path": "b", "audience": "vault"}},
            ]}},
            {"csi": {"driver": "secrets"}},
            {"emptyDir": {}},
        ]}});
        let driver = |name: &str| {
            (name == "secrets").then(|| json!({"spec": {"tokenRequests": [{"audience": "aws"}]}}))
        };
        let own = ["api".to_owned()];
        let uses = |pod: &Value, audience: &str| pod_uses_audience(pod, audience, &own, driver);
        for (audience, expected) in
            [("", true), ("vault", true), ("aws", true), ("api", false), ("other", false)]
        {
            assert_eq!(uses(&pod, audience), expected, "{audience:?}");
        }
        let token = |audience: &str| {
            json!({"spec": {"volumes": [{"projected": {"sources": [
                {"serviceAccountToken": {"path": "a", "audience": audience}}]}}]}})
        };
        assert!(uses(&token("api"), ""));
        assert!(!uses(&token("vault"), ""));
        assert!(!uses(&json!({"spec": {}}), ""), "no token, no audience");
    }
}
