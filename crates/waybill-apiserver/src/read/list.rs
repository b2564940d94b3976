//! `list`: objects that are bytes already, concatenated.

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::json;
use waybill_api::status::Status;

use super::{From, Reader, Selection, pages::Page, view::View};
use crate::{
    cache::{Cache, CachedObject, Listing},
    document::put,
    query::Query,
    registry::Resource,
    request::User,
    route::ResourceRoute,
};

impl Reader {
    /// The list that `query` of `user` asks for, as the body of the answer.
    pub(crate) async fn list(
        &self,
        user: &User,
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
        let from = From::parse_list(query)?;
        let page = match query.text("continue") {
            "" => {
                self.wait_for(from).await?;
                let listing = listing(cache, from, &selection)?;
                self.pages.first(&user.name, subject, listing, limit, now)
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

/// The objects as of the state that `from` wants, which has been reached.
fn listing(cache: &Cache, from: From, selection: &Selection) -> Result<Listing, Status> {
    let (namespace, keep) =
        (&selection.namespace, |object: &CachedObject| selection.selects(object));
    match from {
        From::Newest | From::Any | From::NotOlderThan(_) => {
            Ok(cache.list(namespace, None, usize::MAX, keep))
        }
        From::Exact(version) => cache
            .list_at(version, namespace, keep)
            .map_err(|_| Status::expired("The resourceVersion for the provided list is too old.")),
    }
}
