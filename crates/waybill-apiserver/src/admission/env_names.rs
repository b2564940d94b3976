//! A namespace may keep the strict rule for the names of variables (NAME-18): an annotation says so.
//!
//! It is the document's own alternative to a cluster-wide switch, and what a policy in CEL would do on
//! other clusters. Names that an object already has may stay, as when the gate goes off (NAME-07).

use std::collections::HashSet;

use serde_json::Value;
use waybill_api::{
    pod::{PodEnvSpec, pod_spec_pointer, strict_name_findings},
    status::Status,
};

use super::{Admission, Attributes, Operation};
use crate::document::at;

const ANNOTATION: &str = "waybill.dev/env-names";

/// The same as a JSON pointer.
const RULE: &str = "/metadata/annotations/waybill.dev~1env-names";

impl Admission {
    /// Refuses names that the namespace does not want, unless the object has them already.
    pub(super) fn check_env_names(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let Attributes { operation, resource, namespace, old, ref object, .. } = *attributes;
        let writes = matches!(operation, Operation::Create | Operation::Update);
        if !writes || !matches!(attributes.part(), "" | "ephemeralcontainers") {
            return Ok(());
        }
        let Some(spec) = pod_spec_pointer(resource.group, resource.kind) else { return Ok(()) };
        let namespace = self.objects.namespace(namespace);
        let old = (!old.is_null()).then(|| at(old, spec));
        match refusal(namespace.as_ref(), old, at(object, spec)) {
            Some(why) => Err(attributes.forbidden(&why)),
            None => Ok(()),
        }
    }
}

/// Why `namespace` does not take the pod spec `new` in place of `old`; `None` if it does.
fn refusal(namespace: Option<&Value>, old: Option<&Value>, new: &Value) -> Option<String> {
    // A namespace that is not there any more may have asked for the strict rule.
    let rule = match namespace {
        Some(namespace) => Some(at(namespace, RULE).as_str()?),
        None => None,
    };
    if rule == Some("relaxed") {
        return None;
    }
    // Of an old spec that is not understood nothing is kept; a new one must not pass.
    let old = old.and_then(|old| PodEnvSpec::from_value(old).ok()).unwrap_or_default();
    let Some(new) = read(new) else {
        return Some("the variables cannot be read, so their names cannot be judged".to_owned());
    };
    let kept: HashSet<&str> = strict_name_findings(&old).map(|found| found.name).collect();
    let mut names: Vec<String> = Vec::new();
    for found in strict_name_findings(&new).filter(|found| !kept.contains(found.name)) {
        let shown = format!("{:?} in container {:?}", found.name, found.container);
        if !names.contains(&shown) {
            names.push(shown);
        }
    }
    if names.is_empty() {
        return None;
    }
    let why = match rule {
        Some("strict") => format!("the namespace's annotation {ANNOTATION} asks for strict names"),
        None => {
            "the namespace is not there any more, so names are held to the strict rule".to_owned()
        }
        Some(_) => format!(
            "the namespace's annotation {ANNOTATION} is neither strict nor relaxed, so names are \
             held to the strict rule"
        ),
    };
    Some(format!(
        "{why}: letters, digits, '_', '-' and '.', not starting with a digit or '..'; refused: {}",
        names.join(", ")
    ))
}

/// A pod spec that is missing is refused for that.
fn read(spec: &Value) -> Option<PodEnvSpec> {
    if spec.is_null() { Some(PodEnvSpec::default()) } else { PodEnvSpec::from_value(spec).ok() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn namespace(rule: &str) -> Value {
        json!({"metadata": {"annotations": {"waybill.dev/env-names": rule}}})
    }

    fn spec(names: &[&str]) -> Value {
        let env: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"containers": [{"name": "app", "env": env}]})
    }

    /// NAME-18
    #[test]
    fn a_strict_namespace_names_all_that_it_refuses_name_18() {
        let told =
            refusal(Some(&namespace("strict")), None, &spec(&["A", "a:b", "1x", "a:b"])).unwrap();
        assert_eq!(
            told,
            "the namespace's annotation waybill.dev/env-names asks for strict names: letters, digits, \
             '_', '-' and '.', not starting with a digit or '..'; refused: \"a:b\" in container \
             \"app\", \"1x\" in container \"app\""
        );
        let prefix = json!({"initContainers": [{"name": "i", "envFrom": [{"prefix": "#@!"}]}]});
        assert!(refusal(Some(&namespace("strict")), None, &prefix).unwrap().contains("#@!"));
        assert_eq!(refusal(Some(&namespace("strict")), None, &spec(&["A", "a.b-c"])), None);
    }

    /// NAME-18
    #[test]
    fn without_the_annotation_names_are_relaxed_name_18() {
        assert_eq!(refusal(Some(&json!({"metadata": {}})), None, &spec(&["a:b"])), None);
        assert_eq!(refusal(Some(&namespace("relaxed")), None, &spec(&["a:b"])), None);
    }

    #[test]
    fn names_that_were_there_may_stay() {
        let strict = namespace("strict");
        let old = spec(&["a:b"]);
        assert_eq!(refusal(Some(&strict), Some(&old), &spec(&["a:b", "C"])), None);
        assert!(
            refusal(Some(&strict), Some(&old), &spec(&["a:b", "c:d"])).unwrap().contains("c:d")
        );
    }

    /// NAME-18
    #[test]
    fn a_spec_that_cannot_be_read_does_not_pass_name_18() {
        let strict = namespace("strict");
        for unreadable in [json!({"containers": "app"}), json!({"containers": [{"env": 7}]})] {
            let told = refusal(Some(&strict), None, &unreadable).unwrap();
            assert!(told.starts_with("the variables cannot be read"), "{told}");
            // And nothing counts as kept of one that was there before.
            assert!(refusal(Some(&strict), Some(&unreadable), &spec(&["a:b"])).is_some());
        }
        assert_eq!(refusal(Some(&strict), None, &Value::Null), None);
    }

    #[test]
    fn a_word_that_is_not_understood_is_strict() {
        assert!(
            refusal(Some(&namespace("Strict!")), None, &spec(&["a:b"]))
                .unwrap()
                .contains("neither")
        );
        assert_eq!(refusal(Some(&namespace("Strict!")), None, &spec(&["A"])), None);
    }

    #[test]
    fn a_namespace_that_is_not_there_is_strict() {
        assert!(refusal(None, None, &spec(&["a:b"])).unwrap().contains("not there any more"));
        assert_eq!(refusal(None, None, &spec(&["A"])), None);
    }
}
