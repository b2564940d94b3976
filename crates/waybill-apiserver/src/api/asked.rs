//! What a request says before anybody looks at who says it.

use std::time::Duration;

use http::{HeaderMap, Method, Request};
use hyper::body::Incoming;
use waybill_api::status::Status;
use waybill_stream::long_target;

use crate::{
    audit::Lifetime,
    authn::front_proxy::strip,
    query::Query,
    request::{Action, Target},
    route::Route,
    selector::field::FieldSelector,
};

/// A request as it was sent.
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) uri: String,
    pub(super) query: Query,
    pub(super) route: Route,
    pub(super) action: Action,
    pub(super) lifetime: Lifetime,
    pub(super) headers: HeaderMap,
}

impl Asked {
    pub(super) fn read(request: &mut Request<Incoming>) -> Self {
        let (path, raw_query) =
            (request.uri().path().to_owned(), long_target::query(request).to_owned());
        let uri = match raw_query.as_str() {
            "" => path.clone(),
            query => format!("{path}?{query}"),
        };
        let method = request.method().clone();
        let query = Query::parse(&raw_query);
        let route = Route::parse(&path);
        let headers = match &route {
            // A session passes the request on, with its headers but without credentials.
            Route::Resource(route) if !route.subresource.is_empty() => {
                let headers = request.headers().clone();
                strip(request.headers_mut());
                headers
            }
            _ => std::mem::take(request.headers_mut()),
        };
        let mut action = route.action(&method, &path, query.flag("watch"));
        narrow_to_name(&mut action, &query);
        let lifetime = lifetime(&action, &query);
        Self { method, path, uri, query, route, action, lifetime, headers }
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD)
    }

    /// How long it may take: as long as the client says, and no longer than `most`. What lasts has no such end.
    pub(super) fn deadline(&self, most: Duration) -> Result<Option<Duration>, Status> {
        if self.lifetime == Lifetime::LongRunning {
            return Ok(None);
        }
        let wanted = self.query.duration("timeout")?.filter(|wanted| !wanted.is_zero());
        Ok(Some(wanted.map_or(most, |wanted| wanted.min(most))))
    }
}

/// A list or watch of one name is judged, and recorded, as being about that name, as in Kubernetes.
fn narrow_to_name(action: &mut Action, query: &Query) {
    if let Target::Resource(target) = &mut action.target
        && target.name.is_empty()
        && matches!(action.verb.as_str(), "list" | "watch" | "deletecollection")
        && let Ok(selector) = FieldSelector::parse(query.text("fieldSelector"))
        && let Some(name) = selector.exact("metadata.name")
    {
        name.clone_into(&mut target.name);
    }
}

/// Watches, sessions and followed logs last; everything else is over soon.
fn lifetime(action: &Action, query: &Query) -> Lifetime {
    let long = match &action.target {
        Target::Resource(target) => match target.subresource.as_str() {
            "attach" | "exec" | "portforward" => true,
            "log" | "trace" => query.flag("follow"),
            _ => action.verb == "watch",
        },
        Target::Path(_) => false,
    };
    if long { Lifetime::LongRunning } else { Lifetime::Short }
}
