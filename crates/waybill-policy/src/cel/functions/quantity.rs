//! Amounts of resources, such as `500Mi`.

use std::cmp::Ordering;

use waybill_core::quantity::Quantity;

use super::{Function, Outcome, fail, unfit};
use crate::cel::{
    budget::Budget,
    types::Type,
    value::{Library, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::global("quantity", 1, QUANTITY, quantity).on(&[Type::String]),
    Function::global("isQuantity", 1, Type::Bool, is_quantity).on(&[Type::String]),
    Function::member("sign", 1, Type::Int, sign).on(AMOUNT),
    Function::member("isInteger", 1, Type::Bool, is_integer).on(AMOUNT),
    Function::member("asInteger", 1, Type::Int, as_integer).on(AMOUNT),
    Function::member("asApproximateFloat", 1, Type::Double, as_float).on(AMOUNT),
    Function::member("add", 2, QUANTITY, add).on(AMOUNT),
    Function::member("sub", 2, QUANTITY, sub).on(AMOUNT),
    Function::member("isLessThan", 2, Type::Bool, is_less_than).on(COMPARED),
    Function::member("isGreaterThan", 2, Type::Bool, is_greater_than).on(COMPARED),
    Function::member("compareTo", 2, Type::Int, compare_to).on(COMPARED),
];

const QUANTITY: Type = Type::Library("kubernetes.Quantity");
const AMOUNT: &[Type] = &[QUANTITY];
const COMPARED: &[Type] = &[QUANTITY, Type::Library("kubernetes.Semver")];

fn wrap<'a>(amount: Quantity) -> Value<'a> {
    Value::Library(Library::Quantity(amount))
}

fn quantity<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = values else { return unfit() };
    budget.charge_bytes(text.len())?;
    match Quantity::parse(text) {
        Ok(amount) => Ok(wrap(amount)),
        Err(error) => fail(error.to_string()),
    }
}

fn is_quantity<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = values else { return unfit() };
    budget.charge_bytes(text.len())?;
    Ok(Value::Bool(Quantity::parse(text).is_ok()))
}

fn amount(values: &[Value<'_>]) -> Option<Quantity> {
    match values {
        [Value::Library(Library::Quantity(amount))] => Some(*amount),
        _ => None,
    }
}

fn sign<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match amount(values) {
        Some(amount) if amount.is_zero() => Ok(Value::Int(0)),
        Some(amount) => Ok(Value::Int(if amount.is_negative() { -1 } else { 1 })),
        None => unfit(),
    }
}

fn is_integer<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    amount(values).map_or_else(unfit, |amount| Ok(Value::Bool(amount.is_whole())))
}

fn as_integer<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match amount(values) {
        Some(amount) if amount.is_whole() => Ok(Value::Int(amount.value())),
        Some(_) => fail("cannot convert value to integer"),
        None => unfit(),
    }
}

fn as_float<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    amount(values).map_or_else(unfit, |amount| Ok(Value::Double(amount.approximate())))
}

/// Two amounts, of which the second may be a number of units.
fn two(values: &[Value<'_>]) -> Option<(Quantity, Quantity)> {
    match values {
        [Value::Library(Library::Quantity(left)), Value::Library(Library::Quantity(right))] => {
            Some((*left, *right))
        }
        [Value::Library(Library::Quantity(left)), Value::Int(right)] => {
            Some((*left, Quantity::from_units(*right)))
        }
        _ => None,
    }
}

fn add<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    two(values).map_or_else(unfit, |(left, right)| Ok(wrap(left.saturating_add(right))))
}

fn sub<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    two(values).map_or_else(unfit, |(left, right)| Ok(wrap(left.saturating_sub(right))))
}

/// The order of two amounts, or of two versions.
fn order(values: &[Value<'_>]) -> Option<Ordering> {
    match values {
        [Value::Library(Library::Semver(left)), Value::Library(Library::Semver(right))] => {
            Some(left.cmp(right))
        }
        [Value::Library(Library::Quantity(left)), Value::Library(Library::Quantity(right))] => {
            Some(left.cmp(right))
        }
        _ => None,
    }
}

fn is_less_than<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    order(values).map_or_else(unfit, |order| Ok(Value::Bool(order.is_lt())))
}

fn is_greater_than<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    order(values).map_or_else(unfit, |order| Ok(Value::Bool(order.is_gt())))
}

fn compare_to<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    order(values).map_or_else(unfit, |order| Ok(Value::Int(order as i64)))
}
