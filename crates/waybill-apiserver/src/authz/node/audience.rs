//! The audiences for which a pod wants tokens: those of its projected volumes and of its drivers.

use serde_json::Value;

use super::graph::text;

/// Whether a volume of `pod` holds tokens for `audience`; the API server, which has the names `own`,
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
    let volumes = list(pod, "/spec/volumes");
    volumes.iter().any(|volume| {
        let projected = list(volume, "/projected/sources").iter();
        let mut tokens = projected.filter_map(|source| source.get("serviceAccountToken"));
        let name = text(volume, "/csi/driver");
        tokens.any(|token| is_wanted(text(token, "/audience")))
            || (!name.is_empty()
                && driver(name).is_some_and(|driver| {
                    let mut requests = list(&driver, "/spec/tokenRequests").iter();
                    requests.any(|request| is_wanted(text(request, "/audience")))
                }))
    })
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
