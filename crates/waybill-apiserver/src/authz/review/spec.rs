//! The question of an access review, and what may be wrong with it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use waybill_api::field::{ErrorList, FieldError, FieldPath};

use super::selector::Selector;
use crate::{
    authz::objects::or_default,
    request::{Action, ResourceTarget, Target, User},
    selector::field::FieldSelector,
};

/// The `spec` of the three access reviews; that of a self review has no subject.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AccessSpec {
    resource_attributes: Option<ResourceAttributes>,
    non_resource_attributes: Option<NonResourceAttributes>,
    #[serde(deserialize_with = "or_default")]
    user: String,
    #[serde(deserialize_with = "or_default")]
    groups: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    uid: String,
    #[serde(deserialize_with = "or_default")]
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourceAttributes {
    #[serde(deserialize_with = "or_default")]
    namespace: String,
    #[serde(deserialize_with = "or_default")]
    verb: String,
    #[serde(deserialize_with = "or_default")]
    group: String,
    #[serde(deserialize_with = "or_default")]
    version: String,
    #[serde(deserialize_with = "or_default")]
    resource: String,
    #[serde(deserialize_with = "or_default")]
    subresource: String,
    #[serde(deserialize_with = "or_default")]
    name: String,
    field_selector: Option<Selector>,
    label_selector: Option<Selector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NonResourceAttributes {
    #[serde(deserialize_with = "or_default")]
    path: String,
    #[serde(deserialize_with = "or_default")]
    verb: String,
}

impl AccessSpec {
    /// Who is asked about.
    pub(super) fn subject(&self) -> User {
        User {
            name: self.user.clone(),
            uid: self.uid.clone(),
            groups: self.groups.clone(),
            extra: self.extra.clone(),
        }
    }

    /// What they want; `None` if the attributes were not checked and there are none.
    pub(super) fn action(&self) -> Option<Action> {
        if let Some(wanted) = &self.resource_attributes {
            let version = if wanted.version.is_empty() { "*" } else { &wanted.version };
            let target = ResourceTarget {
                group: wanted.group.clone(),
                version: version.to_owned(),
                resource: wanted.resource.clone(),
                subresource: wanted.subresource.clone(),
                namespace: wanted.namespace.clone(),
                name: wanted.name.clone(),
            };
            return Some(Action { verb: wanted.verb.clone(), target: Target::Resource(target) });
        }
        let wanted = self.non_resource_attributes.as_ref()?;
        Some(Action { verb: wanted.verb.clone(), target: Target::Path(wanted.path.clone()) })
    }

    /// The field selector, and what to tell if not all of it could be read. To drop a part makes the
    /// question broader, so it can only be refused more often.
    pub(super) fn fields(&self) -> (FieldSelector, Option<String>) {
        let selector =
            self.resource_attributes.as_ref().and_then(|wanted| wanted.field_selector.as_ref());
        let Some((fields, complete)) = selector.map(Selector::fields) else {
            return (FieldSelector::default(), None);
        };
        let error = (!complete).then(|| {
            let how = if fields.is_empty() { "ignored" } else { "partially ignored" };
            format!("spec.resourceAttributes.fieldSelector {how} due to parse error")
        });
        (fields, error)
    }

    pub(super) fn check_attributes(&self) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = FieldPath::new("spec");
        match (&self.resource_attributes, &self.non_resource_attributes) {
            (Some(_), Some(wanted)) => errors.push(FieldError::invalid(
                spec.child("nonResourceAttributes"),
                &wanted.path,
                "cannot be specified in combination with resourceAttributes",
            )),
            (None, None) => errors.push(FieldError::invalid(
                spec.child("resourceAttributes"),
                "null",
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            )),
            (Some(_), None) | (None, Some(_)) => {}
        }
        if let Some(wanted) = &self.resource_attributes {
            let path = spec.child("resourceAttributes");
            let selectors = [
                ("fieldSelector", &wanted.field_selector),
                ("labelSelector", &wanted.label_selector),
            ];
            for (field, selector) in selectors {
                if let Some(selector) = selector {
                    errors.extend(selector.check(&path.child(field)));
                }
            }
        }
        errors
    }

    pub(super) fn check_subject(&self) -> Option<FieldError> {
        (self.user.is_empty() && self.groups.is_empty()).then(|| {
            FieldError::invalid(
                FieldPath::new("spec").child("user"),
                "",
                "at least one of user or group must be specified",
            )
        })
    }

    /// The question of a local review is about its own namespace.
    pub(super) fn check_local(&self, namespace: &str) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = FieldPath::new("spec");
        if let Some(wanted) = &self.resource_attributes
            && wanted.namespace != namespace
        {
            errors.push(FieldError::invalid(
                spec.child("resourceAttributes").child("namespace"),
                &wanted.namespace,
                "must match metadata.namespace",
            ));
        }
        if let Some(wanted) = &self.non_resource_attributes {
            errors.push(FieldError::invalid(
                spec.child("nonResourceAttributes"),
                &wanted.path,
                "disallowed on this kind of request",
            ));
        }
        errors
    }
}

/// The metadata of a review, which nobody has a use for.
pub(super) struct ReviewMetadata<'a>(Option<&'a Map<String, Value>>);

impl<'a> ReviewMetadata<'a> {
    pub(super) fn of(review: &'a Value) -> Self {
        Self(review.get("metadata").and_then(Value::as_object))
    }

    pub(super) fn namespace(&self) -> &'a str {
        let namespace = self.0.and_then(|metadata| metadata.get("namespace"));
        namespace.and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn check_empty(&self) -> Option<FieldError> {
        self.check(&["managedFields"], "must be empty")
    }

    pub(super) fn check_empty_but_namespace(&self) -> Option<FieldError> {
        self.check(&["managedFields", "namespace"], "must be empty except for namespace")
    }

    fn check(&self, allowed: &[&str], rule: &str) -> Option<FieldError> {
        let mut fields = self.0.into_iter().flatten();
        let filled =
            fields.find(|(field, value)| !allowed.contains(&field.as_str()) && !is_empty(value));
        filled.map(|(field, _)| FieldError::invalid(FieldPath::new("metadata"), field, rule))
    }
}

/// Whether a typed client would have sent nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(_) => false,
    }
}
