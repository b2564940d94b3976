//! Tables of the API server: what `kubectl get` prints.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Columns, and a row for each object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Table {
    #[serde(deserialize_with = "or_none")]
    column_definitions: Vec<Column>,
    #[serde(deserialize_with = "or_none")]
    rows: Vec<Row>,
    metadata: Value,
}

/// The columns of a watch.
#[derive(Debug, Default)]
pub(crate) struct Columns(Vec<Column>);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Column {
    name: String,
    /// Those above 0 are for people who want more.
    priority: i32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Row {
    cells: Vec<Value>,
    object: Value,
}

/// How much of a table is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// A column of namespaces first.
    pub namespaces: bool,
    /// Columns that are left out otherwise.
    pub wide: bool,
}

impl Table {
    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The version up to which it holds, to watch from there.
    pub fn resource_version(&self) -> &str {
        self.metadata.get("resourceVersion").and_then(Value::as_str).unwrap_or_default()
    }

    /// With the columns that an earlier table of the same watch had, if this one names none: only the first does.
    #[must_use]
    pub(crate) fn continuing(mut self, columns: &mut Columns) -> Self {
        if self.column_definitions.is_empty() {
            self.column_definitions.clone_from(&columns.0);
        } else {
            columns.0.clone_from(&self.column_definitions);
        }
        self
    }

    /// Names of the columns, and the cells of each row.
    pub fn lines(&self, shape: Shape) -> Vec<Vec<String>> {
        let shown: Vec<bool> =
            self.column_definitions.iter().map(|it| it.priority == 0 || shape.wide).collect();
        let first = |text: &str| shape.namespaces.then(|| text.to_owned()).into_iter();
        let names = self.column_definitions.iter().zip(&shown).filter(|(_, shown)| **shown);
        let header = names.map(|(column, _)| column.name.to_uppercase());
        let mut lines = vec![first("NAMESPACE").chain(header).collect()];
        for row in &self.rows {
            let namespace = row.object.pointer("/metadata/namespace").and_then(Value::as_str);
            let cells = row.cells.iter().zip(&shown).filter(|(_, shown)| **shown);
            let cells = cells.map(|(cell, _)| cell_text(cell));
            lines.push(first(namespace.unwrap_or_default()).chain(cells).collect());
        }
        lines
    }
}

/// A list, or `null` as servers written in Go say for an empty one.
fn or_none<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Option::<Vec<T>>::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn cell_text(cell: &Value) -> String {
    match cell {
        Value::Null => "<none>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(cell_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_shows_as_much_as_is_wanted() {
        let table: Table = serde_json::from_value(json!({
            "metadata": {"resourceVersion": "7"},
            "columnDefinitions": [{"name": "Name"}, {"name": "Age"}, {"name": "IP", "priority": 1}],
            "rows": [{"cells": ["a", 3, null], "object": {"metadata": {"namespace": "n"}}}],
        }))
        .unwrap();
        assert_eq!(table.lines(Shape::default()), [["NAME", "AGE"], ["a", "3"]]);
        let all = Shape { namespaces: true, wide: true };
        assert_eq!(
            table.lines(all),
            [["NAMESPACE", "NAME", "AGE", "IP"], ["n", "a", "3", "<none>"]]
        );
        assert_eq!(table.resource_version(), "7");
    }

    #[test]
    fn later_tables_of_a_watch_have_the_columns_of_the_first() {
        let mut columns = Columns::default();
        let mut read = |definitions: Value| {
            let table = json!({"columnDefinitions": definitions, "rows": [{"cells": ["a"], "object": null}]});
            let table: Table = serde_json::from_value(table).unwrap();
            table.continuing(&mut columns).lines(Shape::default())
        };
        let expected = [["NAME"], ["a"]];
        assert_eq!(read(json!([{"name": "Name"}])), expected);
        assert_eq!(read(Value::Null), expected);
        assert_eq!(read(json!([])), expected);
    }
}
