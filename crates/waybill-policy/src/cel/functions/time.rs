//! Points in time and spans. Time zones are UTC or an offset such as `+02:00`: the server brings no
//! database of zones along.

use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::Offset};

use super::{Function, Outcome, fail, unfit};
use crate::cel::{
    budget::Budget,
    types::Type,
    value::{EvalError, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::global("timestamp", 1, Type::Timestamp, timestamp),
    Function::global("duration", 1, Type::Duration, duration),
    Function::member("getFullYear", 1, Type::Int, year).up_to(2).on(TIME),
    Function::member("getMonth", 1, Type::Int, month).up_to(2).on(TIME),
    Function::member("getDate", 1, Type::Int, date).up_to(2).on(TIME),
    Function::member("getDayOfMonth", 1, Type::Int, day_of_month).up_to(2).on(TIME),
    Function::member("getDayOfWeek", 1, Type::Int, day_of_week).up_to(2).on(TIME),
    Function::member("getDayOfYear", 1, Type::Int, day_of_year).up_to(2).on(TIME),
    Function::member("getHours", 1, Type::Int, hours).up_to(2).on(TIME_OR_SPAN),
    Function::member("getMinutes", 1, Type::Int, minutes).up_to(2).on(TIME_OR_SPAN),
    Function::member("getSeconds", 1, Type::Int, seconds).up_to(2).on(TIME_OR_SPAN),
    Function::member("getMilliseconds", 1, Type::Int, milliseconds).up_to(2).on(TIME_OR_SPAN),
];

const TIME: &[Type] = &[Type::Timestamp];
const TIME_OR_SPAN: &[Type] = &[Type::Timestamp, Type::Duration];

const NANOS_PER_SECOND: i128 = 1_000_000_000;

fn timestamp<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::Timestamp(time)] => Ok(Value::Timestamp(*time)),
        [Value::Int(seconds)] => match Timestamp::from_second(*seconds) {
            Ok(time) => Ok(Value::Timestamp(time)),
            Err(_) => fail("timestamp overflow"),
        },
        [Value::String(text)] => match text.parse() {
            Ok(time) => Ok(Value::Timestamp(time)),
            Err(_) => fail("invalid timestamp: it must be as RFC 3339 has it"),
        },
        _ => unfit(),
    }
}

fn duration<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::Duration(span)] => Ok(Value::Duration(*span)),
        [Value::Int(nanos)] => Ok(Value::Duration(SignedDuration::from_nanos(*nanos))),
        [Value::String(text)] => match parse_duration(text) {
            Some(span) => Ok(Value::Duration(span)),
            None => fail("invalid duration: it must be numbers with units, such as 1h30m"),
        },
        _ => unfit(),
    }
}

/// As Go reads a duration: a sign, then numbers with units.
fn parse_duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, after) = rest.split_at(end);
        let (unit, after) = unit(after)?;
        nanos = nanos.checked_add(scaled(number, unit)?)?;
        rest = after;
    }
    let nanos = i64::try_from(if negative { -nanos } else { nanos }).ok()?;
    Some(SignedDuration::from_nanos(nanos))
}

fn unit(text: &str) -> Option<(i128, &str)> {
    const UNITS: &[(&str, i128)] = &[
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", NANOS_PER_SECOND),
        ("m", 60 * NANOS_PER_SECOND),
        ("h", 3600 * NANOS_PER_SECOND),
    ];
    UNITS.iter().find_map(|(name, nanos)| text.strip_prefix(name).map(|rest| (*nanos, rest)))
}

fn scaled(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.chars() {
        place /= 10;
        nanos = nanos.checked_add(i128::from(digit.to_digit(10)?) * place)?;
    }
    Some(nanos)
}

/// In seconds, as CEL writes a duration.
pub(super) fn duration_text(span: SignedDuration) -> String {
    let nanos = span.as_nanos();
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let second = NANOS_PER_SECOND.unsigned_abs();
    match nanos % second {
        0 => format!("{sign}{}s", nanos / second),
        part => {
            let fraction = format!("{part:09}");
            format!("{sign}{}.{}s", nanos / second, fraction.trim_end_matches('0'))
        }
    }
}

/// The calendar time in the zone that is asked for.
fn civil(values: &[Value<'_>]) -> Result<DateTime, EvalError> {
    let unfit = || EvalError::NoSuchOverload(String::new());
    let (time, zone) = match values {
        [Value::Timestamp(time)] => (time, Offset::UTC),
        [Value::Timestamp(time), Value::String(zone)] => (
            time,
            offset(zone).ok_or_else(|| {
                EvalError::Function(
                    "unknown time zone: use UTC or an offset such as +02:00".to_owned(),
                )
            })?,
        ),
        _ => return Err(unfit()),
    };
    Ok(zone.to_datetime(*time))
}

fn offset(zone: &str) -> Option<Offset> {
    if matches!(zone, "" | "UTC" | "Z") {
        return Some(Offset::UTC);
    }
    let (sign, rest) = match zone.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    if !(0..=14).contains(&hours) || !(0..60).contains(&minutes) {
        return None;
    }
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}

fn year<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(civil(values)?.year().into()))
}

/// From 0, as in CEL all parts of a date but `getDate` are.
fn month<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(i64::from(civil(values)?.month()) - 1))
}

fn date<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(civil(values)?.day().into()))
}

fn day_of_month<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(i64::from(civil(values)?.day()) - 1))
}

fn day_of_week<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(civil(values)?.weekday().to_sunday_zero_offset().into()))
}

fn day_of_year<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(i64::from(civil(values)?.day_of_year()) - 1))
}

fn hours<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::Duration(span)] => Ok(Value::Int(span.as_hours())),
        values => Ok(Value::Int(civil(values)?.hour().into())),
    }
}

fn minutes<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::Duration(span)] => Ok(Value::Int(span.as_mins())),
        values => Ok(Value::Int(civil(values)?.minute().into())),
    }
}

fn seconds<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::Duration(span)] => Ok(Value::Int(span.as_secs())),
        values => Ok(Value::Int(civil(values)?.second().into())),
    }
}

fn milliseconds<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [Value::Duration(span)] => {
            Ok(Value::Int(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
        }
        values => Ok(Value::Int(civil(values)?.millisecond().into())),
    }
}
