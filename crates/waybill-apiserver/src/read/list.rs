//! `list`: objects that are bytes already, concatenated.

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::json;
use waybill_api::status::Status;

use super::{Reader, Selection, pages::Page, view::View};
use crate::{
    document::put,
    query::{From, Query},
    registry::Resource,
    route::ResourceRoute,
};

impl Reader {
    /// The list that `query` asks for, as the body of the answer.
    pub(crate) fn list(
        &self,
        route: &ResourceRoute,
        query: &Query,
        view: &View,
        now: Timestamp,
    ) -> Result<Bytes, Status> {
        let cache = self.cache(route.resource)?;
        let selection = Selection::parse(route, query)?;
        let limit = usize::try_from(query.number("limit")?.unwrap_or(0)).unwrap_or(usize::MAX);
        let subject = format!(
            "{}{}?{}&{}",
            route.resource.prefix(),
            route.namespace,
            query.text("labelSelector"),
            query.text("fieldSelector")
        );
        let page = match query.text("continue") {
            "" => {
                let from = From::parse(query)?;
                let listing = cache
                    .list(&route.namespace, None, usize::MAX, |object| selection.selects(object));
                check_state(from, listing.revision)?;
                self.pages.first(subject, listing.objects, listing.revision, limit, now)
            }
            token => self.pages.next(&subject, token, limit, now)?,
        };
        // How many are left is said only where it is exact for the client too.
        let remaining = (!selection.is_narrow()).then_some(page.remaining).filter(|&left| left > 0);
        Ok(view.list(route.resource, &page, remaining, now))
    }
}

/// The plain form of a list.
pub(super) fn plain_list(
    resource: &'static Resource,
    page: &Page,
    remaining: Option<usize>,
) -> Bytes {
    let metadata = list_metadata(page, remaining);
    let head = format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
        resource.kind,
        resource.api_version()
    );
    let size: usize = page.objects.iter().map(|object| object.json_room() + 1).sum();
    let mut body = BytesMut::with_capacity(head.len() + size + 2);
    body.put_slice(head.as_bytes());
    for (position, object) in page.objects.iter().enumerate() {
        if position > 0 {
            body.put_u8(b',');
        }
        object.put_json(&mut body);
    }
    body.put_slice(b"]}");
    body.freeze()
}

pub(super) fn list_metadata(page: &Page, remaining: Option<usize>) -> serde_json::Value {
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if !page.next.is_empty() {
        put(&mut metadata, "/continue", page.next.as_str());
    }
    if let Some(remaining) = remaining {
        put(&mut metadata, "/remainingItemCount", remaining);
    }
    metadata
}

/// We have one state, the newest; a client may ask for a newer one or for exactly an older one.
fn check_state(from: From, revision: waybill_core::id::ResourceVersion) -> Result<(), Status> {
    match from {
        From::Newest | From::Any => Ok(()),
        From::NotOlderThan(wanted) if wanted <= revision => Ok(()),
        From::Exact(wanted) if wanted == revision => Ok(()),
        From::Exact(wanted) if wanted < revision => Err(Status::expired(format!(
            "The resourceVersion for the provided list is too old: {wanted}"
        ))),
        From::NotOlderThan(wanted) | From::Exact(wanted) => Err(Status::timeout(format!(
            "Too large resource version: {wanted}, current: {revision}"
        ))),
    }
}
