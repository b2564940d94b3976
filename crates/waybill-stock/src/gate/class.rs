//! `/validate`: what a ProviderClass may say, and how it may change (CSI-15 to CSI-17, CSI-21).

use serde::Deserialize;
use serde_json::Value;
use waybill_api::{
    field::{ErrorList, FieldError, FieldPath},
    provider_class::{self, IMMUTABLE_FIELDS, KIND, ProviderClass, RESOURCE},
    status::{Status, Subject},
};

use super::review::{Review, Verdict};

/// Judges a class. Other resources and operations pass: whoever sends them has configured too much.
pub(super) fn judge(review: &Review) -> Verdict {
    if review.resource.resource != RESOURCE || !review.sub_resource.is_empty() {
        return Verdict::allowed();
    }
    let checked = match review.operation.as_str() {
        "CREATE" => read(&review.object).map(|new| (provider_class::validate_create(&new), new)),
        "UPDATE" => check_update(review),
        _ => return Verdict::allowed(),
    };
    let (errors, class) = match checked {
        Ok((errors, class)) => (errors, class),
        Err(error) => return refused(review, &vec![*error]),
    };
    // The API server has judged the name, or will make one.
    let name = FieldPath::new("metadata").child("name");
    let errors: ErrorList = errors.into_iter().filter(|error| *error.path() != name).collect();
    if errors.is_empty() {
        Verdict::warned(provider_class::warnings(&class))
    } else {
        refused(review, &errors)
    }
}

/// A class that says what it said before is not judged: it may be older than the webhook, and its
/// finalizers must be removable.
fn check_update(review: &Review) -> Result<(ErrorList, ProviderClass), Box<FieldError>> {
    let new = read(&review.object)?;
    // An old class that cannot be read fixes nothing.
    let Ok(old) = read(&review.old_object) else {
        return Ok((provider_class::validate_create(&new), new));
    };
    let fixed = |class: &ProviderClass| class.metadata.annotations.get(IMMUTABLE_FIELDS).cloned();
    let is_same = new.spec == old.spec && fixed(&new) == fixed(&old);
    let errors =
        if is_same { ErrorList::new() } else { provider_class::validate_update(&new, &old) };
    Ok((errors, new))
}

fn read(object: &Value) -> Result<ProviderClass, Box<FieldError>> {
    ProviderClass::deserialize(object).map_err(|error| {
        Box::new(FieldError::invalid(FieldPath::new("spec"), "", error.to_string()))
    })
}

fn refused(review: &Review, errors: &ErrorList) -> Verdict {
    let subject = Subject { group: &review.resource.group, kind: KIND, name: review.object_name() };
    Verdict::refused(Status::invalid(subject, errors))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::review::Resource, *};

    fn class(spec: &Value) -> Value {
        json!({"apiVersion": "waybill.dev/v1", "kind": "ProviderClass",
            "metadata": {"name": "vault"}, "spec": spec})
    }

    fn review(operation: &str, object: &Value, old: &Value) -> Review {
        Review {
            uid: "u".to_owned(),
            operation: operation.to_owned(),
            resource: Resource { group: "waybill.dev".into(), resource: "providerclasses".into() },
            object: object.clone(),
            old_object: old.clone(),
            ..Review::default()
        }
    }

    /// An empty text for what is allowed.
    #[track_caller]
    fn check(operation: &str, object: &Value, old: &Value, expected: &str) {
        let verdict = judge(&review(operation, object, old));
        assert_eq!(verdict.refusal().map(Status::message).unwrap_or_default(), expected);
    }

    /// CSI-15, CSI-16, CSI-21
    #[test]
    fn new_classes_are_judged_by_the_rules_of_the_api_server_csi_15_csi_16_csi_21() {
        let good =
            json!({"driver": "d", "parameters": {"allowedNamespaces": "a", "allowedFields": "b"}});
        check("CREATE", &class(&good), &Value::Null, "");
        check(
            "CREATE",
            &class(&json!({"parameters": {"allowedNamespaces": "a,,b"}})),
            &Value::Null,
            "ProviderClass.waybill.dev \"vault\" is invalid: [spec.driver: Required value: driver \
             name is required, spec.parameters[allowedNamespaces]: Invalid value: \"a,,b\": item 2 \
             is empty]",
        );
        check(
            "CREATE",
            &class(&json!(5)),
            &Value::Null,
            "ProviderClass.waybill.dev \"vault\" is invalid: spec: Invalid value: \"\": invalid \
             type: integer `5`, expected struct Spec",
        );
    }

    /// CSI-17, CSI-21
    #[test]
    fn fixed_fields_stay_and_what_is_unchanged_is_not_judged_csi_17_csi_21_op_36() {
        let (old, new) = (class(&json!({"driver": "d"})), class(&json!({"driver": "e"})));
        check(
            "UPDATE",
            &new,
            &old,
            "ProviderClass.waybill.dev \"vault\" is invalid: spec.driver: Invalid value: \"e\": \
             field is immutable",
        );
        let broken = class(&json!({"driver": "../x"}));
        check("UPDATE", &broken, &broken, "");
        check("DELETE", &Value::Null, &broken, "");
    }

    #[test]
    fn a_class_without_lists_draws_warnings_op_32() {
        let verdict = judge(&review("CREATE", &class(&json!({"driver": "d"})), &Value::Null));
        let answer = super::super::review::answer("u", &verdict);
        assert_eq!(answer["response"]["warnings"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn other_resources_pass() {
        let mut other = review("CREATE", &json!({"spec": 5}), &Value::Null);
        other.resource.resource = "pods".to_owned();
        assert!(judge(&other).is_allowed());
    }
}
