//! Values that may be missing. `optMap` and `optFlatMap` are macros.

use super::{Function, Outcome, fail, unfit};
use crate::cel::{budget::Budget, types::Type, value::Value};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::global("optional.of", 1, Type::Optional, of),
    Function::global("optional.none", 0, Type::Optional, none),
    Function::global("optional.ofNonZeroValue", 1, Type::Optional, of_non_zero),
    Function::member("hasValue", 1, Type::Bool, has_value).on(&[Type::Optional]),
    Function::member("value", 1, Type::Dyn, value).on(&[Type::Optional]),
    Function::member("or", 2, Type::Optional, or).on(&[Type::Optional]),
    Function::member("orValue", 2, Type::Dyn, or_value).on(&[Type::Optional]),
];

fn of<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    values.first().cloned().map_or_else(unfit, |value| Ok(Value::some(value)))
}

fn none<'a>(_: &mut Budget, _: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Optional(None))
}

fn of_non_zero<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let zero = match values {
        [Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0)] => true,
        [Value::Optional(None)] => true,
        [Value::Double(double)] => *double == 0.0,
        [Value::String(text)] => text.is_empty(),
        [Value::Bytes(bytes)] => bytes.is_empty(),
        [Value::List(list)] => list.len() == 0,
        [Value::Map(map)] => map.len() == 0,
        [Value::Duration(span)] => span.is_zero(),
        _ => false,
    };
    if zero { Ok(Value::Optional(None)) } else { of(budget, values) }
}

fn has_value<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Optional(inner)] = values else { return unfit() };
    Ok(Value::Bool(inner.is_some()))
}

fn value<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::Optional(Some(inner))] => Ok((**inner).clone()),
        [Value::Optional(None)] => fail("optional.none() dereference"),
        _ => unfit(),
    }
}

fn or<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [own @ Value::Optional(Some(_)), Value::Optional(_)] => Ok(own.clone()),
        [Value::Optional(None), other @ Value::Optional(_)] => Ok(other.clone()),
        _ => unfit(),
    }
}

fn or_value<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::Optional(Some(inner)), _] => Ok((**inner).clone()),
        [Value::Optional(None), other] => Ok(other.clone()),
        _ => unfit(),
    }
}
