//! Roles and ClusterRoles.

use jiff::Timestamp;
use serde_json::Value;
use waybill_api::field::ErrorList;

use super::{Context, Kind, NameRule, Shape, document::Field, selector::check_label_selector};

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
        Column::new("Created At", "When the object was created.").kind("date"),
    ],
    cells: row,
    ..Table::PLAIN
};

static CLUSTER_ROLES_SCHEMAS: [KindSchema; 2] =
    schema::of::<k8s_openapi::api::rbac::v1::ClusterRole>();

pub(crate) static CLUSTER_ROLES: Resource = Resource {
    group: "rbac.authorization.k8s.io",
    plural: "clusterroles",
    singular: "clusterrole",
    kind: "ClusterRole",
    scope: Scope::Cluster,
    schemas: &CLUSTER_ROLES_SCHEMAS,
    protobuf: Some(&tables::rbac_v1::CLUSTER_ROLE),
    rules: Some(&ClusterRole),
    table: TABLE,
    ..Resource::BASE
};

static ROLES_SCHEMAS: [KindSchema; 2] = schema::of::<k8s_openapi::api::rbac::v1::Role>();

pub(crate) static ROLES: Resource = Resource {
    group: "rbac.authorization.k8s.io",
    plural: "roles",
    singular: "role",
    kind: "Role",
    schemas: &ROLES_SCHEMAS,
    protobuf: Some(&tables::rbac_v1::ROLE),
    rules: Some(&Role),
    table: TABLE,
    ..Resource::BASE
};

fn row(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![cells::name(object), read::text(object, "/metadata/creationTimestamp").into()]
}

pub(super) struct ClusterRole;
pub(super) struct Role;

impl Kind for ClusterRole {
    fn shape(&self) -> Shape {
        rbac_shape(Scope::Cluster)
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        for rule in object.get("rules").items() {
            check_rule(rule, errors);
        }
        let aggregation = object.get("aggregationRule");
        let selectors = aggregation.get("clusterRoleSelectors");
        if aggregation.is_set() && selectors.is_empty() {
            errors.push(selectors.required(
                "at least one clusterRoleSelector required if aggregationRule is non-nil",
            ));
        }
        for selector in selectors.items() {
            check_label_selector(selector, errors);
        }
    }
}

impl Kind for Role {
    fn shape(&self) -> Shape {
        rbac_shape(Scope::Namespaced)
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        for rule in object.get("rules").items() {
            let urls = rule.get("nonResourceURLs");
            if !urls.is_empty() {
                errors.push(urls.invalid("namespaced rules cannot apply to non-resource URLs"));
            }
            check_rule(rule, errors);
        }
    }
}

/// The kinds of RBAC differ in scope only.
pub(super) fn rbac_shape(scope: Scope) -> Shape {
    Shape { scope, names: NameRule::PathSegment, create_on_update: true, ..Shape::NAMESPACED }
}

fn check_rule(rule: Field<'_, '_>, errors: &mut ErrorList) {
    if rule.get("verbs").is_empty() {
        errors.push(rule.get("verbs").required("verbs must contain at least one value"));
    }
    let urls = rule.get("nonResourceURLs");
    if !urls.is_empty() {
        if ["apiGroups", "resources", "resourceNames"].iter().any(|name| !rule.get(name).is_empty())
        {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(urls.invalid(detail));
        }
        return;
    }
    if rule.get("apiGroups").is_empty() {
        let detail = "resource rules must supply at least one api group";
        errors.push(rule.get("apiGroups").required(detail));
    }
    if rule.get("resources").is_empty() {
        let detail = "resource rules must supply at least one resource";
        errors.push(rule.get("resources").required(detail));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::testing::check_create;

    #[track_caller]
    fn check(rule: &Value, role: &[&str], cluster_role: &[&str]) {
        let rules = json!([rule]);
        let metadata = json!({"name": "system:a", "namespace": "n"});
        check_create(&Role, &json!({"metadata": metadata, "rules": rules}), role);
        let metadata = json!({"name": "system:a"});
        check_create(&ClusterRole, &json!({"metadata": metadata, "rules": rules}), cluster_role);
    }

    #[test]
    fn rules_are_about_resources_or_about_urls() {
        check(&json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}), &[], &[]);
        let empty = [
            "rules[0].verbs: Required value: verbs must contain at least one value",
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
            "rules[0].resources: Required value: resource rules must supply at least one resource",
        ];
        check(&json!({}), &empty, &empty);
        let scope = "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: namespaced rules cannot";
        check(&json!({"verbs": ["get"], "nonResourceURLs": ["/a"]}), &[scope], &[]);
        let both = "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both";
        check(
            &json!({"verbs": ["get"], "nonResourceURLs": ["/a"], "resources": ["pods"]}),
            &[scope, both],
            &[both],
        );
    }

    #[test]
    fn aggregation_needs_a_selector() {
        let role = json!({"metadata": {"name": "a"}, "aggregationRule": {}});
        check_create(
            &ClusterRole,
            &role,
            &["aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSel"],
        );
        let selector = json!({"matchExpressions": [{"key": "a", "operator": "Odd"}]});
        let role = json!({"metadata": {"name": "a"},
            "aggregationRule": {"clusterRoleSelectors": [selector]}});
        check_create(
            &ClusterRole,
            &role,
            &[
                "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator: Invalid value",
            ],
        );
    }
}
