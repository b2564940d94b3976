//! Ephemeral containers that a request adds to a pod, as `kubectl debug` does.

use serde_json::Value;
use waybill_api::pod::PodEnvSpec;

use crate::document::at;

/// The ephemeral containers of the pod `new` that `old` does not have, and nothing else of it.
pub(crate) fn added_containers(old: &Value, new: &Value) -> PodEnvSpec {
    // A spec that is not understood has been refused before.
    let read = |pod: &Value| PodEnvSpec::from_value(at(pod, "/spec")).unwrap_or_default();
    read(new).ephemeral_containers_beyond(&read(old))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_there_is_not_added() {
        let pod = |names: &[&str]| {
            let containers: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
            json!({"spec": {"containers": [{"name": "app"}], "ephemeralContainers": containers}})
        };
        let added = added_containers(&pod(&["a"]), &pod(&["b", "a", "c"]));
        let names: Vec<_> = added.ephemeral_containers.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["b", "c"]);
        assert!(added.containers.is_empty());
    }
}
