//! `'…'.format([…])`.

use std::fmt::Write;

use super::{Function, Outcome, conversion::double_text, time::duration_text, unfit};
use crate::cel::{
    budget::Budget,
    types::Type,
    value::{EvalError, List, Value},
};

pub(super) const FUNCTIONS: &[Function] =
    &[Function::member("format", 2, Type::String, format).on(&[Type::String])];

/// The most digits after the point that `%.9f` may ask for.
const MOST_DIGITS: usize = 100;

fn format<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(template), Value::List(arguments)] = values else { return unfit() };
    budget.charge_bytes(template.len())?;
    let mut text = String::with_capacity(template.len());
    let mut arguments = arguments.iter();
    let mut characters = template.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        if characters.next_if_eq(&'%').is_some() {
            text.push('%');
            continue;
        }
        let mut precision = None;
        if characters.next_if_eq(&'.').is_some() {
            let mut digits = 0;
            while let Some(digit) = characters.peek().and_then(|digit| digit.to_digit(10)) {
                digits = (digits * 10 + digit as usize).min(MOST_DIGITS + 1);
                characters.next();
            }
            if digits > MOST_DIGITS {
                return Err(fault("the precision is too high"));
            }
            precision = Some(digits);
        }
        let Some(clause) = characters.next() else { return Err(fault("a clause has no letter")) };
        let Some(argument) = arguments.next() else {
            return Err(fault("there are more clauses than arguments"));
        };
        let before = text.len();
        write_clause(budget, &mut text, clause, precision, &argument)?;
        budget.charge_bytes(text.len() - before)?;
    }
    Ok(Value::text(text))
}

fn fault(text: &str) -> EvalError {
    EvalError::Function(format!("error during formatting: {text}"))
}

fn write_clause(
    budget: &mut Budget,
    text: &mut String,
    clause: char,
    precision: Option<usize>,
    argument: &Value<'_>,
) -> Result<(), EvalError> {
    let unfit = || {
        let found = argument.type_name();
        fault(&format!("'%{clause}' does not take a value of type {found}"))
    };
    // Writing to a text cannot fail.
    let _ = match (clause, argument) {
        ('s', value) => return write_value(budget, text, value),
        ('d', Value::Int(int)) => write!(text, "{int}"),
        ('d', Value::Uint(uint)) => write!(text, "{uint}"),
        ('f', value) => {
            let digits = precision.unwrap_or(6);
            write!(text, "{:.digits$}", number(value).ok_or_else(unfit)?)
        }
        ('e', value) => {
            let digits = precision.unwrap_or(6);
            let plain = format!("{:.digits$e}", number(value).ok_or_else(unfit)?);
            let (mantissa, power) = plain.split_once('e').unwrap_or((&plain, "0"));
            let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
            write!(text, "{mantissa}e{sign}{power:0>2}")
        }
        ('b', Value::Int(int)) if *int < 0 => write!(text, "-{:b}", int.unsigned_abs()),
        ('b', Value::Int(int)) => write!(text, "{int:b}"),
        ('b', Value::Uint(uint)) => write!(text, "{uint:b}"),
        ('b', Value::Bool(truth)) => write!(text, "{}", u8::from(*truth)),
        ('o', Value::Int(int)) if *int < 0 => write!(text, "-{:o}", int.unsigned_abs()),
        ('o', Value::Int(int)) => write!(text, "{int:o}"),
        ('o', Value::Uint(uint)) => write!(text, "{uint:o}"),
        ('x', Value::Int(int)) if *int < 0 => write!(text, "-{:x}", int.unsigned_abs()),
        ('x', Value::Int(int)) => write!(text, "{int:x}"),
        ('x', Value::Uint(uint)) => write!(text, "{uint:x}"),
        ('X', Value::Int(int)) if *int < 0 => write!(text, "-{:X}", int.unsigned_abs()),
        ('X', Value::Int(int)) => write!(text, "{int:X}"),
        ('X', Value::Uint(uint)) => write!(text, "{uint:X}"),
        ('x' | 'X', Value::String(bytes)) => return hex(budget, text, clause, bytes.as_bytes()),
        ('x' | 'X', Value::Bytes(bytes)) => return hex(budget, text, clause, bytes),
        ('d' | 'b' | 'o' | 'x' | 'X', _) => return Err(unfit()),
        _ => return Err(fault(&format!("unrecognized formatting clause \"{clause}\""))),
    };
    Ok(())
}

fn hex(
    budget: &mut Budget,
    text: &mut String,
    clause: char,
    bytes: &[u8],
) -> Result<(), EvalError> {
    budget.charge_bytes(bytes.len() * 2)?;
    for byte in bytes {
        let _ = if clause == 'x' { write!(text, "{byte:02x}") } else { write!(text, "{byte:02X}") };
    }
    Ok(())
}

fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(double) => Some(*double),
        #[expect(clippy::cast_precision_loss, reason = "it is written as a double")]
        Value::Int(int) => Some(*int as f64),
        #[expect(clippy::cast_precision_loss, reason = "it is written as a double")]
        Value::Uint(uint) => Some(*uint as f64),
        _ => None,
    }
}

/// A value as `%s` writes it; what lies in lists and maps is written the same way.
fn write_value(budget: &mut Budget, text: &mut String, value: &Value<'_>) -> Result<(), EvalError> {
    budget.charge(1)?;
    let _ = match value {
        Value::String(own) => {
            budget.charge_bytes(own.len())?;
            text.write_str(own)
        }
        Value::Null => text.write_str("null"),
        Value::Bool(truth) => write!(text, "{truth}"),
        Value::Int(int) => write!(text, "{int}"),
        Value::Uint(uint) => write!(text, "{uint}"),
        Value::Double(double) => text.write_str(&double_text(*double)),
        Value::Bytes(bytes) => {
            budget.charge_bytes(bytes.len())?;
            text.write_str(&String::from_utf8_lossy(bytes))
        }
        Value::Timestamp(time) => write!(text, "{time}"),
        Value::Duration(span) => text.write_str(&duration_text(*span)),
        Value::Type(name) => text.write_str(name),
        Value::List(list) => return write_list(budget, text, list),
        Value::Map(map) => {
            budget.charge(map.len() as u64)?;
            text.push('{');
            for (place, (key, own)) in map.entries().iter().enumerate() {
                if place > 0 {
                    text.push_str(", ");
                }
                write_value(budget, text, key)?;
                text.push_str(": ");
                write_value(budget, text, own)?;
            }
            text.push('}');
            Ok(())
        }
        Value::Optional(_) | Value::Library(_) => {
            let found = value.type_name();
            return Err(fault(&format!("'%s' does not take a value of type {found}")));
        }
    };
    Ok(())
}

fn write_list(budget: &mut Budget, text: &mut String, list: &List<'_>) -> Result<(), EvalError> {
    text.push('[');
    for (place, own) in list.iter().enumerate() {
        if place > 0 {
            text.push_str(", ");
        }
        write_value(budget, text, &own)?;
    }
    text.push(']');
    Ok(())
}
