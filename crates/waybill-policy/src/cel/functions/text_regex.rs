//! Regular expressions over texts.

use regex::Regex;

use super::{Function, Outcome, unfit};
use crate::cel::{
    budget::Budget,
    types::Type,
    value::{EvalError, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::pattern("matches", Type::Bool, matches),
    Function::pattern("matches", Type::Bool, matches).global_style(),
    Function::pattern("find", Type::String, find),
    Function::pattern("findAll", Type::List, find_all).up_to(3),
];

/// Time is linear in text and pattern; a pattern is about a quarter as much work for each of its bytes, as upstream counts.
fn charge(budget: &mut Budget, text: &str, pattern: &Regex) -> Result<(), EvalError> {
    let weight = 1 + pattern.as_str().len() / 4;
    budget.charge_bytes(text.len().saturating_mul(weight))
}

fn matches<'a>(budget: &mut Budget, values: &[Value<'a>], pattern: &Regex) -> Outcome<'a> {
    let [Value::String(text), ..] = values else { return unfit() };
    charge(budget, text, pattern)?;
    Ok(Value::Bool(pattern.is_match(text)))
}

fn find<'a>(budget: &mut Budget, values: &[Value<'a>], pattern: &Regex) -> Outcome<'a> {
    let [Value::String(text), ..] = values else { return unfit() };
    charge(budget, text, pattern)?;
    Ok(Value::text(pattern.find(text).map_or("", |found| found.as_str())))
}

fn find_all<'a>(budget: &mut Budget, values: &[Value<'a>], pattern: &Regex) -> Outcome<'a> {
    let (text, most) = match values {
        [Value::String(text), _] => (text, usize::MAX),
        [Value::String(text), _, Value::Int(most)] => {
            (text, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        _ => return unfit(),
    };
    charge(budget, text, pattern)?;
    let mut found = Vec::new();
    for part in pattern.find_iter(text).take(most) {
        // Each search may look at all of the rest before it settles.
        charge(budget, text.get(part.end()..).unwrap_or_default(), pattern)?;
        budget.charge_elements(1)?;
        found.push(Value::text(part.as_str()));
    }
    Value::list(found)
}
