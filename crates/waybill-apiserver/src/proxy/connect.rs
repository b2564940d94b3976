//! Reaching a node: TCP, TLS with both sides verified, then HTTP/1.1.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header::HOST};
use http_body_util::Empty;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use waybill_stream::long_target::{HTTP1_BUFFER, TargetWriter};

use super::{NodeProxy, address::NodeAddress, target::NodeTarget};
use crate::{
    authn::certificate::CertificateIdentity,
    authz::node::{NODE_USER_PREFIX, NODES_GROUP},
};

/// TLS for talking to nodes: their certificates must come from `roots`, and ours is presented.
pub(crate) fn node_tls(
    roots: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    // Upgrades exist only there.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Why a node could not be reached. The texts are those of Go, which users of Kubernetes know and
/// search for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ConnectError {
    /// The address did not answer as a listener does.
    #[error("dial tcp {address}: {}", dial_text(.cause))]
    Tcp { address: NodeAddress, cause: io::Error },
    /// The address did not answer at all.
    #[error("dial tcp {0}: i/o timeout")]
    TcpTimeout(NodeAddress),
    /// The node did not prove who it is, or speaks no TLS.
    #[error("tls: {0}")]
    Tls(io::Error),
    /// It proved to be another node. Nodes tell their addresses themselves, and none may send us to a neighbour.
    #[error("tls: the certificate is that of {found}, not of node {node:?}")]
    OtherNode { found: String, node: String },
    /// The node accepted the connection and said nothing.
    #[error("net/http: TLS handshake timeout")]
    TlsTimeout,
    /// The node closed the connection before it could be used.
    #[error("http: {0}")]
    Http(hyper::Error),
}

/// A connection for one request. When it is dropped, so is the connection, unless it was upgraded.
pub(super) struct NodeConnection {
    sender: SendRequest<Empty<Bytes>>,
    method: Method,
    host: HeaderValue,
    guard: DropGuard,
}

impl NodeConnection {
    /// Sends the one request. The guard must live as long as the answer's body is read.
    pub(super) async fn send(
        mut self,
        mut headers: HeaderMap,
    ) -> Result<(Response<Incoming>, DropGuard), hyper::Error> {
        headers.insert(HOST, self.host);
        let mut request = Request::new(Empty::new());
        *request.method_mut() = self.method;
        // The writer below puts the target here.
        *request.uri_mut() = Uri::from_static("/");
        *request.headers_mut() = headers;
        Ok((self.sender.send_request(request).await?, self.guard))
    }
}

impl NodeProxy {
    /// Opens a connection for the one request `method target`.
    pub(super) async fn connect(
        &self,
        node: &NodeAddress,
        method: Method,
        target: &NodeTarget,
    ) -> Result<NodeConnection, ConnectError> {
        let tcp = dial(node, self.limits.dial).await?;
        let connector = TlsConnector::from(self.tls.load_full());
        let tls = handshake(&connector, node, tcp, self.limits.handshake).await?;
        let io = TokioIo::new(TargetWriter::new(tls, &method, target.expose()));
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HTTP1_BUFFER)
            .handshake(io)
            .await
            .map_err(ConnectError::Http)?;
        let alive: CancellationToken = self.stop.child_token();
        let guard = alive.clone().drop_guard();
        self.tasks.spawn(async move {
            // Its errors reach whoever waits for the answer or reads the body.
            let _ = alive.run_until_cancelled(connection.with_upgrades()).await;
        });
        let host = HeaderValue::from_str(&node.to_string()).unwrap_or(UNKNOWN_HOST);
        Ok(NodeConnection { sender, method, host, guard })
    }
}

/// For a host that is dialled by a name no header can hold; the node does not read it.
const UNKNOWN_HOST: HeaderValue = HeaderValue::from_static("node");

async fn dial(node: &NodeAddress, limit: Duration) -> Result<TcpStream, ConnectError> {
    let stream = match timeout(limit, TcpStream::connect((node.host(), node.port()))).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(cause)) => return Err(ConnectError::Tcp { address: node.clone(), cause }),
        Err(_) => return Err(ConnectError::TcpTimeout(node.clone())),
    };
    // Sessions are typed by hand; without it they are only slower.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

async fn handshake(
    tls: &TlsConnector,
    node: &NodeAddress,
    tcp: TcpStream,
    limit: Duration,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    let tls = match timeout(limit, tls.connect(node.server_name().clone(), tcp)).await {
        Ok(result) => result.map_err(ConnectError::Tls)?,
        Err(_) => return Err(ConnectError::TlsTimeout),
    };
    match other_node(tls.get_ref().1.peer_certificates(), node.node()) {
        Some(found) => Err(ConnectError::OtherNode { found, node: node.node().to_owned() }),
        None => Ok(tls),
    }
}

/// The name in a certificate of another node than `node`. Certificates that operators bring along need not be made out to nodes.
fn other_node(chain: Option<&[CertificateDer<'_>]>, node: &str) -> Option<String> {
    let user = CertificateIdentity::read(chain?.first()?).ok()?.user()?;
    let own = user.name.strip_prefix(NODE_USER_PREFIX) == Some(node);
    (user.groups.iter().any(|group| group == NODES_GROUP) && !own).then_some(user.name)
}

/// As Go prints the errors of `connect(2)`.
fn dial_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "connect: connection timed out".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rustls_pki_types::pem::PemObject;

    use super::*;
    use crate::pki::{Pki, PkiConfig};

    /// Hole: a node that gave a neighbour's address as its own lent the neighbour to whoever may use the node.
    #[test]
    fn a_node_is_the_one_that_its_certificate_names() {
        let dir = tempfile::tempdir().unwrap();
        let config = PkiConfig { dir: dir.path().to_owned(), ..PkiConfig::default() };
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let pki = Pki::open(config, now).unwrap();
        let chain = |user: &str, groups: &[&str]| {
            let pair = pki.issue_client(user, groups, Duration::from_secs(60), now).unwrap();
            [CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()]
        };
        let found = |chain: &[CertificateDer<'_>]| other_node(Some(chain), "a");
        assert_eq!(found(&chain("system:node:a", &[NODES_GROUP])), None);
        let neighbour = "system:node:b";
        assert_eq!(found(&chain(neighbour, &[NODES_GROUP])).as_deref(), Some(neighbour));
        // From an authority of the operator, whose names are their own.
        assert_eq!(found(&chain("worker.example", &["ops"])), None);
    }
}
