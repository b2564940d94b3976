//! What an expression may name, and what it must result in.

use std::sync::Arc;

use super::{
    declared::{ObjectType, Schemas},
    types::Type,
};

/// The names that an expression may use.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    pub(super) params: bool,
    pub(super) authorizer: bool,
    pub(super) variables: Vec<(String, Type)>,
    /// Whether `variables` is a name at all.
    pub(super) composed: bool,
    /// What `object` and `oldObject` are; anything if that is not known.
    object_type: Option<Arc<ObjectType>>,
    /// What `params` is.
    params_type: Option<Arc<ObjectType>>,
}

impl Scope {
    /// `object`, `oldObject`, `request`, `namespaceObject`, and nothing else.
    pub fn request() -> Self {
        Self::default()
    }

    /// With `authorizer`.
    #[must_use]
    pub fn with_authorizer(mut self) -> Self {
        self.authorizer = true;
        self
    }

    /// Without `authorizer`.
    #[must_use]
    pub fn without_authorizer(mut self) -> Self {
        self.authorizer = false;
        self
    }

    /// With or without `params`.
    #[must_use]
    pub fn with_params(mut self, params: bool) -> Self {
        self.params = params;
        self
    }

    /// With `variables`, which has no fields yet.
    #[must_use]
    pub fn with_variables(mut self) -> Self {
        self.composed = true;
        self
    }

    /// With objects, and parameters if they are known, of these types.
    #[must_use]
    pub fn with_types(mut self, object: Arc<ObjectType>, params: Option<Arc<ObjectType>>) -> Self {
        self.object_type = Some(object);
        self.params_type = params;
        self
    }

    pub(super) fn schemas(&self) -> Schemas<'_> {
        Schemas { object: self.object_type.as_deref(), params: self.params_type.as_deref() }
    }

    /// Adds `variables.name`, which later expressions may use.
    pub fn declare(&mut self, name: &str, expression: Option<&super::Expression>) {
        let result = expression.map_or(Type::Dyn, |expression| expression.result);
        self.variables.push((name.to_owned(), result));
    }
}

/// What an expression must result in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wanted {
    /// Anything.
    Any,
    /// A truth value.
    Bool,
    /// A text.
    String,
    /// A text or `null`.
    StringOrNull,
}

impl Wanted {
    pub(super) fn allows(self, result: Type) -> bool {
        match self {
            Self::Any => true,
            Self::Bool => result.may_be(Type::Bool),
            Self::String => result.may_be(Type::String),
            Self::StringOrNull => result.may_be(Type::String) || result == Type::Null,
        }
    }

    pub(super) fn refusal(self, found: Type) -> String {
        match self {
            Self::Any | Self::Bool => "must evaluate to bool".to_owned(),
            Self::String => "must evaluate to string".to_owned(),
            Self::StringOrNull => {
                format!("must evaluate to one of [string null_type] but got {}", found.name())
            }
        }
    }
}

/// The fields of `request`, as upstream declares them.
pub(super) const REQUEST_FIELDS: &[(&str, Type)] = &[
    ("kind", Type::Map),
    ("resource", Type::Map),
    ("subResource", Type::String),
    ("requestKind", Type::Map),
    ("requestResource", Type::Map),
    ("requestSubResource", Type::String),
    ("name", Type::String),
    ("namespace", Type::String),
    ("operation", Type::String),
    ("userInfo", Type::Map),
    ("dryRun", Type::Bool),
    ("options", Type::Dyn),
];

/// The fields of `namespaceObject`, as upstream declares them.
pub(super) const NAMESPACE_FIELDS: &[(&str, Type)] =
    &[("metadata", Type::Map), ("spec", Type::Map), ("status", Type::Map)];
