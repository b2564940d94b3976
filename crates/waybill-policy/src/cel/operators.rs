//! Arithmetic, comparison and membership.

use std::{cmp::Ordering, rc::Rc};

use cel::common::ast::operators as op;
use jiff::SignedDuration;

use super::{
    budget::Budget,
    eval::equal,
    types::Type,
    value::{EvalError, Key, Library, Value},
};

/// An operator between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equals,
    NotEquals,
    Less,
    LessEquals,
    Greater,
    GreaterEquals,
    In,
}

impl Binary {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            op::ADD => Self::Add,
            op::SUBSTRACT => Self::Subtract,
            op::MULTIPLY => Self::Multiply,
            op::DIVIDE => Self::Divide,
            op::MODULO => Self::Modulo,
            op::EQUALS => Self::Equals,
            op::NOT_EQUALS => Self::NotEquals,
            op::LESS => Self::Less,
            op::LESS_EQUALS => Self::LessEquals,
            op::GREATER => Self::Greater,
            op::GREATER_EQUALS => Self::GreaterEquals,
            op::IN => Self::In,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Add => op::ADD,
            Self::Subtract => op::SUBSTRACT,
            Self::Multiply => op::MULTIPLY,
            Self::Divide => op::DIVIDE,
            Self::Modulo => op::MODULO,
            Self::Equals => op::EQUALS,
            Self::NotEquals => op::NOT_EQUALS,
            Self::Less => op::LESS,
            Self::LessEquals => op::LESS_EQUALS,
            Self::Greater => op::GREATER,
            Self::GreaterEquals => op::GREATER_EQUALS,
            Self::In => op::IN,
        }
    }

    /// The type of the result, if the operator takes these types at all.
    pub(super) fn result(self, left: Type, right: Type) -> Option<Type> {
        use Type::{
            Bool, Bytes, Double, Duration, Dyn, Int, List, Map, Null, String, Timestamp, Uint,
        };
        let known = left != Dyn && right != Dyn;
        match self {
            Self::Equals | Self::NotEquals => {
                let numbers = left.is_number() && right.is_number();
                // Anything may be compared with null, as upstream's objects may be.
                let null = left == Null || right == Null;
                (left.may_be(right) || numbers || null).then_some(Bool)
            }
            Self::Less | Self::LessEquals | Self::Greater | Self::GreaterEquals => {
                let ordered = |known: Type| {
                    known.is_number()
                        || matches!(known, Dyn | Bool | String | Bytes | Duration | Timestamp)
                };
                let fit = left.may_be(right) || (left.is_number() && right.is_number());
                (ordered(left) && ordered(right) && fit).then_some(Bool)
            }
            Self::In => matches!(right, Dyn | List | Map).then_some(Bool),
            Self::Add => match (left, right) {
                (Timestamp, Duration) | (Duration, Timestamp) => Some(Timestamp),
                (Int | Uint | Double | String | Bytes | List | Duration, _) if left == right => {
                    Some(left)
                }
                _ => (!known).then_some(Dyn),
            },
            Self::Subtract => match (left, right) {
                (Timestamp, Timestamp) => Some(Duration),
                (Timestamp, Duration) => Some(Timestamp),
                (Int | Uint | Double | Duration, _) if left == right => Some(left),
                _ => (!known).then_some(Dyn),
            },
            Self::Multiply | Self::Divide => match left {
                Int | Uint | Double if left == right => Some(left),
                _ => (!known).then_some(Dyn),
            },
            Self::Modulo => match left {
                Int | Uint if left == right => Some(left),
                _ => (!known).then_some(Dyn),
            },
        }
    }

    pub(super) fn apply<'a>(
        self,
        budget: &mut Budget,
        left: Value<'a>,
        right: Value<'a>,
    ) -> Result<Value<'a>, EvalError> {
        match self {
            Self::Equals => equal(budget, &left, &right).map(Value::Bool),
            Self::NotEquals => equal(budget, &left, &right).map(|same| Value::Bool(!same)),
            Self::Less => self.ordered(budget, &left, &right, Ordering::is_lt),
            Self::LessEquals => self.ordered(budget, &left, &right, Ordering::is_le),
            Self::Greater => self.ordered(budget, &left, &right, Ordering::is_gt),
            Self::GreaterEquals => self.ordered(budget, &left, &right, Ordering::is_ge),
            Self::In => contains(budget, &right, &left).map(Value::Bool),
            Self::Add => self.add(budget, left, right),
            Self::Subtract => self.subtract(left, right),
            Self::Multiply | Self::Divide | Self::Modulo => self.scale(left, right),
        }
    }

    fn ordered<'a>(
        self,
        budget: &mut Budget,
        left: &Value<'a>,
        right: &Value<'a>,
        holds: fn(Ordering) -> bool,
    ) -> Result<Value<'a>, EvalError> {
        // No order holds for what is not a number.
        if [left, right].iter().any(|side| matches!(side, Value::Double(double) if double.is_nan()))
            && is_number(left)
            && is_number(right)
        {
            return Ok(Value::Bool(false));
        }
        compare(budget, left, right).map(|order| Value::Bool(holds(order))).map_err(|error| {
            match error {
                EvalError::NoSuchOverload(_) => {
                    EvalError::overload(self.name(), &[left.clone(), right.clone()])
                }
                error => error,
            }
        })
    }

    fn add<'a>(
        self,
        budget: &mut Budget,
        left: Value<'a>,
        right: Value<'a>,
    ) -> Result<Value<'a>, EvalError> {
        match (left, right) {
            (Value::Int(left), Value::Int(right)) => {
                left.checked_add(right).map(Value::Int).ok_or(EvalError::Overflow)
            }
            (Value::Uint(left), Value::Uint(right)) => {
                left.checked_add(right).map(Value::Uint).ok_or(EvalError::Overflow)
            }
            (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left + right)),
            (Value::String(left), Value::String(right)) => {
                budget.charge_bytes(left.len() + right.len())?;
                Ok(Value::text([&*left, &*right].concat()))
            }
            (Value::Bytes(left), Value::Bytes(right)) => {
                budget.charge_bytes(left.len() + right.len())?;
                Ok(Value::Bytes(Rc::from([&*left, &*right].concat())))
            }
            (Value::List(left), Value::List(right)) => {
                budget.charge_elements(left.len() + right.len())?;
                Value::list(left.iter().chain(right.iter()).collect())
            }
            (Value::Duration(left), Value::Duration(right)) => {
                left.checked_add(right).map(Value::Duration).ok_or(EvalError::TimeOverflow)
            }
            (Value::Timestamp(time), Value::Duration(span))
            | (Value::Duration(span), Value::Timestamp(time)) => {
                time.checked_add(span).map(Value::Timestamp).map_err(|_| EvalError::TimeOverflow)
            }
            (left, right) => Err(EvalError::overload(self.name(), &[left, right])),
        }
    }

    fn subtract<'a>(self, left: Value<'a>, right: Value<'a>) -> Result<Value<'a>, EvalError> {
        match (left, right) {
            (Value::Int(left), Value::Int(right)) => {
                left.checked_sub(right).map(Value::Int).ok_or(EvalError::Overflow)
            }
            (Value::Uint(left), Value::Uint(right)) => {
                left.checked_sub(right).map(Value::Uint).ok_or(EvalError::Overflow)
            }
            (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left - right)),
            (Value::Duration(left), Value::Duration(right)) => {
                left.checked_sub(right).map(Value::Duration).ok_or(EvalError::TimeOverflow)
            }
            (Value::Timestamp(left), Value::Timestamp(right)) => {
                Ok(Value::Duration(left.duration_since(right)))
            }
            (Value::Timestamp(time), Value::Duration(span)) => {
                let back = SignedDuration::ZERO.checked_sub(span).ok_or(EvalError::TimeOverflow)?;
                time.checked_add(back).map(Value::Timestamp).map_err(|_| EvalError::TimeOverflow)
            }
            (left, right) => Err(EvalError::overload(self.name(), &[left, right])),
        }
    }

    fn scale<'a>(self, left: Value<'a>, right: Value<'a>) -> Result<Value<'a>, EvalError> {
        let zero = matches!(
            (&left, &right),
            (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0))
        );
        match (self, left, right) {
            (Self::Divide, _, _) if zero => Err(EvalError::DivisionByZero),
            (Self::Modulo, _, _) if zero => Err(EvalError::ModulusByZero),
            (Self::Multiply, Value::Double(left), Value::Double(right)) => {
                Ok(Value::Double(left * right))
            }
            (Self::Divide, Value::Double(left), Value::Double(right)) => {
                Ok(Value::Double(left / right))
            }
            (_, Value::Int(left), Value::Int(right)) => {
                let result = match self {
                    Self::Multiply => left.checked_mul(right),
                    Self::Divide => left.checked_div(right),
                    _ => left.checked_rem(right),
                };
                result.map(Value::Int).ok_or(EvalError::Overflow)
            }
            (_, Value::Uint(left), Value::Uint(right)) => {
                let result = match self {
                    Self::Multiply => left.checked_mul(right),
                    Self::Divide => left.checked_div(right),
                    _ => left.checked_rem(right),
                };
                result.map(Value::Uint).ok_or(EvalError::Overflow)
            }
            (_, left, right) => Err(EvalError::overload(self.name(), &[left, right])),
        }
    }
}

/// Which of two values comes first, paid for.
pub(super) fn compare<'a>(
    budget: &mut Budget,
    left: &Value<'a>,
    right: &Value<'a>,
) -> Result<Ordering, EvalError> {
    budget.charge(1)?;
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        budget.charge_bytes(left.len().min(right.len()))?;
    }
    order(left, right).ok_or_else(|| EvalError::overload("_<_", &[left.clone(), right.clone()]))
}

/// Which of two values comes first, if they can be compared.
pub(super) fn order(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::String(left), Value::String(right)) => Some((**left).cmp(&**right)),
        (Value::Bytes(left), Value::Bytes(right)) => Some(left.cmp(right)),
        (Value::Duration(left), Value::Duration(right)) => Some(left.cmp(right)),
        (Value::Timestamp(left), Value::Timestamp(right)) => Some(left.cmp(right)),
        (Value::Library(Library::Quantity(left)), Value::Library(Library::Quantity(right))) => {
            Some(left.cmp(right))
        }
        (left, right) => compare_numbers(left, right),
    }
}

fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

/// Numbers of different types compare by amount.
fn compare_numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Uint(left), Value::Uint(right)) => Some(left.cmp(right)),
        (Value::Int(left), Value::Uint(right)) => Some(i128::from(*left).cmp(&i128::from(*right))),
        (Value::Uint(left), Value::Int(right)) => Some(i128::from(*left).cmp(&i128::from(*right))),
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(right),
        (Value::Double(left), Value::Int(right)) => with_integer(*left, i128::from(*right)),
        (Value::Double(left), Value::Uint(right)) => with_integer(*left, i128::from(*right)),
        (Value::Int(left), Value::Double(right)) => {
            with_integer(*right, i128::from(*left)).map(Ordering::reverse)
        }
        (Value::Uint(left), Value::Double(right)) => {
            with_integer(*right, i128::from(*left)).map(Ordering::reverse)
        }
        _ => None,
    }
}

/// The order of a double and an integer, without rounding either.
fn with_integer(double: f64, integer: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the cast saturates, and no integer here is at its ends"
    )]
    let floor = double.floor() as i128;
    Some(floor.cmp(&integer).then(if double.fract() == 0.0 {
        Ordering::Equal
    } else {
        Ordering::Greater
    }))
}

/// The integer that a double is, if it is one.
pub(super) fn whole(double: f64) -> Option<i64> {
    // The bounds are exact in both types; the upper one is the first that is too large.
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&double);
    #[expect(clippy::cast_possible_truncation, reason = "checked on the line before")]
    (fits && double.fract() == 0.0).then_some(double as i64)
}

/// Whether two values that hold no others are equal. Values of different types are not, except numbers.
pub(super) fn equal_scalars(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Duration(left), Value::Duration(right)) => left == right,
        (Value::Timestamp(left), Value::Timestamp(right)) => left == right,
        (Value::Type(left), Value::Type(right)) => left == right,
        (Value::Library(left), Value::Library(right)) => match (left, right) {
            (Library::Quantity(left), Library::Quantity(right)) => left == right,
            (Library::Ip(left), Library::Ip(right)) => left == right,
            (Library::Cidr(left), Library::Cidr(right)) => left == right,
            (Library::Url(left), Library::Url(right)) => left == right,
            (Library::Semver(left), Library::Semver(right)) => left == right,
            (Library::Format(left), Library::Format(right)) => left == right,
            (Library::Decision(left), Library::Decision(right)) => left == right,
            _ => false,
        },
        (left, right) => compare_numbers(left, right) == Some(Ordering::Equal),
    }
}

fn contains<'a>(
    budget: &mut Budget,
    container: &Value<'a>,
    item: &Value<'a>,
) -> Result<bool, EvalError> {
    match container {
        Value::List(list) => {
            for element in list.iter() {
                if equal(budget, &element, item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Map(map) => Ok(Key::from_value(item).is_some_and(|key| map.get(&key).is_some())),
        other => Err(EvalError::overload("@in", &[item.clone(), other.clone()])),
    }
}
