//! The table of our handler, made of the one that the node's default runtime has: the same options (a node whose cgroups are
//! systemd's says so there), and the wrapper as the program.

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::{HANDLER, SetupError, WRAPPER};

/// Reads a file of TOML.
pub(super) fn parse(path: &str, text: &str) -> Result<DocumentMut, SetupError> {
    text.parse().map_err(|error: toml_edit::TomlError| SetupError::Syntax {
        path: path.to_owned(),
        why: error.message().to_owned(),
    })
}

/// What is at the end of `path`, if all of it is there.
pub(super) fn at<'a>(document: &'a DocumentMut, path: &[&str]) -> Option<&'a dyn TableLike> {
    let mut table: &dyn TableLike = document.as_table();
    for name in path {
        table = table.get(name)?.as_table_like()?;
    }
    Some(table)
}

/// A copy of `from` as the handler of ours at `path`, with `program` as the key of the wrapper's path, in `options` if
/// there are such.
pub(super) fn handler(path: &[&str], from: &dyn TableLike, program: &Program) -> String {
    let mut table = Table::new();
    for (name, item) in from.iter() {
        if let Some(value) = plain(item) {
            table.insert(name, Item::Value(value));
        }
    }
    for (name, value) in program.defaults {
        if !table.contains_key(name) {
            table.insert(name, toml_edit::value(*value));
        }
    }
    let header: Vec<_> = path.iter().copied().chain([HANDLER]).collect();
    match program.place {
        Place::Options(key) => {
            let mut options = Table::new();
            let given = from.get("options").and_then(Item::as_table_like);
            for (name, item) in given.into_iter().flat_map(TableLike::iter) {
                if let Some(value) = plain(item) {
                    options.insert(name, Item::Value(value));
                }
            }
            options.insert(key, toml_edit::value(WRAPPER));
            table.remove("options");
            let below: Vec<_> = header.iter().copied().chain(["options"]).collect();
            format!("{}\n{}", section(&header, &table), section(&below, &options))
        }
        Place::Table(key) => {
            table.insert(key, toml_edit::value(WRAPPER));
            section(&header, &table)
        }
    }
}

/// Where a runtime has the path of the program.
pub(super) struct Program {
    pub(super) place: Place,
    /// What a handler needs that the table of the default runtime may leave out.
    pub(super) defaults: &'static [(&'static str, &'static str)],
}

pub(super) enum Place {
    /// Below `options`, under this key.
    Options(&'static str),
    /// In the table itself.
    Table(&'static str),
}

/// Values, and inline tables; tables below have their own place.
fn plain(item: &Item) -> Option<Value> {
    let mut value = item.as_value()?.clone();
    value.decor_mut().clear();
    Some(value)
}

fn section(path: &[&str], table: &Table) -> String {
    let keys: Vec<_> = path.iter().map(|name| toml_edit::Key::new(*name).to_string()).collect();
    let mut text = format!("[{}]\n", keys.join("."));
    for (name, item) in table.iter() {
        if let Some(value) = item.as_value() {
            text.push_str(&format!(
                "{} = {}\n",
                toml_edit::Key::new(name),
                value.to_string().trim()
            ));
        }
    }
    text
}
