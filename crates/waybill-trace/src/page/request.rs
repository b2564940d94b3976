//! What happens to one request, top to bottom: by which name were we called, what is asked for, by whom, and then the answer.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, Request, Response, StatusCode,
    header::{COOKIE, HOST, ORIGIN},
};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use jiff::Timestamp;
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use waybill_core::chain::Chain;

use super::{
    access::{Access, Ticket},
    answer::{self, PageBody},
    authority,
    changes::Changes,
    export::{self, Format},
    feed::Feed,
    filter::PageFilter,
    find,
    route::{NoRoute, Route},
    rows::{Facets, ProgramRow, Row, Whole},
};
use crate::{ProcessQuery, SessionQuery, TraceSource, TraceSourceError};

/// More rows than anybody looks through; a shorter time has the rest.
const ROWS: usize = 20_000;

/// So many programs of one session are sent; the rest is in the export.
const PROGRAMS: usize = 50_000;

/// A token is shorter.
const BODY: usize = 256;

/// How long a body may take.
const BODY_PATIENCE: Duration = Duration::from_secs(5);

/// What requests are answered with.
pub(super) struct PageService {
    pub(super) source: Arc<dyn TraceSource>,
    pub(super) feed: Arc<Feed>,
    pub(super) access: Access,
    /// Of our cookie; other servers of this machine have theirs.
    pub(super) cookie: String,
    pub(super) clock: fn() -> Timestamp,
    pub(super) stop: CancellationToken,
}

/// An answer, and whether it was for somebody who is let in.
pub(super) struct Answered {
    pub(super) response: Response<PageBody>,
    pub(super) is_known: bool,
}

/// Why there is no answer.
enum Fault {
    /// The sentence says what is wrong with the request.
    Status(StatusCode, String),
    /// This method is the right one.
    Method(&'static str),
    Source(TraceSourceError),
}

impl Fault {
    fn status(status: StatusCode, sentence: &str) -> Self {
        Self::Status(status, sentence.to_owned())
    }

    fn told(self) -> Response<PageBody> {
        match self {
            Self::Status(status, sentence) => answer::text(status, &(sentence + "\n")),
            Self::Method(allowed) => answer::wrong_method(allowed),
            Self::Source(error) => {
                answer::text(StatusCode::SERVICE_UNAVAILABLE, &format!("{}\n", Chain(&error)))
            }
        }
    }
}

impl From<TraceSourceError> for Fault {
    fn from(error: TraceSourceError) -> Self {
        Self::Source(error)
    }
}

impl PageService {
    /// Answers one request.
    pub(super) async fn answer<B>(&self, request: Request<B>) -> Answered
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (response, is_known) = match self.judged(&request) {
            Ok((Route::Asset(asset), _)) => (answer::asset(asset), false),
            Ok((Route::Open, _)) => self.open(request.into_body()).await,
            Ok((route, query)) => (self.told(route, query).await, true),
            Err(fault) => (fault.told(), false),
        };
        Answered { response: answer::guarded(response), is_known }
    }

    /// What is asked for, if whoever asks may.
    fn judged<B>(&self, request: &Request<B>) -> Result<(Route, String), Fault> {
        let (head, uri) = (request.headers(), request.uri());
        if uri.authority().is_some() || !is_called_by_own_name(head) {
            let sentence = "this page is at 127.0.0.1, [::1] and localhost alone: another name may be a trick of another page";
            return Err(Fault::status(StatusCode::MISDIRECTED_REQUEST, sentence));
        }
        let route = Route::of(request.method(), uri.path()).map_err(|fault| match fault {
            NoRoute::Unknown => {
                Fault::status(StatusCode::NOT_FOUND, "there is nothing here; the page is at /")
            }
            NoRoute::Method if uri.path() == "/api/open" => Fault::Method("POST"),
            NoRoute::Method => Fault::Method("GET"),
        })?;
        if matches!(route, Route::Asset(_)) {
            return Ok((route, String::new()));
        }
        if !is_of_our_page(head) {
            return Err(Fault::status(StatusCode::FORBIDDEN, "only the page itself may ask this"));
        }
        if !route.is_open() && !self.is_visitor(head) {
            let sentence = "open the page with the link that the terminal shows";
            return Err(Fault::status(StatusCode::UNAUTHORIZED, sentence));
        }
        Ok((route, uri.query().unwrap_or_default().to_owned()))
    }

    fn is_visitor(&self, head: &HeaderMap) -> bool {
        let key = head.get("x-waybill-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
        let lines = head.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
        let pairs =
            lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        self.access
            .admits(pairs.filter(|(name, _)| *name == self.cookie).map(|(_, value)| value), key)
    }

    /// Changes a token for access.
    async fn open<B>(&self, body: B) -> (Response<PageBody>, bool)
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let refused = (
            answer::text(StatusCode::UNAUTHORIZED, "this link was used already, or is too old\n"),
            false,
        );
        let Ok(Ok(body)) =
            timeout(BODY_PATIENCE, Box::pin(Limited::new(body, BODY)).collect()).await
        else {
            return (answer::text(StatusCode::BAD_REQUEST, "this is no token\n"), false);
        };
        let body = body.to_bytes();
        match self.access.exchange(str::from_utf8(&body).unwrap_or_default()) {
            Ok(Some(Ticket { cookie, key })) => {
                let cookie = format!("{}={cookie}; Path=/; HttpOnly; SameSite=Strict", self.cookie);
                (answer::ticket(key, &cookie), true)
            }
            Ok(None) => refused,
            Err(_) => (
                answer::text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the machine has no random numbers\n",
                ),
                false,
            ),
        }
    }

    async fn told(&self, route: Route, query: String) -> Response<PageBody> {
        let told = match route {
            Route::Asset(_) | Route::Open => return answer::text(StatusCode::NOT_FOUND, "\n"),
            Route::Facets => self.facets().await,
            Route::Sessions => self.sessions(&query).await,
            Route::Session(name) => self.session(&name).await,
            Route::Processes(name) => self.processes(&name).await,
            Route::Process(name, pid, started) => self.process(&name, pid, started).await,
            Route::Changes => self.changes(&query),
            Route::Export => self.export(&query).await,
        };
        told.unwrap_or_else(Fault::told)
    }

    fn filter(&self, query: &str) -> Result<PageFilter, Fault> {
        PageFilter::parse(query, (self.clock)())
            .map_err(|error| Fault::Status(StatusCode::BAD_REQUEST, error.to_string()))
    }

    async fn facets(&self) -> Result<Response<PageBody>, Fault> {
        let all = SessionQuery { probes: true, ..SessionQuery::default() };
        let list = self.source.sessions(&all).await?;
        Ok(answer::json(&Facets::of(&list.sessions, &list.coverage)))
    }

    async fn sessions(&self, query: &str) -> Result<Response<PageBody>, Fault> {
        let filter = self.filter(query)?;
        // Before they are read: what changes meanwhile is told as a change.
        let mark = self.feed.last();
        let found = find::find(self.source.as_ref(), &filter, ROWS).await?;
        let rows: Vec<_> = found.sessions.iter().rev().map(Row::of).collect();
        let now = (self.clock)().as_microsecond();
        Ok(answer::json(&json!({"mark": mark, "now": now, "more": found.more, "sessions": rows})))
    }

    async fn named(&self, name: &str) -> Result<crate::RecordedSession, Fault> {
        let found = find::named(self.source.as_ref(), name).await?;
        found.ok_or_else(|| {
            Fault::Status(StatusCode::NOT_FOUND, "the record has no such session".to_owned())
        })
    }

    async fn session(&self, name: &str) -> Result<Response<PageBody>, Fault> {
        let session = self.named(name).await?;
        let beside = find::beside(self.source.as_ref(), &session).await?;
        let beside: Vec<_> = beside.iter().map(Row::of).collect();
        let now = (self.clock)().as_microsecond();
        Ok(answer::json(&json!({"now": now, "session": Whole::of(&session), "beside": beside})))
    }

    async fn processes(&self, name: &str) -> Result<Response<PageBody>, Fault> {
        let session = self.named(name).await?;
        let query = ProcessQuery {
            session: Some(session.id),
            limit: Some(PROGRAMS),
            ..ProcessQuery::default()
        };
        let processes = self.source.processes(&query).await?;
        let total = session.programs.max(u64::try_from(processes.len()).unwrap_or(u64::MAX));
        let rows: Vec<_> = processes.iter().map(ProgramRow::of).collect();
        Ok(answer::json(&json!({"total": total, "processes": rows})))
    }

    async fn process(
        &self,
        name: &str,
        pid: u32,
        started: i64,
    ) -> Result<Response<PageBody>, Fault> {
        let session = self.named(name).await?;
        let at = Timestamp::from_microsecond(started).ok();
        let query = ProcessQuery {
            session: Some(session.id),
            since: at,
            until: at,
            ..ProcessQuery::default()
        };
        let found = self.source.processes(&query).await?;
        let found = found.iter().find(|it| it.pid == pid && it.started.as_microsecond() == started);
        let missing =
            || Fault::Status(StatusCode::NOT_FOUND, "the record has no such program".to_owned());
        Ok(answer::json(&ProgramRow::whole(found.ok_or_else(missing)?)))
    }

    fn changes(&self, query: &str) -> Result<Response<PageBody>, Fault> {
        let after = value(query, "after").and_then(|after| after.parse().ok()).unwrap_or(u64::MAX);
        let changes = Changes {
            source: Arc::clone(&self.source),
            feed: Arc::clone(&self.feed),
            filter: self.filter(query)?,
            after,
            clock: self.clock,
            stop: self.stop.clone(),
        };
        Ok(answer::events(changes.stream()))
    }

    async fn export(&self, query: &str) -> Result<Response<PageBody>, Fault> {
        let filter = self.filter(query)?;
        let format =
            value(query, "format").as_deref().and_then(Format::parse).ok_or_else(|| {
                Fault::Status(
                    StatusCode::BAD_REQUEST,
                    "format is json, csv or processes-csv".to_owned(),
                )
            })?;
        let found = find::find(self.source.as_ref(), &filter, usize::MAX).await?;
        let (kind, disposition) = format.headers();
        let pieces = export::pieces(format, Arc::clone(&self.source), found, (self.clock)());
        Ok(answer::download(kind, disposition, pieces))
    }
}

fn value(query: &str, wanted: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
}

/// One `Host`, and ours.
fn is_called_by_own_name(head: &HeaderMap) -> bool {
    let mut hosts = head.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    hosts.next().is_none() && host.is_some_and(authority::is_own)
}

/// Whether our own page asks, as far as the browser tells. Programs that are no browsers tell nothing, and need key and cookie all the same.
fn is_of_our_page(head: &HeaderMap) -> bool {
    let text = |name: &str| head.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(HOST.as_str()).unwrap_or_default();
    text("sec-fetch-site").is_none_or(|site| site == "same-origin")
        && text(ORIGIN.as_str()).is_none_or(|origin| origin.strip_prefix("http://") == Some(host))
}
