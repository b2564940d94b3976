//! From a `kube` configuration to a client.

use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt, DynBody, retry::RetryPolicy},
};
use tower::{BoxError, ServiceBuilder, ServiceExt, retry::RetryLayer, util::BoxService};

use crate::{Authenticator, Authenticators, CredentialLayer, Options, StanzaError, Transport};

/// The services under a client; more layers can be put on top.
pub type Stack = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// A client whose credential plugin, if it has one, is run by this crate. Shares credentials with all others in this
/// process.
pub fn client(config: Config) -> Result<Client, ClientError> {
    Ok(client_builder(config, &Options::default())?.build())
}

/// The same with options, and for further layers.
pub fn client_builder(
    mut config: Config,
    options: &Options,
) -> Result<ClientBuilder<Stack>, ClientError> {
    let plugin =
        Authenticators::of_this_process().take_plugin("this user", &mut config, options)?;
    client_builder_with(config, plugin)
}

/// The same for a plugin that [`Authenticators::take_plugin`] took out of `config`.
pub fn client_builder_with(
    config: Config,
    plugin: Option<Arc<Authenticator>>,
) -> Result<ClientBuilder<Stack>, ClientError> {
    let unusable = |source| ClientError::Config(Box::new(source));
    let Some(plugin) = plugin else {
        return ClientBuilder::try_from(config).map_err(unusable);
    };
    let transport = Transport::new(&config, plugin.options().on_rotation)?;
    // The same order as in kube's own stack.
    let stack = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .layer(CredentialLayer::new(plugin))
        .layer(config.extra_headers_layer().map_err(unusable)?)
        .service(transport);
    let stack = stack.map_response(|answer: Response<_>| {
        answer.map(|body: hyper::body::Incoming| {
            Box::new(body.map_err(BoxError::from)) as Box<DynBody>
        })
    });
    let stack = stack.map_err(BoxError::from).boxed();
    Ok(ClientBuilder::new(stack, config.default_namespace))
}

/// As `kube` does it: TLS needs one for the process, and whoever chose one before keeps it.
pub(crate) fn install_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody may have been faster.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The plugin is not configured as it should be.
    #[error(transparent)]
    Stanza(#[from] StanzaError),
    /// The rest of the configuration cannot be used.
    #[error("cannot use the configuration of the client")]
    Config(#[source] Box<kube::Error>),
    /// The name that the server's certificate shall have is none.
    #[error("tls-server-name is not the name of a server")]
    ServerName,
    /// There is no way through this kind of proxy.
    #[error("cannot use a proxy-url of scheme {scheme:?}; http, https and socks5 are known")]
    Proxy {
        /// Its scheme.
        scheme: String,
    },
}
