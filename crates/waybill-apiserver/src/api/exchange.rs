//! The end of a request that is on record: its answer is sent, and its record says so.

use std::time::Instant;

use http::{HeaderMap, HeaderValue, Response, header};
use tokio::sync::oneshot;
use waybill_api::status::Status;
use waybill_core::id::AuditId;
use waybill_stream::splice::StreamEnd;

use super::{Api, Failure, Handled, asked::Asked};
use crate::{
    audit::{Lifetime, RequestAudit, ResponseStatus},
    http::{
        AUDIT_ID, Answer, AnswerBody, AnswerPlace, Body, Connection, InFlightRequest, compress,
    },
    proxy::{ProxyAnswer, ProxyBody},
};

/// A request on its way to its answer.
pub(super) struct Exchange {
    /// By what name it is on record.
    pub(super) id: AuditId,
    pub(super) connection: Connection,
    pub(super) audit: RequestAudit,
    pub(super) counted: Option<InFlightRequest>,
    pub(super) started: Instant,
}

impl Api {
    /// The answer to a request that came to `result`.
    pub(super) async fn conclude(
        &self,
        exchange: Exchange,
        asked: &Asked,
        result: Result<Handled, Failure>,
        warnings: Vec<String>,
    ) -> Response<Body> {
        let (answer, outcome) = match result {
            Ok(Handled::Answer(answer)) => {
                let outcome = ResponseStatus::code(answer.code.as_u16());
                (answer, outcome)
            }
            Ok(Handled::PassedOn(response)) => {
                return self.pass_on(exchange, asked, response).await;
            }
            Ok(Handled::Session(answer)) => {
                return self.open_session(exchange, asked, answer).await;
            }
            Err(Failure::Refused(status)) => {
                (Answer::status(&status), ResponseStatus::from(&status))
            }
            Err(Failure::Panicked) => {
                exchange.audit.panicked();
                let status = Status::internal("the request could not be handled");
                return Answer::status(&status).into_response(exchange.id.as_str());
            }
        };
        let answer = answer.with_warnings(warnings);
        let lasts = asked.lifetime == Lifetime::LongRunning;
        if lasts && matches!(answer.body, AnswerBody::Stream(_)) {
            self.begin_stream(exchange, asked, answer).await
        } else {
            self.finish(exchange, asked, answer, outcome).await
        }
    }

    /// The answer to a request that cannot be recorded, and is not carried out for that.
    pub(super) fn answer_unrecorded(
        &self,
        asked: &Asked,
        id: &AuditId,
        started: Instant,
        status: &Status,
    ) -> Response<Body> {
        self.metrics.observe(&asked.route, &asked.action.verb, status.code(), started.elapsed());
        Answer::status(status).into_response(id.as_str())
    }

    fn observe(&self, exchange: &Exchange, asked: &Asked, code: u16) {
        let elapsed = exchange.started.elapsed();
        self.metrics.observe(&asked.route, &asked.action.verb, code, elapsed);
    }

    /// An answer of a node. The record ends with its body.
    async fn pass_on(
        &self,
        mut exchange: Exchange,
        asked: &Asked,
        response: Response<ProxyBody>,
    ) -> Response<Body> {
        let code = response.status().as_u16();
        self.observe(&exchange, asked, code);
        exchange.audit.response_started(code).await;
        let Exchange { id, audit, counted, connection, .. } = exchange;
        let kept = (audit, counted, connection.open);
        named(response.map(|body| Body::from(body).keeping(kept)), &id)
    }

    /// The connection becomes that of a session. The record ends with the session, which counts until then.
    async fn open_session(
        &self,
        mut exchange: Exchange,
        asked: &Asked,
        ProxyAnswer { response, ended }: ProxyAnswer,
    ) -> Response<Body> {
        let code = response.status().as_u16();
        self.observe(&exchange, asked, code);
        exchange.audit.response_started(code).await;
        let Exchange { id, audit, counted, connection, .. } = exchange;
        self.follow_session(ended, (audit, counted, connection.open));
        named(response.map(Body::from), &id)
    }

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

    /// A watch. The end of the stream is the end of the record.
    async fn begin_stream(
        &self,
        mut exchange: Exchange,
        asked: &Asked,
        answer: Answer,
    ) -> Response<Body> {
        let code = answer.code.as_u16();
        self.observe(&exchange, asked, code);
        exchange.audit.response_started(code).await;
        let Exchange { id, audit, counted, .. } = exchange;
        answer.into_response(id.as_str()).map(|body| body.keeping((audit, counted)))
    }

    /// An answer that has an end. It is on record as what the client gets.
    async fn finish(
        &self,
        mut exchange: Exchange,
        asked: &Asked,
        answer: Answer,
        outcome: ResponseStatus,
    ) -> Response<Body> {
        let (mut answer, mut compressed) = compress(answer, &asked.headers);
        let mut outcome = outcome;
        let place = place(&exchange.connection, asked, &answer).unwrap_or_else(|status| {
            (answer, outcome, compressed) =
                (Answer::status(&status), ResponseStatus::from(&status), false);
            AnswerPlace::default()
        });
        if let AnswerBody::Bytes(bytes) = &answer.body
            && answer.code.as_u16() >= 400
        {
            let told = || serde_json::from_slice(bytes).unwrap_or_default();
            exchange.audit.response_object(told);
        }
        let code = answer.code.as_u16();
        self.observe(&exchange, asked, code);
        let Exchange { id, audit, counted, connection, .. } = exchange;
        let answer = match audit.complete(outcome).await {
            Ok(()) => answer,
            Err(_) if code >= 400 => answer,
            Err(error) => {
                compressed = false;
                Answer::status(&Status::unavailable(format!(
                    "the request was carried out, but could not be recorded yet: {error}"
                )))
            }
        };
        // Administrators, who are not counted, do not wait for others.
        let large = match (&answer.body, &counted) {
            (AnswerBody::Pieces(_), Some(_)) => Some(connection.pace.begin_large()),
            _ => None,
        };
        let mut response = answer.into_response(id.as_str());
        response = response.map(|body| place.hold(body).at(connection.pace));
        if compressed {
            mark_compressed(response.headers_mut());
        }
        match counted {
            Some(counted) => response.map(|body| body.keeping((counted, large))),
            None => response,
        }
    }
}

/// Room for an answer that is whole, on connections where several wait at once.
fn place(connection: &Connection, asked: &Asked, answer: &Answer) -> Result<AnswerPlace, Status> {
    match (&connection.room, &answer.body) {
        (Some(room), AnswerBody::Bytes(bytes)) => room.for_answer(&asked.method, bytes.len()),
        _ => Ok(AnswerPlace::default()),
    }
}

fn mark_compressed(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// A response of a node with our name of the request, whatever the node calls it.
fn named(mut response: Response<Body>, id: &AuditId) -> Response<Body> {
    if let Ok(id) = HeaderValue::from_str(id.as_str()) {
        response.headers_mut().insert(AUDIT_ID, id);
    }
    response
}
