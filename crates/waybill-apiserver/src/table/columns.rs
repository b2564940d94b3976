//! Columns of tables.

use serde_json::{Value, json};

/// One column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    name: &'static str,
    /// An OpenAPI type: `string`, `integer`, `boolean` or `date`.
    kind: &'static str,
    /// `name` marks the column that identifies the object.
    format: &'static str,
    description: &'static str,
    /// Columns above 0 are shown by `-o wide` only.
    priority: u8,
}

impl Column {
    pub(crate) const fn new(name: &'static str, description: &'static str) -> Self {
        Self { name, kind: "string", format: "", description, priority: 0 }
    }

    pub(crate) const fn kind(self, kind: &'static str) -> Self {
        Self { kind, ..self }
    }

    pub(crate) const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    /// The column as a `TableColumnDefinition`, whose fields are all required.
    pub(crate) fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

pub(crate) const NAME: Column =
    Column { format: "name", ..Column::new("Name", "Name of the object, unique among its kind.") };

pub(crate) const AGE: Column = Column::new("Age", "How long ago the object was created.");

pub(crate) const DEFAULT: &[Column] = &[NAME, AGE];
