//! Texts: CEL's own functions and version 2 of cel-go's extension, whose positions count characters.

use super::{Function, Outcome, conversion::shared, fail, int, lists, unfit};
use crate::cel::{
    budget::Budget,
    types::Type,
    value::{EvalError, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::member("startsWith", 2, Type::Bool, starts_with).on(TEXT),
    Function::member("endsWith", 2, Type::Bool, ends_with).on(TEXT),
    Function::member("contains", 2, Type::Bool, contains).on(TEXT),
    Function::member("charAt", 2, Type::String, char_at).on(TEXT),
    Function::member("indexOf", 2, Type::Int, index_of).up_to(3).on(TEXT_OR_LIST),
    Function::member("lastIndexOf", 2, Type::Int, last_index_of).up_to(3).on(TEXT_OR_LIST),
    Function::member("lowerAscii", 1, Type::String, lower_ascii).on(TEXT),
    Function::member("upperAscii", 1, Type::String, upper_ascii).on(TEXT),
    Function::member("replace", 3, Type::String, replace).up_to(4).on(TEXT),
    Function::member("split", 2, Type::List, split).up_to(3).on(TEXT),
    Function::member("substring", 2, Type::String, substring).up_to(3).on(TEXT),
    Function::member("trim", 1, Type::String, trim).on(TEXT),
    Function::member("join", 1, Type::String, join).up_to(2).on(&[Type::List]),
    Function::global("strings.quote", 1, Type::String, quote).on(TEXT),
];

const TEXT: &[Type] = &[Type::String];
const TEXT_OR_LIST: &[Type] = &[Type::String, Type::List];

fn starts_with<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::String(part)] = values else { return unfit() };
    budget.charge_bytes(part.len())?;
    Ok(Value::Bool(text.starts_with(&**part)))
}

fn ends_with<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::String(part)] = values else { return unfit() };
    budget.charge_bytes(part.len())?;
    Ok(Value::Bool(text.ends_with(&**part)))
}

fn contains<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::String(part)] = values else { return unfit() };
    budget.charge_bytes(text.len() + part.len())?;
    Ok(Value::Bool(text.contains(&**part)))
}

fn char_at<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::Int(place)] = values else { return unfit() };
    budget.charge_bytes(text.len())?;
    let count = text.chars().count();
    match usize::try_from(*place) {
        Ok(place) if place == count => Ok(Value::text("")),
        Ok(place) => match text.chars().nth(place) {
            Some(found) => Ok(Value::text(found.to_string())),
            None => out_of_range(values),
        },
        Err(_) => out_of_range(values),
    }
}

fn out_of_range<'a>(values: &[Value<'a>]) -> Outcome<'a> {
    let place = values.get(1..).and_then(|places| {
        places.iter().rev().find_map(|place| match place {
            Value::Int(place) => Some(*place),
            _ => None,
        })
    });
    fail(format!("index out of range: {}", place.unwrap_or_default()))
}

/// The character at which the search begins, and the byte there.
fn byte_of(text: &str, place: i64) -> Option<usize> {
    let place = usize::try_from(place).ok()?;
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(place)
}

fn index_of<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let (text, part, from) = match values {
        [Value::List(list), item] => return lists::index_of(budget, list, item),
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, *from),
        _ => return unfit(),
    };
    budget.charge_bytes(text.len() + part.len())?;
    let Some(from) = byte_of(text, from) else { return out_of_range(values) };
    let rest = text.get(from..).unwrap_or_default();
    Ok(match rest.find(&**part) {
        Some(at) => int(text.get(..from + at).unwrap_or_default().chars().count()),
        None => Value::Int(-1),
    })
}

fn last_index_of<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let (text, part, until) = match values {
        [Value::List(list), item] => return lists::last_index_of(budget, list, item),
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(until)] => (text, part, Some(*until)),
        _ => return unfit(),
    };
    budget.charge_bytes(text.len() + part.len())?;
    let end = match until {
        None => text.len(),
        Some(until) => match byte_of(text, until) {
            // The part may begin there, so it may reach beyond.
            Some(at) => (at + part.len()).min(text.len()),
            None => return out_of_range(values),
        },
    };
    let end = (end..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let searched = text.get(..end).unwrap_or_default();
    Ok(match searched.rfind(&**part) {
        Some(at) => int(text.get(..at).unwrap_or_default().chars().count()),
        None => Value::Int(-1),
    })
}

fn lower_ascii<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = values else { return unfit() };
    budget.charge_bytes(text.len())?;
    Ok(Value::text(text.to_ascii_lowercase()))
}

fn upper_ascii<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = values else { return unfit() };
    budget.charge_bytes(text.len())?;
    Ok(Value::text(text.to_ascii_uppercase()))
}

fn replace<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let (text, old, new, most) = match values {
        [Value::String(text), Value::String(old), Value::String(new)] => {
            (text, old, new, usize::MAX)
        }
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(most)] => {
            (text, old, new, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        _ => return unfit(),
    };
    budget.charge_bytes(text.len() + old.len())?;
    // The result is paid for before it is made: a short text can become a very long one.
    let found = text.matches(&**old).take(most).count();
    budget.charge_bytes(text.len().saturating_add(found.saturating_mul(new.len())))?;
    Ok(Value::text(text.replacen(&**old, new, most)))
}

fn split<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let (text, separator, most) = match values {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(most)] => {
            (text, separator, *most)
        }
        _ => return unfit(),
    };
    budget.charge_bytes(text.len())?;
    let most = match most {
        0 => return Value::list(Vec::new()),
        most => usize::try_from(most).unwrap_or(usize::MAX),
    };
    let mut parts: Vec<Value<'a>> = Vec::new();
    if separator.is_empty() {
        // As Go: into characters, the last part being what is left.
        let mut rest: &str = text;
        while parts.len() + 1 < most
            && let Some(first) = rest.chars().next()
            && rest.len() > first.len_utf8()
        {
            budget.charge_elements(1)?;
            parts.push(Value::text(first.to_string()));
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
        if !text.is_empty() {
            parts.push(Value::text(rest));
        }
        return Value::list(parts);
    }
    for part in text.splitn(most, &**separator) {
        budget.charge_elements(1)?;
        parts.push(Value::text(part));
    }
    Value::list(parts)
}

fn substring<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let (text, start, end) = match values {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return unfit(),
    };
    budget.charge_bytes(text.len())?;
    let Some(from) = byte_of(text, start) else { return out_of_range(values) };
    let until = match end {
        None => Some(text.len()),
        Some(end) => byte_of(text, end),
    };
    match until.and_then(|until| text.get(from..until)) {
        Some(part) => Ok(Value::text(part)),
        None => out_of_range(values),
    }
}

fn trim<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = values else { return unfit() };
    budget.charge_bytes(text.len())?;
    let trimmed = text.trim();
    if trimmed.len() == text.len() { Ok(shared(text)) } else { Ok(Value::text(trimmed)) }
}

fn join<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let (list, separator) = match values {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return unfit(),
    };
    let mut joined = String::new();
    for (place, part) in list.iter().enumerate() {
        let Value::String(part) = part else {
            return Err(EvalError::NoSuchOverload(
                "join of a list that holds more than texts".to_owned(),
            ));
        };
        budget.charge_bytes(part.len() + separator.len())?;
        if place > 0 {
            joined.push_str(separator);
        }
        joined.push_str(&part);
    }
    Ok(Value::text(joined))
}

fn quote<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = values else { return unfit() };
    budget.charge_bytes(text.len() * 2)?;
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0c' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x0b' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    Ok(Value::text(quoted))
}
