//! HTTP to backends, for the drivers that ask web services.
//!
//! Bodies are bounded, and wiped when they are dropped. No error holds one: backends put values, and
//! what they know of credentials, into their answers. Redirects are not followed, because a request
//! carries credentials that are meant for one host.

mod address;
mod reach;
mod roots;

use std::{
    collections::HashMap,
    error::Error,
    iter,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tokio::time::timeout;
use waybill_core::{chain::Chain, secret::SecretBytes};

pub(crate) use self::address::{Address, is_plain_path};
pub use self::address::{AllowedAddresses, NotAnAddress};
use self::reach::{OffLimits, Reach, Resolver};
use crate::driver::FetchError;

/// The kubelet gives up after five seconds, and should rather hear which backend is silent.
const PATIENCE: Duration = Duration::from_secs(4);

/// Backends are near, or down.
const CONNECT: Duration = Duration::from_secs(2);

/// How long a connection is kept for the next container.
const IDLE: Duration = Duration::from_secs(90);

/// Room for an answer that does not say how long it is; most are shorter.
const FIRST_ROOM: usize = 16 << 10;

/// How many bundles of certificates have a client of their own at the same time.
const CLIENTS: usize = 64;

type Inner = Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>;

/// Clients by the certificates that they trust.
#[derive(Default)]
pub(crate) struct HttpClients {
    reach: Reach,
    by_bundle: Mutex<HashMap<Option<String>, HttpClient>>,
}

impl HttpClients {
    /// Clients that go as far as names may lead that classes give where only `allowed` ones count.
    pub(crate) fn within(allowed: &AllowedAddresses) -> Self {
        Self { reach: allowed.reach(), by_bundle: Mutex::default() }
    }

    /// The client that trusts the certificates in `bundle`, in PEM, or those that this machine trusts.
    pub(crate) fn trusting(&self, bundle: Option<&str>) -> Result<HttpClient, HttpError> {
        let key = bundle.map(str::to_owned);
        let mut clients = self.by_bundle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let client = HttpClient::new(bundle, self.reach)?;
        // Classes are few; a flood of them costs new connections, not memory.
        if clients.len() >= CLIENTS {
            clients.clear();
        }
        clients.insert(key, client.clone());
        Ok(client)
    }
}

/// Asks backends, and keeps connections to them.
#[derive(Clone)]
pub(crate) struct HttpClient(Inner);

impl HttpClient {
    fn new(bundle: Option<&str>, reach: Reach) -> Result<Self, HttpError> {
        let mut tcp = HttpConnector::new_with_resolver(Resolver::new(reach));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(roots::client_config(bundle)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new());
        Ok(Self(builder.build(connector)))
    }

    /// Sends `question` and reads an answer of at most `limit` bytes.
    pub(crate) async fn ask(&self, question: Question, limit: usize) -> Result<Reply, HttpError> {
        let host = question.host();
        let exchange = async {
            let request = question.into_request(&host)?;
            let answer = self.0.request(request).await;
            let answer = answer.map_err(|source| {
                let host = host.clone();
                if is_off_limits(&source) {
                    HttpError::OffLimits { host }
                } else if source.is_connect() {
                    HttpError::Connect { host, source }
                } else {
                    HttpError::Send { host, source }
                }
            })?;
            let (head, body) = answer.into_parts();
            let body = read(body, limit, &host).await?;
            Ok(Reply { status: head.status, body })
        };
        let late = |_| HttpError::Late { host: host.clone() };
        timeout(PATIENCE, exchange).await.map_err(late)?
    }
}

/// Whether an error says that a name leads where it must not.
fn is_off_limits(error: &(dyn Error + 'static)) -> bool {
    iter::successors(Some(error), |&error| error.source()).any(|error| error.is::<OffLimits>())
}

/// What is asked of a backend.
pub(crate) struct Question {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: SecretBytes,
}

impl Question {
    pub(crate) fn new(method: Method, uri: Uri, body: SecretBytes) -> Self {
        Self { method, uri, headers: HeaderMap::new(), body }
    }

    /// The same with another header.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    fn host(&self) -> String {
        self.uri.authority().map_or_else(String::new, ToString::to_string)
    }

    fn into_request(self, host: &str) -> Result<Request<Full<Bytes>>, HttpError> {
        let body = Full::new(Bytes::from_owner(Wiped(self.body)));
        let request = Request::builder().method(self.method).uri(self.uri).body(body);
        let unsendable = |source| HttpError::Unsendable { host: host.to_owned(), source };
        let mut request = request.map_err(unsendable)?;
        *request.headers_mut() = self.headers;
        Ok(request)
    }
}

/// A header whose value no log of the client shows; `None` if it cannot be one.
pub(crate) fn sensitive(value: &SecretBytes) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(value.expose()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// What a backend answered.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: SecretBytes,
}

/// A body that is wiped when it was sent.
struct Wiped(SecretBytes);

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        self.0.expose()
    }
}

async fn read(mut body: Incoming, limit: usize, host: &str) -> Result<SecretBytes, HttpError> {
    let too_large = || HttpError::TooLarge { host: host.to_owned(), limit };
    let announced = body.size_hint().exact().map_or(Ok(FIRST_ROOM), usize::try_from);
    let room = announced.ok().filter(|room| *room <= limit).ok_or_else(too_large)?;
    let mut content = Vec::with_capacity(room);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|source| HttpError::Broken { host: host.to_owned(), source })?;
        let Ok(data) = frame.into_data() else { continue };
        let length = content.len() + data.len();
        if length > content.capacity() {
            content = moved(content, length.next_power_of_two());
        }
        content.extend_from_slice(&data);
        if length > limit {
            drop(SecretBytes::from(content));
            return Err(too_large());
        }
    }
    Ok(content.into())
}

/// The same content with more room. A vector that grows by itself leaves its old memory as it was.
fn moved(content: Vec<u8>, room: usize) -> Vec<u8> {
    let mut larger = Vec::with_capacity(room);
    larger.extend_from_slice(&content);
    drop(SecretBytes::from(content));
    larger
}

/// Why there is no answer. Nothing of a request or an answer is in it but the host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum HttpError {
    #[error("caBundle holds no certificate in PEM")]
    Bundle,
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    #[error("no request can be made for {host}")]
    Unsendable { host: String, source: http::Error },
    #[error(
        "this driver sends nothing to {host}: its name leads to this machine or its link; the owner of the \
         node allows it with --allow-address"
    )]
    OffLimits { host: String },
    #[error("cannot connect to {host}")]
    Connect { host: String, source: hyper_util::client::legacy::Error },
    #[error("no answer from {host}")]
    Send { host: String, source: hyper_util::client::legacy::Error },
    #[error("the answer of {host} broke off")]
    Broken { host: String, source: hyper::Error },
    #[error("no answer from {host} within {}s", PATIENCE.as_secs())]
    Late { host: String },
    #[error("the answer of {host} has more than {limit} bytes")]
    TooLarge { host: String, limit: usize },
}

impl From<HttpError> for FetchError {
    fn from(error: HttpError) -> Self {
        let text = Chain(&error).to_string();
        match error {
            HttpError::Bundle | HttpError::Unsendable { .. } => Self::invalid(text),
            HttpError::OffLimits { .. } => Self::denied(text),
            HttpError::Tls(_) | HttpError::TooLarge { .. } => Self::backend(text),
            HttpError::Connect { .. }
            | HttpError::Send { .. }
            | HttpError::Broken { .. }
            | HttpError::Late { .. } => Self::unavailable(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::FailureKind;

    /// CSI-46: the check of an address sees a name; this is where it leads.
    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_not_followed_csi_46() {
        let ask = async |reach| {
            let client = HttpClient::new(None, reach).unwrap();
            let uri = Uri::from_static("http://localhost:1/");
            let question = Question::new(Method::GET, uri, Vec::new().into());
            client.ask(question, 1).await.err().map(FetchError::from).unwrap()
        };
        let refused = ask(Reach::Elsewhere).await;
        assert_eq!(refused.kind, FailureKind::Denied, "{refused}");
        assert!(refused.message.contains("leads to this machine or its link"), "{refused}");
        let nobody = ask(Reach::Anywhere).await;
        assert_eq!(nobody.kind, FailureKind::Unavailable, "{nobody}");
    }
}
