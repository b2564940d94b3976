//! Applying a configuration: what a manager wants an object to be, and no more than that.

use serde_json::{Map, Value};

use crate::{
    conflict::Conflicts,
    fields_of::fields_of,
    last_applied,
    managed::{Entry, ManagedFields, ManagedFieldsError, Operation},
    merge::{MergeError, merge},
    named::{with_named_fields, with_whole_fields},
    remove::{Emptied, without},
    set::FieldSet,
    track::{OtherVersions, Tracker, managed_fields, write},
};

/// Who is named for what an object had before it was first applied.
const BEFORE: &str = "before-first-apply";

/// The manager of `kubectl apply --server-side`, which takes over from `kubectl apply`.
const KUBECTL: &str = "kubectl";

/// Why a configuration was not applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Others manage fields that it would change.
    #[error("{0}")]
    Conflicts(Conflicts),
    /// It is not what the kind looks like.
    #[error(transparent)]
    Config(#[from] MergeError),
    /// Nobody can say who manages what.
    #[error("failed to decode managed fields")]
    Managed(#[from] ManagedFieldsError),
    /// The version of the configuration is not served.
    #[error("no schema for version {0}")]
    Version(String),
}

impl Tracker<'_> {
    /// What becomes of `live`, or of nothing, when the manager applies `config`: in the version of the
    /// configuration, and with its managers. `force` takes fields from other managers.
    pub fn apply(
        &self,
        live: Option<&Value>,
        config: &Value,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let mut applied = match self.apply_once(live, config, force) {
            Err(ApplyError::Conflicts(mut conflicts)) if self.manager == KUBECTL => {
                let allowed = live.and_then(|live| last_applied::allowed(self, live));
                let Some(allowed) = allowed else { return Err(ApplyError::Conflicts(conflicts)) };
                conflicts.forgive(&allowed);
                if !conflicts.is_empty() {
                    return Err(ApplyError::Conflicts(conflicts));
                }
                self.apply_once(live, config, true)
            }
            result => result,
        }?;
        if self.manager == KUBECTL {
            last_applied::renew(&mut applied, config);
        }
        Ok(applied)
    }

    fn apply_once(
        &self,
        live: Option<&Value>,
        config: &Value,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let unknown = || ApplyError::Version(self.api_version.to_owned());
        let schema = self.versions.schema(self.api_version).ok_or_else(unknown)?;
        let managed = live.and_then(managed_fields).unwrap_or(&Value::Null);
        let mut managed = ManagedFields::parse(managed)?;
        let nothing = Value::Object(Map::new());
        let live = live.unwrap_or(&nothing);
        let live = self.versions.convert(live, self.api_version).ok_or_else(unknown)?;
        let live = without_managers(&live);
        if managed.is_empty() {
            managed = self.tracked(&nothing, &live, managed, BEFORE);
        }
        self.reconcile(&mut managed);

        let merged = merge(schema, &live, config)?;
        let unmanaged = self.versions.unmanaged(self.api_version);
        let mut own =
            Entry::new(self.manager, Operation::Apply, self.api_version, self.subresource);
        own.fields = fields_of(schema, config, unmanaged);
        let last = managed.0.iter().position(|entry| entry.is_same(&own));
        let last = last.map(|at| managed.0.remove(at));
        own.time = last.as_ref().and_then(|last| last.time.clone());

        let pruned = match &last {
            Some(last) => {
                // It wants the name of the object, too, though nobody manages that.
                let fields = fields_of(schema, config, &FieldSet::new());
                let wanted = Entry { fields, ..own.clone() };
                self.prune(&merged, &managed, &wanted, last)
            }
            None => None,
        };
        let compared = pruned.as_ref().map_or(&merged, |pruned| &pruned.compared);
        let mut managed = self.take_over(&live, compared, managed, force)?;
        let mut new = pruned.map_or(merged, |pruned| pruned.object);
        if new != live {
            own.time = Some(self.now.to_owned());
        }
        if !own.fields.is_empty() {
            managed.0.push(own);
        }
        write(&mut new, managed);
        Ok(new)
    }

    /// Takes the fields that differ between two objects from the other managers, if that is allowed.
    fn take_over(
        &self,
        live: &Value,
        new: &Value,
        mut managed: ManagedFields,
        force: bool,
    ) -> Result<ManagedFields, ApplyError> {
        let mut versions = OtherVersions { tracker: self, live, new, known: Vec::new() };
        let mut conflicts = Conflicts::default();
        let mut kept = Vec::with_capacity(managed.0.len() + 1);
        for mut entry in managed.0.drain(..) {
            let Some(found) = versions.comparison(&entry.api_version) else { continue };
            let conflict = entry.fields.intersection(&found.changed);
            if !conflict.is_empty() {
                conflicts.add(&entry, &conflict);
            }
            entry.fields.subtract(&conflict);
            entry.fields.subtract(&found.removed);
            if !entry.fields.is_empty() {
                kept.push(entry);
            }
        }
        if !force && !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
        Ok(ManagedFields(kept))
    }

    /// Removes what the manager applied the last time, does not apply now, and nobody else manages. `None`
    /// if there is nothing to remove, or the version of the last apply is not served any more.
    fn prune(
        &self,
        merged: &Value,
        others: &ManagedFields,
        wanted: &Entry,
        last: &Entry,
    ) -> Option<Pruned> {
        if last.fields.is_empty() {
            return None;
        }
        let version = &last.api_version;
        let schema = self.versions.schema(version)?;
        let merged = self.versions.convert(merged, version)?;
        let last_fields = with_named_fields(schema, &last.fields);
        let mut pruned = without(schema, &merged, &last_fields, Emptied::Null);

        let mut owners: Vec<(&str, FieldSet)> = vec![(version, FieldSet::new())];
        for entry in others.0.iter().chain([wanted]) {
            match owners.iter_mut().find(|(version, _)| *version == entry.api_version) {
                Some((_, fields)) => fields.unite(&entry.fields),
                None => owners.push((&entry.api_version, entry.fields.clone())),
            }
        }
        for (version, owned) in &owners {
            pruned = self.put_back_owned(&merged, pruned, version, owned);
        }

        // Only what the manager had may go.
        let pruned = self.versions.convert(&pruned, version)?;
        let everything = FieldSet::new();
        let kept = with_named_fields(schema, &fields_of(schema, &pruned, &everything));
        let mut gone = with_named_fields(schema, &fields_of(schema, &merged, &everything));
        gone.subtract(&kept);
        let gone = gone.intersection(&last_fields);
        let left = |emptied| {
            let left = without(schema, &merged, &gone, emptied);
            Some(self.versions.convert(&left, self.api_version)?.into_owned())
        };
        Some(Pruned { object: left(Emptied::Gone)?, compared: left(Emptied::Null)? })
    }

    /// Puts back what was pruned and somebody manages in `version`.
    fn put_back_owned(
        &self,
        merged: &Value,
        pruned: Value,
        version: &str,
        owned: &FieldSet,
    ) -> Value {
        let parts = || {
            let schema = self.versions.schema(version)?;
            let merged = self.versions.convert(merged, version)?;
            Some((schema, merged, self.versions.convert(&pruned, version)?))
        };
        let Some((schema, merged, pruned)) = parts() else { return pruned };
        let everything = FieldSet::new();
        let mut gone = with_named_fields(schema, &fields_of(schema, &merged, &everything));
        gone.subtract(&with_named_fields(schema, &fields_of(schema, &pruned, &everything)));
        gone.subtract(&with_named_fields(schema, owned));
        without(schema, &merged, &gone, Emptied::Null)
    }

    /// What has become atomic since it was written is managed as a whole.
    fn reconcile(&self, managed: &mut ManagedFields) {
        for entry in &mut managed.0 {
            if let Some(schema) = self.versions.schema(&entry.api_version) {
                entry.fields = with_whole_fields(schema, &entry.fields);
            }
        }
    }
}

/// An object without what nobody wants any more.
struct Pruned {
    object: Value,
    /// As it is compared with the object before.
    compared: Value,
}

fn without_managers(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

#[cfg(test)]
mod tests;
