//! HTTP GET to a container, for probes and hooks.
//!
//! Redirects are followed as long as they stay on the same host.

use std::{io, net::IpAddr};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri,
    header::{ACCEPT, CONNECTION, HOST, LOCATION, USER_AGENT},
    uri::PathAndQuery,
};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use rustls_pki_types::ServerName;

use super::{
    ask,
    dial::{DialError, Io, Place, dial, with},
    tls,
};
use crate::cri::Runtime;

const REDIRECTS: usize = 10;

/// Of the body nothing is needed; as much is read so that the container is not cut off.
const BODY_BYTES: usize = 10 * 1024;

/// Who asks, as containers see it in `User-Agent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Hook,
    Probe,
}

impl Caller {
    fn user_agent(self) -> HeaderValue {
        match self {
            Self::Hook => HeaderValue::from_static("kube-lifecycle/1.37"),
            Self::Probe => HeaderValue::from_static("kube-probe/1.37"),
        }
    }
}

/// Where a request ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    Final(StatusCode),
    /// The answer leads to another host, which is not asked.
    Elsewhere(String),
}

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GetError {
    #[error("the container has no port of that name")]
    Port,
    #[error("the path cannot be part of a URL")]
    Path,
    #[error("the header {0:?} is not valid")]
    Header(String),
    #[error("Get {url:?}")]
    Dial { url: String, source: DialError },
    #[error("Get {url:?}: no TLS")]
    Tls { url: String, source: io::Error },
    #[error("TLS cannot be set up")]
    TlsSetup(#[source] rustls::Error),
    #[error("Get {url:?}")]
    Http { url: String, source: hyper::Error },
    #[error("Get {url:?}: stopped after {REDIRECTS} redirects")]
    Redirects { url: String },
    #[error("HTTP probe failed with statuscode: {}", .0.as_u16())]
    Status(StatusCode),
}

/// Asks `container` at `place`, or the host that the action names.
pub(crate) async fn get(
    caller: Caller,
    (runtime, place): (&Runtime, &Place),
    container: &Container,
    action: &HTTPGetAction,
) -> Result<Reached, GetError> {
    let port = ask::port(container, &action.port).ok_or(GetError::Port)?;
    let host = action.host.clone().filter(|host| !host.is_empty()).map(Place::Host);
    let place = host.unwrap_or_else(|| place.clone());
    let path = action.path.as_deref().unwrap_or_default();
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let is_tls =
        action.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let mut target =
        Target { is_tls, port, path: path.parse().map_err(|_| GetError::Path)?, place };
    let headers = headers(caller, action)?;
    for _ in 0..=REDIRECTS {
        let (status, location) = target.get(runtime, &headers).await?;
        match location.map(|location| target.follow(&location)) {
            None if status.is_success() || status.is_redirection() => {
                return Ok(Reached::Final(status));
            }
            None => return Err(GetError::Status(status)),
            Some(Step::Elsewhere(to)) => return Ok(Reached::Elsewhere(to)),
            Some(Step::Next(next)) => target = next,
        }
    }
    Err(GetError::Redirects { url: target.url() })
}

fn headers(caller: Caller, action: &HTTPGetAction) -> Result<HeaderMap, GetError> {
    let mut headers = HeaderMap::new();
    for header in action.http_headers.iter().flatten() {
        let wrong = || GetError::Header(header.name.clone());
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| wrong())?;
        let value = HeaderValue::from_str(&header.value).map_err(|_| wrong())?;
        headers.append(name, value);
    }
    for (name, value) in
        [(ACCEPT, HeaderValue::from_static("*/*")), (USER_AGENT, caller.user_agent())]
    {
        headers.entry(name).or_insert(value);
    }
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(headers)
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    is_tls: bool,
    place: Place,
    port: u16,
    path: PathAndQuery,
}

/// Where a redirect leads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Elsewhere(String),
    Next(Target),
}

impl Target {
    fn url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}:{}{}", bracketed(self.place.host()), self.port, self.path)
    }

    /// The status, and where the answer leads if it is a redirect.
    async fn get(
        &self,
        runtime: &Runtime,
        headers: &HeaderMap,
    ) -> Result<(StatusCode, Option<String>), GetError> {
        let failed = |source| GetError::Dial { url: self.url(), source };
        let connection = dial(runtime, &self.place, self.port).await.map_err(failed)?;
        connection
            .drive(async |io| {
                if !self.is_tls {
                    return self.exchange(io, headers).await;
                }
                let connector = tls::connector().map_err(GetError::TlsSetup)?;
                let failed = |source| GetError::Tls { url: self.url(), source };
                let io = connector.connect(self.server_name(), io).await.map_err(failed)?;
                self.exchange(Box::new(io), headers).await
            })
            .await
    }

    /// An address is not sent as a name; a name that cannot be one goes as an address.
    fn server_name(&self) -> ServerName<'static> {
        let unnamed = || ServerName::from(IpAddr::from([127, 0, 0, 1]));
        ServerName::try_from(self.place.host().to_owned()).unwrap_or_else(|_| unnamed())
    }

    async fn exchange(
        &self,
        io: Box<dyn Io>,
        headers: &HeaderMap,
    ) -> Result<(StatusCode, Option<String>), GetError> {
        let failed = |source| GetError::Http { url: self.url(), source };
        let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(failed)?;
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = Uri::from(self.path.clone());
        *request.headers_mut() = headers.clone();
        let host = format!("{}:{}", bracketed(self.place.host()), self.port);
        if let Ok(host) = HeaderValue::from_str(&host) {
            request.headers_mut().entry(HOST).or_insert(host);
        }
        let asked = async {
            let answer = sender.send_request(request).await?;
            let location = answer.headers().get(LOCATION).filter(|_| is_redirect(answer.status()));
            let location = location.and_then(|to| to.to_str().ok()).map(str::to_owned);
            let status = answer.status();
            read(answer.into_body()).await;
            Ok((status, location))
        };
        with(async { drop(connection.await) }, asked).await.map_err(failed)
    }

    fn follow(&self, location: &str) -> Step {
        let elsewhere = || Step::Elsewhere(location.to_owned());
        let Ok(uri) = location.parse::<Uri>() else { return elsewhere() };
        let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        let Some(authority) = uri.authority() else {
            return Step::Next(Self { path, ..self.clone() });
        };
        if authority.host().trim_matches(['[', ']']) != self.place.host() {
            return elsewhere();
        }
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return elsewhere(),
        };
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Step::Next(Self { is_tls, port, path, place: self.place.clone() })
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Reads what there is of a body, up to a limit. Its end is not needed.
async fn read(body: Incoming) {
    let _ = Limited::new(body, BODY_BYTES).collect().await;
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

#[cfg(test)]
mod tests;
