//! Ephemeral containers: each is a session as a whole.
//!
//! The token stands in a variable of the container, in the first place, where the wrapper finds it when it makes the container. It binds
//! the pod and the container's name, which no other container of the pod ever gets; not the command, since image and kubelet have
//! their part in that.

use serde_json::{Value, json};
use waybill_api::{
    field::{FieldError, FieldPath},
    status::{Status, Subject},
    stock::DEBUG_VARIABLE,
};

use super::{
    review::Review,
    session::{is_guarded, node_uid},
};

/// A container that is added to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Added<'a> {
    /// Its place in the list.
    at: usize,
    pub(super) name: &'a str,
    pub(super) tty: bool,
    env: &'a [Value],
}

/// The uid of the pod and the containers that an update adds to it; none where no wrapper would read a token.
pub(super) fn added(review: &Review) -> Result<(&str, Vec<Added<'_>>), Box<Status>> {
    let names = |pod: &Value| -> Vec<String> {
        containers(pod).iter().map(|container| name(container).to_owned()).collect()
    };
    let before = names(&review.old_object);
    let fresh = containers(&review.object).iter().enumerate();
    let fresh: Vec<_> = fresh
        .filter(|(_, container)| !before.iter().any(|old| old == name(container)))
        .map(|(at, container)| Added {
            at,
            name: name(container),
            tty: container.get("tty").and_then(Value::as_bool).unwrap_or_default(),
            env: list(container, "env"),
        })
        .collect();
    for added in &fresh {
        let is_taken = |variable: &Value| name(variable).eq_ignore_ascii_case(DEBUG_VARIABLE);
        if let Some(at) = added.env.iter().position(is_taken) {
            let path = FieldPath::new("spec").child("ephemeralContainers").index(added.at);
            let path = path.child("env").index(at).child("name");
            let error =
                FieldError::forbidden(path, "this name is kept for the token of the session");
            let subject = Subject { group: "", kind: "Pod", name: &review.name };
            return Err(Box::new(Status::invalid(subject, &[error])));
        }
    }
    let fresh = if is_guarded(&review.object) { fresh } else { Vec::new() };
    Ok((node_uid(&review.object), fresh))
}

impl Added<'_> {
    /// The change that puts the token in its place.
    pub(super) fn patch(&self, word: &str) -> Value {
        let ours = json!({"name": DEBUG_VARIABLE, "value": word});
        let env: Vec<_> = std::iter::once(ours).chain(self.env.iter().cloned()).collect();
        json!({"op": "add", "path": format!("/spec/ephemeralContainers/{}/env", self.at), "value": env})
    }
}

fn containers(pod: &Value) -> &[Value] {
    pod.get("spec").map(|spec| list(spec, "ephemeralContainers")).unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn name(value: &Value) -> &str {
    value.get("name").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(class: &str, old: &Value, new: &Value) -> Review {
        let pod = |ephemeral: &Value| {
            json!({"metadata": {"uid": "u"},
                "spec": {"runtimeClassName": class, "ephemeralContainers": ephemeral}})
        };
        Review { object: pod(new), old_object: pod(old), ..Review::default() }
    }

    #[test]
    fn only_what_is_added_gets_a_token_and_before_all_other_variables() {
        let old = json!([{"name": "a"}]);
        let new = json!([{"name": "a"}, {"name": "b", "tty": true, "env": [{"name": "X", "value": "1"}]}]);
        let review = review("waybill", &old, &new);
        let (uid, added) = added(&review).unwrap();
        assert_eq!((uid, added.len(), added[0].name, added[0].tty), ("u", 1, "b", true));
        assert_eq!(
            added[0].patch("w"),
            json!({"op": "add", "path": "/spec/ephemeralContainers/1/env", "value": [
                {"name": DEBUG_VARIABLE, "value": "w"}, {"name": "X", "value": "1"}]})
        );
    }

    #[test]
    fn where_no_wrapper_is_there_is_no_token_and_its_name_is_ours_everywhere() {
        let new = json!([{"name": "b"}]);
        assert!(added(&review("", &json!([]), &new)).unwrap().1.is_empty());
        let typed = json!([{"name": "b", "env": [{"name": DEBUG_VARIABLE, "value": "x"}]}]);
        let told = added(&review("waybill", &json!([]), &typed)).unwrap_err();
        assert!(told.message().contains("kept for the token"), "{told:?}");
    }
}
