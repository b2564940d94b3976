//! The verbs that change objects: what happens between a decoded request and the store.
//!
//! Every write is a compare-and-swap against the object that the caller, or we, last saw. What a
//! client said about a version is kept: with one, a conflict is the client's to solve; without, we
//! try again on the newer object.

mod create;
mod delete;
mod update;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use waybill_api::status::{Status, Subject};
use waybill_core::chain::Chain;

pub(crate) use self::{
    delete::{DeleteOptions, Deletion},
    update::Part,
};

use crate::{
    admission::Admission,
    audit::AuditNotes,
    cache::{Cache, CachedObject, ObjectKey},
    kinds::{self, Context, Kind},
    objects::{CommitError, Objects},
    query::DryRun,
    registry::Resource,
    request::User,
    route::ResourceRoute,
    store::{StoreError, WriteError},
};

/// How often a write is tried again on a newer object before the client is told.
const RETRIES: usize = 8;

/// Tells the time; tests have their own.
pub(crate) type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Changes objects.
pub(crate) struct Rest {
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
    /// What admission has to say for the audit log.
    pub(crate) notes: &'a AuditNotes,
}

/// An object after a write.
pub(crate) struct Written {
    pub(crate) document: Value,
    pub(crate) warnings: Vec<String>,
}

impl Change<'_> {
    /// The resource in whose form the object is stored.
    fn resource(&self) -> &'static Resource {
        self.route.resource.storage()
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.route.namespace, &self.route.name)
    }
}

impl Rest {
    fn cache(&self, resource: &'static Resource) -> Result<&Cache, Status> {
        self.objects.cache(resource).ok_or_else(Status::no_such_path)
    }

    /// The object that a change is about.
    fn current(&self, change: Change<'_>) -> Result<Arc<CachedObject>, Status> {
        let found = self.cache(change.resource())?.get(&change.key());
        found.ok_or_else(|| Status::not_found(change.route.status_target()))
    }

    fn kind(resource: &'static Resource) -> Result<&'static dyn Kind, Status> {
        kinds::kind(resource.group, resource.plural).ok_or_else(Status::no_such_path)
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
