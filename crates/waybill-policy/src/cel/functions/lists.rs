//! Lists: Kubernetes' library and version 3 of cel-go's extension. `sortBy` is a macro.

use std::cmp::Ordering;

use super::{Function, Outcome, fail, int, unfit};
use crate::cel::{
    budget::Budget,
    eval::equal,
    fold::sorted,
    operators::{Binary, compare},
    types::Type,
    value::{EvalError, List, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::member("isSorted", 1, Type::Bool, is_sorted).on(LIST),
    Function::member("sum", 1, Type::Dyn, sum).on(LIST),
    Function::member("min", 1, Type::Dyn, min).on(LIST),
    Function::member("max", 1, Type::Dyn, max).on(LIST),
    Function::member("includes", 2, Type::Bool, includes),
    Function::member("distinct", 1, Type::List, distinct).on(LIST),
    Function::member("flatten", 1, Type::List, flatten).up_to(2).on(LIST),
    Function::global("lists.range", 1, Type::List, range).on(&[Type::Int]),
    Function::member("reverse", 1, Type::Dyn, reverse).on(&[Type::List, Type::String]),
    Function::member("slice", 3, Type::List, slice).on(LIST),
    Function::member("sort", 1, Type::List, sort).on(LIST),
    Function::member("first", 1, Type::Optional, first).on(LIST),
    Function::member("last", 1, Type::Optional, last).on(LIST),
];

const LIST: &[Type] = &[Type::List];

pub(super) fn index_of<'a>(budget: &mut Budget, list: &List<'a>, item: &Value<'a>) -> Outcome<'a> {
    for (place, element) in list.iter().enumerate() {
        if equal(budget, &element, item)? {
            return Ok(int(place));
        }
    }
    Ok(Value::Int(-1))
}

pub(super) fn last_index_of<'a>(
    budget: &mut Budget,
    list: &List<'a>,
    item: &Value<'a>,
) -> Outcome<'a> {
    for place in (0..list.len()).rev() {
        if let Some(element) = list.get(place)
            && equal(budget, &element, item)?
        {
            return Ok(int(place));
        }
    }
    Ok(Value::Int(-1))
}

fn is_sorted<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = values else { return unfit() };
    for place in 1..list.len() {
        if let (Some(left), Some(right)) = (list.get(place - 1), list.get(place))
            && compare(budget, &left, &right)? == Ordering::Greater
        {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = values else { return unfit() };
    let mut elements = list.iter();
    let Some(mut total) = elements.next() else { return Ok(Value::Int(0)) };
    if !matches!(total, Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_)) {
        return unfit();
    }
    for element in elements {
        budget.charge(1)?;
        total = Binary::Add.apply(budget, total, element)?;
    }
    Ok(total)
}

fn min<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    extreme(budget, values, "min", Ordering::Less)
}

fn max<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    extreme(budget, values, "max", Ordering::Greater)
}

fn extreme<'a>(
    budget: &mut Budget,
    values: &[Value<'a>],
    name: &str,
    wanted: Ordering,
) -> Outcome<'a> {
    let [Value::List(list)] = values else { return unfit() };
    let mut elements = list.iter();
    let Some(mut best) = elements.next() else {
        return fail(format!("{name} called on empty list"));
    };
    for element in elements {
        if compare(budget, &element, &best)? == wanted {
            best = element;
        }
    }
    Ok(best)
}

fn includes<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::List(list), item] => {
            for element in list.iter() {
                if equal(budget, &element, item)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        [own, item] => equal(budget, own, item).map(Value::Bool),
        _ => unfit(),
    }
}

fn distinct<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = values else { return unfit() };
    let mut kept: Vec<Value<'a>> = Vec::new();
    'elements: for element in list.iter() {
        for earlier in &kept {
            if equal(budget, earlier, &element)? {
                continue 'elements;
            }
        }
        budget.charge_elements(1)?;
        kept.push(element);
    }
    Value::list(kept)
}

fn flatten<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let (list, depth) = match values {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth @ 0..)] => (list, *depth),
        [Value::List(_), Value::Int(_)] => return fail("level must be non-negative"),
        _ => return unfit(),
    };
    let mut flat = Vec::new();
    flatten_into(budget, list, depth, &mut flat)?;
    Value::list(flat)
}

/// The depth of lists is bounded, so this recursion is.
fn flatten_into<'a>(
    budget: &mut Budget,
    list: &List<'a>,
    depth: i64,
    flat: &mut Vec<Value<'a>>,
) -> Result<(), EvalError> {
    for element in list.iter() {
        budget.charge_elements(1)?;
        match element {
            Value::List(inner) if depth > 0 => flatten_into(budget, &inner, depth - 1, flat)?,
            other => flat.push(other),
        }
    }
    Ok(())
}

fn range<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Int(count)] = values else { return unfit() };
    budget.charge_elements(usize::try_from(*count).unwrap_or(0))?;
    Value::list((0..*count).map(Value::Int).collect())
}

fn reverse<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::List(list)] => {
            budget.charge_elements(list.len())?;
            let mut items: Vec<_> = list.iter().collect();
            items.reverse();
            Value::list(items)
        }
        [Value::String(text)] => {
            budget.charge_bytes(text.len())?;
            Ok(Value::text(text.chars().rev().collect::<String>()))
        }
        _ => unfit(),
    }
}

fn slice<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = values else { return unfit() };
    match (usize::try_from(*start), usize::try_from(*end)) {
        (Ok(start), Ok(end)) if start <= end && end <= list.len() => {
            budget.charge_elements(end - start)?;
            Value::list((start..end).filter_map(|place| list.get(place)).collect())
        }
        _ => fail(format!("cannot slice({start}, {end}), list is length {}", list.len())),
    }
}

fn sort<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = values else { return unfit() };
    budget.charge_elements(list.len())?;
    sorted(budget, list.iter().map(|item| (item.clone(), item)).collect())
}

fn first<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = values else { return unfit() };
    Ok(list.get(0).map_or(Value::Optional(None), Value::some))
}

fn last<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = values else { return unfit() };
    let last = list.len().checked_sub(1).and_then(|place| list.get(place));
    Ok(last.map_or(Value::Optional(None), Value::some))
}
