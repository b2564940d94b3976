//! Lists as sets.

use super::{Function, Outcome, unfit};
use crate::cel::{
    budget::Budget,
    eval::equal,
    types::Type,
    value::{EvalError, List, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::global("sets.contains", 2, Type::Bool, contains).on(&[Type::List]),
    Function::global("sets.equivalent", 2, Type::Bool, equivalent).on(&[Type::List]),
    Function::global("sets.intersects", 2, Type::Bool, intersects).on(&[Type::List]),
];

fn contains<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(set), Value::List(part)] = values else { return unfit() };
    holds_all(budget, set, part).map(Value::Bool)
}

fn equivalent<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(left), Value::List(right)] = values else { return unfit() };
    let both = holds_all(budget, left, right)? && holds_all(budget, right, left)?;
    Ok(Value::Bool(both))
}

fn intersects<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(left), Value::List(right)] = values else { return unfit() };
    for item in right.iter() {
        if holds(budget, left, &item)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn holds_all<'a>(budget: &mut Budget, set: &List<'a>, part: &List<'a>) -> Result<bool, EvalError> {
    for item in part.iter() {
        if !holds(budget, set, &item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn holds<'a>(budget: &mut Budget, set: &List<'a>, item: &Value<'a>) -> Result<bool, EvalError> {
    for element in set.iter() {
        if equal(budget, &element, item)? {
            return Ok(true);
        }
    }
    Ok(false)
}
