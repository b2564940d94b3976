//! One connection to the server, over TLS that trusts its authority.

use std::{collections::VecDeque, io, sync::Arc};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request,
    body::{Bytes, Incoming},
    client::conn::http1::{SendRequest, handshake},
    header,
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::Value;
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::TlsConnector;
use waybill_testkit::apiserver::{ADMIN_TOKEN, ApiServer};

/// A connection; it ends when this is dropped.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    _connection: JoinSet<()>,
}

/// The events of a watch, as they come.
pub(crate) struct Watch {
    body: Incoming,
    /// Of an event that has not come whole.
    partial: Vec<u8>,
    events: VecDeque<Value>,
    _client: Client,
}

impl Client {
    pub(crate) async fn connect(server: &ApiServer) -> io::Result<Self> {
        let authority = CertificateDer::from_pem_file(server.state().join("ca.crt"))
            .map_err(io::Error::other)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(io::Error::other)?;
        let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::from(server.address().ip());
        let tcp = TcpStream::connect(server.address()).await?;
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

    /// Sends one request and reads its answer.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<(u16, Value), hyper::Error> {
        let (code, answer) = self.ask(method, path, body, true).await?;
        let bytes = answer.collect().await?.to_bytes();
        Ok((code, serde_json::from_slice(&bytes).expect("an answer is JSON")))
    }

    /// The same for an answer that is plain text.
    pub(crate) async fn text(
        &mut self,
        method: &str,
        path: &str,
    ) -> Result<(u16, String), hyper::Error> {
        let (code, answer) = self.ask(method, path, "", true).await?;
        let bytes = answer.collect().await?.to_bytes();
        Ok((code, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Asks without saying who asks; returns the code.
    pub(crate) async fn as_nobody(&mut self, path: &str) -> Result<u16, hyper::Error> {
        let (code, answer) = self.ask("GET", path, "", false).await?;
        answer.collect().await?;
        Ok(code)
    }

    /// Watches on this connection.
    pub(crate) async fn watch(mut self, path: &str) -> Result<Watch, hyper::Error> {
        let (code, body) = self.ask("GET", path, "", true).await?;
        assert_eq!(code, 200, "a watch begins with success");
        Ok(Watch { body, partial: Vec::new(), events: VecDeque::new(), _client: self })
    }

    async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
        credentials: bool,
    ) -> Result<(u16, Incoming), hyper::Error> {
        let content =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, content);
        if credentials {
            request = request.header(header::AUTHORIZATION, format!("Bearer {ADMIN_TOKEN}"));
        }
        let request = request
            .body(Full::new(Bytes::from(body.to_owned())))
            .expect("method and path are well formed");
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        Ok((response.status().as_u16(), response.into_body()))
    }
}

impl Watch {
    /// The next event; `None` at the end of the stream, however it came.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        while self.events.is_empty() {
            let frame = self.body.frame().await?.ok()?;
            let Ok(data) = frame.into_data() else { continue };
            self.partial.extend_from_slice(&data);
            // An event is a line.
            while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.partial.drain(..=end).collect();
                self.events.push_back(serde_json::from_slice(&line).expect("an event is JSON"));
            }
        }
        self.events.pop_front()
    }
}
