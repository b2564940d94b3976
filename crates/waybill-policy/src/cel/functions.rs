//! The functions that expressions may call: those of CEL and of Kubernetes' libraries.
//!
//! Each library is a table in a file below. A function sees its values alone, the receiver of a
//! member function first, and pays for work that grows with them.

mod authorizer;
mod conversion;
mod format;
mod lists;
pub(super) mod named_format;
pub(super) mod network;
mod optional;
mod quantity;
pub(super) mod semver;
mod sets;
mod strings;
mod text_regex;
mod time;
pub(super) mod url;

use regex::Regex;

use super::{
    budget::Budget,
    types::Type,
    value::{EvalError, Value},
};

/// What a function results in.
type Outcome<'a> = Result<Value<'a>, EvalError>;

/// A function of a library.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    /// Called on a value, as `x.name()`.
    member: bool,
    /// How many values it takes, the receiver included.
    count: (usize, usize),
    /// The types that its first value may have; empty for any.
    pub(super) first: &'static [Type],
    pub(super) result: Type,
    pub(super) run: Run,
}

/// How a function is called.
#[derive(Debug)]
pub(super) enum Run {
    Plain(for<'a> fn(&mut Budget, &[Value<'a>]) -> Outcome<'a>),
    /// With its second value as a pattern, compiled.
    Pattern(for<'a> fn(&mut Budget, &[Value<'a>], &Regex) -> Outcome<'a>),
}

impl Function {
    /// `name(…)` with `count` values.
    const fn global(
        name: &'static str,
        count: usize,
        result: Type,
        run: for<'a> fn(&mut Budget, &[Value<'a>]) -> Outcome<'a>,
    ) -> Self {
        Self {
            name,
            member: false,
            count: (count, count),
            first: &[],
            result,
            run: Run::Plain(run),
        }
    }

    /// `x.name(…)` with `count` values, `x` included.
    const fn member(
        name: &'static str,
        count: usize,
        result: Type,
        run: for<'a> fn(&mut Budget, &[Value<'a>]) -> Outcome<'a>,
    ) -> Self {
        Self { name, member: true, count: (count, count), first: &[], result, run: Run::Plain(run) }
    }

    const fn pattern(
        name: &'static str,
        result: Type,
        run: for<'a> fn(&mut Budget, &[Value<'a>], &Regex) -> Outcome<'a>,
    ) -> Self {
        Self {
            name,
            member: true,
            count: (2, 2),
            first: &[Type::String],
            result,
            run: Run::Pattern(run),
        }
    }

    /// With up to `most` values.
    const fn up_to(mut self, most: usize) -> Self {
        self.count.1 = most;
        self
    }

    /// On values of these types only.
    const fn on(mut self, first: &'static [Type]) -> Self {
        self.first = first;
        self
    }

    const fn global_style(mut self) -> Self {
        self.member = false;
        self
    }
}

const LIBRARIES: &[&[Function]] = &[
    conversion::FUNCTIONS,
    strings::FUNCTIONS,
    format::FUNCTIONS,
    text_regex::FUNCTIONS,
    lists::FUNCTIONS,
    sets::FUNCTIONS,
    optional::FUNCTIONS,
    time::FUNCTIONS,
    quantity::FUNCTIONS,
    network::FUNCTIONS,
    url::FUNCTIONS,
    semver::FUNCTIONS,
    named_format::FUNCTIONS,
    authorizer::FUNCTIONS,
];

fn all() -> impl Iterator<Item = &'static Function> {
    LIBRARIES.iter().flat_map(|library| library.iter())
}

/// The function that a call means.
pub(super) fn find(name: &str, member: bool, count: usize) -> Option<&'static Function> {
    all().find(|function| {
        function.name == name
            && function.member == member
            && (function.count.0..=function.count.1).contains(&count)
    })
}

/// Whether there is a function of that name at all.
pub(super) fn is_known(name: &str) -> bool {
    all().any(|function| function.name == name)
}

/// The values do not fit; whoever called knows the name.
fn unfit<'a>() -> Outcome<'a> {
    Err(EvalError::NoSuchOverload(String::new()))
}

fn fail<'a>(text: impl Into<String>) -> Outcome<'a> {
    Err(EvalError::Function(text.into()))
}

/// A length or an index as a value.
fn int<'a>(count: usize) -> Value<'a> {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}
