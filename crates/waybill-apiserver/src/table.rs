//! Objects as rows: the `meta.k8s.io/v1` Table that `kubectl get` asks for.
//!
//! The server decides what users see, so columns, order and texts are those that they know from
//! upstream. Objects are read as they are stored: whatever is missing or odd becomes an empty or
//! unknown cell, never an error. The clock is a parameter.

pub(crate) mod age;
pub(crate) mod cells;
pub(crate) mod columns;
pub(crate) mod read;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::columns::Column;
use crate::registry::Resource;

/// How the objects of a resource are printed.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    pub(crate) columns: &'static [Column],
    /// The cells of an object, one for each column.
    pub(crate) cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// What marks a row, such as that of a pod that is done.
    pub(crate) conditions: Option<fn(&Value) -> Option<Value>>,
}

impl Table {
    /// Name and age.
    pub(crate) const PLAIN: Self =
        Self { columns: columns::DEFAULT, cells: cells::plain, conditions: None };
}

/// How a table is to be made; one serves all events of a watch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableMaker {
    pub(crate) resource: &'static Resource,
    /// What accompanies each row.
    pub(crate) include: IncludeObject,
    /// The version of the table itself.
    pub(crate) meta: MetaVersion,
    /// What ages are counted from.
    pub(crate) now: Timestamp,
}

/// A version of `meta.k8s.io`; old clients ask for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    V1beta1,
    V1,
}

impl MetaVersion {
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1beta1 => "meta.k8s.io/v1beta1",
            Self::V1 => "meta.k8s.io/v1",
        }
    }
}

/// What accompanies each row: the query parameter `includeObject`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    /// The object's metadata, as `PartialObjectMetadata`.
    #[default]
    Metadata,
    /// Nothing.
    None,
    /// The object.
    Object,
}

/// An `includeObject` that does not exist.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unrecognized includeObject value: {0:?}")]
pub(crate) struct IncludeObjectError(String);

impl TableMaker {
    /// What the table of a list says before its first row: `metadata` is the list's, with
    /// `resourceVersion` and `continue`. After the last row come `]}`.
    pub(crate) fn head(&self, metadata: &Value) -> String {
        format!(
            "{{\"kind\":\"Table\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\
             \"columnDefinitions\":{},\"rows\":[",
            self.meta.api_version(),
            Value::Array(self.columns())
        )
    }

    /// The table of one object, as in the answer to a GET and in a watch event.
    pub(crate) fn object(&self, object: &Value) -> Value {
        let version = object.pointer("/metadata/resourceVersion");
        let metadata = version.map_or_else(|| json!({}), |v| json!({"resourceVersion": v}));
        self.table(metadata, vec![self.row(object)])
    }

    fn table(&self, metadata: Value, rows: Vec<Value>) -> Value {
        object_of([
            ("kind", "Table".into()),
            ("apiVersion", self.meta.api_version().into()),
            ("metadata", metadata),
            ("columnDefinitions", Value::Array(self.columns())),
            ("rows", Value::Array(rows)),
        ])
    }

    fn columns(&self) -> Vec<Value> {
        self.resource.table.columns.iter().map(Column::definition).collect()
    }

    /// The row of one object.
    pub(crate) fn row(&self, object: &Value) -> Value {
        let mut fields = Map::new();
        fields.insert("cells".to_owned(), (self.resource.table.cells)(object, self.now).into());
        if let Some(conditions) = self.resource.table.conditions {
            let conditions = conditions(object);
            fields.extend(conditions.map(|conditions| ("conditions".to_owned(), conditions)));
        }
        let included = match self.include {
            IncludeObject::Metadata => Some(partial_object_metadata(object, self.meta)),
            IncludeObject::None => None,
            IncludeObject::Object => Some(object.clone()),
        };
        fields.extend(included.map(|object| ("object".to_owned(), object)));
        Value::Object(fields)
    }
}

impl IncludeObject {
    /// Reads the query parameter; an empty one is an absent one.
    pub(crate) fn parse(text: &str) -> Result<Self, IncludeObjectError> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            _ => Err(IncludeObjectError(text.to_owned())),
        }
    }
}

/// The object's metadata alone, as the kind that stands for every kind.
pub(crate) fn partial_object_metadata(object: &Value, meta: MetaVersion) -> Value {
    let metadata = object.get("metadata").cloned();
    object_of([
        ("kind", "PartialObjectMetadata".into()),
        ("apiVersion", meta.api_version().into()),
        ("metadata", metadata.unwrap_or_else(|| json!({}))),
    ])
}

/// An object made of fields; `json!` would copy what it is given.
fn object_of<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

#[cfg(test)]
mod tests;
