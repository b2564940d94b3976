//! Every expression of a policy, compiled in the order in which they may use one another.

use waybill_api::field::{ErrorList, FieldError, FieldPath};

use super::{CompiledValidation, DenialReason, MatchConditions};
use crate::{
    cel::{CompileError, Expression, Scope, Wanted},
    config::{MatchCondition, PolicySpec},
};

/// The expressions of a policy.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    pub(super) conditions: MatchConditions,
    pub(super) variables: Vec<Expression>,
    pub(super) validations: Vec<CompiledValidation>,
    pub(super) annotations: Vec<(String, Expression)>,
}

/// Compiles what can be compiled, and tells of the rest with its place.
pub(crate) fn compile(spec: &PolicySpec, errors: &mut ErrorList) -> Compiled {
    let path = FieldPath::new("spec");
    let params = spec.param_kind.is_some();
    let conditions =
        compile_conditions(&spec.match_conditions, params, &path.child("matchConditions"), errors);
    let mut scope = Scope::request().with_authorizer().with_params(params);
    if !spec.variables.is_empty() {
        scope = scope.with_variables();
    }
    let mut variables = Vec::new();
    for (place, variable) in spec.variables.iter().enumerate() {
        let path = path.child("variables").index(place).child("expression");
        let compiled = compile_one(&variable.expression, &scope, Wanted::Any, path, errors);
        // One that is wrong is known by name all the same, so that the fault is told once.
        scope.declare(&variable.name, compiled.as_ref());
        variables.extend(compiled);
    }
    let validations = compile_validations(spec, &scope, errors);
    let mut annotations = Vec::new();
    for (place, annotation) in spec.audit_annotations.iter().enumerate() {
        let path = path.child("auditAnnotations").index(place).child("valueExpression");
        let text = annotation.value_expression.trim();
        let compiled = compile_one(text, &scope, Wanted::StringOrNull, path, errors);
        annotations.extend(compiled.map(|compiled| (annotation.key.clone(), compiled)));
    }
    Compiled { conditions, variables, validations, annotations }
}

fn compile_validations(
    spec: &PolicySpec,
    scope: &Scope,
    errors: &mut ErrorList,
) -> Vec<CompiledValidation> {
    let mut validations = Vec::new();
    // Messages may not ask about rights, as upstream's may not.
    let message_scope = scope.clone().without_authorizer();
    for (place, validation) in spec.validations.iter().enumerate() {
        let path = FieldPath::new("spec").child("validations").index(place);
        let expression = compile_one(
            &validation.expression,
            scope,
            Wanted::Bool,
            path.child("expression"),
            errors,
        );
        let message_expression = match validation.message_expression.trim() {
            "" => None,
            _ => compile_one(
                &validation.message_expression,
                &message_scope,
                Wanted::String,
                path.child("messageExpression"),
                errors,
            ),
        };
        validations.extend(expression.map(|expression| CompiledValidation {
            expression,
            message: validation.message.trim().to_owned(),
            message_expression,
            reason: DenialReason::read(validation.reason.as_deref()),
        }));
    }
    validations
}

/// Compiles match conditions, of a policy or of a webhook.
pub(crate) fn compile_conditions(
    written: &[MatchCondition],
    params: bool,
    path: &FieldPath,
    errors: &mut ErrorList,
) -> MatchConditions {
    let scope = Scope::request().with_authorizer().with_params(params);
    let mut conditions = Vec::new();
    for (place, condition) in written.iter().enumerate() {
        let path = path.index(place).child("expression");
        let text = condition.expression.trim();
        let compiled = compile_one(text, &scope, Wanted::Bool, path, errors);
        conditions.extend(compiled.map(|compiled| (condition.name.clone(), compiled)));
    }
    MatchConditions::new(conditions)
}

/// Compiles one expression; that an empty one is missing is told elsewhere.
fn compile_one(
    text: &str,
    scope: &Scope,
    wanted: Wanted,
    path: FieldPath,
    errors: &mut ErrorList,
) -> Option<Expression> {
    if text.trim().is_empty() {
        return None;
    }
    match Expression::compile(text, scope, wanted) {
        Ok(expression) => Some(expression),
        Err(error) => {
            errors.push(invalid(path, text, &error));
            None
        }
    }
}

fn invalid(path: FieldPath, text: &str, error: &CompileError) -> FieldError {
    FieldError::invalid(path, text, error.to_string())
}
