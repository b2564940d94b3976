//! One request from its headers to its answer: who asks, may they, what happens, what is recorded.

mod access;
mod apply;
mod asked;
mod exchange;
mod health;
mod nonresource;
mod reviews;
mod subresources;
mod write;

use std::{
    net::IpAddr,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use http::{HeaderMap, Method, Request, Response, header};
use hyper::body::Incoming;
use rustls_pki_types::CertificateDer;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use waybill_api::{gates::FeatureGates, status::Status};
use waybill_core::id::AuditId;

pub(crate) use self::nonresource::open_api;
use self::{access::Asking, asked::Asked, exchange::Exchange};
use crate::{
    admission::{Remarks, Tracking, WriteOptions},
    audit::{self, Budget, Recorder, RequestAudit, RequestFacts, choose_id},
    authn::{Authenticator, Peer},
    authz::{Authorizer, Decision},
    cache::{CachedObject, ObjectKey},
    clock::Clock,
    http::{Answer, Body, Connection, InFlight, Service},
    kinds::secret::SECRETS,
    metrics::Metrics,
    proxy::{NodeProxy, ProxyAnswer, ProxyBody, address::NodeAddressType, session::SessionSigner},
    query::{DryRun, Query},
    read::{self, Reader, View, WatchOptions, watch_lines},
    registry::Resource,
    request::User,
    route::{ResourceRoute, Route},
    schema::OpenApi,
    write::{Change, Writer},
};

/// Everything a request needs.
pub(crate) struct Api {
    pub(crate) reader: Reader,
    pub(crate) writer: Arc<Writer>,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) metrics: Metrics,
    pub(crate) proxy: NodeProxy,
    pub(crate) session_signer: SessionSigner,
    /// Which address of a node is dialled: the first that it has.
    pub(crate) node_address_types: Vec<NodeAddressType>,
    pub(crate) open_api: OpenApi,
    /// What waits for the end of sessions.
    pub(crate) sessions: TaskTracker,
    /// Changes that were begun.
    pub(crate) changes: TaskTracker,
    pub(crate) gates: FeatureGates,
    pub(crate) clock: Clock,
    pub(crate) in_flight: Arc<InFlight>,
    /// How many lines of our log those may cause who do not say who they are.
    pub(crate) strangers_lines: Mutex<Budget>,
    /// How long a client may take to send a body, and a request at most.
    pub(crate) request_timeout: Duration,
}

/// A request after authentication.
struct Context<'a> {
    user: &'a User,
    method: &'a Method,
    headers: &'a HeaderMap,
    query: &'a Query,
    audit: &'a mut RequestAudit,
    remarks: &'a Remarks,
}

impl<'a> Context<'a> {
    /// Who wants to change what `route` leads to, and how.
    fn change(&self, route: &'a ResourceRoute) -> Result<Change<'a>, Status> {
        apply::check_options(self)?;
        Ok(Change {
            route,
            user: self.user,
            dry_run: DryRun::parse(self.query.all("dryRun"))?,
            options: WriteOptions {
                field_manager: self.query.text("fieldManager"),
                user_agent: text_header(self.headers, header::USER_AGENT),
                tracking: Tracking::ByWriter,
                field_validation: self.query.text("fieldValidation"),
                deletion: None,
            },
            remarks: self.remarks,
        })
    }
}

/// Whose request it is, and what was decided about it.
struct Judged<'a> {
    user: &'a User,
    decision: Decision,
}

/// Why nothing came of a request.
enum Failure {
    Refused(Status),
    Panicked,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

/// What a handler makes of a request.
enum Handled {
    Answer(Answer),
    /// A stream of the node, passed on.
    PassedOn(Response<ProxyBody>),
    /// A connection that became a session of its own.
    Session(ProxyAnswer),
}

impl From<Answer> for Handled {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

impl Service for Api {
    fn identify(&self, chain: &[CertificateDer<'_>]) -> Peer {
        self.authenticator.peer(chain, (self.clock)())
    }

    async fn answer(
        self: Arc<Self>,
        connection: Connection,
        mut request: Request<Incoming>,
    ) -> Response<Body> {
        let asked = Asked::read(&mut request);
        let id = self.name(&connection, &asked);
        if asked.is_read() {
            return self.handle(connection, asked, id, request).await;
        }
        // A change that was begun is carried through with its record, whether or not the client stays to hear
        // of it: nothing stops between admission, the store and the audit log.
        let limit = asked.deadline(self.request_timeout).unwrap_or(Some(self.request_timeout));
        let handled = Arc::clone(&self).handle(connection, asked, id.clone(), request);
        let change = self.changes.spawn(handled);
        let status = match within(limit, change).await {
            Some(Ok(response)) => return response,
            Some(Err(_)) => Status::internal("the request could not be handled"),
            None => too_late(),
        };
        Answer::status(&status).into_response(id.as_str())
    }
}

/// What `future` comes to, unless that takes longer than `limit`.
async fn within<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => timeout(limit, future).await.ok(),
        None => Some(future.await),
    }
}

/// Why a request is refused whatever it is about, though we know who asks.
fn refusal(connection: &Connection, deadline: &Result<Option<Duration>, Status>) -> Option<Status> {
    let without_room = connection.body.as_ref().err();
    without_room.or(deadline.as_ref().err()).cloned()
}

/// Upstream's words for a request whose time is over.
fn too_late() -> Status {
    Status::timeout("request did not complete within the allotted timeout")
}

impl Api {
    /// A request from its headers to its answer, in stages.
    async fn handle(
        self: Arc<Self>,
        connection: Connection,
        asked: Asked,
        id: AuditId,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let started = Instant::now();
        let identified = self.identify(&connection, &asked);
        let deadline = asked.deadline(self.request_timeout);
        let refused = identified.refused.or_else(|| refusal(&connection, &deadline));
        let asking = identified.asking;
        let decision = match &refused {
            None => Some(self.decide(asking.user(), &asked.action, &asked.query)),
            Some(_) => None,
        };
        let begun = self.begin_record(&connection, &asked, &asking, decision.as_ref(), id.clone());
        let mut exchange = match begun.await {
            Ok(audit) => Exchange { id, connection, audit, counted: None, started },
            Err(status) => return self.answer_unrecorded(&asked, &id, started, &status),
        };
        let remarks = Remarks::default();
        let result = match (refused, decision) {
            (None, Some(decision)) => {
                // A change goes to its end; who waits for it has a deadline of their own.
                let limit = deadline.ok().flatten().filter(|_| asked.is_read());
                let judged = Judged { user: asking.user(), decision };
                self.carry_out(&asked, judged, &mut exchange, &remarks, (request, limit)).await
            }
            (refused, _) => Err(Failure::Refused(refused.unwrap_or_else(Status::unauthorized))),
        };
        remarks.notes.tell(&mut exchange.audit);
        if remarks.has_changed() {
            exchange.audit.changed();
        }
        self.conclude(exchange, &asked, result, remarks.warnings.take()).await
    }

    /// Does what is asked, if the user may and not too much is under way.
    async fn carry_out(
        self: &Arc<Self>,
        asked: &Asked,
        Judged { user, decision }: Judged<'_>,
        exchange: &mut Exchange,
        remarks: &Remarks,
        (request, limit): (Request<Incoming>, Option<Duration>),
    ) -> Result<Handled, Failure> {
        // Counted until the answer is sent.
        exchange.counted = self.count(user, &asked.action, asked.lifetime).await?;
        let audit = &mut exchange.audit;
        let carried_out = async {
            Self::allow(user, &asked.action, &decision)?;
            audit.allowed().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let Asked { method, headers, query, .. } = asked;
            let context = Context { user, method, headers, query, audit, remarks };
            self.dispatch(&asked.route, &asked.path, context, request).await
        };
        match within(limit, AssertUnwindSafe(carried_out).catch_unwind()).await {
            Some(Ok(result)) => Ok(result?),
            None => Err(Failure::Refused(too_late())),
            // The hook of the process has logged where; the client learns that.
            Some(Err(_)) => Err(Failure::Panicked),
        }
    }

    /// By what name it is on record.
    fn name(&self, connection: &Connection, asked: &Asked) -> AuditId {
        let peer = if connection.peer.is_trusted_proxy((self.clock)()) {
            audit::Peer::TrustedFrontProxy
        } else {
            audit::Peer::Direct
        };
        choose_id(&asked.headers, peer)
    }

    async fn begin_record(
        &self,
        connection: &Connection,
        asked: &Asked,
        asking: &Asking,
        decision: Option<&Decision>,
        id: AuditId,
    ) -> Result<RequestAudit, Status> {
        let source: [IpAddr; 1] = [connection.address.ip()];
        let facts = RequestFacts {
            id,
            user: &asking.caller,
            impersonated: asking.acting_as.as_deref(),
            action: &asked.action,
            decision,
            uri: &asked.uri,
            source_ips: &source,
            user_agent: text_header(&asked.headers, header::USER_AGENT),
            lifetime: asked.lifetime,
        };
        let begun = self.recorder.begin(facts).await;
        begun.map_err(|error| Status::unavailable(error.to_string()))
    }

    async fn dispatch(
        self: &Arc<Self>,
        route: &Route,
        path: &str,
        context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Handled, Status> {
        let route = match route {
            Route::Path => return self.path(path, &context).await.map(Handled::from),
            Route::Resource(route) => route,
        };
        if route.subresource.is_empty() {
            self.resource(route, context, request).await.map(Handled::from)
        } else {
            Box::pin(self.subresource(route, context, request)).await
        }
    }

    async fn resource(
        self: &Arc<Self>,
        route: &ResourceRoute,
        context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let verb = route.verb(context.method, context.query.flag("watch"));
        let method_fits = matches!(
            (verb, context.method),
            ("get" | "list" | "watch", &Method::GET | &Method::HEAD)
                | ("create", &Method::POST)
                | ("update", &Method::PUT)
                | ("patch", &Method::PATCH)
                | ("delete" | "deletecollection", &Method::DELETE)
        );
        let name_fits = match verb {
            "create" => route.name.is_empty(),
            "update" | "patch" => !route.name.is_empty(),
            _ => true,
        };
        if !method_fits || !name_fits || !route.resource.verbs.contains(&verb) {
            return Err(Status::method_not_allowed(route.status_target(), verb));
        }
        if let Some(review) = route.resource.review {
            return Box::pin(self.review(route, review, context, request)).await;
        }
        let now = (self.clock)();
        match verb {
            "get" => {
                let view = view(&context, route.resource)?;
                self.reader.wait_for(read::From::parse_get(context.query)?).await?;
                let object = self.reader.get(route)?;
                context.audit.gives([&object.key].into_iter());
                context.audit.response_object(|| object.document());
                Ok(view.answer(http::StatusCode::OK, view.object(route.resource, &object, now)))
            }
            "list" => {
                let view = view(&context, route.resource)?;
                let Context { user, query, audit, .. } = context;
                let given = |page: &[Arc<CachedObject>]| audit.gives(keys(page));
                self.reader.list(user, route, query, (&view, now), given).await
            }
            "watch" => {
                let options = WatchOptions::parse(route, context.query)?;
                let clock = Arc::clone(&self.clock);
                let view = view(&context, route.resource)?;
                if route.resource.is(&SECRETS) {
                    context.audit.gives(keys(&self.reader.seen_by(route.resource, &options)?));
                }
                let lines = watch_lines(&self.reader, route.resource, options, view, clock);
                Ok(Answer { content_type: view.stream_type(), ..Answer::stream(lines.await?) })
            }
            // Boxed, as are the others that do much: reads would carry the room for them around.
            _ => Box::pin(self.write(route, verb, context, request)).await,
        }
    }
}

fn keys(objects: &[Arc<CachedObject>]) -> impl Iterator<Item = &ObjectKey> {
    objects.iter().map(|object| &object.key)
}

fn view(context: &Context<'_>, resource: &'static Resource) -> Result<View, Status> {
    View::parse(context.headers, context.query.text("includeObject"), resource)
}

fn text_header(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
