//! From a kubeconfig to a client.

mod kubeconfig;
mod proxy;

use std::{env::consts, fs, path::PathBuf, sync::Arc};

use http::{HeaderName, HeaderValue, header::USER_AGENT};
use kube::{
    Client, Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use waybill_credential::{
    Authenticator, Authenticators, ClientError, StanzaError, Stdin, client_builder_with,
    misspelt_interactive_mode,
};

/// Which cluster to talk to, as whom, and where.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
    /// The context in it, or its current one.
    pub context: Option<String>,
    /// The user in it, or that of the context.
    pub user: Option<String>,
    /// The namespace, or that of the context, or `default`.
    pub namespace: Option<String>,
    /// Another user to act as, which the server must allow.
    pub acting_as: Option<ActingAs>,
    /// How the program calls itself towards the server, which manages fields and records under that name.
    pub program: Program,
    /// Who has standard input, which a credential plugin might want.
    pub stdin: Stdin,
}

/// Somebody whom a user acts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActingAs {
    /// Their name.
    pub user: String,
    /// Their groups.
    pub groups: Vec<String>,
}

/// A client, and where its user works.
#[derive(Clone)]
pub struct Session {
    /// Speaks to the cluster with the user's credentials.
    pub client: Client,
    /// The namespace that is meant when none is named.
    pub namespace: String,
    /// The URL of the API server.
    pub server: String,
}

/// Reads the kubeconfig and prepares a client, which runs its credential plugin when it needs one.
pub async fn connect(options: &Options) -> Result<Session, ConnectError> {
    let Prepared { config, plugin } = prepare(options).await?;
    let namespace = config.default_namespace.clone();
    let server = config.cluster_url.to_string();
    let builder = client_builder_with(config, plugin);
    let client = builder.map_err(|source| ConnectError::client(options, source))?.build();
    Ok(Session { client, namespace, server })
}

/// What servers know a program by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program(pub &'static str);

impl Default for Program {
    fn default() -> Self {
        Self("waybill")
    }
}

impl Program {
    /// As in `User-Agent`.
    fn header(self) -> (HeaderName, HeaderValue) {
        let (version, os, arch) = (env!("CARGO_PKG_VERSION"), consts::OS, consts::ARCH);
        let text = format!("{}/{version} ({os}/{arch})", self.0);
        let value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("waybill"));
        (USER_AGENT, value)
    }
}

/// Prepares a client for a program that runs as a pod of the cluster, with the token of its service
/// account, which is read again as it is renewed.
pub fn connect_in_cluster() -> Result<Session, ConnectError> {
    let mut config = Config::incluster().map_err(|source| ConnectError::NoPod(Box::new(source)))?;
    config.headers.push(Program::default().header());
    let namespace = config.default_namespace.clone();
    let server = config.cluster_url.to_string();
    let client =
        Client::try_from(config).map_err(|source| ConnectError::PodClient(Box::new(source)))?;
    Ok(Session { client, namespace, server })
}

/// The credential plugin of the kubeconfig's user, if they have one that counts.
pub async fn plugin(options: &Options) -> Result<Option<Arc<Authenticator>>, ConnectError> {
    prepare(options).await.map(|prepared| prepared.plugin)
}

/// A configuration without its credential plugin, and who runs that.
pub(crate) struct Prepared {
    pub(crate) config: Config,
    pub(crate) plugin: Option<Arc<Authenticator>>,
}

/// What the kubeconfig says about the chosen context.
pub(crate) async fn prepare(options: &Options) -> Result<Prepared, ConnectError> {
    let kubeconfig = read(options).await?;
    if let Some(user) = &options.user
        && !kubeconfig.auth_infos.iter().any(|named| named.name == *user)
    {
        return Err(ConnectError::NoUser { path: options.kubeconfig.clone(), user: user.clone() });
    }
    let user = user(&kubeconfig, options);
    let proxy = proxy::written(&kubeconfig, options.context.as_deref());
    let chosen = KubeConfigOptions {
        context: options.context.clone(),
        user: options.user.clone(),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &chosen).await;
    let mut config = config.map_err(|source| ConnectError::kubeconfig(options, source))?;
    config.headers.push(options.program.header());
    if proxy.is_none() {
        config.proxy_url = proxy::of_environment(&config.cluster_url);
    }
    if let Some(namespace) = &options.namespace {
        config.default_namespace.clone_from(namespace);
    }
    if let Some(other) = &options.acting_as {
        config.auth_info.impersonate = Some(other.user.clone());
        config.auth_info.impersonate_groups = Some(other.groups.clone());
    }
    let lent = waybill_credential::Options {
        stdin: options.stdin.clone(),
        ..waybill_credential::Options::default()
    };
    let plugin = Authenticators::of_this_process().take_plugin(&user, &mut config, &lent);
    let plugin = plugin.map_err(|source| ConnectError::plugin(options, source))?;
    Ok(Prepared { config, plugin })
}

async fn read(options: &Options) -> Result<Kubeconfig, ConnectError> {
    let path = &options.kubeconfig;
    kubeconfig::read(path).await.map_err(|source| {
        // What comes through a pipe comes once.
        let text = path.is_file().then(|| fs::read_to_string(path).ok()).flatten();
        match text.and_then(|text| misspelt_interactive_mode(&text)) {
            Some(fault) => ConnectError::plugin(options, fault),
            None => ConnectError::kubeconfig(options, source),
        }
    })
}

/// The chosen user, for errors.
fn user(kubeconfig: &Kubeconfig, options: &Options) -> String {
    if let Some(user) = &options.user {
        return user.clone();
    }
    let context = options.context.as_ref().or(kubeconfig.current_context.as_ref());
    let named = kubeconfig.contexts.iter().find(|named| Some(&named.name) == context);
    named
        .and_then(|named| named.context.as_ref())
        .and_then(|context| context.user.clone())
        .unwrap_or_default()
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The kubeconfig is missing, or not one, or lacks what was asked for.
    #[error("cannot use the kubeconfig {}", path.display())]
    Kubeconfig {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// It does not have the user that was asked for; `kube` would take nobody instead.
    #[error("the kubeconfig {} has no user {user:?}", path.display())]
    NoUser {
        /// Which file.
        path: PathBuf,
        /// Who was asked for.
        user: String,
    },
    /// The certificates or the proxy in it cannot be used.
    #[error("cannot make a client from the kubeconfig {}", path.display())]
    Client {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: ClientError,
    },
    /// The credential plugin in it cannot be used.
    #[error("cannot use the credential plugin of the kubeconfig {}", path.display())]
    Plugin {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: StanzaError,
    },
    /// The process is in no pod, or the pod has no token.
    #[error("this is not a pod with the token of a service account; name a kubeconfig")]
    NoPod(#[source] Box<InClusterError>),
    /// What the pod has cannot be used.
    #[error("cannot make a client from the token of this pod's service account")]
    PodClient(#[source] Box<kube::Error>),
}

impl ConnectError {
    fn kubeconfig(options: &Options, source: KubeconfigError) -> Self {
        Self::Kubeconfig { path: options.kubeconfig.clone(), source: Box::new(source) }
    }

    pub(crate) fn client(options: &Options, source: ClientError) -> Self {
        Self::Client { path: options.kubeconfig.clone(), source }
    }

    fn plugin(options: &Options, source: StanzaError) -> Self {
        Self::Plugin { path: options.kubeconfig.clone(), source }
    }
}
