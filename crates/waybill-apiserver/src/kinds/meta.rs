//! `metadata`: what every object carries, and what only the server may say about it.

mod validate;

use serde_json::Value;
use waybill_api::names::{label_faults, path_segment_faults, subdomain_faults};

pub(crate) use self::validate::{
    check_annotations, check_labels, validate_create, validate_update,
};
use super::{
    Generation, Shape, Status,
    document::{keep, member, object_mut, put, remove, same},
};

/// Which names a kind allows; the texts of the faults are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// A DNS-1123 label, as namespaces have it.
    Label,
    /// Whatever can stand in a path, as the kinds of RBAC have it.
    PathSegment,
    /// A DNS-1123 subdomain, as most kinds have it.
    Subdomain,
}

impl NameRule {
    /// Everything that is wrong with `name`.
    pub(crate) fn faults(self, name: &str) -> Vec<String> {
        match self {
            Self::Label => label_faults(name),
            Self::PathSegment => path_segment_faults(name),
            Self::Subdomain => subdomain_faults(name),
        }
    }

    /// Everything that is wrong with `prefix`, to which a generated ending will be added.
    pub(crate) fn prefix_faults(self, prefix: &str) -> Vec<String> {
        match (self, prefix.strip_suffix('-')) {
            // A dash at the end will not be the end, and the letter stands for what follows.
            (Self::Label | Self::Subdomain, Some(rest)) if !rest.is_empty() => {
                let kept: String = rest.chars().take(rest.chars().count() - 1).collect();
                self.faults(&format!("{kept}a"))
            }
            _ => self.faults(prefix),
        }
    }
}

/// Removes what a new object cannot bring along, and starts its generation.
pub(crate) fn prepare_create(shape: Shape, object: &mut Value) {
    if shape.status == Status::Subresource {
        remove(object, "status");
    }
    let Some(metadata) = object_mut(object, "metadata") else { return };
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        remove(metadata, field);
    }
    match shape.generation {
        Generation::Of(_) | Generation::OfSpec => put(metadata, "generation", 1),
        Generation::Unused => remove(metadata, "generation"),
    }
}

/// Keeps in `new` what an update cannot change, and counts a change of the spec.
pub(crate) fn prepare_update(shape: Shape, new: &mut Value, old: &Value) {
    if shape.status != Status::Absent {
        keep(new, old, "status");
    }
    let counted = match shape.generation {
        Generation::Of(field) => Some(field),
        Generation::OfSpec => Some("spec"),
        Generation::Unused => None,
    };
    let changed = counted.is_some_and(|field| !same(member(new, field), member(old, field)));
    keep_system_fields(new, old);
    if changed {
        let before = member(member(old, "metadata"), "generation").as_i64().unwrap_or_default();
        if let Some(metadata) = object_mut(new, "metadata") {
            put(metadata, "generation", before.saturating_add(1));
        }
    }
}

/// Keeps in `new` all but its status, its labels and its annotations. What holds an object, or ends
/// it, is nothing that its status may change.
pub(crate) fn prepare_status_update(new: &mut Value, old: &Value) {
    keep(new, old, "spec");
    keep_system_fields(new, old);
    if let Some(metadata) = object_mut(new, "metadata") {
        for field in ["finalizers", "ownerReferences"] {
            keep(metadata, member(old, "metadata"), field);
        }
    }
}

/// Metadata that the server alone decides.
fn keep_system_fields(new: &mut Value, old: &Value) {
    let old = member(old, "metadata");
    let Some(metadata) = object_mut(new, "metadata") else { return };
    remove(metadata, "selfLink");
    for field in ["creationTimestamp", "generation"] {
        keep(metadata, old, field);
    }
    // These stay when an update does not mention them; one that changes them is refused.
    for field in ["uid", "namespace", "deletionGracePeriodSeconds"] {
        if member(metadata, field).as_str().is_none_or(str::is_empty)
            && !member(metadata, field).is_number()
        {
            keep(metadata, old, field);
        }
    }
    if !member(old, "deletionTimestamp").is_null() {
        keep(metadata, old, "deletionTimestamp");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SHAPE: Shape =
        Shape { generation: Generation::OfSpec, status: Status::Subresource, ..Shape::NAMESPACED };

    #[test]
    fn a_prefix_may_end_in_a_dash() {
        let faults = |prefix| NameRule::Subdomain.prefix_faults(prefix).len();
        assert_eq!(faults("web-"), 0);
        assert_eq!(faults("w-"), 0);
        assert_eq!(faults("web--"), 0);
        assert_eq!(faults("-"), 1);
        assert_eq!(faults("Web-"), 1);
        assert_eq!(faults("é-"), 0);
        assert_eq!(NameRule::PathSegment.prefix_faults("a%-").len(), 1);
    }

    #[test]
    fn a_new_object_starts_at_generation_one_without_status() {
        let mut object = json!({
            "metadata": {"name": "a", "generation": 7, "deletionTimestamp": "t", "selfLink": "/"},
            "status": {"phase": "Running"},
        });
        prepare_create(SHAPE, &mut object);
        assert_eq!(object, json!({"metadata": {"name": "a", "generation": 1}}));
    }

    #[test]
    fn an_update_keeps_the_servers_fields_and_counts_changes_of_the_spec() {
        let old = json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "creationTimestamp": "t",
                "generation": 3, "deletionTimestamp": "d", "deletionGracePeriodSeconds": 5},
            "spec": {"a": 1},
            "status": {"phase": "Running"},
        });
        let mut new = json!({
            "metadata": {"name": "a", "creationTimestamp": null, "generation": 9},
            "spec": {"a": 1, "b": []},
            "status": {"phase": "Failed"},
        });
        prepare_update(SHAPE, &mut new, &old);
        assert_eq!(new["metadata"], old["metadata"]);
        assert_eq!(new["status"], old["status"]);
        new["spec"]["b"] = json!([1]);
        prepare_update(SHAPE, &mut new, &old);
        assert_eq!(new["metadata"]["generation"], 4);
    }

    #[test]
    fn a_status_update_keeps_the_spec_the_owners_and_the_finalizers() {
        let old = json!({"metadata": {"name": "a", "generation": 1}, "spec": {"a": 1}});
        let mut new = json!({
            "metadata": {"name": "a", "labels": {"x": "y"}, "ownerReferences": [{}],
                "finalizers": ["a/b"]},
            "spec": {"a": 2},
            "status": {"s": 1},
        });
        prepare_status_update(&mut new, &old);
        assert_eq!(
            new,
            json!({
                "metadata": {"name": "a", "labels": {"x": "y"}, "generation": 1},
                "spec": {"a": 1},
                "status": {"s": 1},
            })
        );
    }
}
