//! `list`: objects that are bytes already, one after the other while they are sent.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::json;
use waybill_api::status::Status;

use super::{
    From, Reader, Selection,
    pages::{Page, Rest},
    view::View,
};
use crate::{
    cache::{Cache, CachedObject, Listing},
    document::put,
    http::{Answer, PIECE, WORTH_COMPRESSING},
    query::Query,
    registry::Resource,
    request::User,
    route::ResourceRoute,
};

impl Reader {
    /// The list that `query` of `user` asks for, as the answer. `given` is told what is in it.
    pub(crate) async fn list(
        &self,
        user: &User,
        route: &ResourceRoute,
        query: &Query,
        (view, now): (&View, Timestamp),
        given: impl FnOnce(&[Arc<CachedObject>]),
    ) -> Result<Answer, Status> {
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
            token => match self.pages.next(&subject, token, limit, now)? {
                Rest::Page(page) => page,
                Rest::After(key) => {
                    let keep = |object: &CachedObject| selection.selects(object);
                    let listing = cache.list(&selection.namespace, Some(&key), usize::MAX, keep);
                    self.pages.first(&user.name, subject, listing, limit, now)
                }
            },
        };
        given(&page.objects);
        // How many are left is said only where it is exact for the client too.
        let remaining = (!selection.is_narrow()).then_some(page.remaining).filter(|&left| left > 0);
        let metadata = list_metadata(&page, remaining);
        let size: usize = page.objects.iter().map(|object| object.json_len()).sum();
        let head = if view.is_protobuf {
            view.list_message_head(route.resource, &metadata, &page.objects, now)
        } else {
            view.list_head(route.resource, &metadata, now).into_bytes()
        };
        let pieces = ListPieces {
            head: Some(head),
            objects: page.objects.into_iter(),
            unsent: None,
            is_first: true,
            shown: Shown { view: *view, resource: route.resource, now },
        };
        if size < WORTH_COMPRESSING {
            let whole = pieces.collect::<Vec<_>>().concat();
            return Ok(view.answer(StatusCode::OK, whole.into()));
        }
        Ok(Answer { content_type: view.content_type(), ..Answer::pieces(Box::new(pieces)) })
    }
}

/// A list on its way to a client. It is pointers to objects until a piece is asked for, so that many
/// lists that nobody reads take no more memory than one.
struct ListPieces {
    /// What comes before the first object; nothing once it was said.
    head: Option<Vec<u8>>,
    objects: std::vec::IntoIter<Arc<CachedObject>>,
    /// An object that is too large for one piece, and how much of it was sent.
    unsent: Option<(Arc<CachedObject>, usize)>,
    is_first: bool,
    shown: Shown,
}

/// How each object is shown.
struct Shown {
    view: View,
    resource: &'static Resource,
    now: Timestamp,
}

impl Iterator for ListPieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        // The last object goes beyond: with room for it, nothing is copied to a larger place.
        let mut piece = BytesMut::with_capacity(PIECE + PIECE / 4);
        if let Some(head) = self.head.take() {
            piece.put_slice(&head);
        } else if self.objects.len() == 0 && self.unsent.is_none() {
            return None;
        }
        while piece.len() < PIECE {
            if self.put_unsent(&mut piece) {
                continue;
            }
            let Some(object) = self.objects.next() else { break };
            let Shown { view, resource, now } = &self.shown;
            if !std::mem::replace(&mut self.is_first, false) && !view.is_protobuf {
                piece.put_u8(b',');
            }
            if object.item_len() > PIECE && view.is_as_stored(resource) {
                self.unsent = Some((object, 0));
            } else {
                view.put_item(resource, &object, *now, &mut piece);
            }
        }
        let ends = self.objects.len() == 0 && self.unsent.is_none();
        if ends && !self.shown.view.is_protobuf {
            piece.put_slice(b"]}");
        }
        Some(piece.freeze())
    }
}

impl ListPieces {
    /// Appends more of an object that is too large for one piece; false if there is none.
    fn put_unsent(&mut self, piece: &mut BytesMut) -> bool {
        let Some((object, sent)) = self.unsent.take() else { return false };
        let more = PIECE.min(object.item_len() - sent);
        object.put_item_part(sent, more, piece);
        if sent + more < object.item_len() {
            self.unsent = Some((object, sent + more));
        }
        true
    }
}

fn list_metadata(page: &Page, remaining: Option<usize>) -> serde_json::Value {
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
