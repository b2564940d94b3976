//! Who manages which fields of an object: where server-side apply meets our resources.
//!
//! The rules are in `waybill-apply`; here is what they need to know of a resource: its versions, what lists
//! and maps mean in them, and which fields a write to one of its parts leaves alone.

use std::{borrow::Cow, sync::LazyLock};

use serde_json::Value;
use waybill_apply::{ApplyError, FieldSet, Schema, Tracker, Versions, manager_of_user_agent};

use crate::{
    convert,
    document::{at, put, text},
    kinds::pod::{PODS, with_resources_of},
    registry::{RESOURCES, Resource},
    schema::KindSchema,
    write::Part,
};

/// A write to a part of the objects of a resource, on behalf of a manager.
pub(crate) struct ManagedWrite<'a> {
    /// The resource of the request; its objects may be stored in another one's form.
    pub(crate) resource: &'static Resource,
    pub(crate) part: Part,
    pub(crate) manager: Cow<'a, str>,
    /// In whole seconds.
    pub(crate) now: String,
}

impl ManagedWrite<'_> {
    /// Writes into `new` who manages what, when it takes the place of `live`. Both are as they are stored.
    pub(crate) fn track(&self, live: Option<&Value>, new: &mut Value) {
        match (self.part, live) {
            // Nobody manages the node of a pod: that is what bindings are for.
            (Part::Binding, _) => {}
            // Whatever else a client sends to this part, it changes these containers.
            (Part::EphemeralContainers, Some(live)) => {
                let mut changed = live.clone();
                put(&mut changed, EPHEMERAL_CONTAINERS, at(new, EPHEMERAL_CONTAINERS).clone());
                self.tracker(|tracker| tracker.track(Some(live), &mut changed));
                put(new, MANAGED_FIELDS, at(&changed, MANAGED_FIELDS).clone());
            }
            // As above, with their resources.
            (Part::Resize, Some(live)) => {
                let mut changed = with_resources_of(new, live);
                self.tracker(|tracker| tracker.track(Some(live), &mut changed));
                put(new, MANAGED_FIELDS, at(&changed, MANAGED_FIELDS).clone());
            }
            _ => self.tracker(|tracker| tracker.track(live, new)),
        }
    }

    /// What becomes of `live` when the manager applies `config`; both in the form of the request.
    pub(crate) fn apply(
        &self,
        live: Option<&Value>,
        config: &Value,
        force: bool,
    ) -> Result<Value, ApplyError> {
        self.tracker(|tracker| tracker.apply(live, config, force))
    }

    fn tracker<R>(&self, with: impl FnOnce(Tracker<'_>) -> R) -> R {
        let versions = Served { resource: self.resource, part: self.part };
        with(Tracker {
            versions: &versions,
            api_version: &self.resource.api_version(),
            manager: &self.manager,
            subresource: self.part.subresource(),
            now: &self.now,
        })
    }
}

/// The name of the manager that a client says, or else that of its program.
pub(crate) fn manager<'a>(said: &'a str, user_agent: &str) -> Cow<'a, str> {
    if said.is_empty() { manager_of_user_agent(user_agent).into() } else { said.into() }
}

/// Where an object says who manages what.
pub(crate) const MANAGED_FIELDS: &str = "/metadata/managedFields";
const EPHEMERAL_CONTAINERS: &str = "/spec/ephemeralContainers";

/// The versions in which the objects of a resource are served.
struct Served {
    resource: &'static Resource,
    part: Part,
}

impl Served {
    fn version(&self, api_version: &str) -> Option<&'static Resource> {
        if self.resource.api_version() == api_version {
            return Some(self.resource);
        }
        let stored = self.resource.storage();
        let is_version = |resource: &&'static Resource| {
            resource.storage().is(stored) && resource.api_version() == api_version
        };
        RESOURCES.iter().copied().find(is_version)
    }
}

impl Versions for Served {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        self.version(api_version)?.schema().map(KindSchema::merge)
    }

    fn convert<'o>(&self, object: &'o Value, api_version: &str) -> Option<Cow<'o, Value>> {
        let found = text(object, "/apiVersion");
        // What has no version is nothing yet.
        if found == api_version || found.is_empty() {
            return Some(Cow::Borrowed(object));
        }
        let stored = convert::to_storage(self.version(found)?, object.clone());
        Some(Cow::Owned(convert::from_storage(self.version(api_version)?, stored)))
    }

    fn unmanaged(&self, _: &str) -> &FieldSet {
        match self.part {
            Part::Status if self.resource.is(&PODS) => &POD_STATUS,
            Part::Main if self.resource.is(&PODS) => &POD_MAIN,
            Part::Approval | Part::Status => &STATUS,
            Part::Binding
            | Part::EphemeralContainers
            | Part::Finalize
            | Part::Main
            | Part::Resize => &MAIN,
        }
    }
}

/// What a write to the object itself leaves alone.
static MAIN: LazyLock<FieldSet> = LazyLock::new(|| set_by_server(&[&["status"]]));

/// Ephemeral containers have a subresource of their own.
static POD_MAIN: LazyLock<FieldSet> =
    LazyLock::new(|| set_by_server(&[&["status"], &["spec", "ephemeralContainers"]]));

/// What a write to the status leaves alone.
static STATUS: LazyLock<FieldSet> = LazyLock::new(|| {
    set_by_server(&[&["spec"], &["metadata", "finalizers"], &["metadata", "ownerReferences"]])
});

static POD_STATUS: LazyLock<FieldSet> = LazyLock::new(|| {
    set_by_server(&[
        &["spec"],
        &["metadata", "deletionTimestamp"],
        &["metadata", "finalizers"],
        &["metadata", "labels"],
        &["metadata", "ownerReferences"],
    ])
});

/// These fields, and those that only the server sets, which nobody manages.
fn set_by_server(fields: &[&[&str]]) -> FieldSet {
    let mut set = FieldSet::of_fields(fields);
    set.unite(&FieldSet::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata", "clusterName"],
        &["metadata", "creationTimestamp"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "resourceVersion"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
    ]));
    set
}
