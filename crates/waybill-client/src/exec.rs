//! Commands in containers, with variables of their own (KEP-6035).
//!
//! A session is a connection of its own rather than one of the client's pool: its request line may be
//! longer than the HTTP types allow, because variables travel in it. The values are never logged, and no
//! error repeats them.

mod session;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{AUTHORIZATION, HOST, SEC_WEBSOCKET_PROTOCOL},
};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use kube::{Config, client::ConfigExt};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::time::timeout;
use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use waybill_api::{exec::PodExecOptions, status::Status};
use waybill_credential::{
    Authenticator, ClientError, Connector, Credential, CredentialError, Renewal,
    client_builder_with,
};
use waybill_stream::{
    long_target::{HTTP1_BUFFER, TargetWriter},
    protocol::{self, NoCommonProtocol, Protocol},
    websocket::handshake::{ClientHandshake, HandshakeError},
};

pub use self::session::{ExecSession, Local, SessionError};
use crate::connect::{ConnectError, Options, Prepared, prepare};

/// What we speak, best first.
const OFFERED: &[Protocol] = &[Protocol::V5, Protocol::V4];

/// An answer that is no session is a Status, which is far smaller.
const ANSWER_BYTES: usize = 1 << 20;

/// For the connection and the answer. The server waits for a node, which waits for a runtime.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the API's own documentation lists what an exec request may say, as a JSON pointer.
const EXEC_PARAMETERS: &str =
    "/paths/~1api~1v1~1namespaces~1{namespace}~1pods~1{name}~1exec/get/parameters";

/// Starts commands in the containers of one cluster, as one user.
pub struct Executor {
    config: Config,
    namespace: String,
    plugin: Option<Arc<Authenticator>>,
    authorize: Authorize,
    /// One for all sessions: later connections resume the TLS session of earlier ones, unless the certificate is that of a
    /// plugin.
    connector: Connector,
}

/// Adds the user's static credentials and further headers to the headers of a request, which are its answer.
type Authorize = BoxCloneSyncService<Request<Empty<Bytes>>, Response<HeaderMap>, BoxError>;

impl Executor {
    /// Reads the kubeconfig. Its credential plugin is run when the first session needs it.
    pub async fn new(options: &Options) -> Result<Self, ConnectError> {
        let Prepared { config, plugin } = prepare(options).await?;
        let unusable =
            |source| ConnectError::client(options, ClientError::Config(Box::new(source)));
        let credentials = config.auth_layer().map_err(unusable)?;
        let extra = config.extra_headers_layer().map_err(unusable)?;
        let authorize = ServiceBuilder::new().option_layer(credentials).layer(extra).service(
            service_fn(|request: Request<Empty<Bytes>>| async {
                Ok::<_, BoxError>(Response::new(request.into_parts().0.headers))
            }),
        );
        let connector = Connector::new(&config, tcp());
        let connector = connector.map_err(|source| ConnectError::client(options, source))?;
        let namespace = config.default_namespace.clone();
        let authorize = BoxCloneSyncService::new(authorize);
        Ok(Self { config, namespace, plugin, authorize, connector })
    }

    /// The namespace that is meant when none is named.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether the API server passes variables on. One that does not know them drops them silently; its
    /// API documentation tells.
    pub async fn passes_variables(&self) -> Result<bool, kube::Error> {
        let builder = client_builder_with(self.config.clone(), self.plugin.clone());
        let client = builder.map_err(|error| kube::Error::Service(error.into()))?.build();
        if client.apiserver_version().await?.git_version.contains("+waybill") {
            return Ok(true);
        }
        let request = Request::get("/openapi/v3/api/v1").body(Vec::new());
        let request = request.map_err(kube::Error::HttpError)?;
        let document: Value = client.request(request).await?;
        let parameters = document.pointer(EXEC_PARAMETERS).and_then(Value::as_array);
        let mut parameters = parameters.into_iter().flatten();
        Ok(parameters.any(|parameter| parameter.get("name").is_some_and(|name| name == "env")))
    }

    /// Asks for a command in a container of `pod`. When this returns, the session has begun.
    pub async fn start(
        &self,
        namespace: &str,
        pod: &str,
        options: &PodExecOptions,
    ) -> Result<ExecSession, ExecError> {
        let target = format!(
            "{}/api/v1/namespaces/{}/pods/{}/exec?{}",
            self.config.cluster_url.path().trim_end_matches('/'),
            utf8_percent_encode(namespace, NON_ALPHANUMERIC),
            utf8_percent_encode(pod, NON_ALPHANUMERIC),
            options.to_query(),
        );
        let (handshake, answer) = self.ask_with_credential(&target).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(refusal(answer).await);
        }
        let chosen = handshake.finish(answer.status(), answer.headers())?;
        let protocol = Protocol::chosen(chosen, OFFERED)?;
        let io = hyper::upgrade::on(answer).await.map_err(ExecError::Exchange)?;
        Ok(ExecSession::new(TokioIo::new(io), protocol))
    }

    /// Asks once more if the server refuses the credential of a plugin and the plugin has another.
    async fn ask_with_credential(
        &self,
        target: &str,
    ) -> Result<(ClientHandshake, Response<Incoming>), ExecError> {
        let Some(plugin) = &self.plugin else {
            return self.ask(target, None).await;
        };
        let used = plugin.credential().await.map_err(ExecError::Plugin)?;
        let asked = self.ask(target, Some(&used)).await?;
        if asked.1.status() != StatusCode::UNAUTHORIZED {
            return Ok(asked);
        }
        match plugin.renew(&used).await {
            Renewal::Changed(fresh) => self.ask(target, Some(&fresh)).await,
            Renewal::Unchanged | Renewal::Failed(_) => Ok(asked),
        }
    }

    async fn ask(
        &self,
        target: &str,
        credential: Option<&Credential>,
    ) -> Result<(ClientHandshake, Response<Incoming>), ExecError> {
        let handshake = ClientHandshake::new().map_err(|_| ExecError::NoRandomness)?;
        let request = self.request(&handshake, credential).await?;
        let answer = async {
            let mut sender = self.connect(target, credential).await?;
            sender.send_request(request).await.map_err(ExecError::Exchange)
        };
        let answer = timeout(PATIENCE, answer).await.map_err(|_| ExecError::Silent)??;
        Ok((handshake, answer))
    }

    /// The request without its target, which the connection writes.
    async fn request(
        &self,
        handshake: &ClientHandshake,
        credential: Option<&Credential>,
    ) -> Result<Request<Empty<Bytes>>, ExecError> {
        let mut request = Request::new(Empty::new());
        request.headers_mut().extend(handshake.headers());
        for (name, value) in [
            (HOST, self.config.cluster_url.authority().map_or("", |host| host.as_str())),
            (SEC_WEBSOCKET_PROTOCOL, &protocol::names(OFFERED)),
        ] {
            let value = HeaderValue::from_str(value).map_err(|_| ExecError::Server)?;
            request.headers_mut().insert(name, value);
        }
        if let Some(token) = credential.and_then(Credential::authorization) {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        let headers = self.authorize.clone().oneshot(request).await;
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = Uri::from_static("/");
        *request.headers_mut() = headers.map_err(ExecError::Credentials)?.into_body();
        Ok(request)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "it ends with the session, whose other half it is"
    )]
    async fn connect(
        &self,
        target: &str,
        credential: Option<&Credential>,
    ) -> Result<http1::SendRequest<Empty<Bytes>>, ExecError> {
        let certificate = credential.and_then(Credential::certificate).map(AsRef::as_ref);
        let connector = self.connector.with_certificate(certificate);
        let io = connector.oneshot(self.config.cluster_url.clone()).await;
        let io = TokioIo::new(io.map_err(ExecError::Unreachable)?);
        let io = TokioIo::new(TargetWriter::new(io, &Method::GET, target));
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HTTP1_BUFFER)
            .handshake(io)
            .await
            .map_err(ExecError::Exchange)?;
        // It ends with the session, whose other half it is.
        drop(tokio::spawn(connection.with_upgrades()));
        Ok(sender)
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Executor");
        debug.field("server", &self.config.cluster_url).field("namespace", &self.namespace);
        debug.finish_non_exhaustive()
    }
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // The request line and the headers are written one after the other, and a session is typed by hand.
    tcp.set_nodelay(true);
    tcp
}

/// The server's reason, in its own words.
async fn refusal(answer: Response<Incoming>) -> ExecError {
    let code = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let message = match serde_json::from_slice::<Status>(&body) {
        Ok(status) => status.message().to_owned(),
        Err(_) => String::from_utf8_lossy(&body).trim().to_owned(),
    };
    ExecError::Refused { code, message }
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The kubeconfig names a server that no request can be sent to.
    #[error("the server's address in the kubeconfig is none")]
    Server,
    /// The operating system has no random numbers.
    #[error("the operating system gave no random numbers")]
    NoRandomness,
    /// The credential plugin failed.
    #[error(transparent)]
    Plugin(CredentialError),
    /// The token file cannot be read.
    #[error("cannot get credentials")]
    Credentials(#[source] BoxError),
    /// Nothing answers there.
    #[error("cannot reach the server")]
    Unreachable(#[source] BoxError),
    /// Nothing came for a minute.
    #[error("the server did not answer within a minute")]
    Silent,
    /// The connection broke while the session was asked for.
    #[error("the server did not answer")]
    Exchange(#[source] hyper::Error),
    /// The server refused, and said why.
    #[error("{message}")]
    Refused {
        /// Its status code.
        code: StatusCode,
        /// Its words.
        message: String,
    },
    /// The answer is no WebSocket.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The server chose a protocol that was not offered.
    #[error(transparent)]
    Protocol(#[from] NoCommonProtocol),
}
