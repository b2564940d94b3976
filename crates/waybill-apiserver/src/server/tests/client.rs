//! A client that says exactly what it is told to say.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::TestServer;

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) const JSON: &str = "application/json";

/// An answer that is complete.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) code: u16,
    pub(super) warnings: Vec<String>,
    pub(super) retry_after: Option<String>,
    pub(super) audit_id: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) body: Bytes,
}

/// The lines of a watch.
pub(super) struct Lines {
    body: Incoming,
    buffer: BytesMut,
}

/// TLS that trusts one authority.
pub(super) fn trusting(pem: &str) -> Arc<ClientConfig> {
    Arc::new(trusting_config(pem))
}

fn trusting_config(pem: &str) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// The same with a certificate of the client, and its key; both in PEM.
pub(super) fn trusting_with(pem: &str, certificate: &str, key: &[u8]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    Arc::new(config)
}

impl TestServer {
    pub(super) async fn connect(&self) -> TlsStream<TcpStream> {
        self.connect_with(&self.tls).await
    }

    async fn connect_with(&self, tls: &Arc<ClientConfig>) -> TlsStream<TcpStream> {
        let tcp = TcpStream::connect(self.server.address()).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::clone(tls)).connect(name, tcp).await.unwrap()
    }

    /// A connection for many requests at once.
    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    pub(super) async fn connect_http2(&self) -> http2::SendRequest<Full<Bytes>> {
        let mut tls = trusting_config(self.server.ca_certificate());
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let stream = self.connect_with(&Arc::new(tls)).await;
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// Sends JSON as `user`; nobody if it is empty.
    pub(super) async fn send(&self, user: &str, method: &str, path: &str, body: &str) -> Reply {
        self.send_as(user, method, path, JSON, body.to_owned()).await
    }

    pub(super) async fn send_as(
        &self,
        user: &str,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Reply {
        Reply::of(self.open(user, method, path, content_type, body.into()).await).await
    }

    /// Sends exactly these headers, besides the host.
    pub(super) async fn send_with(
        &self,
        headers: &[(&str, String)],
        method: &str,
        path: &str,
        body: &str,
    ) -> Reply {
        let mut request =
            Request::builder().method(method).uri(path).header(header::HOST, "localhost");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        Reply::of(self.answer(&self.tls, request).await).await
    }

    /// Starts a watch, which must be granted.
    pub(super) async fn watch(&self, path: &str) -> Lines {
        let response = self.open("admin", "GET", path, JSON, Bytes::new()).await;
        assert_eq!(response.status(), 200, "{path}");
        Lines::of(response)
    }

    async fn open(
        &self,
        user: &str,
        method: &str,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> http::Response<Incoming> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, content_type);
        if !user.is_empty() {
            request = request.header(header::AUTHORIZATION, format!("Bearer {user}-token"));
        }
        let shown = self.certificate.as_ref().filter(|_| user.is_empty());
        let request = request.body(Full::new(body)).unwrap();
        self.answer(shown.unwrap_or(&self.tls), request).await
    }

    /// Sends a request on a connection of its own.
    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    async fn answer(
        &self,
        tls: &Arc<ClientConfig>,
        request: Request<Full<Bytes>>,
    ) -> http::Response<Incoming> {
        let io = TokioIo::new(self.connect_with(tls).await);
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        timeout(PATIENCE, sender.send_request(request)).await.unwrap().unwrap()
    }
}

impl Reply {
    async fn of(response: http::Response<Incoming>) -> Self {
        let code = response.status().as_u16();
        let warnings = response.headers().get_all(header::WARNING).iter();
        let warnings = warnings.map(|value| value.to_str().unwrap().to_owned()).collect();
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.map(|value| value.to_str().unwrap().to_owned());
        let audit_id = response.headers().get("audit-id");
        let audit_id = audit_id.map(|value| value.to_str().unwrap().to_owned());
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let content_type = content_type.map(|value| value.to_str().unwrap().to_owned());
        let body = timeout(PATIENCE, response.into_body().collect()).await.unwrap().unwrap();
        Self { code, warnings, retry_after, audit_id, content_type, body: body.to_bytes() }
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(super) fn created(&self) -> Value {
        assert_eq!(self.code, 201, "{self:?}");
        self.json()
    }
}

impl Lines {
    pub(super) fn of(response: http::Response<Incoming>) -> Self {
        Self { body: response.into_body(), buffer: BytesMut::new() }
    }

    /// The next event; nothing after the end of the stream.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                return Some(serde_json::from_slice(&self.buffer.split_to(end + 1)).unwrap());
            }
            let frame = timeout(PATIENCE, self.body.frame()).await.unwrap()?;
            self.buffer.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
    }

    /// Type and name of the next event.
    pub(super) async fn next_name(&mut self) -> (String, String) {
        let event = self.next().await.unwrap();
        let text = |pointer: &str| event.pointer(pointer).unwrap().as_str().unwrap().to_owned();
        (text("/type"), text("/object/metadata/name"))
    }
}
