//! One connection to the server, over TLS that trusts its authority.

use std::{io, sync::Arc};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request,
    body::Bytes,
    client::conn::http1::{SendRequest, handshake},
    header,
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::Value;
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::TlsConnector;

use crate::server::Server;

/// A connection; it ends when this is dropped.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    _connection: JoinSet<()>,
}

impl Client {
    pub(crate) async fn connect(server: &Server) -> io::Result<Self> {
        let authority = CertificateDer::from_pem_file(server.state().join("ca.crt"))
            .map_err(io::Error::other)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(io::Error::other)?;
        let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::from(server.address.ip());
        let tcp = TcpStream::connect(server.address).await?;
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, tcp).await?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // The kill breaks it; the request on the way is told.
            let _ = connection.await;
        });
        Ok(Self { sender, _connection: tasks })
    }

    /// Sends one request; of the answer it reads one JSON value, which may be the first of many.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<(u16, Value), hyper::Error> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, "Bearer token")
            .body(Full::new(Bytes::from(body.to_owned())))
            .expect("method and path are well formed");
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        let mut values = serde_json::Deserializer::from_slice(&bytes).into_iter();
        let first = values.next().expect("an answer has a body").expect("an answer is JSON");
        Ok((code, first))
    }
}
