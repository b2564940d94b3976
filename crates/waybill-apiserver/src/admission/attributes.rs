//! What admission is told about a write.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use serde_json::{Map, Value, json};
use waybill_api::status::{Status, Target};

use crate::{
    audit::AuditNotes,
    authz::forbidden::object_message,
    document::metadata,
    registry::{Resource, Subresource},
    request::User,
    write::DeleteOptions,
};

/// What a request does to an object, in admission's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    /// A session or a path of a node; the object is the options of the request.
    Connect,
}

impl Operation {
    /// As rules and reviews write it.
    #[cfg(test)]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// One write on its way through admission. It has no `Debug`: objects hold what nobody logs.
pub(crate) struct Attributes<'a> {
    pub(crate) operation: Operation,
    /// The resource of the request; its objects may be stored in another one's form.
    pub(crate) resource: &'static Resource,
    pub(crate) subresource: Option<&'static Subresource>,
    /// Empty for objects of the whole cluster.
    pub(crate) namespace: &'a str,
    /// The name on the path; a create may have none. See [`Attributes::name`].
    pub(crate) path_name: &'a str,
    pub(crate) user: &'a User,
    pub(crate) dry_run: bool,
    /// What the request says besides the object.
    pub(crate) options: WriteOptions<'a>,
    /// The new object, which mutation changes; null for a deletion. Of a session or a proxied path the
    /// options of the request, which are there only once somebody wants to see them.
    pub(crate) object: Value,
    /// The object that is there; null where there is none.
    pub(crate) old: &'a Value,
    /// What is to be told besides the answer.
    pub(crate) remarks: &'a Remarks,
}

/// Options of a write that its object does not hold.
#[derive(Clone, Copy, Default)]
pub(crate) struct WriteOptions<'a> {
    pub(crate) field_manager: &'a str,
    /// What stands for a manager that does not say its name.
    pub(crate) user_agent: &'a str,
    pub(crate) tracking: Tracking,
    pub(crate) field_validation: &'a str,
    /// What a deletion says.
    pub(crate) deletion: Option<&'a DeleteOptions>,
}

/// Who notes which fields a write makes its manager's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// The writer, from what changed.
    #[default]
    ByWriter,
    /// Nobody: the document says it already.
    Done,
}

/// Group, version and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectKind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
}

impl Attributes<'_> {
    /// The name of the object: that on the path, or that in a new object. Empty before a name is made up.
    pub(crate) fn name(&self) -> &str {
        if self.path_name.is_empty() { metadata(&self.object, "name") } else { self.path_name }
    }

    /// The subresource; empty for the object itself.
    pub(crate) fn part(&self) -> &'static str {
        self.subresource.map_or("", |subresource| subresource.name)
    }

    /// Whether this is a write to the objects of a resource, and not to a part of them.
    pub(crate) fn is_main(&self, resource: &'static Resource) -> bool {
        self.is_part(resource, "")
    }

    pub(crate) fn is_part(&self, resource: &'static Resource, part: &str) -> bool {
        self.resource.is(resource) && self.part() == part
    }

    /// What kind of object the request carries.
    pub(crate) fn kind(&self) -> ObjectKind {
        let Resource { group, version, kind, .. } = *self.resource;
        match self.subresource {
            Some(part) if !part.kind.is_empty() => {
                let (group, version) = part.group_version.unwrap_or((group, version));
                ObjectKind { group, version, kind: part.kind }
            }
            _ => ObjectKind { group, version, kind },
        }
    }

    /// The options as the object that reviews and policies see; null where the operation has none.
    pub(crate) fn options_object(&self) -> Value {
        let kind = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return Value::Null,
        };
        let mut object = Map::new();
        let mut set = |field: &str, value: Value| object.insert(field.to_owned(), value);
        set("apiVersion", "meta.k8s.io/v1".into());
        set("kind", kind.into());
        if self.dry_run {
            set("dryRun", json!(["All"]));
        }
        let WriteOptions { field_manager, field_validation, deletion, .. } = self.options;
        for (field, text) in
            [("fieldManager", field_manager), ("fieldValidation", field_validation)]
        {
            if self.operation != Operation::Delete && !text.is_empty() {
                set(field, text.into());
            }
        }
        if let Some(deletion) = deletion {
            deletion.describe(&mut object);
        }
        Value::Object(object)
    }

    /// 403 about the object, for the reason given.
    pub(crate) fn forbidden(&self, why: &str) -> Status {
        let target = self.target();
        let message = object_message(target.group, target.resource, target.name, why);
        Status::forbidden(target, message)
    }

    /// The same with another code and reason, and what was said as its cause, as policies refuse.
    pub(crate) fn denied(&self, code: u16, reason: &str, why: &str) -> Status {
        let target = self.target();
        let message = object_message(target.group, target.resource, target.name, why);
        Status::denied(target, code, reason, message, why)
    }

    fn target(&self) -> Target<'_> {
        let Resource { group, plural, .. } = *self.resource;
        let name = match self.name() {
            "" => metadata(&self.object, "generateName"),
            name => name,
        };
        Target { group, resource: plural, name }
    }
}

/// What a request gives rise to besides its answer.
#[derive(Default)]
pub(crate) struct Remarks {
    /// For its record in the audit log.
    pub(crate) notes: AuditNotes,
    /// For the user.
    pub(crate) warnings: Warnings,
    changed: AtomicBool,
}

impl Remarks {
    /// Something is not as it was before, whatever the request is answered.
    pub(crate) fn note_change(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }
}

/// What warnings of one answer may have together, as upstream's; they are headers, of which clients take few.
const MOST_WARNING_BYTES: usize = 4096;
const MOST_WARNINGS: usize = 64;

/// Texts for `Warning` headers; each is told once.
#[derive(Default)]
pub(crate) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    /// Adds a warning; webhooks choose texts and number, so what is too much is left out.
    pub(crate) fn add(&self, text: impl Into<String>) {
        let (text, mut all) = (text.into(), self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let told: usize = all.iter().map(String::len).sum();
        let fits = !text.is_empty()
            && all.len() < MOST_WARNINGS
            && told + text.len() <= MOST_WARNING_BYTES;
        // A write that meets a newer object is judged again.
        if fits && !all.contains(&text) {
            all.push(text);
        }
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hole: a webhook with a hundred thousand warnings, each of which became a header.
    #[test]
    fn warnings_fill_no_more_than_a_client_takes() {
        let warnings = Warnings::default();
        for number in 0..100_000 {
            warnings.add(number.to_string());
        }
        warnings.add("x".repeat(5_000));
        warnings.add("");
        assert_eq!(warnings.take().len(), MOST_WARNINGS);
    }
}
