//! Keeping `metadata.managedFields` up to date with every write.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::{
    compare::Comparison,
    managed::{Entry, ManagedFields, Operation, is_reset},
    schema::Schema,
    set::FieldSet,
};

/// The versions in which the objects of a kind are served.
pub trait Versions {
    /// The schema of a version; `None` if it is not served.
    fn schema(&self, api_version: &str) -> Option<&Schema>;

    /// `object`, of whatever version it is, in another one.
    fn convert<'o>(&self, object: &'o Value, api_version: &str) -> Option<Cow<'o, Value>>;

    /// The fields that nobody manages, because the server sets them or because this write leaves them
    /// as they are; nor what lies below them.
    fn unmanaged(&self, api_version: &str) -> &FieldSet;
}

/// A write, as far as managed fields are concerned.
#[derive(Clone, Copy)]
pub struct Tracker<'a> {
    /// The versions of the kind.
    pub versions: &'a dyn Versions,
    /// The version that the client speaks.
    pub api_version: &'a str,
    /// The name of the manager.
    pub manager: &'a str,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The time, as in RFC 3339, in whole seconds.
    pub now: &'a str,
}

impl Tracker<'_> {
    /// Writes into `new` who manages what, when it takes the place of `live`, or of nothing.
    pub fn track(&self, live: Option<&Value>, new: &mut Value) {
        let managed = self.managers(live, new);
        // Who once had all managers forgotten is not tracked again before the next apply.
        if live.is_some() && managed.is_empty() {
            return;
        }
        let empty = Value::Object(Map::new());
        let managed = self.tracked(live.unwrap_or(&empty), new, managed, self.manager);
        write(new, managed);
    }

    /// The managers after `new` has taken the place of `live`, on behalf of `manager`.
    pub(crate) fn tracked(
        &self,
        live: &Value,
        new: &Value,
        managed: ManagedFields,
        manager: &str,
    ) -> ManagedFields {
        let Some(found) = self.compare(live, new, self.api_version) else { return managed };
        let own = Entry::new(manager, Operation::Update, self.api_version, self.subresource);
        let mut others = OtherVersions { tracker: self, live, new, known: Vec::new() };
        let mut entries = Vec::with_capacity(managed.0.len() + 1);
        let mut is_known = false;
        for mut entry in managed.0 {
            if entry.is_same(&own) {
                is_known = true;
                entry.fields.subtract(&found.removed);
                if !found.changed.is_empty() {
                    entry.fields.unite(&found.changed);
                    entry.time = Some(self.now.to_owned());
                }
            } else if entry.api_version == self.api_version {
                entry.fields.subtract(&found.changed);
                entry.fields.subtract(&found.removed);
            } else {
                // Nobody can say any more what a version meant that is not served.
                let Some(found) = others.comparison(&entry.api_version) else { continue };
                entry.fields.subtract(&found.changed);
                entry.fields.subtract(&found.removed);
            }
            if !entry.fields.is_empty() {
                entries.push(entry);
            }
        }
        if !is_known && !found.changed.is_empty() {
            let time = Some(self.now.to_owned());
            entries.push(Entry { fields: found.changed, time, ..own });
        }
        let mut managed = ManagedFields(entries);
        managed.cap_updaters();
        managed
    }

    /// What differs between two objects, named in `api_version`; `None` if that is not served.
    pub(crate) fn compare(
        &self,
        live: &Value,
        new: &Value,
        api_version: &str,
    ) -> Option<Comparison> {
        let schema = self.versions.schema(api_version)?;
        let live = self.versions.convert(live, api_version)?;
        let new = self.versions.convert(new, api_version)?;
        Some(Comparison::new(schema, &live, &new, self.versions.unmanaged(api_version)))
    }

    /// The managers before this write, taken out of `new`. A client may write them itself; one that does
    /// not know them does not remove them by leaving them out.
    fn managers(&self, live: Option<&Value>, new: &mut Value) -> ManagedFields {
        let written = live.and_then(managed_fields);
        let said = new.get_mut("metadata").and_then(Value::as_object_mut);
        let said = said.and_then(|metadata| metadata.remove("managedFields"));
        let unchanged = || ManagedFields::from_written(written.cloned().unwrap_or_default());
        match said {
            Some(said) if Some(&said) == written => ManagedFields::from_written(said),
            _ if !self.subresource.is_empty() => unchanged(),
            Some(said) if is_reset(&said) => ManagedFields::default(),
            Some(said) => match ManagedFields::parse(&said) {
                Ok(managed) if !managed.is_empty() => managed,
                _ => unchanged(),
            },
            None => unchanged(),
        }
    }
}

/// What differs between two objects in the versions that other managers speak.
pub(crate) struct OtherVersions<'a> {
    pub(crate) tracker: &'a Tracker<'a>,
    pub(crate) live: &'a Value,
    pub(crate) new: &'a Value,
    pub(crate) known: Vec<(String, Option<Comparison>)>,
}

impl OtherVersions<'_> {
    pub(crate) fn comparison(&mut self, api_version: &str) -> Option<&Comparison> {
        let at = match self.known.iter().position(|(known, _)| known == api_version) {
            Some(at) => at,
            None => {
                let found = self.tracker.compare(self.live, self.new, api_version);
                self.known.push((api_version.to_owned(), found));
                self.known.len() - 1
            }
        };
        self.known.get(at)?.1.as_ref()
    }
}

/// Writes the managers into `document`.
pub(crate) fn write(document: &mut Value, managed: ManagedFields) {
    let Some(document) = document.as_object_mut() else { return };
    let metadata = document.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else { return };
    match managed.into_value() {
        Some(value) => metadata.insert("managedFields".to_owned(), value),
        None => metadata.remove("managedFields"),
    };
}

/// `metadata.managedFields` of an object.
pub(crate) fn managed_fields(document: &Value) -> Option<&Value> {
    document.get("metadata")?.get("managedFields")
}

#[cfg(test)]
mod tests;
