//! Serves records to gates, which ask in the name of whoever may see them.
//!
//! All pods of a cluster reach this port, so nothing is said to anybody without a token of a gate for exactly this node. The
//! certificate is the agent's own and stands in the node's ConfigMap, which the agent of that node alone can write.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;
use waybill_api::stock::{KeySet, RecordsEndpoint, encode_base64url};

use super::{Records, RecordsQuery, nanoseconds};
use crate::{
    agent::AgentConfig,
    gate::tls::{Tls, TlsError},
    token::may_read,
    unproven::Unproven,
};

/// What agents are called in their certificates.
pub(crate) const SERVER_NAME: &str = "waybill-agent";

/// How long a certificate is good, in seconds. It is made anew every half day.
const CERTIFICATE_SECONDS: u64 = 14 * 24 * 60 * 60;

/// It starts this long before it is made, for gates whose clocks are late.
const SKEW_SECONDS: u64 = 5 * 60;

/// How many may be connected at once.
const CONNECTIONS: usize = 32;

/// How long one may take for everything.
const CONVERSATION: Duration = Duration::from_secs(15);

/// How much of a request is read ahead; a token has a few hundred bytes.
const BUFFER: usize = 16 << 10;

/// What answers gates.
pub(crate) struct RecordsServer {
    records: Arc<Records>,
    tls: Tls,
    key: KeyPair,
    address: SocketAddr,
    config: AgentConfig,
}

/// Why records are not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is not ours, or not free.
    #[error("cannot listen on {listen}")]
    Listen {
        /// Where.
        listen: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is no certificate.
    #[error("a certificate could not be made")]
    Certificate(#[from] rcgen::Error),
    /// It is not usable.
    #[error("the certificate is not usable")]
    Tls(#[from] TlsError),
}

impl RecordsServer {
    /// Listens, and returns the listener for [`Self::serve`].
    pub(in crate::agent) async fn bind(
        listen: SocketAddr,
        records: Arc<Records>,
        config: &AgentConfig,
    ) -> Result<(Arc<Self>, TcpListener), ServeError> {
        let failed = |source| ServeError::Listen { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (tls, key, config) = (Tls::default(), KeyPair::generate()?, config.clone());
        let server = Self { records, tls, key, address, config };
        server.renew()?;
        Ok((Arc::new(server), listener))
    }

    /// Makes a new certificate of the same key, so that one who still believes the certificate before believes this one, too.
    pub(in crate::agent) fn renew(&self) -> Result<RecordsEndpoint, ServeError> {
        let now = nanoseconds((self.config.clock)()) / 1_000_000_000;
        let certificate = certificate(&self.key, now)?;
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der()).into();
        let shown = encode_base64url(&certificate);
        self.tls.show(vec![certificate], key)?;
        Ok(RecordsEndpoint { address: self.address.to_string(), certificate: shown })
    }

    /// Answers, for ever. Each connection is one question.
    pub(in crate::agent) async fn serve(self: Arc<Self>, listener: TcpListener) {
        let (room, tasks) = (Unproven::new(CONNECTIONS), TaskTracker::new());
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (place, _) = room.admit();
                    let conversation = timeout(CONVERSATION, Arc::clone(&self).converse(stream));
                    tasks.spawn(async move { place.hold(conversation).await });
                }
                // Out of file descriptors, most likely.
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn converse(self: Arc<Self>, stream: TcpStream) {
        let Some(config) = self.tls.config() else { return };
        let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
        let respond = service_fn(move |request: Request<Incoming>| {
            let server = Arc::clone(&self);
            async move { Ok::<_, Infallible>(server.answer(&request).await) }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .max_buf_size(BUFFER)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), respond);
        if let Err(error) = serving.await {
            tracing::debug!(%error, "a connection for records broke off");
        }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let status = |status: StatusCode| answer(status, Bytes::from_static(b"{}"));
        if (request.method(), request.uri().path()) != (&Method::GET, "/sessions") {
            return status(StatusCode::NOT_FOUND);
        }
        let bearer = request.headers().get(header::AUTHORIZATION);
        let bearer = bearer.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        if !bearer.is_some_and(|token| self.may_read(token)) {
            return status(StatusCode::UNAUTHORIZED);
        }
        let query = parse(request.uri().query().unwrap_or_default());
        let records = Arc::clone(&self.records);
        // It reads many small files.
        let told = tokio::task::spawn_blocking(move || records.newest(&query)).await;
        match told.map(|told| serde_json::to_vec(&told)) {
            Ok(Ok(text)) => answer(StatusCode::OK, Bytes::from(text)),
            _ => status(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    /// Whether a gate whose key is known here signed it, for this node.
    fn may_read(&self, token: &str) -> bool {
        let file = self.records.directory.layout().keys();
        let keys = std::fs::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let keys: KeySet = keys.unwrap_or_default();
        let now = nanoseconds((self.config.clock)()) / 1_000_000_000;
        may_read(token, &keys, &self.config.node, i64::try_from(now).unwrap_or(i64::MAX))
    }
}

/// Names and numbers need no escapes, so what has one names nothing.
fn parse(query: &str) -> RecordsQuery {
    let mut parsed = RecordsQuery::default();
    for (name, value) in query.split('&').filter_map(|part| part.split_once('=')) {
        match name {
            "namespace" => parsed.namespace = Some(value.to_owned()),
            "pod" => parsed.pod = Some(value.to_owned()),
            "sinceNs" => parsed.since_ns = value.parse().ok(),
            "limit" => parsed.limit = value.parse().ok(),
            _ => {}
        }
    }
    parsed
}

fn certificate(key: &KeyPair, now: u64) -> Result<CertificateDer<'static>, rcgen::Error> {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |second: u64| epoch + Duration::from_secs(second);
    let mut params = CertificateParams::new([SERVER_NAME.to_owned()])?;
    params.not_before = at(now.saturating_sub(SKEW_SECONDS));
    params.not_after = at(now.saturating_add(CERTIFICATE_SECONDS));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, SERVER_NAME);
    Ok(params.self_signed(key)?.der().clone())
}

fn answer(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}
