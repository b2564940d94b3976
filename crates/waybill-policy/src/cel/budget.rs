//! How much work expressions may be.
//!
//! A unit is about one step: a node of the expression, a comparison, ten bytes of text that are read
//! or made. Memory costs units as well, since whatever is built is paid for by its size.

use super::value::EvalError;

/// What one expression may cost, as upstream's `PerCallLimit`.
const PER_EXPRESSION: u64 = 1_000_000;

/// What all expressions of a policy may cost for one request, as upstream's `RuntimeCELCostBudget`.
const PER_POLICY: u64 = 10_000_000;

/// What all match conditions of a webhook or policy may cost, as upstream's `RuntimeCELCostBudgetMatchConditions`.
const PER_MATCH_CONDITIONS: u64 = 2_500_000;

/// Text that is read or made for one unit.
const BYTES_PER_UNIT: usize = 10;

/// An element of a list takes about forty bytes.
const UNITS_PER_ELEMENT: u64 = 4;

/// Units that are left, for one expression and for all that share a budget.
#[derive(Clone, Debug)]
pub struct Budget {
    total: u64,
    expression: u64,
}

impl Budget {
    /// For the validations, messages and annotations of one policy.
    pub fn policy() -> Self {
        Self { total: PER_POLICY, expression: PER_EXPRESSION }
    }

    /// For the match conditions of one webhook or policy.
    pub fn match_conditions() -> Self {
        Self { total: PER_MATCH_CONDITIONS, expression: PER_EXPRESSION }
    }

    /// The next expression begins, with an allowance of its own.
    pub(super) fn begin_expression(&mut self) {
        self.expression = PER_EXPRESSION;
    }

    /// Whether nothing is left for any further expression.
    pub fn is_spent(&self) -> bool {
        self.total == 0
    }

    pub(super) fn charge(&mut self, units: u64) -> Result<(), EvalError> {
        // Work that is refused is not done, so no more is taken than the expression had left.
        let spent = units.min(self.expression);
        self.expression -= spent;
        match self.total.checked_sub(spent) {
            None => {
                self.total = 0;
                Err(EvalError::OutOfBudget)
            }
            Some(left) => {
                self.total = left;
                if spent < units { Err(EvalError::CostLimit) } else { Ok(()) }
            }
        }
    }

    /// Pays for `count` elements of a list that is made.
    pub(super) fn charge_elements(&mut self, count: usize) -> Result<(), EvalError> {
        self.charge(UNITS_PER_ELEMENT.saturating_mul(count as u64))
    }

    /// Pays for `bytes` of text or `bytes` of memory.
    pub(super) fn charge_bytes(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.charge(1 + bytes.div_ceil(BYTES_PER_UNIT) as u64)
    }
}
