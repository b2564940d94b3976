//! Ephemeral containers that a request adds to a pod, as `kubectl debug` does.

use serde_json::Value;
use waybill_api::{pod::PodEnvSpec, status::Status};

use super::read_variables;
use crate::document::at;

/// The ephemeral containers of the pod `new` that `old` does not have, and nothing else of it. Where `old`
/// cannot be read, all of them count as added.
pub(crate) fn added_containers(old: &Value, new: &Value) -> Result<PodEnvSpec, Status> {
    let old = PodEnvSpec::from_value(at(old, "/spec")).unwrap_or_default();
    Ok(read_variables(new)?.ephemeral_containers_beyond(&old))
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
        let added = added_containers(&pod(&["a"]), &pod(&["b", "a", "c"])).unwrap();
        let names: Vec<_> = added.ephemeral_containers.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["b", "c"]);
        assert!(added.containers.is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_refused_and_what_was_unreadable_hides_nothing() {
        let unreadable = json!({"spec": {"ephemeralContainers": [{"name": "a", "env": 7}]}});
        let refused = added_containers(&json!({"spec": {}}), &unreadable).unwrap_err();
        assert_eq!(refused.code(), 400);
        let pod = json!({"spec": {"ephemeralContainers": [{"name": "a"}]}});
        let added = added_containers(&unreadable, &pod).unwrap();
        assert_eq!(added.ephemeral_containers.len(), 1);
    }
}
