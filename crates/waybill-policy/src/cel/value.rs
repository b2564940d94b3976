//! Values of expressions.
//!
//! Objects of a request are large and mostly not looked at, so lists, maps and texts of them are
//! borrowed from their JSON. What an expression builds is shared by reference counts.

use std::{collections::BTreeMap, fmt, net::IpAddr, rc::Rc};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map as JsonMap, Value as Json};
use waybill_core::quantity::Quantity;

use super::{
    eval::{Authorize, Question, Verdict},
    functions::{named_format::NamedFormat, network::Cidr, semver::Semver, url::Url},
};

/// How deep lists and maps that an expression builds may lie in one another. Dropping and comparing
/// them is recursive.
const MAX_DEPTH: usize = 64;

/// A value while an expression is evaluated. `'a` is the life of the request's objects.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer, `1u`.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A text.
    String(Text<'a>),
    /// Bytes.
    Bytes(Rc<[u8]>),
    /// A list.
    List(List<'a>),
    /// A map, or an object of the API.
    Map(Map<'a>),
    /// A span of time.
    Duration(SignedDuration),
    /// A point in time.
    Timestamp(Timestamp),
    /// The type of a value.
    Type(&'static str),
    /// A value that may be missing.
    Optional(Option<Rc<Self>>),
    /// A value of one of Kubernetes' libraries.
    Library(Library<'a>),
}

/// Values that only functions of a library read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Library<'a> {
    /// An amount of a resource.
    Quantity(Quantity),
    /// An address.
    Ip(IpAddr),
    /// A range of addresses.
    Cidr(Cidr),
    /// A URL.
    Url(Rc<Url>),
    /// A semantic version.
    Semver(Rc<Semver>),
    /// A rule for names.
    Format(NamedFormat),
    /// Whoever answers questions about rights.
    Authorizer(Authorizer<'a>),
    /// A question about rights that is being put together.
    Check(Authorizer<'a>, Rc<Question>),
    /// The answer to it.
    Decision(Rc<Verdict>),
}

/// `authorizer`, and for whom it answers.
#[derive(Clone, Copy)]
pub struct Authorizer<'a>(pub(super) &'a dyn Authorize);

impl fmt::Debug for Authorizer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorizer")
    }
}

/// A text, borrowed or shared.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Text<'a> {
    /// Part of an object.
    Borrowed(&'a str),
    /// Made by an expression.
    Shared(Rc<str>),
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

/// A list, borrowed or built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum List<'a> {
    /// Part of an object.
    Json(&'a [Json]),
    /// Built by an expression.
    Built(Rc<Built<Vec<Value<'a>>>>),
}

/// A map, borrowed or built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Map<'a> {
    /// Part of an object.
    Json(&'a JsonMap<String, Json>),
    /// Built by an expression.
    Built(Rc<Built<BTreeMap<Key<'a>, Value<'a>>>>),
}

/// A list or map with how deep it goes.
#[derive(Debug)]
pub struct Built<T> {
    pub(super) items: T,
    depth: usize,
}

/// A key of a map that an expression builds. Unsigned integers that fit are signed ones, which they equal.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Key<'a> {
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above all signed ones.
    Uint(u64),
    /// A text.
    String(Text<'a>),
}

impl<'a> Value<'a> {
    /// The value of JSON, of which lists, maps and texts stay where they are.
    pub fn from_json(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(truth) => Self::Bool(*truth),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(int), _) => Self::Int(int),
                (None, Some(uint)) => Self::Uint(uint),
                (None, None) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::String(Text::Borrowed(text)),
            Json::Array(items) => Self::List(List::Json(items)),
            Json::Object(entries) => Self::Map(Map::Json(entries)),
        }
    }

    pub(super) fn text(text: impl Into<Rc<str>>) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    pub(super) fn some(value: Self) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    pub(super) fn list(items: Vec<Self>) -> Result<Self, EvalError> {
        let depth = deeper(items.iter())?;
        Ok(Self::List(List::Built(Rc::new(Built { items, depth }))))
    }

    pub(super) fn map(items: BTreeMap<Key<'a>, Self>) -> Result<Self, EvalError> {
        let depth = deeper(items.values())?;
        Ok(Self::Map(Map::Built(Rc::new(Built { items, depth }))))
    }

    fn depth(&self) -> usize {
        match self {
            Self::List(List::Built(list)) => list.depth,
            Self::Map(Map::Built(map)) => map.depth,
            Self::Optional(Some(value)) => 1 + value.depth(),
            _ => 0,
        }
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The name of its type, as `type()` and error texts write it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Library(library) => library.type_name(),
        }
    }
}

impl Library<'_> {
    fn type_name(&self) -> &'static str {
        match self {
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::Check(..) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

fn deeper<'v, 'a: 'v>(values: impl Iterator<Item = &'v Value<'a>>) -> Result<usize, EvalError> {
    match 1 + values.map(Value::depth).max().unwrap_or(0) {
        depth if depth > MAX_DEPTH => Err(EvalError::TooDeep),
        depth => Ok(depth),
    }
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(items) => items.len(),
            Self::Built(list) => list.items.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Json(items) => items.get(index).map(Value::from_json),
            Self::Built(list) => list.items.get(index).cloned(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> Map<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(entries) => entries.len(),
            Self::Built(map) => map.items.len(),
        }
    }

    pub(super) fn get(&self, key: &Key<'a>) -> Option<Value<'a>> {
        match (self, key) {
            (Self::Json(entries), Key::String(name)) => entries.get(&**name).map(Value::from_json),
            (Self::Json(_), _) => None,
            (Self::Built(map), key) => map.items.get(key).cloned(),
        }
    }

    pub(super) fn field(&self, name: &'a str) -> Option<Value<'a>> {
        match self {
            Self::Json(entries) => entries.get(name).map(Value::from_json),
            Self::Built(map) => map.items.get(&Key::String(Text::Borrowed(name))).cloned(),
        }
    }

    pub(super) fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        match self {
            Self::Json(entries) => entries
                .iter()
                .map(|(key, value)| (Value::String(Text::Borrowed(key)), Value::from_json(value)))
                .collect(),
            Self::Built(map) => map
                .items
                .iter()
                .map(|(key, value)| (key.clone().into_value(), value.clone()))
                .collect(),
        }
    }
}

impl<'a> Key<'a> {
    pub(super) fn from_value(value: &Value<'a>) -> Option<Self> {
        match value {
            Value::Bool(truth) => Some(Self::Bool(*truth)),
            Value::Int(int) => Some(Self::Int(*int)),
            Value::Uint(uint) => Some(i64::try_from(*uint).map_or(Self::Uint(*uint), Self::Int)),
            Value::String(text) => Some(Self::String(text.clone())),
            _ => None,
        }
    }

    pub(super) fn into_value(self) -> Value<'a> {
        match self {
            Self::Bool(truth) => Value::Bool(truth),
            Self::Int(int) => Value::Int(int),
            Self::Uint(uint) => Value::Uint(uint),
            Self::String(text) => Value::String(text),
        }
    }

    fn rank(&self) -> (u8, u64, i64, &str) {
        match self {
            Self::Bool(truth) => (0, u64::from(*truth), 0, ""),
            Self::Int(int) => (1, 0, *int, ""),
            Self::Uint(uint) => (2, *uint, 0, ""),
            Self::String(text) => (3, 0, 0, text),
        }
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Key<'_> {}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// Why an expression has no value. No text names a value of an object, only keys and types.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// A map has no such entry, or an object no such field.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// An operator or function does not take values of these types.
    #[error("no such overload: {0}")]
    NoSuchOverload(String),
    /// A list has no such element.
    #[error("index out of bounds: {0}")]
    IndexOutOfBounds(i64),
    /// A number was divided by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// A remainder of a division by zero was asked for.
    #[error("modulus by zero")]
    ModulusByZero,
    /// The result of an integer operation does not fit.
    #[error("integer overflow")]
    Overflow,
    /// The result is a time that cannot be.
    #[error("timestamp overflow")]
    TimeOverflow,
    /// A function could not do what it was asked for.
    #[error("{0}")]
    Function(String),
    /// This expression has done as much as one may.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// Everything of this policy or webhook together has.
    #[error(
        "validation failed due to running out of cost budget, no further validation rules will be run"
    )]
    OutOfBudget,
    /// Values or calls lie too deep in one another.
    #[error("values or expressions are nested too deeply; use fewer levels")]
    TooDeep,
}

impl EvalError {
    pub(super) fn overload(what: &str, arguments: &[Value<'_>]) -> Self {
        let types: Vec<_> = arguments.iter().map(Value::type_name).collect();
        Self::NoSuchOverload(format!("{what}({})", types.join(", ")))
    }

    /// Whether `||` and `&&` may not make up for it with their other side.
    pub(super) fn is_fatal(&self) -> bool {
        matches!(self, Self::CostLimit | Self::OutOfBudget | Self::TooDeep)
    }
}
