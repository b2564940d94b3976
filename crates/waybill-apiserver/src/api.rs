//! One request from its headers to its answer: who asks, may they, what happens, what is recorded.

mod health;
mod nonresource;
mod pods;
mod reviews;
mod write;

use std::{
    net::IpAddr,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use hyper::body::Incoming;
use rustls_pki_types::CertificateDer;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use waybill_api::{gates::FeatureGates, status::Status};
use waybill_core::chain::Chain;
use waybill_stream::{long_target, splice::StreamEnd};

pub(crate) use self::nonresource::open_api;
use crate::{
    audit::{
        self, Budget, Lifetime, Recorder, RequestAudit, RequestFacts, ResponseStatus, choose_id,
        is_stranger,
    },
    authn::{Authenticated, Authenticator, Peer, front_proxy::strip, impersonation},
    authz::{Authorizer, FieldTerm, MASTERS_GROUP, forbidden},
    http::{
        Answer, AnswerBody, Body, Connection, InFlight, InFlightRequest, RequestKind, Service,
        compress, keeping,
    },
    metrics::Metrics,
    proxy::{NodeProxy, ProxyAnswer, address::NodeAddressType, session::SessionSigner},
    query::Query,
    read::{self, Reader, View, WatchOptions, watch_lines},
    request::{Action, Target, User},
    rest::{Clock, Rest},
    route::{ResourceRoute, Route},
    schema::OpenApi,
    selector::field::FieldSelector,
};

/// Everything a request needs.
pub(crate) struct Api {
    pub(crate) reader: Reader,
    pub(crate) rest: Rest,
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
    pub(crate) gates: FeatureGates,
    pub(crate) clock: Clock,
    pub(crate) in_flight: Arc<InFlight>,
    /// How many lines of our log those may cause who do not say who they are.
    pub(crate) strangers_lines: Mutex<Budget>,
    /// How long a client may take to send a body.
    pub(crate) request_timeout: Duration,
}

/// A request after authentication.
struct Context<'a> {
    user: &'a User,
    method: &'a Method,
    headers: &'a HeaderMap,
    query: &'a Query,
    audit: &'a mut RequestAudit,
}

/// What a handler makes of a request.
enum Handled {
    Answer(Answer),
    /// A stream of the node, passed on.
    Upgraded(Response<Body>),
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
        let started = std::time::Instant::now();
        let (path, raw_query) =
            (request.uri().path().to_owned(), long_target::query(&request).to_owned());
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
        let lifetime = lifetime(&action, &query);
        let authenticated = self.authenticate(&connection, &headers, &path);
        let audit_peer = if connection.peer.is_trusted_proxy((self.clock)()) {
            audit::Peer::TrustedFrontProxy
        } else {
            audit::Peer::Direct
        };
        if authenticated.as_ref().is_ok_and(|found| !is_stranger(&found.user)) {
            connection.open.note_known();
        }
        let nobody = User::default();
        let user = authenticated.as_ref().map_or(&nobody, |found| &found.user);
        let acting_as = match &authenticated {
            Ok(found) => self.acting_as(&found.user, &headers),
            Err(_) => Ok(None),
        };
        let source: [IpAddr; 1] = [connection.address.ip()];
        let facts = RequestFacts {
            id: choose_id(&headers, audit_peer),
            user,
            impersonated: acting_as.as_ref().ok().and_then(Option::as_ref),
            action: &action,
            uri: &uri,
            source_ips: &source,
            user_agent: text_header(&headers, header::USER_AGENT),
            lifetime,
        };
        let mut audit = match self.recorder.begin(facts).await {
            Ok(audit) => audit,
            Err(error) => {
                let status = Status::unavailable(error.to_string());
                self.metrics.observe(&route, &action.verb, status.code(), started.elapsed());
                return Answer::status(&status).into_response("");
            }
        };
        let audit_id = audit.id().to_string();
        // Counted until the answer is sent.
        let counted = match (&authenticated, &acting_as) {
            (Ok(found), Ok(other)) => {
                let user = other.as_ref().unwrap_or(&found.user);
                self.count(user, &action, lifetime)
            }
            _ => Ok(None),
        };
        let result = match (&authenticated, &acting_as) {
            (Err(status), _) | (_, Err(status)) => Err(status.clone()),
            (Ok(_), Ok(_)) if counted.is_err() => Err(Status::too_many_requests()),
            (Ok(found), Ok(other)) => {
                let user = other.as_ref().unwrap_or(&found.user);
                narrow_to_name(&mut action, &query);
                match self.permit(user, &action, &query, &mut audit).await {
                    Ok(()) => {
                        let context = Context {
                            user,
                            method: &method,
                            headers: &headers,
                            query: &query,
                            audit: &mut audit,
                        };
                        let handling = self.dispatch(&route, &path, context, request);
                        match AssertUnwindSafe(handling).catch_unwind().await {
                            Ok(result) => result,
                            Err(_) => {
                                // The hook of the process has logged where; the client learns that.
                                audit.panicked();
                                let status = Status::internal("the request could not be handled");
                                return Answer::status(&status).into_response(&audit_id);
                            }
                        }
                    }
                    Err(status) => Err(status),
                }
            }
        };
        let answer = match result {
            Ok(Handled::Upgraded(response)) => {
                let code = response.status().as_u16();
                self.metrics.observe(&route, &action.verb, code, started.elapsed());
                audit.response_started(code).await;
                return response.map(|body| keeping(body, (audit, counted, connection.open)));
            }
            Ok(Handled::Session(answer)) => {
                let code = answer.response.status().as_u16();
                self.metrics.observe(&route, &action.verb, code, started.elapsed());
                audit.response_started(code).await;
                self.follow_session(answer.ended, (audit, counted, connection.open));
                return answer.response;
            }
            Ok(Handled::Answer(answer)) => answer,
            Err(status) => Answer::status(&status),
        };
        self.metrics.observe(&route, &action.verb, answer.code.as_u16(), started.elapsed());
        let response = finish(answer, audit, &headers, &audit_id, lifetime).await;
        match counted {
            Ok(Some(counted)) => response.map(|body| keeping(body, counted)),
            _ => response,
        }
    }
}

impl Api {
    fn authenticate(
        &self,
        connection: &Connection,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<Authenticated, Status> {
        let now = (self.clock)();
        self.authenticator.authenticate(&connection.peer, headers, path, now).map_err(|error| {
            let lines = &mut self.strangers_lines.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(left_out) = lines.take_line(now) {
                let (address, error) = (connection.address, Chain(&error));
                tracing::info!(%address, %error, left_out, "a client could not be authenticated");
            }
            Status::unauthorized()
        })
    }

    /// Whom the caller acts for, if they may; everything below sees only that user.
    fn acting_as(&self, caller: &User, headers: &HeaderMap) -> Result<Option<User>, Status> {
        let asked = impersonation::asked_for(headers);
        let Some(asked) = asked.map_err(|error| Status::bad_request(error.to_string()))? else {
            return Ok(None);
        };
        for need in &asked.needs {
            self.allow(caller, need, &[])?;
        }
        Ok(Some(asked.user))
    }

    /// Whether the request may be carried out: they may do it, and it is or can be recorded.
    async fn permit(
        &self,
        user: &User,
        action: &Action,
        query: &Query,
        audit: &mut RequestAudit,
    ) -> Result<(), Status> {
        self.authorize(user, action, query)?;
        audit.allowed().await.map_err(|error| Status::unavailable(error.to_string()))
    }

    /// Counts a request about a resource; an error if there are too many. Probes and discovery, and
    /// administrators are not counted.
    fn count(
        &self,
        user: &User,
        action: &Action,
        lifetime: Lifetime,
    ) -> Result<Option<InFlightRequest>, Status> {
        let is_path = matches!(action.target, Target::Path(_));
        let is_admin = user.groups.iter().any(|group| group == MASTERS_GROUP);
        if is_path || is_admin {
            return Ok(None);
        }
        let kind = match (lifetime, action.verb.as_str()) {
            (Lifetime::LongRunning, _) => RequestKind::Lasting,
            (Lifetime::Short, "get" | "list" | "watch") => RequestKind::Reading,
            (Lifetime::Short, _) => RequestKind::Mutating,
        };
        let counted = self.in_flight.begin(&user.name, kind);
        counted.map(Some).ok_or_else(Status::too_many_requests)
    }

    fn authorize(&self, user: &User, action: &Action, query: &Query) -> Result<(), Status> {
        let selector = FieldSelector::parse(query.text("fieldSelector")).unwrap_or_default();
        self.allow(user, action, &FieldTerm::all_of(&selector))
    }

    fn allow(&self, user: &User, action: &Action, terms: &[FieldTerm<'_>]) -> Result<(), Status> {
        let decision = self.authorizer.authorize(user, action, terms);
        if decision.is_allowed() {
            return Ok(());
        }
        let message = forbidden::message(user, action, decision.reason());
        let target = match &action.target {
            Target::Resource(target) => waybill_api::status::Target {
                group: &target.group,
                resource: &target.resource,
                name: &target.name,
            },
            Target::Path(_) => waybill_api::status::Target { group: "", resource: "", name: "" },
        };
        Err(Status::forbidden(target, message))
    }

    /// The record of a session ends with the session, and it counts until then: both are `kept`.
    fn follow_session(
        &self,
        ended: Option<oneshot::Receiver<StreamEnd>>,
        kept: impl Send + 'static,
    ) {
        let Some(ended) = ended else { return };
        self.sessions.spawn(async move {
            let _ = ended.await;
            drop(kept);
        });
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
        if !route.resource.is_stored() {
            return Box::pin(self.review(route, context, request)).await;
        }
        let now = (self.clock)();
        match verb {
            "get" => {
                let view = view(&context)?;
                self.reader.wait_for(read::From::parse_get(context.query)?).await?;
                let object = self.reader.get(route)?;
                Ok(Answer::json(http::StatusCode::OK, view.object(route.resource, &object, now)))
            }
            "list" => {
                let view = view(&context)?;
                self.reader.list(context.user, route, context.query, &view, now).await
            }
            "watch" => {
                let options = WatchOptions::parse(route, context.query)?;
                let clock = Arc::clone(&self.clock);
                let view = view(&context)?;
                let lines = watch_lines(&self.reader, route.resource, options, view, clock);
                Ok(Answer::stream(lines.await?))
            }
            // Boxed, as are the others that do much: reads would carry the room for them around.
            _ => Box::pin(self.write(route, verb, context, request)).await,
        }
    }
}

async fn finish(
    answer: Answer,
    mut audit: RequestAudit,
    request: &HeaderMap,
    audit_id: &str,
    lifetime: Lifetime,
) -> Response<Body> {
    let code = answer.code.as_u16();
    if matches!(answer.body, AnswerBody::Stream(_)) && lifetime == Lifetime::LongRunning {
        audit.response_started(code).await;
        // The end of the stream is the end of the record.
        return answer.into_response(audit_id).map(|body| keeping(body, audit));
    }
    let answer = match audit.complete(ResponseStatus::code(code)).await {
        Ok(()) => answer,
        Err(_) if code >= 400 => answer,
        Err(error) => Answer::status(&Status::unavailable(format!(
            "the request was carried out, but could not be recorded yet: {error}"
        ))),
    };
    let (answer, compressed) = compress(answer, request);
    let mut response = answer.into_response(audit_id);
    if compressed {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

fn view(context: &Context<'_>) -> Result<View, Status> {
    View::parse(context.headers, context.query.text("includeObject"))
}

/// Watches, sessions and followed logs last; everything else is over soon.
fn lifetime(action: &Action, query: &Query) -> Lifetime {
    let long = match &action.target {
        Target::Resource(target) => match target.subresource.as_str() {
            "attach" | "exec" | "portforward" => true,
            "log" => query.flag("follow"),
            _ => action.verb == "watch",
        },
        Target::Path(_) => false,
    };
    if long { Lifetime::LongRunning } else { Lifetime::Short }
}

/// A list or watch of one name is judged as being about that name, as in Kubernetes.
fn narrow_to_name(action: &mut Action, query: &Query) {
    if let Target::Resource(target) = &mut action.target
        && target.name.is_empty()
        && matches!(action.verb.as_str(), "list" | "watch" | "deletecollection")
        && let Ok(selector) = FieldSelector::parse(query.text("fieldSelector"))
        && let Some(name) = selector.exact("metadata.name")
    {
        target.name = name.to_owned();
    }
}

fn text_header(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
