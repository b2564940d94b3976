//! `/validate-pods`: whether a pod may have the keys that its variables name (CSI-13, CSI-22, OP-35).
//!
//! This is for an early, clear answer; the node and the driver ask again.

use std::collections::BTreeMap;

use serde_json::Value;
use waybill_api::{
    field::FieldPath,
    pod::{CsiSecretSelector, PodEnvSpec, allows_csi_words, csi_word_errors},
    provider_class::UseDenied,
    status::{Status, Subject, Target},
};

use super::{
    JudgeError, Service,
    review::{Review, Verdict},
};

impl Service {
    pub(super) async fn judge_pod(&self, review: &Review) -> Result<Verdict, JudgeError> {
        let question = match Question::of(review) {
            Ok(Some(question)) => question,
            Ok(None) => return Ok(Verdict::allowed()),
            Err(status) => return Ok(Verdict::refused(*status)),
        };
        let mut classes = BTreeMap::new();
        for reference in &question.references {
            let name = &*reference.provider_class_name;
            if !classes.contains_key(name) {
                classes.insert(name, self.classes.find(name).await?);
            }
            let denied = match classes.get(name) {
                Some(Some(class)) => class.check_use(reference, &review.namespace).err(),
                _ => Some(UseDenied::NotFound(name.to_owned())),
            };
            if let Some(denied) = denied {
                return Ok(refused(review, &denied));
            }
        }
        for class in classes.into_keys() {
            let asked = self.rights.check(&review.namespace, &question.account, class).await;
            if let Err(denied) = asked.map_err(JudgeError::Rights)? {
                return Ok(refused(review, &denied));
            }
        }
        Ok(Verdict::allowed())
    }
}

/// What has to be known about a pod.
#[derive(Debug, PartialEq, Eq)]
struct Question {
    references: Vec<CsiSecretSelector>,
    /// The service account of the pod.
    account: String,
}

impl Question {
    /// The question of a new pod, or of containers that are added to one; `None` if it has none.
    fn of(review: &Review) -> Result<Option<Self>, Box<Status>> {
        if review.resource.resource != "pods" || !review.resource.group.is_empty() {
            return Ok(None);
        }
        let spec = match (review.operation.as_str(), review.sub_resource.as_str()) {
            ("CREATE", "") => read(review, &review.object)?,
            ("UPDATE", "ephemeralcontainers") => read(review, &review.object)?
                .ephemeral_containers_beyond(&read(review, &review.old_object)?),
            _ => return Ok(None),
        };
        let references: Vec<_> =
            spec.sources().filter_map(|source| source.csi_secret_ref.clone()).collect();
        if references.is_empty() {
            return Ok(None);
        }
        let annotations = review.object.pointer("/metadata/annotations");
        if !annotations.is_some_and(allows_csi_words) {
            let errors = csi_word_errors(&spec, &FieldPath::new("spec"));
            if !errors.is_empty() {
                let subject = Subject { group: "", kind: "Pod", name: review.object_name() };
                return Err(Box::new(Status::invalid(subject, &errors)));
            }
        }
        Ok(Some(Self { references, account: account(&review.object) }))
    }
}

fn read(review: &Review, pod: &Value) -> Result<PodEnvSpec, Box<Status>> {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    PodEnvSpec::from_value(spec).map_err(|error| {
        let name = review.object_name();
        Box::new(Status::unprocessable(format!(
            "the spec of pod {name:?} is not understood: {error}"
        )))
    })
}

/// The service account of a pod.
pub(super) fn account(pod: &Value) -> String {
    let account = pod.pointer("/spec/serviceAccountName").and_then(Value::as_str);
    account.filter(|name| !name.is_empty()).unwrap_or("default").to_owned()
}

/// Refused, with the reason in the audit log.
pub(super) fn refused(review: &Review, denied: &UseDenied) -> Verdict {
    let target = Target { group: "", resource: "pods", name: review.object_name() };
    let reason = denied.to_string();
    Verdict::denied(Status::forbidden(target, reason.clone()), &reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::review::Resource, *};

    fn container(name: &str, class: &str, args: &[&str]) -> Value {
        json!({"name": name, "args": args, "env": [{"name": "A", "valueFrom": {"csiSecretRef": {
            "driver": "d", "providerClassName": class, "key": "k"}}}]})
    }

    fn review(operation: &str, part: &str, object: &Value, old: &Value) -> Review {
        Review {
            operation: operation.to_owned(),
            sub_resource: part.to_owned(),
            namespace: "ns".to_owned(),
            resource: Resource { group: String::new(), resource: "pods".to_owned() },
            object: object.clone(),
            old_object: old.clone(),
            ..Review::default()
        }
    }

    fn classes(review: &Review) -> Vec<String> {
        let question = Question::of(review).unwrap();
        let references = question.map(|question| question.references).unwrap_or_default();
        references.into_iter().map(|reference| reference.provider_class_name).collect()
    }

    /// CSI-22
    #[test]
    fn all_containers_of_a_new_pod_count_csi_22() {
        let pod = json!({"spec": {"containers": [container("a", "x", &[])],
            "initContainers": [container("b", "y", &[])]}});
        assert_eq!(classes(&review("CREATE", "", &pod, &Value::Null)), ["x", "y"]);
        assert!(classes(&review("UPDATE", "", &pod, &pod)).is_empty());
        assert!(classes(&review("UPDATE", "status", &pod, &pod)).is_empty());
        let plain = json!({"spec": {"containers": [{"name": "a"}]}});
        assert_eq!(Question::of(&review("CREATE", "", &plain, &Value::Null)).unwrap(), None);
    }

    /// CSI-22
    #[test]
    fn of_a_pod_that_runs_only_what_is_added_counts_csi_22() {
        let pod = |ephemeral: Value| {
            json!({"spec": {"containers": [container("a", "x", &[])],
                "ephemeralContainers": ephemeral}})
        };
        let old = pod(json!([container("d", "y", &[])]));
        let new = pod(json!([container("d", "y", &[]), container("e", "z", &[])]));
        assert_eq!(classes(&review("UPDATE", "ephemeralcontainers", &new, &old)), ["z"]);
    }

    #[test]
    fn the_account_is_the_pods_or_the_default() {
        let account = |spec: Value| {
            let mut pod = json!({"spec": {"containers": [container("a", "x", &[])]}});
            pod["spec"]["serviceAccountName"] = spec;
            Question::of(&review("CREATE", "", &pod, &Value::Null)).unwrap().unwrap().account
        };
        assert_eq!(account(json!("app")), "app");
        assert_eq!(account(json!("")), "default");
        assert_eq!(account(json!(null)), "default");
    }

    /// CSI-62
    #[test]
    fn fetched_values_in_arguments_need_an_annotation_csi_62() {
        let mut pod = json!({"spec": {"containers": [container("a", "x", &["$(A)"])]}});
        let told = Question::of(&review("CREATE", "", &pod, &Value::Null)).unwrap_err();
        assert!(told.message().contains("spec.containers[0].args[0]: Forbidden"), "{told:?}");
        pod["metadata"] = json!({"annotations": {"waybill.dev/allow-csi-env-in-args": "true"}});
        assert_eq!(classes(&review("CREATE", "", &pod, &Value::Null)), ["x"]);
    }
}
