//! Asks an agent or another gate: one question over TLS, with a token, and a bounded answer.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, ServerName};
use serde::de::DeserializeOwned;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

/// How long one question may take.
const LIMIT: Duration = Duration::from_secs(3);

/// The most bytes of an answer.
const ANSWER_BYTES: usize = 4 << 20;

/// A question.
pub(super) struct Question<'a> {
    /// An address and a port.
    pub(super) address: &'a str,
    /// What must be in the certificate.
    pub(super) name: &'a str,
    /// Whose certificates are believed.
    pub(super) roots: &'a [CertificateDer<'static>],
    /// What the asked may know us by.
    pub(super) token: String,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("its address or certificate is not understood")]
    Address,
    #[error("it cannot be reached: {0}")]
    Connect(std::io::ErrorKind),
    #[error("it shows another certificate than it should")]
    Tls,
    #[error("it broke off, or its answer is too long")]
    Broken,
    #[error("it answers {0}")]
    Status(StatusCode),
    #[error("its answer is not understood")]
    Answer,
    #[error("it does not answer in {} s", LIMIT.as_secs())]
    Slow,
}

impl Question<'_> {
    /// The answer, as JSON.
    pub(super) async fn ask<T: DeserializeOwned>(self) -> Result<T, AskError> {
        timeout(LIMIT, self.converse()).await.map_err(|_| AskError::Slow)?
    }

    async fn converse<T: DeserializeOwned>(self) -> Result<T, AskError> {
        let tls = self.tls()?;
        let name = ServerName::try_from(self.name.to_owned()).map_err(|_| AskError::Address)?;
        let stream = TcpStream::connect(self.address).await;
        let stream = stream.map_err(|error| AskError::Connect(error.kind()))?;
        let stream = tls.connect(name, stream).await.map_err(|_| AskError::Tls)?;
        let (mut sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|_| AskError::Broken)?;
        let request = Request::builder()
            .method(self.method)
            .uri(self.path)
            .header(header::HOST, self.name)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .body(Full::new(Bytes::from(self.body)))
            .map_err(|_| AskError::Address)?;
        let asked = async move {
            let answer = sender.send_request(request).await.map_err(|_| AskError::Broken)?;
            if answer.status() != StatusCode::OK {
                return Err(AskError::Status(answer.status()));
            }
            let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
            Ok(body.map_err(|_| AskError::Broken)?.to_bytes())
        };
        let (text, _) = tokio::join!(asked, connection);
        serde_json::from_slice(&text?).map_err(|_| AskError::Answer)
    }

    fn tls(&self) -> Result<TlsConnector, AskError> {
        let mut roots = RootCertStore::empty();
        for root in self.roots {
            roots.add(root.clone()).map_err(|_| AskError::Address)?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|_| AskError::Tls)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    }
}
