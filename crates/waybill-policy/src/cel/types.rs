//! What is known about the type of an expression before it runs.
//!
//! Objects of the API are of no known type where requests are judged, as `object` is in upstream's policies, so most
//! expressions are [`Type::Dyn`] somewhere. Whatever is known is checked; where a policy is checked beforehand, that is what schemas
//! declare.

use super::declared::Part;

/// A type, or that it is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    List,
    Map,
    Duration,
    Timestamp,
    /// The type of types.
    Meta,
    Optional,
    /// `request`, whose fields are known.
    Request,
    /// `namespaceObject`.
    Namespace,
    /// A value of a library.
    Library(&'static str),
    /// A list, a map or an object that a schema declares.
    Declared(Part),
}

impl Type {
    /// As error texts write it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Dyn => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::List => "list(dyn)",
            Self::Map => "map(dyn, dyn)",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Meta => "type(dyn)",
            Self::Optional => "optional_type(dyn)",
            Self::Request => "kubernetes.AdmissionRequest",
            Self::Namespace => "kubernetes.Namespace",
            Self::Library(name) => name,
            Self::Declared(_) => "object",
        }
    }

    /// Whether a value of this type may be one of `other`.
    pub(super) fn may_be(self, other: Self) -> bool {
        let both_declared = matches!((self, other), (Self::Declared(_), Self::Declared(_)));
        self == Self::Dyn || other == Self::Dyn || self == other || both_declared
    }

    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// The type of a value that is one or the other.
    pub(super) fn join(self, other: Self) -> Self {
        if self == other { self } else { Self::Dyn }
    }
}
