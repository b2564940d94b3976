//! `metadata.managedFields`: who set which fields, how, and when.

use std::{cmp::Ordering, mem};

use serde_json::{Map, Value};

use crate::set::{FieldSet, FieldSetError};

/// The longest name of a manager, in bytes.
pub const MANAGER_MAX_LENGTH: usize = 128;

/// How many managers that do not apply an object remembers.
const MAX_UPDATERS: usize = 10;

/// How many managers an object may have, and a peer may name: finding one among them takes time.
const MAX_MANAGERS: usize = 256;

/// The longest name of a subresource, in bytes.
const SUBRESOURCE_MAX_LENGTH: usize = 256;

/// Who is named for what others did long ago.
const ANCIENT: &str = "ancient-changes";

/// Who is named if nobody says anything.
const UNKNOWN: &str = "unknown";

/// How a manager set fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

impl Operation {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What one manager set in one way.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name.
    pub manager: String,
    /// How it set the fields.
    pub operation: Operation,
    /// The version in which the fields are named.
    pub api_version: String,
    /// The subresource by which they were set; empty for the object itself.
    pub subresource: String,
    /// When it last changed something, as in RFC 3339.
    pub time: Option<String>,
    /// The fields.
    pub fields: FieldSet,
}

impl Entry {
    /// An entry of the manager with this name and without fields.
    pub(crate) fn new(
        manager: &str,
        operation: Operation,
        api_version: &str,
        subresource: &str,
    ) -> Self {
        let manager = if manager.is_empty() { UNKNOWN } else { manager };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
            time: None,
            fields: FieldSet::new(),
        }
    }

    /// Whether both are one entry of an object. Who applies has one for all versions.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.operation == other.operation
            && self.manager == other.manager
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    fn order(&self, other: &Self) -> Ordering {
        (self.operation.cmp(&other.operation))
            .then_with(|| self.time.cmp(&other.time))
            .then_with(|| self.manager.cmp(&other.manager))
            .then_with(|| self.api_version.cmp(&other.api_version))
            .then_with(|| self.subresource.cmp(&other.subresource))
    }

    fn parse(value: &Value, at: usize) -> Result<Self, ManagedFieldsError> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(ManagedFieldsError::Operation),
        };
        if text("apiVersion").is_empty() {
            return Err(ManagedFieldsError::ApiVersion);
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(ManagedFieldsError::NoFieldsType { at }),
            found => return Err(ManagedFieldsError::FieldsType { found: found.to_owned(), at }),
        }
        check_manager(text("manager"))
            .map_err(|error| ManagedFieldsError::Manager { at, error })?;
        if text("subresource").len() > SUBRESOURCE_MAX_LENGTH {
            return Err(ManagedFieldsError::Subresource { at });
        }
        let fields = match value.get("fieldsV1") {
            None | Some(Value::Null) => FieldSet::new(),
            Some(fields) => {
                FieldSet::parse(fields).map_err(|error| ManagedFieldsError::Fields { at, error })?
            }
        };
        Ok(Self {
            manager: text("manager").to_owned(),
            operation,
            api_version: text("apiVersion").to_owned(),
            subresource: text("subresource").to_owned(),
            time: Some(text("time").to_owned()).filter(|time| !time.is_empty()),
            fields,
        })
    }

    /// Takes an entry that [`Self::into_value`] wrote; `None` for anything else.
    fn from_written(mut value: Value) -> Option<Self> {
        let fields = value.get_mut("fieldsV1").map(Value::take).unwrap_or_default();
        let mut text = |key: &str| match value.get_mut(key).map(Value::take) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let operation = match text("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        Some(Self {
            manager: text("manager"),
            operation,
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: Some(text("time")).filter(|time| !time.is_empty()),
            fields: FieldSet::from_written(fields),
        })
    }

    fn into_value(self) -> Value {
        let mut entry = Map::new();
        let mut put = |key: &str, value: String| {
            if !value.is_empty() {
                entry.insert(key.to_owned(), Value::String(value));
            }
        };
        put("apiVersion", self.api_version);
        put("fieldsType", "FieldsV1".to_owned());
        put("manager", self.manager);
        put("operation", self.operation.name().to_owned());
        put("subresource", self.subresource);
        put("time", self.time.unwrap_or_default());
        entry.insert("fieldsV1".to_owned(), self.fields.into_value());
        Value::Object(entry)
    }
}

/// Why `metadata.managedFields` cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManagedFieldsError {
    /// An entry does not say in which version it names fields.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// The fields of an entry are no set.
    #[error("error decoding the fields of managed fields entry {at}")]
    Fields {
        /// Which entry.
        at: usize,
        /// What is wrong with them.
        #[source]
        error: FieldSetError,
    },
    /// The fields of an entry are of a type that we do not know.
    #[error("invalid fieldsType {found:?} in managed fields entry {at}")]
    FieldsType {
        /// The type.
        found: String,
        /// Which entry.
        at: usize,
    },
    /// An entry names a manager by no name.
    #[error("invalid manager in managed fields entry {at}")]
    Manager {
        /// Which entry.
        at: usize,
        /// What is wrong with the name.
        #[source]
        error: ManagerNameError,
    },
    /// An entry does not say of which type its fields are.
    #[error("missing fieldsType in managed fields entry {at}")]
    NoFieldsType {
        /// Which entry.
        at: usize,
    },
    /// An entry says of no operation that we know.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// An entry names a subresource that is longer than any.
    #[error(
        "the subresource of managed fields entry {at} is longer than {SUBRESOURCE_MAX_LENGTH} bytes"
    )]
    Subresource {
        /// Which entry.
        at: usize,
    },
    /// There are more entries than an object may have.
    #[error("there are more than {MAX_MANAGERS} managers")]
    TooMany,
}

/// The managers of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagedFields(pub(crate) Vec<Entry>);

impl ManagedFields {
    /// Reads what a peer wrote; null is nobody.
    pub fn parse(value: &Value) -> Result<Self, ManagedFieldsError> {
        if value.as_array().is_some_and(|entries| entries.len() > MAX_MANAGERS) {
            return Err(ManagedFieldsError::TooMany);
        }
        let mut entries: Vec<Entry> = Vec::new();
        for (at, value) in value.as_array().into_iter().flatten().enumerate() {
            let entry = Entry::parse(value, at)?;
            match entries.iter_mut().find(|known| known.is_same(&entry)) {
                Some(known) => *known = entry,
                None => entries.push(entry),
            }
        }
        Ok(Self(entries))
    }

    /// Takes what [`Self::into_value`] wrote.
    #[must_use]
    pub fn from_written(value: Value) -> Self {
        match value {
            Value::Array(entries) => {
                Self(entries.into_iter().filter_map(Entry::from_written).collect())
            }
            _ => Self::default(),
        }
    }

    /// As `metadata.managedFields` has it; `None` if there are no managers.
    #[must_use]
    pub fn into_value(mut self) -> Option<Value> {
        self.0.sort_by(Entry::order);
        let entries: Vec<_> = self.0.into_iter().map(Entry::into_value).collect();
        (!entries.is_empty()).then_some(Value::Array(entries))
    }

    /// The managers.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Merges the oldest of those who do not apply, until there are few enough of them. What they set
    /// is remembered for each version.
    pub(crate) fn cap_updaters(&mut self) {
        let is_updater = |entry: &Entry| entry.operation == Operation::Update;
        let mut count = self.0.iter().filter(|entry| is_updater(entry)).count();
        if count <= MAX_UPDATERS {
            return;
        }
        let (mut updaters, appliers): (Vec<_>, Vec<_>) =
            mem::take(&mut self.0).into_iter().partition(is_updater);
        updaters.sort_by(Entry::order);
        let mut kept: Vec<Entry> = Vec::with_capacity(MAX_UPDATERS);
        for entry in updaters {
            let older = kept.iter_mut().find(|older| older.api_version == entry.api_version);
            match older {
                Some(older)
                    if count > MAX_UPDATERS
                        || (older.manager == ANCIENT && entry.manager == ANCIENT) =>
                {
                    older.fields.unite(&entry.fields);
                    ANCIENT.clone_into(&mut older.manager);
                    older.subresource.clear();
                    // The newer of both.
                    older.time = entry.time;
                    count = count.saturating_sub(1);
                }
                _ => kept.push(entry),
            }
        }
        self.0 = appliers;
        self.0.append(&mut kept);
    }
}

/// Whether a peer asks to forget all managers: by an empty list, or one empty entry.
pub(crate) fn is_reset(value: &Value) -> bool {
    match value.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry
            .values()
            .all(|value| value.is_null() || value == "" || *value == Value::Object(Map::new())),
        _ => false,
    }
}

/// If `new` differs from `old` in the times of its managers alone, makes it the same, so that nothing
/// needs to be written.
pub fn keep_times(new: &mut Value, old: &Value) {
    let Some(kept) = managed(old) else { return };
    let is_same = managed(new).is_some_and(|found| found != kept && same_but_times(found, kept))
        && same_apart_from(new, old, &["metadata"])
        && match (new.get("metadata"), old.get("metadata")) {
            (Some(new), Some(old)) => {
                same_apart_from(new, old, &["managedFields", "resourceVersion"])
            }
            _ => false,
        };
    if is_same && let Some(found) = new.pointer_mut("/metadata/managedFields") {
        found.clone_from(kept);
    }
}

/// The name of a manager that does not say its own: what stands before the slash of its `User-Agent`.
#[must_use]
pub fn manager_of_user_agent(user_agent: &str) -> String {
    let mut name = String::new();
    for character in user_agent.split('/').next().unwrap_or_default().chars() {
        if !is_printable(character) {
            continue;
        }
        if name.len() + character.len_utf8() > MANAGER_MAX_LENGTH {
            break;
        }
        name.push(character);
    }
    name
}

/// Why a name is not that of a manager.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerNameError {
    /// It holds something that cannot be printed.
    #[error("invalid character U+{:04X} (at position {at})", u32::from(*.character))]
    Character {
        /// The character.
        character: char,
        /// Where it stands, in bytes.
        at: usize,
    },
    /// It is longer than [`MANAGER_MAX_LENGTH`].
    #[error("may not be more than {MANAGER_MAX_LENGTH} bytes")]
    TooLong,
}

/// Checks the name that a manager says of itself.
pub fn check_manager(name: &str) -> Result<(), ManagerNameError> {
    if name.len() > MANAGER_MAX_LENGTH {
        return Err(ManagerNameError::TooLong);
    }
    match name.char_indices().find(|&(_, character)| !is_printable(character)) {
        Some((at, character)) => Err(ManagerNameError::Character { character, at }),
        None => Ok(()),
    }
}

fn is_printable(character: char) -> bool {
    character == ' ' || !(character.is_control() || character.is_whitespace())
}

fn managed(document: &Value) -> Option<&Value> {
    document.get("metadata")?.get("managedFields")
}

fn same_but_times(one: &Value, other: &Value) -> bool {
    match (one.as_array(), other.as_array()) {
        (Some(one), Some(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| same_apart_from(one, other, &["time"]))
        }
        _ => false,
    }
}

/// Whether two objects are the same without the fields of these names.
fn same_apart_from(one: &Value, other: &Value, names: &[&str]) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return false };
    let rest = |fields: &'_ Map<String, Value>| {
        fields.keys().filter(|name| !names.contains(&name.as_str())).count()
    };
    rest(one) == rest(other)
        && one
            .iter()
            .filter(|(name, _)| !names.contains(&name.as_str()))
            .all(|(name, value)| other.get(name) == Some(value))
}

#[cfg(test)]
mod tests;
