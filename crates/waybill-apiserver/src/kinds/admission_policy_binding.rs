//! ValidatingAdmissionPolicyBindings: where a policy applies, and what comes of a fault.

use serde_json::Value;
use waybill_api::field::ErrorList;
use waybill_policy::validation::validate_binding;

use super::{Context, Generation, Kind, Shape, admission_policy::default_match, document::Field};
use crate::{
    protobuf::tables,
    registry::{Resource, Scope},
    schema::{self, KindSchema},
    table::{
        Table, cells,
        columns::{self, Column},
    },
};

static SCHEMAS: [KindSchema; 2] =
    schema::of::<k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding>();

pub(crate) static VALIDATING_ADMISSION_POLICY_BINDINGS: Resource = Resource {
    group: "admissionregistration.k8s.io",
    plural: "validatingadmissionpolicybindings",
    singular: "validatingadmissionpolicybinding",
    kind: "ValidatingAdmissionPolicyBinding",
    categories: &["api-extensions"],
    scope: Scope::Cluster,
    schemas: &SCHEMAS,
    protobuf: Some(&tables::admissionregistration_v1::VALIDATING_ADMISSION_POLICY_BINDING),
    rules: Some(&AdmissionPolicyBinding),
    table: Table {
        columns: &[
            columns::NAME,
            Column::new("PolicyName", "The policy that is bound."),
            Column::new("ParamRef", "Where its parameters are."),
            columns::AGE,
        ],
        cells: row,
        ..Table::PLAIN
    },
    ..Resource::BASE
};

fn row(object: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let parameters = match (text("/spec/paramRef/namespace"), text("/spec/paramRef/name")) {
        (_, "") if object.pointer("/spec/paramRef/selector").is_some() => "<selector>".to_owned(),
        (_, "") => "<unset>".to_owned(),
        // Whether parameters have a namespace is not said here.
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    let policy = text("/spec/policyName");
    vec![cells::name(object), policy.into(), parameters.into(), cells::age(object, now)]
}

struct AdmissionPolicyBinding;

impl Kind for AdmissionPolicyBinding {
    fn shape(&self) -> Shape {
        Shape { generation: Generation::OfSpec, ..Shape::CLUSTER }
    }

    fn default(&self, object: &mut Value) {
        if let Some(resources) = object.pointer_mut("/spec/matchResources") {
            default_match(resources);
        }
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        errors.extend(validate_binding(object.value()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::check_create;

    #[track_caller]
    fn check(spec: &Value, expected: &[&str]) {
        let object = json!({"metadata": {"name": "b"}, "spec": spec});
        check_create(&AdmissionPolicyBinding, &object, expected);
    }

    #[test]
    fn a_binding_names_a_policy_and_what_to_do() {
        check(&json!({"policyName": "p", "validationActions": ["Deny", "Audit"]}), &[]);
        check(&json!({}), &["spec.policyName: Required", "spec.validationActions: Required"]);
        check(
            &json!({"policyName": "p", "validationActions": ["Deny", "Warn"]}),
            &["spec.validationActions: Invalid value"],
        );
        check(
            &json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": {"name": "x"}}),
            &["spec.paramRef.parameterNotFoundAction: Required"],
        );
    }
}
