//! Ephemeral containers: each is a session as a whole.
//!
//! The token stands in a variable of the container, in the first place, where the wrapper finds it when it makes the container. It binds
//! the pod and the container's name, which no other container of the pod ever gets; not the command, since image and kubelet have
//! their part in that.

use serde_json::{Value, json};
use waybill_api::{
    field::{FieldError, FieldPath},
    status::{Status, Subject},
    stock::{DEBUG_VARIABLE, Mode},
};

use super::{
    review::Review,
    session::{NOT_GUARDED, forbidden, is_guarded, node_uid},
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

/// What an update adds to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addition<'a> {
    /// The life of the pod.
    pub(super) uid: &'a str,
    pub(super) containers: Vec<Added<'a>>,
    /// Whether a wrapper would read a token.
    pub(super) is_guarded: bool,
}

/// Reads an update. Where no wrapper is below the pod, a container cannot be told whose it is: `mode` says what becomes of it.
pub(super) fn added(review: &Review, mode: Mode) -> Result<Addition<'_>, Box<Status>> {
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
    let is_guarded = is_guarded(&review.object);
    if !is_guarded && mode == Mode::Enforce && !fresh.is_empty() {
        return Err(forbidden(review, NOT_GUARDED));
    }
    Ok(Addition { uid: node_uid(&review.object), containers: fresh, is_guarded })
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
        let addition = added(&review, Mode::Enforce).unwrap();
        let added = &addition.containers;
        assert_eq!((addition.uid, addition.is_guarded), ("u", true));
        assert_eq!((added.len(), added[0].name, added[0].tty), (1, "b", true));
        assert_eq!(
            added[0].patch("w"),
            json!({"op": "add", "path": "/spec/ephemeralContainers/1/env", "value": [
                {"name": DEBUG_VARIABLE, "value": "w"}, {"name": "X", "value": "1"}]})
        );
    }

    /// It would be a way into a pod that exec may not enter.
    #[test]
    fn where_no_wrapper_is_a_debug_container_is_refused_or_recorded() {
        let new = json!([{"name": "b"}]);
        let review = review("", &json!([]), &new);
        let told = added(&review, Mode::Enforce).unwrap_err();
        assert!(told.message().contains("not of the RuntimeClass"), "{told:?}");
        let recorded = added(&review, Mode::Record).unwrap();
        assert_eq!((recorded.containers.len(), recorded.is_guarded), (1, false));
        let unchanged = self::review("", &new, &new);
        assert!(added(&unchanged, Mode::Enforce).unwrap().containers.is_empty());
    }

    #[test]
    fn the_name_of_the_variable_is_ours_everywhere() {
        let typed = json!([{"name": "b", "env": [{"name": DEBUG_VARIABLE, "value": "x"}]}]);
        for (class, mode) in [("waybill", Mode::Enforce), ("", Mode::Record)] {
            let review = review(class, &json!([]), &typed);
            let told = added(&review, mode).unwrap_err();
            assert!(told.message().contains("kept for the token"), "{told:?}");
        }
    }
}
