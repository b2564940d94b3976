//! The fields that each resource can be selected by, and how they are read from its objects.
//!
//! One row per field, as a client names it. Resources without rows of their own offer
//! `metadata.name` and `metadata.namespace`.

use std::borrow::Cow;

use serde_json::Value;

use super::field::{FieldSelector, FieldSelectorError};
use crate::registry::Resource;

/// Refuses a selector that names a field which `resource` does not offer.
pub(crate) fn check_fields(
    resource: &'static Resource,
    selector: &FieldSelector,
) -> Result<(), FieldSelectorError> {
    let own = resource.fields;
    for requirement in selector.requirements() {
        let field = requirement.field.as_str();
        if source_of(resource, field).is_none() {
            return Err(match own {
                [] => FieldSelectorError::Unknown(field.to_owned()),
                _ => FieldSelectorError::Unsupported(field.to_owned()),
            });
        }
    }
    Ok(())
}

/// Whether `object`, one of `resource`, has what `selector` asks for.
#[cfg(test)]
fn matches_object(resource: &'static Resource, selector: &FieldSelector, object: &Value) -> bool {
    selector.matches(|field| field_of(resource, object, field))
}

/// The value of `field` in `object`, or nothing if `resource` does not offer the field.
#[cfg(test)]
fn field_of<'a>(
    resource: &'static Resource,
    object: &'a Value,
    field: &str,
) -> Option<Cow<'a, str>> {
    source_of(resource, field).map(|source| source.read(object))
}

/// Every field that a resource offers beyond name and namespace, with its value in one object.
///
/// There is one of these for each object in a cache, so the values lie in one text.
#[derive(Clone, Debug)]
pub(crate) struct SelectableFields {
    rows: &'static [Row],
    text: Box<str>,
    /// Where the value of each row ends in `text`; it begins where the one before ends.
    ends: Box<[u32]>,
}

impl SelectableFields {
    /// Reads them from `object`, one of `resource`.
    pub(crate) fn read(resource: &'static Resource, object: &Value) -> Self {
        let rows = resource.fields;
        let mut text = String::new();
        let ends = rows.iter().map(|(field, source)| {
            if !field.starts_with("metadata.") {
                text.push_str(&source.read(object));
            }
            // No object comes near this size.
            u32::try_from(text.len()).unwrap_or(u32::MAX)
        });
        let ends = ends.collect();
        Self { rows, text: text.into(), ends }
    }

    /// The value of `field`; `None` if the resource does not offer it.
    pub(crate) fn get(&self, field: &str) -> Option<&str> {
        let row = self.rows.iter().position(|(name, _)| *name == field)?;
        let end = |row: usize| self.ends.get(row).and_then(|end| usize::try_from(*end).ok());
        let start = row.checked_sub(1).map_or(Some(0), end)?;
        self.text.get(start..end(row)?)
    }
}

/// Where the value of a field comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// A text, or the first of several that is not empty.
    Text(&'static [&'static str]),
    /// A flag; absent means `false`.
    Flag(&'static str),
    /// The addresses in a list of `{ip}`, with commas between them.
    Ips(&'static str),
}

impl Source {
    fn read(self, object: &Value) -> Cow<'_, str> {
        match self {
            Self::Text(pointers) => {
                let texts = pointers.iter().filter_map(|at| object.pointer(at)?.as_str());
                texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default().into()
            }
            Self::Flag(pointer) => {
                let set = object.pointer(pointer).and_then(Value::as_bool).unwrap_or_default();
                Cow::Borrowed(if set { "true" } else { "false" })
            }
            Self::Ips(pointer) => {
                let list = object.pointer(pointer).and_then(Value::as_array);
                let ips = list.into_iter().flatten().filter_map(|item| item.get("ip")?.as_str());
                Cow::Owned(ips.collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// A field, as a client names it, and where its value comes from.
pub(crate) type SelectableField = (&'static str, Source);

type Row = SelectableField;

pub(crate) const NAME: Row = ("metadata.name", Source::Text(&["/metadata/name"]));
pub(crate) const NAMESPACE: Row = ("metadata.namespace", Source::Text(&["/metadata/namespace"]));

const COMMON: &[Row] = &[NAME, NAMESPACE];

/// A resource without fields of its own.
pub(crate) const NONE: &[Row] = &[];

fn source_of(resource: &'static Resource, field: &str) -> Option<Source> {
    let rows = match resource.fields {
        [] => COMMON,
        own => own,
    };
    rows.iter().find(|(name, _)| *name == field).map(|&(_, source)| source)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::named;

    #[track_caller]
    fn check(resource: &str, object: &Value, text: &str, expected: bool) {
        let resource = named(resource);
        let selector = FieldSelector::parse(text).unwrap();
        check_fields(resource, &selector).unwrap();
        assert_eq!(matches_object(resource, &selector, object), expected, "{text:?}");
    }

    #[track_caller]
    fn refused(resource: &str, text: &str, message: &str) {
        let resource = named(resource);
        let selector = FieldSelector::parse(text).unwrap();
        assert_eq!(check_fields(resource, &selector).unwrap_err().to_string(), message);
    }

    #[test]
    fn pods_are_found_by_node_phase_and_address() {
        let pod = json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"nodeName": "n1", "restartPolicy": "Always"},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}]},
        });
        let yes = |text: &str| check("pods", &pod, text, true);
        yes("metadata.name=web,metadata.namespace=default");
        yes("spec.nodeName=n1,spec.host=n1,status.phase!=Failed");
        yes("spec.hostNetwork=false");
        yes("status.podIP=10.0.0.7");
        yes(r"status.podIPs=10.0.0.7\,fd00::7");
        yes("status.nominatedNodeName=");
        check("pods", &pod, "spec.nodeName=", false);
    }

    #[test]
    fn every_field_keeps_its_own_value() {
        let pod = json!({
            "metadata": {"name": "web"},
            "spec": {"nodeName": "n1", "hostNetwork": true, "schedulerName": "s\u{0}x"},
            "status": {"podIPs": [{"ip": "10.0.0.7"}]},
        });
        let fields = SelectableFields::read(named("pods"), &pod);
        for (name, _) in
            named("pods").fields.iter().filter(|(name, _)| !name.starts_with("metadata."))
        {
            assert_eq!(fields.get(name), field_of(named("pods"), &pod, name).as_deref(), "{name}");
        }
        assert_eq!(fields.get("spec.image"), None);
        assert_eq!(SelectableFields::read(named("leases"), &pod).get("spec.nodeName"), None);
    }

    #[test]
    fn events_of_both_groups_are_found_by_either_name() {
        let core = json!({
            "involvedObject": {"kind": "Pod", "name": "web"},
            "source": {"component": "kubelet"},
            "reason": "Started",
        });
        let group = json!({
            "regarding": {"kind": "Pod", "name": "web"},
            "reportingController": "kubelet",
            "reason": "Started",
        });
        for event in [&core, &group] {
            check("events", event, "involvedObject.kind=Pod,regarding.name=web", true);
            check("events", event, "source=kubelet,reason=Started", true);
        }
    }

    #[test]
    fn flags_types_and_phases() {
        check("nodes", &json!({"spec": {}}), "spec.unschedulable=false", true);
        check("nodes", &json!({"spec": {"unschedulable": true}}), "spec.unschedulable=true", true);
        check("secrets", &json!({"type": "Opaque"}), "type=Opaque", true);
        check("namespaces", &json!({"status": {"phase": "Active"}}), "status.phase=Active", true);
        check("pods", &json!([]), "spec.nodeName=", true);
    }

    #[test]
    fn other_fields_are_refused_in_upstreams_words() {
        refused("pods", "spec.image=x", "field label not supported: spec.image");
        refused("nodes", "metadata.namespace=x", "field label not supported: metadata.namespace");
        refused(
            "configmaps",
            "data=x",
            "\"data\" is not a known field selector: only \"metadata.name\", \
             \"metadata.namespace\"",
        );
    }
}
