//! What policies say about one request.

use serde_json::{Value as Json, json};

use super::{Action, ActivePolicy, Binding, CompiledValidation, DenialReason, Policy};
use crate::{
    cel::{Bindings, Budget, EvalError, Evaluation, Value},
    conditions::{Matched, failed},
    config::FailurePolicy,
    request::{AdmissionRequest, ParamError, ParamQuery, Surroundings, WhichParams},
};

/// The longest message that an expression may make, as upstream's `MaxEvaluatedMessageExpressionSizeBytes`.
const MOST_MESSAGE_BYTES: usize = 5 * 1024;

/// The longest value of an audit annotation, as upstream's.
const MOST_ANNOTATION_BYTES: usize = 10 * 1024;

/// As many failures as one audit event tells, as upstream's.
const MOST_FAILURES: usize = 50;

/// The annotation with the failures that bindings only wanted to be recorded.
const FAILURES_KEY: &str = "validation.policy.admission.k8s.io/validation_failure";

/// What all policies together say.
#[derive(Debug, Default)]
pub struct PolicyOutcome {
    /// Why the request is refused, if it is; the first is told.
    pub denials: Vec<Denial>,
    /// What the client is told beside its answer.
    pub warnings: Vec<String>,
    /// What the audit event gets.
    pub annotations: Vec<(String, String)>,
    /// Failures that are recorded.
    failures: Vec<Json>,
}

/// One refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Upstream's whole text, with policy and binding.
    pub message: String,
    /// The reason of the answer.
    pub reason: DenialReason,
}

/// What a policy may still cost for one request under one binding, whatever number of parameters that names.
struct Budgets {
    conditions: Budget,
    validations: Budget,
    /// Whether it has been said that one is spent.
    told: bool,
}

impl Default for Budgets {
    fn default() -> Self {
        Self { conditions: Budget::match_conditions(), validations: Budget::policy(), told: false }
    }
}

impl Budgets {
    /// Whether nothing further can be evaluated.
    fn are_spent(&self) -> bool {
        self.conditions.is_spent() || self.validations.is_spent()
    }
}

/// What one validation came to when it did not pass.
struct Failure {
    index: usize,
    message: String,
    reason: DenialReason,
}

/// Judges `request` by `policies`, which are in the order of their names.
pub fn judge<'p>(
    policies: impl IntoIterator<Item = &'p ActivePolicy>,
    request: &AdmissionRequest<'_>,
    surroundings: &dyn Surroundings,
) -> PolicyOutcome {
    let mut outcome = PolicyOutcome::default();
    // Most policies are about something else, so what expressions see is made when one is not.
    let mut seen: Option<Json> = None;
    for active in policies {
        let policy = &active.policy;
        match policy.matches.matches(request, surroundings) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                outcome.misconfigured(policy, None, &error.to_string());
                continue;
            }
        }
        let seen = seen.get_or_insert_with(|| request.for_expressions());
        let mut annotations = Vec::new();
        for binding in &active.bindings {
            outcome.apply(policy, binding, request, seen, surroundings, &mut annotations);
        }
        outcome.publish(policy, annotations);
    }
    outcome.record_failures();
    outcome
}

impl PolicyOutcome {
    fn apply(
        &mut self,
        policy: &Policy,
        binding: &Binding,
        request: &AdmissionRequest<'_>,
        seen: &Json,
        surroundings: &dyn Surroundings,
        annotations: &mut Vec<(String, String)>,
    ) {
        let matches = binding.matches.as_ref().map(|own| own.matches(request, surroundings));
        match matches {
            None | Some(Ok(true)) => {}
            Some(Ok(false)) => return,
            Some(Err(error)) => {
                return self.misconfigured(policy, Some(binding), &error.to_string());
            }
        }
        let params = match params(policy, binding, request, surroundings) {
            Ok(params) => params,
            Err(error) => return self.misconfigured(policy, Some(binding), &error),
        };
        let namespace = match request.is_namespace() {
            true => None,
            false => surroundings.namespace(request.namespace),
        };
        // Who writes parameters must not choose how long a request takes, so all of them share what one may cost.
        let mut budgets = Budgets::default();
        let mut rest = params.iter();
        for param in rest.by_ref() {
            let bindings = Bindings {
                object: request.object,
                old_object: request.old_object,
                request: Some(seen),
                namespace_object: namespace.as_deref(),
                params: param.as_deref(),
                authorizer: Some(surroundings),
            };
            self.evaluate(policy, binding, bindings, &mut budgets, annotations);
            if budgets.are_spent() {
                break;
            }
        }
        // What was not looked at is not allowed by that; the last unit may have been paid for the parameter before.
        if rest.len() > 0 && !budgets.told {
            self.error(policy, binding, EvalError::OutOfBudget.to_string());
        }
    }

    fn evaluate(
        &mut self,
        policy: &Policy,
        binding: &Binding,
        bindings: Bindings<'_>,
        budgets: &mut Budgets,
        annotations: &mut Vec<(String, String)>,
    ) {
        if let Some(why) = &policy.broken {
            return self.error(policy, binding, why.clone());
        }
        // Conditions see no namespace object upstream, and ours neither.
        let seen = Bindings { namespace_object: None, ..bindings };
        match policy.compiled.conditions.evaluate_within(seen, &mut budgets.conditions) {
            Matched::Yes => {}
            Matched::No(_) => return,
            Matched::Unclear(why) => {
                budgets.told = true;
                return self.error(policy, binding, why);
            }
        }
        let mut evaluation =
            Evaluation::new(bindings, &policy.compiled.variables, budgets.validations.clone());
        budgets.told |= self.validate(policy, binding, &mut evaluation, annotations);
        budgets.validations = evaluation.budget().clone();
    }

    /// Returns whether the budget was spent, and that was said.
    fn validate<'a>(
        &mut self,
        policy: &'a Policy,
        binding: &Binding,
        evaluation: &mut Evaluation<'a>,
        annotations: &mut Vec<(String, String)>,
    ) -> bool {
        for (index, validation) in policy.compiled.validations.iter().enumerate() {
            match evaluation.evaluate(&validation.expression) {
                Ok(Value::Bool(true)) => {}
                Ok(_) => {
                    let message = message(validation, evaluation);
                    let failure = Failure { index, message, reason: validation.reason };
                    self.failed(policy, binding, &failure);
                }
                // Nothing further can be evaluated.
                Err(error @ EvalError::OutOfBudget) => {
                    self.error(policy, binding, error.to_string());
                    return true;
                }
                Err(error) => {
                    let message = failed(&validation.expression, &error.to_string());
                    if policy.failure_policy == FailurePolicy::Fail {
                        let failure = Failure { index, message, reason: DenialReason::default() };
                        self.failed(policy, binding, &failure);
                    }
                }
            }
        }
        self.annotate(policy, binding, evaluation, annotations);
        false
    }

    fn annotate<'a>(
        &mut self,
        policy: &'a Policy,
        binding: &Binding,
        evaluation: &mut Evaluation<'a>,
        annotations: &mut Vec<(String, String)>,
    ) {
        for (key, expression) in &policy.compiled.annotations {
            let error = match evaluation.evaluate(expression) {
                Ok(Value::Null) => continue,
                Ok(Value::String(text)) => {
                    let text = cut(text.trim(), MOST_ANNOTATION_BYTES);
                    let entry = (key.clone(), text.to_owned());
                    if !text.is_empty() && !annotations.contains(&entry) {
                        annotations.push(entry);
                    }
                    continue;
                }
                Ok(other) => format!(
                    "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                    expression.source(),
                    other.type_name()
                ),
                Err(error) => failed(expression, &error.to_string()),
            };
            // These refuse whatever the binding's actions are.
            if policy.failure_policy == FailurePolicy::Fail {
                self.deny(policy, Some(binding), &error, DenialReason::default());
            }
        }
    }

    /// Nothing could be evaluated.
    fn error(&mut self, policy: &Policy, binding: &Binding, message: String) {
        if policy.failure_policy == FailurePolicy::Fail {
            self.failed(
                policy,
                binding,
                &Failure { index: 0, message, reason: DenialReason::default() },
            );
        }
    }

    /// Policy and binding do not fit together or around the request.
    fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, error: &str) {
        if policy.failure_policy == FailurePolicy::Ignore {
            return;
        }
        let what = if binding.is_some() { "binding" } else { "policy" };
        let message = format!("failed to configure {what}: {error}");
        self.deny(policy, binding, &message, DenialReason::default());
    }

    /// Does what the binding wants when a validation does not pass.
    fn failed(&mut self, policy: &Policy, binding: &Binding, failure: &Failure) {
        for action in &binding.actions {
            match action {
                Action::Deny => self.deny(policy, Some(binding), &failure.message, failure.reason),
                Action::Warn => self.warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                    policy.name, binding.name, failure.message
                )),
                Action::Audit if self.failures.len() < MOST_FAILURES => {
                    let actions: Vec<_> = binding.actions.iter().map(|own| own.as_str()).collect();
                    self.failures.push(json!({
                        "message": failure.message,
                        "policy": policy.name,
                        "binding": binding.name,
                        "expressionIndex": failure.index,
                        "validationActions": actions,
                    }));
                }
                Action::Audit => {}
            }
        }
    }

    fn deny(
        &mut self,
        policy: &Policy,
        binding: Option<&Binding>,
        message: &str,
        reason: DenialReason,
    ) {
        let with = binding.map_or_else(String::new, |own| format!(" with binding '{}'", own.name));
        let message =
            format!("ValidatingAdmissionPolicy '{}'{with} denied request: {message}", policy.name);
        self.denials.push(Denial { message, reason });
    }

    /// Values of one key from several bindings go together.
    fn publish(&mut self, policy: &Policy, annotations: Vec<(String, String)>) {
        let mut joined: Vec<(String, String)> = Vec::new();
        for (key, value) in annotations {
            let key = format!("{}/{key}", policy.name);
            match joined.iter_mut().find(|(own, _)| *own == key) {
                Some((_, own)) => {
                    own.push_str(", ");
                    own.push_str(&value);
                }
                None => joined.push((key, value)),
            }
        }
        self.annotations.extend(joined);
    }

    fn record_failures(&mut self) {
        if !self.failures.is_empty() {
            let failures = Json::Array(std::mem::take(&mut self.failures));
            self.annotations.push((FAILURES_KEY.to_owned(), failures.to_string()));
        }
    }
}

/// The parameters to judge with, one after the other: `None` for a policy that has none.
fn params(
    policy: &Policy,
    binding: &Binding,
    request: &AdmissionRequest<'_>,
    surroundings: &dyn Surroundings,
) -> Result<Vec<Option<std::sync::Arc<Json>>>, String> {
    let Some(kind) = &policy.param_kind else { return Ok(vec![None]) };
    // A policy with parameters and a binding without sees null.
    let Some(chosen) = &binding.param_ref else { return Ok(vec![None]) };
    let which = match &chosen.selector {
        Some(selector) => WhichParams::Selected(selector),
        None => WhichParams::Named(&chosen.name),
    };
    let query = ParamQuery {
        kind,
        namespace: &chosen.namespace,
        request_namespace: request.namespace,
        which,
    };
    let found = surroundings.params(&query).map_err(|error: ParamError| error.to_string())?;
    if found.is_empty() && chosen.parameter_not_found_action.as_deref() == Some("Deny") {
        return Err(
            "no params found for policy binding with `Deny` parameterNotFoundAction".to_owned()
        );
    }
    Ok(found.into_iter().map(Some).collect())
}

/// What is said of a validation that is false.
fn message<'a>(validation: &'a CompiledValidation, evaluation: &mut Evaluation<'a>) -> String {
    let computed = validation.message_expression.as_ref().and_then(|expression| {
        // A message that cannot be made is no reason to let the request pass, and none to say less.
        let value = evaluation.evaluate(expression).ok()?;
        let text = value.as_str()?.trim();
        let fit = !text.is_empty() && text.len() <= MOST_MESSAGE_BYTES && !text.contains('\n');
        fit.then(|| text.to_owned())
    });
    match computed {
        Some(text) => text,
        None if validation.message.is_empty() => {
            format!("failed expression: {}", validation.expression.source().trim())
        }
        None => validation.message.clone(),
    }
}

/// The beginning of `text`, of at most `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}
