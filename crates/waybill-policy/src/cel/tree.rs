//! What an expression is made of, once names are resolved: the form that is evaluated.

use std::sync::Arc;

use regex::Regex;

use super::{fold::Fold, functions::Function, operators::Binary};

/// One step of an expression.
#[derive(Debug)]
pub(super) enum Node {
    Literal(Literal),
    Root(Root),
    /// A variable of a macro, by its place among those that enclose it.
    Local(usize),
    /// `variables.NAME`, by its place in the policy.
    Variable(usize),
    Select {
        operand: Box<Self>,
        field: Box<str>,
        optional: bool,
    },
    Has {
        operand: Box<Self>,
        field: Box<str>,
    },
    Index {
        operand: Box<Self>,
        index: Box<Self>,
        optional: bool,
    },
    /// Elements, and whether an optional one is left out when it is missing.
    List(Vec<(Self, bool)>),
    Map(Vec<(Self, Self, bool)>),
    Not(Box<Self>),
    Negate(Box<Self>),
    And(Box<(Self, Self)>),
    Or(Box<(Self, Self)>),
    Conditional(Box<(Self, Self, Self)>),
    Binary(Binary, Box<(Self, Self)>),
    Call {
        function: &'static Function,
        arguments: Vec<Self>,
        regex: Option<Arc<Regex>>,
    },
    Fold(Box<Fold>),
    /// `cel.bind(x, value, body)`.
    Bind(Box<(Self, Self)>),
    /// `x.optMap(v, body)`, or `optFlatMap`, whose body is optional itself.
    OptMap {
        operand: Box<Self>,
        body: Box<Self>,
        flat: bool,
    },
}

/// A constant.
#[derive(Debug)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Box<str>),
    Bytes(Box<[u8]>),
    Type(&'static str),
}

/// What every expression may begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    Object,
    OldObject,
    Request,
    NamespaceObject,
    Params,
    Authorizer,
    RequestResource,
}
