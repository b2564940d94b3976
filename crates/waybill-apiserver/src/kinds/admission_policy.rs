//! ValidatingAdmissionPolicies: rules about writes, written down in CEL.
//!
//! They are judged by whoever evaluates them, expressions and all.

use serde_json::{Value, json};
use waybill_api::field::ErrorList;
use waybill_policy::validation::validate_policy;

use super::{
    Context, Generation, Kind, Shape, Status,
    admission_rules::default_rules,
    document::{Field, fill, fill_text},
};
use crate::{
    patch::schema as patch,
    protobuf::tables,
    registry::{Resource, Scope, Subresource},
    schema::{self, KindSchema},
    table::{
        Table, cells,
        columns::{self, Column},
    },
};

static SCHEMAS: [KindSchema; 2] =
    schema::of::<k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy>();

pub(crate) static VALIDATING_ADMISSION_POLICIES: Resource = Resource {
    group: "admissionregistration.k8s.io",
    plural: "validatingadmissionpolicies",
    singular: "validatingadmissionpolicy",
    kind: "ValidatingAdmissionPolicy",
    categories: &["api-extensions"],
    scope: Scope::Cluster,
    subresources: &[Subresource::STATUS],
    schemas: &SCHEMAS,
    protobuf: Some(&tables::admissionregistration_v1::VALIDATING_ADMISSION_POLICY),
    patch: patch::admissionregistration_v1::VALIDATING_ADMISSION_POLICY,
    rules: Some(&AdmissionPolicy),
    table: Table {
        columns: &[
            columns::NAME,
            Column::new("Validations", "How many validations it has.").kind("integer"),
            Column::new("ParamKind", "The kind of its parameters."),
            columns::AGE,
        ],
        cells: row,
        ..Table::PLAIN
    },
    ..Resource::BASE
};

fn row(object: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let validations = object.pointer("/spec/validations").and_then(Value::as_array);
    let kind = match object.pointer("/spec/paramKind") {
        Some(Value::Object(_)) => {
            format!("{}/{}", text("/spec/paramKind/apiVersion"), text("/spec/paramKind/kind"))
        }
        _ => "<unset>".to_owned(),
    };
    let validations = validations.map_or(0, Vec::len);
    vec![cells::name(object), validations.into(), kind.into(), cells::age(object, now)]
}

struct AdmissionPolicy;

impl Kind for AdmissionPolicy {
    fn shape(&self) -> Shape {
        Shape { generation: Generation::OfSpec, status: Status::Subresource, ..Shape::CLUSTER }
    }

    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
        fill_text(spec, "failurePolicy", "Fail");
        if let Some(constraints) = spec.get_mut("matchConstraints") {
            default_match(constraints);
        }
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        errors.extend(validate_policy(object.value()));
    }
}

/// What is left out of `MatchResources`.
pub(super) fn default_match(constraints: &mut Value) {
    fill_text(constraints, "matchPolicy", "Equivalent");
    fill(constraints, "namespaceSelector", json!({}));
    fill(constraints, "objectSelector", json!({}));
    default_rules(constraints, "resourceRules");
    default_rules(constraints, "excludeResourceRules");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing::{check_create, defaulted};

    #[test]
    fn a_policy_says_what_it_is_about_and_what_must_hold() {
        let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods"]});
        let whole = json!({"metadata": {"name": "p"}, "spec": {
            "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}],
        }});
        check_create(&AdmissionPolicy, &whole, &[]);
        let filled = defaulted(&AdmissionPolicy, &whole);
        assert_eq!(filled["spec"]["failurePolicy"], "Fail");
        assert_eq!(filled["spec"]["matchConstraints"]["resourceRules"][0]["scope"], "*");
        check_create(
            &AdmissionPolicy,
            &json!({"metadata": {"name": "p"}, "spec": {}}),
            &[
                "spec.matchConstraints: Required",
                "spec.validations: Required",
                "spec.auditAnnotations: Required",
            ],
        );
    }
}
