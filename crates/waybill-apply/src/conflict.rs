//! Fields that somebody else manages, and what a client is told about them.

use std::{collections::BTreeMap, fmt};

use crate::{
    element::describe_path,
    managed::{Entry, Operation},
    set::FieldSet,
};

/// A field that a manager wants to change and another one manages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Who manages it, in upstream's words: `"kubectl" using v1`.
    pub manager: String,
    /// The field, as `.spec.replicas`.
    pub field: String,
}

/// Why a configuration was not applied: fields that others manage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    found: Vec<(Conflict, Vec<String>)>,
}

impl Conflicts {
    /// Adds the fields of `set`, which the manager of `entry` manages.
    pub(crate) fn add(&mut self, entry: &Entry, set: &FieldSet) {
        let manager = describe(entry);
        set.each(|path| {
            let field = describe_path(path);
            let steps = path.iter().map(|&step| step.to_owned()).collect();
            self.found.push((Conflict { manager: manager.clone(), field }, steps));
        });
    }

    /// Leaves out the conflicts about members of `allowed`.
    pub(crate) fn forgive(&mut self, allowed: &FieldSet) {
        self.found.retain(|(_, path)| !allowed.contains(path));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The conflicts.
    pub fn iter(&self) -> impl Iterator<Item = &Conflict> {
        self.found.iter().map(|(conflict, _)| conflict)
    }
}

/// In upstream's words, which `kubectl` shows.
impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(Conflict { manager, field }, _)] = &*self.found {
            return write!(f, "Apply failed with 1 conflict: conflict with {manager}: {field}");
        }
        let mut managers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for Conflict { manager, field } in self.iter() {
            managers.entry(manager).or_default().push(field);
        }
        write!(f, "Apply failed with {} conflicts: ", self.found.len())?;
        for (position, (manager, fields)) in managers.into_iter().enumerate() {
            let line = if position == 0 { "" } else { "\n" };
            write!(f, "{line}conflicts with {manager}:")?;
            for field in fields {
                write!(f, "\n- {field}")?;
            }
        }
        Ok(())
    }
}

fn describe(entry: &Entry) -> String {
    let mut text = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", entry.subresource));
    }
    if entry.operation == Operation::Update {
        text.push_str(&format!(" using {}", entry.api_version));
    }
    text
}
