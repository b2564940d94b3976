//! A client of the node, such as the API server.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client::conn::http1, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;
use waybill_api::exec::SESSION_HEADER;
use waybill_stream::long_target::{HTTP1_BUFFER, TargetWriter};

use super::PATIENCE;

/// Opens a connection for each request.
#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    headers: HeaderMap,
}

/// What the server said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) code: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

/// What of an answer a test compares.
pub(super) type Summary<'a> = (u16, &'a str);

impl Said {
    pub(super) fn summary(&self) -> Summary<'_> {
        (self.code.as_u16(), &self.text)
    }
}

impl Client {
    pub(super) fn new(address: SocketAddr, tls: Arc<ClientConfig>) -> Self {
        Self { address, tls, headers: HeaderMap::new() }
    }

    pub(super) fn with_token(mut self, token: &str) -> Self {
        self.headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        self
    }

    pub(super) fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(name, http::HeaderValue::from_static(value));
        self
    }

    /// With a token of the API server for one exec session.
    pub(super) fn with_session(mut self, token: &str) -> Self {
        self.headers.append(SESSION_HEADER, token.parse().unwrap());
        self
    }

    pub(super) async fn get(&self, target: &str) -> Said {
        self.send(Method::GET, target).await
    }

    pub(super) async fn send(&self, method: Method, target: &str) -> Said {
        read(self.request(method, target, self.headers.clone()).await.unwrap()).await
    }

    /// The answer whose body is still to be read.
    pub(super) async fn open(&self, target: &str) -> Response<Incoming> {
        self.request(Method::GET, target, self.headers.clone()).await.unwrap()
    }

    /// A session, or why there is none.
    pub(super) async fn upgrade(
        &self,
        method: Method,
        target: &str,
    ) -> Result<TokioIo<Upgraded>, Said> {
        let mut headers = self.headers.clone();
        headers.insert("connection", "Upgrade".parse().unwrap());
        headers.insert("upgrade", "SPDY/3.1".parse().unwrap());
        headers.insert("x-stream-protocol-version", "v4.channel.k8s.io".parse().unwrap());
        headers.insert("cookie", "secret".parse().unwrap());
        let answer = self.request(method, target, headers).await.unwrap();
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(read(answer).await);
        }
        assert_eq!(answer.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
        assert_eq!(answer.headers()["upgrade"], "SPDY/3.1");
        assert!(!answer.headers().contains_key("set-cookie"));
        Ok(TokioIo::new(hyper::upgrade::on(answer).await.unwrap()))
    }

    /// One request on a connection of its own; an error if TLS is refused.
    pub(super) async fn request(
        &self,
        method: Method,
        target: &str,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, Box<dyn std::error::Error + Send + Sync>> {
        timeout(PATIENCE, self.try_request(method, target, headers)).await.unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    async fn try_request(
        &self,
        method: Method,
        target: &str,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, Box<dyn std::error::Error + Send + Sync>> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        let tls = TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp).await?;
        let io = TokioIo::new(TargetWriter::new(tls, &method, target));
        let (mut sender, connection) =
            http1::Builder::new().max_buf_size(HTTP1_BUFFER).handshake(io).await?;
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        request.headers_mut().insert("host", "node".parse()?);
        Ok(sender.send_request(request).await?)
    }
}

async fn read(answer: Response<Incoming>) -> Said {
    let (head, body) = answer.into_parts();
    let bytes = timeout(PATIENCE, body.collect()).await.unwrap().unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    Said { code: head.status, headers: head.headers, text }
}
