//! The verbs that change objects: what happens between a decoded request and the store.
//!
//! Every write is a compare-and-swap against the object that the caller, or we, last saw. What a
//! client said about a version is kept: with one, a conflict is the client's to solve; without, we
//! try again on the newer object.
//!
//! This is the only way to the store, for clients and for our own controllers, and every write passes
//! admission on it.

mod bind;
mod create;
mod delete;
mod evict;
mod token;
mod update;

use std::sync::Arc;

use serde_json::Value;
use waybill_api::status::{Status, Subject};
use waybill_apply::ManagedFields;
use waybill_core::{chain::Chain, id::ResourceVersion};

pub(crate) use self::{
    delete::{DeleteOptions, Deletion},
    update::Part,
};
use crate::{
    admission::{Admission, Attributes, Operation, Remarks, Tracking, WriteOptions},
    cache::{Cache, CachedObject, ObjectKey},
    clock::Clock,
    document::{at, remove_metadata, time},
    kinds::{Context, Kind},
    managers::{MANAGED_FIELDS, ManagedWrite, manager},
    objects::{CommitError, Objects},
    query::DryRun,
    registry::Resource,
    request::User,
    route::ResourceRoute,
    store::{Expected, StoreError, WriteError},
};

/// How often a write is tried again on a newer object before the client is told.
const RETRIES: usize = 8;

/// Changes objects.
pub(crate) struct Writer {
    pub(crate) objects: Arc<Objects>,
    pub(crate) admission: Admission,
    pub(crate) context: Context,
    pub(crate) clock: Clock,
}

/// Who wants to change what.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) route: &'a ResourceRoute,
    pub(crate) user: &'a User,
    pub(crate) dry_run: DryRun,
    pub(crate) options: WriteOptions<'a>,
    /// What admission has to say besides.
    pub(crate) remarks: &'a Remarks,
}

/// An object after a write.
pub(crate) struct Written {
    pub(crate) document: Value,
    pub(crate) warnings: Vec<String>,
}

impl<'a> Change<'a> {
    /// What admission is told about a change of `part` of an object.
    fn attributes(
        &self,
        operation: Operation,
        part: &str,
        object: Value,
        old: &'a Value,
    ) -> Attributes<'a> {
        Attributes {
            operation,
            resource: self.route.resource,
            subresource: self.route.resource.subresource(part),
            namespace: &self.route.namespace,
            path_name: &self.route.name,
            user: self.user,
            dry_run: self.dry_run == DryRun::All,
            options: self.options,
            object,
            old,
            remarks: self.remarks,
        }
    }

    /// The resource in whose form the object is stored.
    fn resource(&self) -> &'static Resource {
        self.route.resource.storage()
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.route.namespace, &self.route.name)
    }
}

impl Writer {
    /// Asks admission about something that is answered and forgotten, or about an action on an object;
    /// `check` is what must hold between the two phases. Returns the object to go on with.
    pub(crate) async fn admit_create(
        &self,
        change: Change<'_>,
        object: Value,
        check: impl FnOnce(&Value) -> Result<(), Status>,
    ) -> Result<Value, Status> {
        let part = &change.route.subresource;
        let mut attributes =
            change.attributes(Operation::Create, part, object, const { &Value::Null });
        self.admission.mutate(&mut attributes).await?;
        check(&attributes.object)?;
        self.admission.validate(&attributes).await?;
        Ok(attributes.object)
    }

    /// Writes `document`, or deletes if there is none. The record of the request learns that something was changed.
    async fn commit(
        &self,
        change: Change<'_>,
        key: &ObjectKey,
        expected: Expected,
        document: Option<&Value>,
    ) -> Result<ResourceVersion, CommitError> {
        let done = self.objects.commit(change.resource(), key, expected, document).await;
        if matches!(done, Ok(_) | Err(CommitError::Slow)) {
            change.remarks.note_change();
        }
        done
    }

    /// Notes in `new` which fields this change makes its manager's. As upstream does, before admission: what
    /// that adds is nobody's.
    fn track(&self, change: Change<'_>, part: Part, old: Option<&Value>, new: &mut Value) {
        if change.options.tracking == Tracking::Done {
            return;
        }
        let WriteOptions { field_manager, user_agent, .. } = change.options;
        let write = ManagedWrite {
            resource: change.route.resource,
            part,
            manager: manager(field_manager, user_agent),
            now: time((self.clock)()),
        };
        write.track(old, new);
    }

    /// Starts again from what `old` says, if admission left nothing of the managers that can be read.
    fn keep_managers_readable(
        &self,
        change: Change<'_>,
        part: Part,
        old: Option<&Value>,
        new: &mut Value,
    ) {
        let Err(error) = ManagedFields::parse(at(new, MANAGED_FIELDS)) else { return };
        change.remarks.warnings.add(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by \
             an outdated mutating admission controller; please fix your requests: {error}"
        ));
        remove_metadata(new, "managedFields");
        let options = WriteOptions { tracking: Tracking::ByWriter, ..change.options };
        self.track(Change { options, ..change }, part, old, new);
    }

    fn cache(&self, resource: &'static Resource) -> Result<&Cache, Status> {
        self.objects.cache(resource).ok_or_else(Status::no_such_path)
    }

    /// The object that a change is about.
    fn current(&self, change: Change<'_>) -> Result<Arc<CachedObject>, Status> {
        let found = self.cache(change.resource())?.get(&change.key());
        found.ok_or_else(|| Status::not_found(change.route.status_target()))
    }

    fn kind(resource: &'static Resource) -> Result<&'static dyn Kind, Status> {
        resource.rules.ok_or_else(Status::no_such_path)
    }
}

/// The object of a status about `document`.
pub(crate) fn subject<'a>(resource: &'static Resource, name: &'a str) -> Subject<'a> {
    Subject { group: resource.group, kind: resource.kind, name }
}

fn modified_by_others(change: Change<'_>) -> Status {
    let why = "the object has been modified; please apply your changes to the latest version and \
               try again";
    Status::conflict(change.route.status_target(), why)
}

/// What a client is told when the store did not take a write; the rest is for the log.
fn store_failure(error: &CommitError) -> Status {
    tracing::error!(error = %Chain(error), "a write failed");
    match error {
        CommitError::Slow => {
            Status::timeout("the change is stored, but reading it back took too long")
        }
        CommitError::Store(WriteError::Store(StoreError::Full { path, .. })) => {
            let disk = path.parent().unwrap_or(path).display();
            Status::unavailable(format!(
                "nothing was changed: the disk of the store ({disk}) is full; free some room on it, \
                 or delete objects, which still works for a while"
            ))
        }
        CommitError::Conflict(_) | CommitError::Store(_) => {
            Status::unavailable("the store cannot be written at the moment, try again")
        }
    }
}
