//! `watch`: one line per change, until the time is up or the client is gone.

use std::{
    mem,
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, future::Either, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep_until};
use waybill_api::status::Status;
use waybill_core::id::ResourceVersion;

use super::{
    EventRoom, From, Reader, Selection,
    event::{PIECE, Unsent},
    view::{Form, View},
};
use crate::{
    cache::{Cache, CachedObject, ChangeKind, Told, Watcher, object_line},
    clock::Clock,
    document::put,
    http::BodyError,
    objects::Objects,
    protobuf,
    query::Query,
    registry::Resource,
    route::ResourceRoute,
};

/// How often a quiet watch says how far it has seen.
const BOOKMARK: Duration = Duration::from_secs(60);

/// How long a watch lasts if the client does not say.
const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// No watch lasts longer; what can be added to a clock has an end.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What a client asks of a watch.
pub(crate) struct WatchOptions {
    selection: Selection,
    from: From,
    bookmarks: bool,
    /// Whether the client wants what there is; without a word it depends on the version.
    initial_events: Option<bool>,
    lifetime: Duration,
}

impl WatchOptions {
    pub(crate) fn parse(route: &ResourceRoute, query: &Query) -> Result<Self, Status> {
        let seconds = query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        Ok(Self {
            selection: Selection::parse(route, query)?,
            from: From::parse_watch(query)?,
            bookmarks: query.flag("allowWatchBookmarks"),
            initial_events: query.has("sendInitialEvents").then(|| query.flag("sendInitialEvents")),
            lifetime: seconds.map_or(LIFETIME, Duration::from_secs).min(LONGEST),
        })
    }

    pub(super) fn selection(&self) -> &Selection {
        &self.selection
    }
}

/// The body of a watch: a stream of lines.
pub(crate) async fn watch_lines(
    reader: &Reader,
    resource: &'static Resource,
    options: WatchOptions,
    view: View,
    clock: Clock,
) -> Result<impl Stream<Item = Result<Bytes, BodyError>> + Send + use<>, Status> {
    let cache = reader.cache(resource)?;
    let (initial, watcher) = match start(reader, cache, &options).await {
        Ok(started) => started,
        // As upstream, the stream begins and its one event is the error: some clients list anew
        // only if they are told so in this way.
        Err(refusal) => {
            return Ok(Either::Left(stream::iter([Ok(error_event(view, &refusal))])));
        }
    };
    let (seen, initial) = match initial {
        Some(listing) => (listing.revision, listing.objects.iter().map(Arc::downgrade).collect()),
        None => (ResourceVersion::from(0), Vec::new()),
    };
    let deadline = Instant::now() + options.lifetime;
    let told_end = options.initial_events == Some(true) && options.bookmarks;
    let alarm = if options.bookmarks { deadline.min(Instant::now() + BOOKMARK) } else { deadline };
    let lines = Lines {
        objects: Arc::clone(&reader.objects),
        resource,
        view,
        clock,
        watcher,
        initial: initial.into_iter(),
        unsent: None,
        has_columns: false,
        room: reader.room.clone(),
        end_of_initial: told_end.then_some(seen),
        deadline,
        alarm: Box::pin(sleep_until(alarm)),
        selection: options.selection,
    };
    Ok(Either::Right(stream::unfold(Some(lines), |lines| async move {
        let mut lines = lines?;
        let piece = lines.next().await?;
        let goes_on = piece.is_ok();
        Some((piece, goes_on.then_some(lines)))
    })))
}

type Start = (Option<crate::cache::Listing>, Watcher);

async fn start(reader: &Reader, cache: &Cache, options: &WatchOptions) -> Result<Start, Status> {
    // Without a version, and with zero, a watch begins with what there is.
    let any = matches!(options.from, From::Newest | From::Any);
    if options.initial_events.unwrap_or(any) {
        reader.wait_for(options.from).await?;
        let (listing, watcher) = cache.list_and_watch(|object| options.selection.keeps(object));
        return Ok((Some(listing), watcher));
    }
    let after = match options.from {
        From::NotOlderThan(version) | From::Exact(version) => version,
        From::Newest | From::Any => cache.revision(),
    };
    cache.watch(after).map(|watcher| (None, watcher)).map_err(|too_old| {
        Status::expired(format!("too old resource version: {after} ({})", too_old.oldest))
    })
}

fn error_event(view: View, status: &Status) -> Bytes {
    whole_event(view, "ERROR", &json!(status))
}

/// An event that is no change of an object.
fn whole_event(view: View, kind: &str, object: &Value) -> Bytes {
    if view.is_protobuf {
        return protobuf::encode_event(kind, object).unwrap_or_default().into();
    }
    Bytes::from(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
}

struct Lines {
    objects: Arc<Objects>,
    resource: &'static Resource,
    selection: Selection,
    view: View,
    clock: Clock,
    watcher: Watcher,
    /// Those that are gone by the time they are sent end the watch: so much has changed meanwhile.
    initial: std::vec::IntoIter<Weak<CachedObject>>,
    unsent: Option<Unsent>,
    /// Whether a table has told its columns.
    has_columns: bool,
    room: EventRoom,
    /// The revision of the initial objects, until their end has been said.
    end_of_initial: Option<ResourceVersion>,
    deadline: Instant,
    /// The next bookmark, or the deadline. It is not set anew for each change.
    alarm: Pin<Box<Sleep>>,
}

impl Lines {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        if let Some(unsent) = self.unsent.take() {
            let next = unsent.next().map(|(piece, rest)| {
                self.unsent = rest;
                piece
            });
            return Some(next.map_err(BodyError::from));
        }
        if let Some(object) = self.initial.next() {
            return self.event(ChangeKind::Added, &object.upgrade()?).map(Ok);
        }
        // A watch lasts long after its first list; the list need not.
        self.initial = Vec::new().into_iter();
        if let Some(revision) = self.end_of_initial.take() {
            return Some(Ok(self.bookmark(revision, true)));
        }
        loop {
            let told = tokio::select! {
                biased;
                told = self.watcher.next() => told?,
                () = self.alarm.as_mut() => {
                    if Instant::now() >= self.deadline {
                        return None;
                    }
                    // What has not come after this was read is later than it.
                    let reached = self.objects.revision();
                    match self.watcher.ready() {
                        Some(told) => told,
                        None => {
                            self.alarm.as_mut().reset(self.deadline.min(Instant::now() + BOOKMARK));
                            if reached <= self.watcher.after() {
                                continue;
                            }
                            return Some(Ok(self.bookmark(reached, false)));
                        }
                    }
                }
            };
            if let Some(kind) = told.change.as_seen(|object| self.selection.keeps(object)) {
                return self.told_event(kind, &told).map(Ok);
            }
        }
    }

    fn told_event(&mut self, kind: ChangeKind, told: &Told) -> Option<Bytes> {
        let object = told.change.object_as(kind);
        if self.is_as_stored() && object.json_len() <= PIECE {
            return Some(told.line(kind));
        }
        self.event(kind, object)
    }

    /// The event, or its first piece; nothing if there is no room for the others.
    fn event(&mut self, kind: ChangeKind, object: &Arc<CachedObject>) -> Option<Bytes> {
        if !self.is_as_stored() {
            let line = self.made_event(kind, object);
            if line.len() <= PIECE {
                return Some(line);
            }
            let (piece, rest) = Unsent::line(line, &self.room)?.next().ok()?;
            self.unsent = rest;
            return Some(piece);
        }
        if object.json_len() <= PIECE {
            return Some(object_line(kind, object));
        }
        let (piece, rest) = Unsent::object(kind, object);
        self.unsent = Some(rest);
        Some(piece)
    }

    fn made_event(&mut self, kind: ChangeKind, object: &CachedObject) -> Bytes {
        let shown = self.view.shown(self.resource, object.document(), (self.clock)());
        let shown = self.with_columns_once(shown);
        whole_event(self.view, kind.as_str(), &shown)
    }

    /// Tables of one watch have the same columns, which only the first tells, as upstream's.
    fn with_columns_once(&mut self, mut shown: Value) -> Value {
        if matches!(self.view.form, Form::Table(_)) && mem::replace(&mut self.has_columns, true) {
            put(&mut shown, "/columnDefinitions", Value::Null);
        }
        shown
    }

    fn is_as_stored(&self) -> bool {
        self.view.is_as_stored(self.resource)
    }

    fn bookmark(&mut self, revision: ResourceVersion, end_of_initial: bool) -> Bytes {
        let mut metadata =
            json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if end_of_initial {
            put(&mut metadata, "/annotations", json!({"k8s.io/initial-events-end": "true"}));
        }
        let object = self.view.bookmark(self.resource, &metadata, (self.clock)());
        let object = self.with_columns_once(object);
        whole_event(self.view, "BOOKMARK", &object)
    }
}
