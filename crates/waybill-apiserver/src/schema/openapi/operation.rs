//! One operation on a path, in the dialects of the two OpenAPI versions.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{super::definitions::REF_PREFIX, render::V3_REF_PREFIX};

/// What PATCH accepts.
const PATCH_TYPES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// The query parameters of a write. `kubectl` asks the server to validate fields and to dry-run only
/// if it finds these names at the PATCH of a kind.
const WRITE_PARAMETERS: &[Parameter] = &[
    Parameter { name: "dryRun", kind: "string", about: "All: do everything but store the result." },
    Parameter {
        name: "fieldManager",
        kind: "string",
        about: "The name of whoever makes the change.",
    },
    Parameter {
        name: "fieldValidation",
        kind: "string",
        about: "What to do about unknown and duplicate fields: Ignore, Warn or Strict.",
    },
];

const DELETE_PARAMETERS: &[Parameter] = &[
    Parameter { name: "dryRun", kind: "string", about: "All: do everything but store the result." },
    Parameter {
        name: "gracePeriodSeconds",
        kind: "integer",
        about: "How long the object may take to end.",
    },
    Parameter {
        name: "propagationPolicy",
        kind: "string",
        about: "Orphan, Background or Foreground.",
    },
];

const LIST_PARAMETERS: &[Parameter] = &[
    Parameter { name: "continue", kind: "string", about: "Where the previous page ended." },
    Parameter { name: "fieldSelector", kind: "string", about: "Limits the list by fields." },
    Parameter { name: "labelSelector", kind: "string", about: "Limits the list by labels." },
    Parameter { name: "limit", kind: "integer", about: "The number of objects of a page." },
    Parameter { name: "resourceVersion", kind: "string", about: "How fresh the answer must be." },
    Parameter {
        name: "resourceVersionMatch",
        kind: "string",
        about: "How to read resourceVersion.",
    },
    Parameter { name: "timeoutSeconds", kind: "integer", about: "How long to watch." },
    Parameter { name: "watch", kind: "boolean", about: "Stream changes instead of a list." },
];

/// A query parameter.
struct Parameter {
    name: &'static str,
    kind: &'static str,
    about: &'static str,
}

/// What one method does on one path.
pub(super) struct Operation {
    pub(super) action: Action,
    /// What it is about.
    pub(super) gvk: Value,
    /// The definition of what is sent, if anything is.
    pub(super) body: Option<Cow<'static, str>>,
    /// The definition of the answer, if it is an object.
    pub(super) answer: Option<Cow<'static, str>>,
}

/// The values of `x-kubernetes-action`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Get,
    List,
    Post,
    Put,
    Patch,
    Delete,
    DeleteCollection,
    Connect,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Post => "post",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Connect => "connect",
        }
    }

    fn parameters(self) -> &'static [Parameter] {
        match self {
            Self::Get | Self::Connect => &[],
            Self::List | Self::DeleteCollection => LIST_PARAMETERS,
            Self::Post | Self::Put | Self::Patch => WRITE_PARAMETERS,
            Self::Delete => DELETE_PARAMETERS,
        }
    }

    fn body_types(self) -> &'static [&'static str] {
        if self == Self::Patch { PATCH_TYPES } else { &["application/json"] }
    }
}

impl Operation {
    pub(super) fn to_v3(&self) -> Value {
        let schema = |name: &str| json!({"schema": {"$ref": format!("{V3_REF_PREFIX}{name}")}});
        let parameter = |parameter: &Parameter| {
            json!({
                "name": parameter.name, "in": "query", "description": parameter.about,
                "schema": {"type": parameter.kind, "uniqueItems": true},
            })
        };
        let mut operation = self.common();
        let parameters: Vec<_> = self.action.parameters().iter().map(parameter).collect();
        put_parameters(&mut operation, parameters);
        let ok = match &self.answer {
            Some(answer) => {
                json!({"description": "OK", "content": {"application/json": schema(answer)}})
            }
            None => json!({"description": "OK"}),
        };
        operation.insert("responses".to_owned(), json!({"200": ok}));
        if let Some(body) = &self.body {
            let content: Map<_, _> = self
                .action
                .body_types()
                .iter()
                .map(|media| ((*media).to_owned(), schema(body)))
                .collect();
            operation.insert("requestBody".to_owned(), json!({"content": content}));
        }
        Value::Object(operation)
    }

    pub(super) fn to_v2(&self) -> Value {
        let schema = |name: &str| json!({"$ref": format!("{REF_PREFIX}{name}")});
        let parameter = |parameter: &Parameter| {
            json!({
                "name": parameter.name, "in": "query", "description": parameter.about,
                "type": parameter.kind, "uniqueItems": true,
            })
        };
        let mut operation = self.common();
        let mut parameters: Vec<_> = self.action.parameters().iter().map(parameter).collect();
        if let Some(body) = &self.body {
            parameters.push(json!({"name": "body", "in": "body", "schema": schema(body)}));
            operation.insert("consumes".to_owned(), json!(self.action.body_types()));
        }
        put_parameters(&mut operation, parameters);
        operation.insert("produces".to_owned(), json!(["application/json"]));
        let ok = match &self.answer {
            Some(answer) => json!({"description": "OK", "schema": schema(answer)}),
            None => json!({"description": "OK"}),
        };
        operation.insert("responses".to_owned(), json!({"200": ok}));
        Value::Object(operation)
    }

    fn common(&self) -> Map<String, Value> {
        Map::from_iter([
            ("x-kubernetes-action".to_owned(), self.action.name().into()),
            ("x-kubernetes-group-version-kind".to_owned(), self.gvk.clone()),
        ])
    }
}

/// Readers that write a document again leave an empty list out; so do we, and both are the same.
pub(super) fn put_parameters(operation: &mut Map<String, Value>, parameters: Vec<Value>) {
    if !parameters.is_empty() {
        operation.insert("parameters".to_owned(), parameters.into());
    }
}
