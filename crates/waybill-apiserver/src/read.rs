//! The verbs that only look: `get`, `list` and `watch`, all from the caches.

mod event;
mod from;
mod list;
mod pages;
mod view;
mod watch;

use std::sync::Arc;

use waybill_api::status::Status;

pub(crate) use self::{
    event::EventRoom,
    from::From,
    pages::Pages,
    view::View,
    watch::{WatchOptions, watch_lines},
};
use crate::{
    cache::{Cache, CachedObject, ObjectKey},
    objects::Objects,
    query::Query,
    registry::Resource,
    route::ResourceRoute,
    selector::{field::FieldSelector, label::LabelSelector, supported::check_fields},
};

/// Reads objects.
pub(crate) struct Reader {
    pub(crate) objects: Arc<Objects>,
    pub(crate) pages: Pages,
    pub(crate) room: EventRoom,
}

impl Reader {
    /// The object that a path names.
    pub(crate) fn get(&self, route: &ResourceRoute) -> Result<Arc<CachedObject>, Status> {
        let key = ObjectKey::new(&route.namespace, &route.name);
        let found = self.cache(route.resource)?.get(&key);
        found.ok_or_else(|| Status::not_found(route.status_target()))
    }

    /// The objects that a watch is about, as they are now.
    pub(crate) fn seen_by(
        &self,
        resource: &'static Resource,
        options: &WatchOptions,
    ) -> Result<Vec<Arc<CachedObject>>, Status> {
        let selection = options.selection();
        let keep = |object: &CachedObject| selection.selects(object);
        let cache = self.cache(resource)?;
        Ok(cache.list(&selection.namespace, None, usize::MAX, keep).objects)
    }

    /// Waits until the caches have what `from` wants.
    pub(crate) async fn wait_for(&self, from: From) -> Result<(), Status> {
        let (From::NotOlderThan(wanted) | From::Exact(wanted)) = from else { return Ok(()) };
        let reached = self.objects.reach(wanted).await;
        reached.map_err(|current| Status::too_large_version(wanted, current))
    }

    fn cache(&self, resource: &'static Resource) -> Result<&Cache, Status> {
        self.objects.cache(resource).ok_or_else(Status::no_such_path)
    }
}

/// Which objects of a resource a request is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    namespace: String,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    pub(crate) fn parse(route: &ResourceRoute, query: &Query) -> Result<Self, Status> {
        let labels = LabelSelector::parse(query.text("labelSelector")).map_err(|error| {
            Status::bad_request(format!("unable to parse requirement: {error}"))
        })?;
        let fields = FieldSelector::parse(query.text("fieldSelector"))
            .map_err(|error| Status::bad_request(error.to_string()))?;
        check_fields(route.resource, &fields)
            .map_err(|error| Status::bad_request(error.to_string()))?;
        Ok(Self { namespace: route.namespace.clone(), labels, fields })
    }

    /// Whether `object` is meant.
    pub(crate) fn keeps(&self, object: &CachedObject) -> bool {
        (self.namespace.is_empty() || *object.key.namespace == *self.namespace)
            && self.selects(object)
    }

    /// Whether `object`, which is of the right namespace, is meant.
    fn selects(&self, object: &CachedObject) -> bool {
        (self.labels.is_empty() || self.labels.matches(|key| object.label(key)))
            && (self.fields.is_empty()
                || self.fields.matches(|field| object.field(field).map(Into::into)))
    }

    /// Whether it narrows the list beyond the namespace.
    fn is_narrow(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }
}
