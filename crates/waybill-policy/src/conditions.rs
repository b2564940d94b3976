//! Match conditions: expressions that all must hold before a webhook or policy is asked.

use crate::cel::{Bindings, Budget, Evaluation, Expression, Value};

/// Conditions in their order.
#[derive(Debug, Default)]
pub struct MatchConditions {
    conditions: Vec<(String, Expression)>,
}

/// What conditions came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Matched {
    /// All hold.
    Yes,
    /// The one of this name does not.
    No(String),
    /// None failed to hold, but these could not be evaluated.
    Unclear(String),
}

impl MatchConditions {
    pub(crate) fn new(conditions: Vec<(String, Expression)>) -> Self {
        Self { conditions }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Evaluates all, within a budget of their own.
    pub fn evaluate(&self, bindings: Bindings<'_>) -> Matched {
        self.evaluate_within(bindings, &mut Budget::match_conditions())
    }

    /// Evaluates all, at the expense of `budget`. One that does not hold decides, whatever the others are.
    pub fn evaluate_within(&self, bindings: Bindings<'_>, budget: &mut Budget) -> Matched {
        let mut evaluation = Evaluation::new(bindings, &[], budget.clone());
        let matched = self.evaluate_each(&mut evaluation);
        *budget = evaluation.budget().clone();
        matched
    }

    fn evaluate_each<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Matched {
        let mut errors = Vec::new();
        for (name, expression) in &self.conditions {
            match evaluation.evaluate(expression) {
                Ok(Value::Bool(true)) => {}
                Ok(Value::Bool(false)) => return Matched::No(name.clone()),
                Ok(_) => errors.push(failed(expression, "it is no truth value")),
                Err(error) => errors.push(failed(expression, &error.to_string())),
            }
        }
        match errors.as_slice() {
            [] => Matched::Yes,
            [one] => Matched::Unclear(one.clone()),
            several => Matched::Unclear(format!("[{}]", several.join(", "))),
        }
    }
}

/// As upstream says that an expression has no value.
pub(crate) fn failed(expression: &Expression, error: &str) -> String {
    format!("expression '{}' resulted in error: {error}", expression.source())
}
