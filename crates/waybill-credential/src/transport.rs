//! Connections that are made with the certificate of a plugin.
//!
//! Each certificate has a pool of its own. When it changes, the old pool is let go: what is idle closes, what is in use goes
//! on until its request is done, and no new request finds it. TLS sessions are not resumed
//! across certificates either, because a resumed session has the identity of the first.

mod closing;

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Builder, Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Config,
    client::{Body, ConfigExt},
};
use rustls::{ClientConfig, client::Resumption, sign::SingleCertAndKey};
use rustls_pki_types::ServerName;
use tower::{BoxError, Service};

use self::closing::{Closing, ClosingConnector};
use crate::{
    ClientCertificate, Credential, OnRotation, Route,
    client::{ClientError, install_provider},
};

/// Makes connections with whatever certificate is given.
#[derive(Clone)]
pub struct Connector {
    tls: ClientConfig,
    server_name: Option<ServerName<'static>>,
    route: Route,
}

impl Connector {
    /// For the server of `config`, over connections of `tcp`, through the proxy of `config` if it has one.
    pub fn new(config: &Config, tcp: HttpConnector) -> Result<Self, ClientError> {
        install_provider();
        let unusable = |source| ClientError::Config(Box::new(source));
        let server_name = config.tls_server_name.clone().map(ServerName::try_from).transpose();
        let server_name = server_name.map_err(|_| ClientError::ServerName)?;
        let tls = config.rustls_client_config().map_err(unusable)?;
        let route = Route::new(config.proxy_url.as_ref(), &tls, tcp)?;
        Ok(Self { tls, server_name, route })
    }

    /// Connections with this certificate, or with that of the configuration.
    pub fn with_certificate(
        &self,
        certificate: Option<&ClientCertificate>,
    ) -> HttpsConnector<Route> {
        let mut tls = self.tls.clone();
        if let Some(certificate) = certificate {
            tls.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certificate.key()));
            tls.resumption = Resumption::in_memory_sessions(32);
        }
        let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        if let Some(name) = &self.server_name {
            builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name.clone()));
        }
        builder.enable_http1().wrap_connector(self.route.clone())
    }
}

/// Sends requests over connections with the certificate that belongs to their credential.
#[derive(Clone)]
pub struct Transport {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Connector,
    config: Config,
    on_rotation: OnRotation,
    pool: ArcSwap<Pool>,
}

/// The connections with one certificate.
struct Pool {
    certificate: Option<Arc<ClientCertificate>>,
    /// Of the credential that it was made for.
    sequence: u64,
    client: Client<TimeoutConnector<ClosingConnector>, Body>,
    closing: Closing,
}

impl Transport {
    /// For the server of `config`, whose `exec` stanza has been taken out.
    pub fn new(config: &Config, on_rotation: OnRotation) -> Result<Self, ClientError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let connector = Connector::new(config, tcp)?;
        let pool = ArcSwap::from_pointee(Pool::new(&connector, config, None, 0));
        let shared = Shared { connector, config: config.clone(), on_rotation, pool };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The connections for a request with this credential.
    fn pool(&self, credential: Option<&Credential>) -> Arc<Pool> {
        let current = self.shared.pool.load_full();
        match credential {
            Some(credential) if !current.serves(credential) => self.rotate(credential),
            _ => current,
        }
    }

    fn rotate(&self, credential: &Credential) -> Arc<Pool> {
        let Shared { connector, config, on_rotation, pool } = self.shared.as_ref();
        let certificate = credential.certificate();
        let fresh = Pool::new(connector, config, certificate.cloned(), credential.sequence);
        let fresh = Arc::new(fresh);
        // Many requests may find the change at once; one of their pools stays, and it is never an older one.
        let replaced = pool.rcu(|current| match current.serves(credential) {
            true => Arc::clone(current),
            false => Arc::clone(&fresh),
        });
        if *on_rotation == OnRotation::Close && !replaced.serves(credential) {
            replaced.closing.close();
        }
        pool.load_full()
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Incoming>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // A pool makes connections as requests need them.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let credential = request.extensions().get::<Arc<Credential>>();
        let pool = self.pool(credential.map(AsRef::as_ref));
        let answer = pool.client.request(request);
        Box::pin(async move { answer.await.map_err(Into::into) })
    }
}

impl Pool {
    fn new(
        connector: &Connector,
        config: &Config,
        certificate: Option<Arc<ClientCertificate>>,
        sequence: u64,
    ) -> Self {
        let closing = Closing::default();
        let https = connector.with_certificate(certificate.as_deref());
        let mut timed = TimeoutConnector::new(ClosingConnector::new(https, closing.clone()));
        timed.set_connect_timeout(config.connect_timeout);
        timed.set_read_timeout(config.read_timeout);
        timed.set_write_timeout(config.write_timeout);
        timed.set_reset_reader_on_write(config.reset_reader_on_write);
        let client = Builder::new(TokioExecutor::new()).build(timed);
        Self { certificate, sequence, client, closing }
    }

    /// Whether a request with `credential` belongs here. One whose credential is older than the pool does: it was overtaken
    /// by a rotation.
    fn serves(&self, credential: &Credential) -> bool {
        let same = match (&self.certificate, credential.certificate()) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other) || own.is_same_as(other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        same || self.sequence > credential.sequence
    }
}
