//! Semantic versions. Comparison is with that of quantities, whose functions have the same names.

use std::{cmp::Ordering, rc::Rc};

use super::{Function, Outcome, fail, unfit};
use crate::cel::{
    budget::Budget,
    types::Type,
    value::{Library, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::global("semver", 1, SEMVER, semver).up_to(2).on(&[Type::String]),
    Function::global("isSemver", 1, Type::Bool, is_semver).up_to(2).on(&[Type::String]),
    Function::member("major", 1, Type::Int, major).on(&[SEMVER]),
    Function::member("minor", 1, Type::Int, minor).on(&[SEMVER]),
    Function::member("patch", 1, Type::Int, patch).on(&[SEMVER]),
];

const SEMVER: Type = Type::Library("kubernetes.Semver");

/// A version; what follows a `+` does not count.
#[derive(Debug, PartialEq, Eq)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<Identifier>,
}

/// A part of a pre-release. Numbers come before texts.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl Ord for Semver {
    fn cmp(&self, other: &Self) -> Ordering {
        // A release comes after its pre-releases.
        let release = self.pre.is_empty().cmp(&other.pre.is_empty());
        self.numbers.cmp(&other.numbers).then(release).then_with(|| self.pre.cmp(&other.pre))
    }
}

impl PartialOrd for Semver {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Semver {
    fn parse(text: &str) -> Option<Self> {
        let (text, build) =
            text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
        if build.is_some_and(|build| !build.split('.').all(is_identifier)) {
            return None;
        }
        let (core, pre) =
            text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
        let numbers: Option<Vec<u64>> = core.split('.').map(number).collect();
        let numbers = <[u64; 3]>::try_from(numbers?).ok()?;
        let pre = match pre {
            None => Vec::new(),
            Some(pre) => pre.split('.').map(identifier).collect::<Option<_>>()?,
        };
        Some(Self { numbers, pre })
    }

    /// Without a leading `v` and leading zeros, and with the numbers that are missing.
    fn normalize(text: &str) -> String {
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(['-', '+']).unwrap_or(text.len());
        let (core, rest) = text.split_at(end);
        let mut parts: Vec<_> = core
            .split('.')
            .map(|part| match part.trim_start_matches('0') {
                "" if !part.is_empty() => "0",
                part => part,
            })
            .collect();
        while parts.len() < 3 {
            parts.push("0");
        }
        format!("{}{rest}", parts.join("."))
    }
}

fn number(text: &str) -> Option<u64> {
    let plain =
        text.bytes().all(|c| c.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

fn identifier(text: &str) -> Option<Identifier> {
    if !is_identifier(text) {
        return None;
    }
    match text.bytes().all(|c| c.is_ascii_digit()) {
        true => number(text).map(Identifier::Number),
        false => Some(Identifier::Text(text.to_owned())),
    }
}

fn parsed(budget: &mut Budget, values: &[Value<'_>]) -> Result<Option<Semver>, super::EvalError> {
    let (text, normalize) = match values {
        [Value::String(text)] => (text, false),
        [Value::String(text), Value::Bool(normalize)] => (text, *normalize),
        _ => return Err(super::EvalError::NoSuchOverload(String::new())),
    };
    budget.charge_bytes(text.len())?;
    Ok(if normalize { Semver::parse(&Semver::normalize(text)) } else { Semver::parse(text) })
}

fn semver<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match parsed(budget, values)? {
        Some(version) => Ok(Value::Library(Library::Semver(Rc::new(version)))),
        None => fail("it is no semantic version"),
    }
}

fn is_semver<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(parsed(budget, values)?.is_some()))
}

fn part<'a>(values: &[Value<'a>], place: usize) -> Outcome<'a> {
    let [Value::Library(Library::Semver(version))] = values else { return unfit() };
    let number = version.numbers.get(place).copied().unwrap_or_default();
    Ok(Value::Int(i64::try_from(number).unwrap_or(i64::MAX)))
}

fn major<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    part(values, 0)
}

fn minor<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    part(values, 1)
}

fn patch<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    part(values, 2)
}
