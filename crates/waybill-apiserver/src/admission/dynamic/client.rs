//! The HTTP client towards webhooks: one POST over TLS, bounded in time and size, and no redirects.
//!
//! Who may write configurations of webhooks decides where the server connects to, with its own
//! certificate; by default these are the administrators of the cluster alone.

use std::{io, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls_pki_types::{InvalidDnsNameError, ServerName};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;
use waybill_policy::webhook::{Place, Webhook};

use super::{
    service::{ServiceError, resolve},
    tls::{WebhookTls, WebhookTlsError},
};
use crate::objects::Objects;

/// The longest answer, which holds at most a patch of an object.
const MOST_ANSWER_BYTES: usize = 3 * 1024 * 1024;

const USER_AGENT: HeaderValue = HeaderValue::from_static("kube-apiserver-admission");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Calls webhooks.
pub(crate) struct WebhookClient {
    objects: Arc<Objects>,
    tls: WebhookTls,
}

/// Why a webhook could not be asked. Texts are those of Go where there are some, and none holds anything of the request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{url:?} is no URL of a webhook")]
    Url { url: String },
    #[error("{0}")]
    Service(#[from] ServiceError),
    #[error("{0:?} can be in no certificate: {1}")]
    Name(String, InvalidDnsNameError),
    #[error("{0}")]
    Trust(#[from] WebhookTlsError),
    #[error("Post {url:?}: dial tcp: {cause}")]
    Dial { url: String, cause: io::Error },
    #[error("Post {url:?}: tls: {cause}")]
    Tls { url: String, cause: io::Error },
    #[error("Post {url:?}: {cause}")]
    Http { url: String, cause: hyper::Error },
    #[error("Post {url:?}: the connection was closed before the answer")]
    Closed { url: String },
    #[error("Post {url:?}: context deadline exceeded")]
    Timeout { url: String },
    #[error("Post {url:?}: the webhook answered {code}")]
    Code { url: String, code: StatusCode },
    #[error("Post {url:?}: the answer is longer than {MOST_ANSWER_BYTES} bytes")]
    TooLong { url: String },
    #[error("Post {url:?}: the answer broke off: {cause}")]
    Body { url: String, cause: Box<dyn std::error::Error + Send + Sync> },
}

/// Whom to connect to, for whom to take them, and what to ask for.
struct Destination {
    /// A host and port to dial.
    dial: String,
    /// The name in the certificate.
    name: String,
    host: String,
    path: String,
}

impl WebhookClient {
    pub(crate) fn new(objects: Arc<Objects>, tls: WebhookTls) -> Self {
        Self { objects, tls }
    }

    /// Sends `body` and returns the answer, all within the time that the webhook has.
    pub(super) async fn post(&self, webhook: &Webhook, body: String) -> Result<Bytes, CallError> {
        let destination = self.destination(webhook.place())?;
        let seconds = webhook.timeout().as_secs();
        let url = format!("https://{}{}?timeout={seconds}s", destination.host, destination.path);
        let sent = self.send(webhook, &destination, &url, body);
        timeout(webhook.timeout(), sent).await.unwrap_or(Err(CallError::Timeout { url }))
    }

    fn destination(&self, place: &Place) -> Result<Destination, CallError> {
        match place {
            Place::Url(url) => from_url(url).ok_or_else(|| CallError::Url { url: url.clone() }),
            Place::Service { namespace, name, port, path } => {
                let dial = resolve(&self.objects, namespace, name, *port)?;
                let own = format!("{name}.{namespace}.svc");
                let host = format!("{own}:{port}");
                Ok(Destination { dial, name: own, host, path: path.clone() })
            }
        }
    }

    async fn send(
        &self,
        webhook: &Webhook,
        to: &Destination,
        url: &str,
        body: String,
    ) -> Result<Bytes, CallError> {
        let name = ServerName::try_from(to.name.clone())
            .map_err(|error| CallError::Name(to.name.clone(), error))?;
        let tls = self.tls.trusting(webhook.ca_bundle())?;
        let tcp = TcpStream::connect(&to.dial)
            .await
            .map_err(|cause| CallError::Dial { url: url.to_owned(), cause })?;
        let stream = TlsConnector::from(tls)
            .connect(name, tcp)
            .await
            .map_err(|cause| CallError::Tls { url: url.to_owned(), cause })?;
        let http = |cause| CallError::Http { url: url.to_owned(), cause };
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
        let request = request(to, url, body)?;
        let answered = async {
            let answer = sender.send_request(request).await.map_err(http)?;
            let code = answer.status();
            if code != StatusCode::OK {
                return Err(CallError::Code { url: url.to_owned(), code });
            }
            read(answer.into_body(), url).await
        };
        // The connection ends with this call, however it ends.
        tokio::pin!(answered, connection);
        tokio::select! {
            biased;
            result = &mut answered => result,
            end = &mut connection => match end {
                Err(cause) => Err(http(cause)),
                // What has come until then may be all there is to read.
                Ok(()) => timeout(std::time::Duration::from_secs(1), answered)
                    .await
                    .unwrap_or_else(|_| Err(CallError::Closed { url: url.to_owned() })),
            },
        }
    }
}

fn request(to: &Destination, url: &str, body: String) -> Result<Request<Full<Bytes>>, CallError> {
    let bad = || CallError::Url { url: url.to_owned() };
    let (_, target) = url.split_once(&to.host).ok_or_else(bad)?;
    let target: Uri = target.parse().map_err(|_| bad())?;
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target;
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_str(&to.host).map_err(|_| bad())?);
    headers.insert(header::CONTENT_TYPE, JSON);
    headers.insert(header::ACCEPT, JSON);
    headers.insert(header::USER_AGENT, USER_AGENT);
    Ok(request)
}

async fn read(body: Incoming, url: &str) -> Result<Bytes, CallError> {
    let collected = Limited::new(body, MOST_ANSWER_BYTES).collect().await;
    collected.map(http_body_util::Collected::to_bytes).map_err(|cause| {
        let url = url.to_owned();
        match cause.is::<LengthLimitError>() {
            true => CallError::TooLong { url },
            false => CallError::Body { url, cause },
        }
    })
}

fn from_url(url: &str) -> Option<Destination> {
    let rest = url.strip_prefix("https://")?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let authority: http::uri::Authority = host.parse().ok()?;
    // Who is in front of an `@` would only mislead.
    if host.is_empty() || host.contains('@') {
        return None;
    }
    let name = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = authority.port_u16().unwrap_or(443);
    let dial = format!("{}:{port}", authority.host());
    let path = if path.is_empty() { "/" } else { path };
    Some(Destination { dial, name, host: host.to_owned(), path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: Option<(&str, &str, &str, &str)>) {
        let found = from_url(url);
        let found = found.as_ref().map(|to| (&*to.dial, &*to.name, &*to.host, &*to.path));
        assert_eq!(found, expected, "{url}");
    }

    #[test]
    fn urls_say_whom_to_dial_and_to_believe() {
        check("https://host", Some(("host:443", "host", "host", "/")));
        check("https://host:8443/a/b", Some(("host:8443", "host", "host:8443", "/a/b")));
        check("https://[::1]:1/x", Some(("[::1]:1", "::1", "[::1]:1", "/x")));
        check("http://host", None);
        check("https://", None);
        check("https://user@host/", None);
        check("https://ho st/", None);
    }
}
