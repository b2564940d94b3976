//! Sizes, and conversions between types.

use std::{rc::Rc, str};

use super::{Function, Outcome, fail, int, time, unfit};
use crate::cel::{
    budget::Budget,
    operators::whole,
    types::Type,
    value::{Text, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::global("size", 1, Type::Int, size).on(SIZED),
    Function::member("size", 1, Type::Int, size).on(SIZED),
    Function::global("string", 1, Type::String, string),
    Function::global("int", 1, Type::Int, to_int),
    Function::global("uint", 1, Type::Uint, to_uint),
    Function::global("double", 1, Type::Double, to_double),
    Function::global("bool", 1, Type::Bool, to_bool),
    Function::global("bytes", 1, Type::Bytes, to_bytes),
    Function::global("dyn", 1, Type::Dyn, same),
    Function::global("type", 1, Type::Meta, type_of),
];

const SIZED: &[Type] = &[Type::String, Type::Bytes, Type::List, Type::Map];

fn size<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::String(text)] => {
            budget.charge_bytes(text.len())?;
            Ok(int(text.chars().count()))
        }
        [Value::Bytes(bytes)] => Ok(int(bytes.len())),
        [Value::List(list)] => Ok(int(list.len())),
        [Value::Map(map)] => Ok(int(map.len())),
        _ => unfit(),
    }
}

fn string<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::String(text)] => Ok(Value::String(text.clone())),
        [Value::Bool(truth)] => Ok(Value::text(truth.to_string())),
        [Value::Int(int)] => Ok(Value::text(int.to_string())),
        [Value::Uint(uint)] => Ok(Value::text(uint.to_string())),
        [Value::Double(double)] => Ok(Value::text(double_text(*double))),
        [Value::Bytes(bytes)] => {
            budget.charge_bytes(bytes.len())?;
            match str::from_utf8(bytes) {
                Ok(text) => Ok(Value::text(text)),
                Err(_) => fail("invalid UTF-8 in bytes, cannot convert to string"),
            }
        }
        [Value::Timestamp(time)] => Ok(Value::text(time.to_string())),
        [Value::Duration(span)] => Ok(Value::text(time::duration_text(*span))),
        [Value::Library(library)] => match library_text(library) {
            Some(text) => Ok(Value::text(text)),
            None => unfit(),
        },
        _ => unfit(),
    }
}

/// As Go writes a double in its shortest form: without an exponent where it is readable.
pub(super) fn double_text(double: f64) -> String {
    let plain = double == 0.0 || (1e-5..1e21).contains(&double.abs());
    match double {
        _ if double.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ if plain => double.to_string(),
        _ => {
            // Rust writes `1e21`, Go `1e+21`.
            let text = format!("{double:e}");
            match text.split_once('e') {
                Some((digits, power)) if !power.starts_with('-') => {
                    format!("{digits}e+{power:0>2}")
                }
                Some((digits, power)) => format!("{digits}e-{:0>2}", power.trim_start_matches('-')),
                None => text,
            }
        }
    }
}

fn library_text(library: &crate::cel::value::Library<'_>) -> Option<String> {
    use crate::cel::value::Library;
    match library {
        Library::Ip(ip) => Some(ip.to_string()),
        Library::Cidr(cidr) => Some(cidr.to_string()),
        Library::Quantity(_)
        | Library::Url(_)
        | Library::Semver(_)
        | Library::Format(_)
        | Library::Authorizer(_)
        | Library::Check(..)
        | Library::Decision(_) => None,
    }
}

fn to_int<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::Int(int)] => Ok(Value::Int(*int)),
        [Value::Uint(uint)] => match i64::try_from(*uint) {
            Ok(int) => Ok(Value::Int(int)),
            Err(_) => fail("integer overflow"),
        },
        [Value::Double(double)] => match whole(double.trunc()) {
            Some(int) => Ok(Value::Int(int)),
            None => fail("integer overflow"),
        },
        [Value::String(text)] => match text.parse() {
            Ok(int) => Ok(Value::Int(int)),
            Err(_) => fail("type conversion error from 'string' to 'int'"),
        },
        [Value::Timestamp(time)] => Ok(Value::Int(time.as_second())),
        [Value::Duration(span)] => match i64::try_from(span.as_nanos()) {
            Ok(nanos) => Ok(Value::Int(nanos)),
            Err(_) => fail("integer overflow"),
        },
        _ => unfit(),
    }
}

fn to_uint<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::Uint(uint)] => Ok(Value::Uint(*uint)),
        [Value::Int(int)] => match u64::try_from(*int) {
            Ok(uint) => Ok(Value::Uint(uint)),
            Err(_) => fail("unsigned integer overflow"),
        },
        [Value::Double(double)] => match double.trunc() {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the bounds are those of u64"
            )]
            number if (0.0..18_446_744_073_709_551_616.0).contains(&number) => {
                Ok(Value::Uint(number as u64))
            }
            _ => fail("unsigned integer overflow"),
        },
        [Value::String(text)] => match text.parse() {
            Ok(uint) => Ok(Value::Uint(uint)),
            Err(_) => fail("type conversion error from 'string' to 'uint'"),
        },
        _ => unfit(),
    }
}

fn to_double<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::Double(double)] => Ok(Value::Double(*double)),
        #[expect(clippy::cast_precision_loss, reason = "a conversion to double rounds")]
        [Value::Int(int)] => Ok(Value::Double(*int as f64)),
        #[expect(clippy::cast_precision_loss, reason = "a conversion to double rounds")]
        [Value::Uint(uint)] => Ok(Value::Double(*uint as f64)),
        [Value::String(text)] => match text.parse() {
            Ok(double) => Ok(Value::Double(double)),
            Err(_) => fail("type conversion error from 'string' to 'double'"),
        },
        _ => unfit(),
    }
}

fn to_bool<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::Bool(truth)] => Ok(Value::Bool(*truth)),
        [Value::String(text)] => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => fail("type conversion error from 'string' to 'bool'"),
        },
        _ => unfit(),
    }
}

fn to_bytes<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::Bytes(bytes)] => Ok(Value::Bytes(Rc::clone(bytes))),
        [Value::String(text)] => {
            budget.charge_bytes(text.len())?;
            Ok(Value::Bytes(Rc::from(text.as_bytes())))
        }
        _ => unfit(),
    }
}

fn same<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    values.first().cloned().map_or_else(unfit, Ok)
}

fn type_of<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    values.first().map_or_else(unfit, |value| Ok(Value::Type(value.type_name())))
}

/// For functions that take a text and give one back unchanged.
pub(super) fn shared<'a>(text: &Text<'a>) -> Value<'a> {
    Value::String(text.clone())
}
