//! One request from its headers to its answer: who asks, may they, what happens, what is recorded.

mod access;
mod apply;
mod asked;
mod health;
mod nonresource;
mod reviews;
mod subresources;
mod write;

use std::{
    net::IpAddr,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use hyper::body::Incoming;
use rustls_pki_types::CertificateDer;
use tokio::{sync::oneshot, time::timeout};
use tokio_util::task::TaskTracker;
use waybill_api::{gates::FeatureGates, status::Status};
use waybill_core::id::AuditId;
use waybill_stream::splice::StreamEnd;

pub(crate) use self::nonresource::open_api;
use self::{access::Asking, asked::Asked};
use crate::{
    admission::{Remarks, Tracking, WriteOptions},
    audit::{
        self, Budget, Lifetime, Recorder, RequestAudit, RequestFacts, ResponseStatus, choose_id,
    },
    authn::{Authenticator, Peer},
    authz::Authorizer,
    clock::Clock,
    http::{Answer, AnswerBody, Body, Connection, InFlight, Service, compress, keeping},
    metrics::Metrics,
    proxy::{NodeProxy, ProxyAnswer, address::NodeAddressType, session::SessionSigner},
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

/// A response of a node with our name of the request, whatever the node calls it.
fn named(mut response: Response<Body>, audit_id: &str) -> Response<Body> {
    if let Ok(id) = HeaderValue::from_str(audit_id) {
        response.headers_mut().insert("audit-id", id);
    }
    response
}

/// What `future` comes to, unless that takes longer than `limit`.
async fn within<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => timeout(limit, future).await.ok(),
        None => Some(future.await),
    }
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
        mut asked: Asked,
        id: AuditId,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let started = std::time::Instant::now();
        let audit_id = id.to_string();
        let (asking, refused) = self.identify(&connection, &asked);
        let mut audit = match self.begin_record(&connection, &asked, &asking, id).await {
            Ok(audit) => audit,
            Err(status) => {
                let elapsed = started.elapsed();
                self.metrics.observe(&asked.route, &asked.action.verb, status.code(), elapsed);
                return Answer::status(&status).into_response(&audit_id);
            }
        };
        let deadline = asked.deadline(self.request_timeout);
        let refused = refused.or_else(|| deadline.as_ref().err().cloned());
        // A change goes to its end; who waits for it has a deadline of their own.
        let limit = deadline.ok().flatten().filter(|_| asked.is_read());
        // Counted until the answer is sent.
        let counted = match refused {
            Some(status) => Err(status),
            None => self.count(asking.user(), &asked.action, asked.lifetime).await,
        };
        let remarks = Remarks::default();
        let result = match &counted {
            Ok(_) => {
                let carried_out =
                    self.carry_out(&mut asked, asking.user(), &mut audit, &remarks, request);
                match within(limit, AssertUnwindSafe(carried_out).catch_unwind()).await {
                    Some(Ok(result)) => result,
                    None => Err(too_late()),
                    Some(Err(_)) => {
                        // The hook of the process has logged where; the client learns that.
                        audit.panicked();
                        let status = Status::internal("the request could not be handled");
                        return Answer::status(&status).into_response(&audit_id);
                    }
                }
            }
            Err(status) => Err(status.clone()),
        };
        remarks.notes.tell(&mut audit);
        let observe = |code: u16| {
            self.metrics.observe(&asked.route, &asked.action.verb, code, started.elapsed());
        };
        let (answer, outcome) = match result {
            Ok(Handled::Upgraded(response)) => {
                let code = response.status().as_u16();
                observe(code);
                audit.response_started(code).await;
                let response =
                    response.map(|body| keeping(body, (audit, counted, connection.open)));
                return named(response, &audit_id);
            }
            Ok(Handled::Session(answer)) => {
                let code = answer.response.status().as_u16();
                observe(code);
                audit.response_started(code).await;
                self.follow_session(answer.ended, (audit, counted, connection.open));
                return named(answer.response, &audit_id);
            }
            Ok(Handled::Answer(answer)) => {
                let outcome = ResponseStatus::code(answer.code.as_u16());
                (answer, outcome)
            }
            Err(status) => {
                audit.response_object(|| serde_json::to_value(&status).unwrap_or_default());
                (Answer::status(&status), ResponseStatus::from(&status))
            }
        };
        let answer = answer.with_warnings(remarks.warnings.take());
        observe(answer.code.as_u16());
        let response = finish(answer, outcome, audit, &asked, &audit_id).await;
        match counted {
            Ok(Some(counted)) => response.map(|body| keeping(body, counted)),
            _ => response,
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
        id: AuditId,
    ) -> Result<RequestAudit, Status> {
        let source: [IpAddr; 1] = [connection.address.ip()];
        let facts = RequestFacts {
            id,
            user: &asking.caller,
            impersonated: asking.acting_as.as_ref(),
            action: &asked.action,
            uri: &asked.uri,
            source_ips: &source,
            user_agent: text_header(&asked.headers, header::USER_AGENT),
            lifetime: asked.lifetime,
        };
        let begun = self.recorder.begin(facts).await;
        begun.map_err(|error| Status::unavailable(error.to_string()))
    }

    /// Does what is asked, if the user may.
    async fn carry_out(
        self: &Arc<Self>,
        asked: &mut Asked,
        user: &User,
        audit: &mut RequestAudit,
        remarks: &Remarks,
        request: Request<Incoming>,
    ) -> Result<Handled, Status> {
        asked.narrow_to_name();
        self.permit(user, &asked.action, &asked.query, audit).await?;
        let Asked { method, headers, query, .. } = &*asked;
        let context = Context { user, method, headers, query, audit, remarks };
        self.dispatch(&asked.route, &asked.path, context, request).await
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
        if let Some(review) = route.resource.review {
            return Box::pin(self.review(route, review, context, request)).await;
        }
        let now = (self.clock)();
        match verb {
            "get" => {
                let view = view(&context, route.resource)?;
                self.reader.wait_for(read::From::parse_get(context.query)?).await?;
                let object = self.reader.get(route)?;
                context.audit.response_object(|| object.document());
                Ok(view.answer(http::StatusCode::OK, view.object(route.resource, &object, now)))
            }
            "list" => {
                let view = view(&context, route.resource)?;
                self.reader.list(context.user, route, context.query, &view, now).await
            }
            "watch" => {
                let options = WatchOptions::parse(route, context.query)?;
                let clock = Arc::clone(&self.clock);
                let view = view(&context, route.resource)?;
                let lines = watch_lines(&self.reader, route.resource, options, view, clock);
                Ok(Answer { content_type: view.stream_type(), ..Answer::stream(lines.await?) })
            }
            // Boxed, as are the others that do much: reads would carry the room for them around.
            _ => Box::pin(self.write(route, verb, context, request)).await,
        }
    }
}

async fn finish(
    answer: Answer,
    outcome: ResponseStatus,
    mut audit: RequestAudit,
    asked: &Asked,
    audit_id: &str,
) -> Response<Body> {
    let code = answer.code.as_u16();
    if matches!(answer.body, AnswerBody::Stream(_)) && asked.lifetime == Lifetime::LongRunning {
        audit.response_started(code).await;
        // The end of the stream is the end of the record.
        return answer.into_response(audit_id).map(|body| keeping(body, audit));
    }
    let answer = match audit.complete(outcome).await {
        Ok(()) => answer,
        Err(_) if code >= 400 => answer,
        Err(error) => Answer::status(&Status::unavailable(format!(
            "the request was carried out, but could not be recorded yet: {error}"
        ))),
    };
    let (answer, compressed) = compress(answer, &asked.headers);
    let mut response = answer.into_response(audit_id);
    if compressed {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

fn view(context: &Context<'_>, resource: &'static Resource) -> Result<View, Status> {
    View::parse(context.headers, context.query.text("includeObject"), resource)
}

fn text_header(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
