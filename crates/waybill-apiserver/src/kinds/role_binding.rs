//! RoleBindings and ClusterRoleBindings.

use jiff::Timestamp;
use serde_json::Value;
use waybill_api::{
    field::ErrorList,
    names::{path_segment_faults, subdomain_faults},
};

use super::{
    Context, Kind, Shape,
    document::{Field, fill_text, items_mut, same, text},
    role::rbac_shape,
};

use crate::{
    protobuf::tables,
    registry::{Resource, Scope},
    schema::{self, KindSchema},
    table::{
        Table, cells,
        columns::{self, Column},
        read,
    },
};

const TABLE: Table = Table {
    columns: &[
        columns::NAME,
        Column::new("Role", "The role that is granted."),
        columns::AGE,
        Column::new("Users", "Users to whom it is granted.").wide(),
        Column::new("Groups", "Groups to whom it is granted.").wide(),
        Column::new("ServiceAccounts", "Service accounts to whom it is granted.").wide(),
    ],
    cells: row,
    ..Table::PLAIN
};

static CLUSTER_ROLE_BINDINGS_SCHEMAS: [KindSchema; 2] =
    schema::of::<k8s_openapi::api::rbac::v1::ClusterRoleBinding>();

pub(crate) static CLUSTER_ROLE_BINDINGS: Resource = Resource {
    group: "rbac.authorization.k8s.io",
    plural: "clusterrolebindings",
    singular: "clusterrolebinding",
    kind: "ClusterRoleBinding",
    scope: Scope::Cluster,
    schemas: &CLUSTER_ROLE_BINDINGS_SCHEMAS,
    protobuf: Some(&tables::rbac_v1::CLUSTER_ROLE_BINDING),
    rules: Some(&ClusterRoleBinding),
    table: TABLE,
    ..Resource::BASE
};

static ROLE_BINDINGS_SCHEMAS: [KindSchema; 2] =
    schema::of::<k8s_openapi::api::rbac::v1::RoleBinding>();

pub(crate) static ROLE_BINDINGS: Resource = Resource {
    group: "rbac.authorization.k8s.io",
    plural: "rolebindings",
    singular: "rolebinding",
    kind: "RoleBinding",
    schemas: &ROLE_BINDINGS_SCHEMAS,
    protobuf: Some(&tables::rbac_v1::ROLE_BINDING),
    rules: Some(&RoleBinding),
    table: TABLE,
    ..Resource::BASE
};

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    let role =
        format!("{}/{}", read::text(object, "/roleRef/kind"), read::text(object, "/roleRef/name"));
    let subjects = |kind: &str| -> Value {
        let of_kind = read::list(object, "/subjects")
            .iter()
            .filter(|subject| read::text(subject, "/kind") == kind);
        let names = of_kind.map(|subject| match kind {
            "ServiceAccount" => {
                format!("{}/{}", read::text(subject, "/namespace"), read::text(subject, "/name"))
            }
            _ => read::text(subject, "/name").to_owned(),
        });
        names.collect::<Vec<_>>().join(", ").into()
    };
    vec![
        cells::name(object),
        role.into(),
        cells::age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

pub(super) struct ClusterRoleBinding;
pub(super) struct RoleBinding;

impl Kind for ClusterRoleBinding {
    fn shape(&self) -> Shape {
        rbac_shape(Scope::Cluster)
    }

    fn default(&self, object: &mut Value) {
        fill_groups(object);
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        check_role_ref(object.get("roleRef"), &["ClusterRole"], errors);
        for subject in object.get("subjects").items() {
            let namespace = subject.get("namespace");
            if subject.get("kind").text() == "ServiceAccount" && namespace.is_empty() {
                errors.push(namespace.required(""));
            }
            check_subject(subject, errors);
        }
    }

    fn check_change(&self, new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
        check_same_role(new, old, errors);
    }
}

impl Kind for RoleBinding {
    fn shape(&self) -> Shape {
        rbac_shape(Scope::Namespaced)
    }

    fn default(&self, object: &mut Value) {
        fill_groups(object);
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        check_role_ref(object.get("roleRef"), &["Role", "ClusterRole"], errors);
        for subject in object.get("subjects").items() {
            check_subject(subject, errors);
        }
    }

    fn check_change(&self, new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
        check_same_role(new, old, errors);
    }
}

const GROUP: &str = "rbac.authorization.k8s.io";

fn fill_groups(object: &mut Value) {
    if let Some(role) = object.get_mut("roleRef") {
        fill_text(role, "apiGroup", GROUP);
    }
    for subject in items_mut(object, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            fill_text(subject, "apiGroup", GROUP);
        }
    }
}

fn check_role_ref(role: Field<'_, '_>, kinds: &[&str], errors: &mut ErrorList) {
    let (group, kind, name) = (role.get("apiGroup"), role.get("kind"), role.get("name"));
    if group.text() != GROUP {
        errors.push(group.not_supported(&[GROUP]));
    }
    if !kinds.contains(&kind.text()) {
        errors.push(kind.not_supported(kinds));
    }
    if name.is_empty() {
        errors.push(name.required(""));
    } else {
        errors.extend(name.all_invalid(path_segment_faults(name.text())));
    }
}

fn check_subject(subject: Field<'_, '_>, errors: &mut ErrorList) {
    let (kind, name, group) = (subject.get("kind"), subject.get("name"), subject.get("apiGroup"));
    if name.is_empty() {
        errors.push(name.required(""));
    }
    match kind.text() {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.extend(name.all_invalid(subdomain_faults(name.text())));
            }
            if !group.is_empty() {
                errors.push(group.not_supported(&[""]));
            }
        }
        "User" | "Group" if group.text() == GROUP => {}
        "User" | "Group" => errors.push(group.not_supported(&[GROUP])),
        _ => errors.push(kind.not_supported(&["ServiceAccount", "User", "Group"])),
    }
}

/// A binding that could be turned to another role would bypass the check of who may grant it.
fn check_same_role(new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
    let role = new.get("roleRef");
    if !same(role.value(), old.get("roleRef").value()) {
        errors.push(role.invalid("cannot change roleRef"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{check_create, check_update, defaulted};

    fn binding(role: &str, subject: &Value) -> Value {
        json!({"metadata": {"name": "b", "namespace": "n"},
            "roleRef": {"kind": role, "name": "r"}, "subjects": [subject]})
    }

    #[track_caller]
    fn check(role: &str, subject: &Value, expected: &[&str]) {
        check_create(&RoleBinding, &binding(role, subject), expected);
    }

    #[test]
    fn groups_are_filled() {
        let object = defaulted(&RoleBinding, &binding("Role", &json!({"kind": "User"})));
        assert_eq!(object["roleRef"]["apiGroup"], GROUP);
        assert_eq!(object["subjects"][0]["apiGroup"], GROUP);
    }

    #[test]
    fn subjects() {
        check("Role", &json!({"kind": "User", "name": "jane@example.com"}), &[]);
        check("ClusterRole", &json!({"kind": "ServiceAccount", "name": "default"}), &[]);
        check("Role", &json!({"kind": "User"}), &["subjects[0].name: Required value"]);
        check(
            "Role",
            &json!({"kind": "Robot", "name": "x"}),
            &[
                "subjects[0].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\"",
            ],
        );
        check(
            "Rule",
            &json!({"kind": "Group", "name": "x"}),
            &[
                "roleRef.kind: Unsupported value: \"Rule\": supported values: \"Role\", \"ClusterRole\"",
            ],
        );
        let object = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name":
            "r"}, "subjects": [{"kind": "ServiceAccount", "name": "a"}]});
        check_create(&ClusterRoleBinding, &object, &["subjects[0].namespace: Required value"]);
    }

    #[test]
    fn the_role_never_changes() {
        let user = json!({"kind": "User", "name": "u"});
        check_update(
            &RoleBinding,
            &binding("ClusterRole", &user),
            &binding("Role", &user),
            &["roleRef: Invalid value: {"],
        );
    }
}
