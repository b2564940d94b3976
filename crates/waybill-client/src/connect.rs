//! From a kubeconfig to a client.

mod kubeconfig;

use std::path::PathBuf;

use kube::{
    Client, Config,
    config::{InClusterError, KubeConfigOptions, KubeconfigError},
};

/// Which cluster to talk to, as whom, and where.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
    /// The context in it, or its current one.
    pub context: Option<String>,
    /// The namespace, or that of the context, or `default`.
    pub namespace: Option<String>,
    /// Another user to act as, which the server must allow.
    pub acting_as: Option<ActingAs>,
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

/// Reads the kubeconfig and prepares a client, for which its credential plugin is run if it has one.
pub async fn connect(options: &Options) -> Result<Session, ConnectError> {
    let config = config(options).await?;
    let namespace = config.default_namespace.clone();
    let server = config.cluster_url.to_string();
    let client = Client::try_from(config).map_err(|source| ConnectError::Client {
        path: options.kubeconfig.clone(),
        source: Box::new(source),
    })?;
    Ok(Session { client, namespace, server })
}

/// Prepares a client for a program that runs as a pod of the cluster, with the token of its service
/// account, which is read again as it is renewed.
pub fn connect_in_cluster() -> Result<Session, ConnectError> {
    let config = Config::incluster().map_err(|source| ConnectError::NoPod(Box::new(source)))?;
    let namespace = config.default_namespace.clone();
    let server = config.cluster_url.to_string();
    let client =
        Client::try_from(config).map_err(|source| ConnectError::PodClient(Box::new(source)))?;
    Ok(Session { client, namespace, server })
}

/// What the kubeconfig says about the chosen context.
pub(crate) async fn config(options: &Options) -> Result<Config, ConnectError> {
    let unusable = |source| ConnectError::Kubeconfig {
        path: options.kubeconfig.clone(),
        source: Box::new(source),
    };
    let kubeconfig = kubeconfig::read(&options.kubeconfig).await.map_err(unusable)?;
    let chosen =
        KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &chosen).await;
    let mut config = config.map_err(unusable)?;
    if let Some(namespace) = &options.namespace {
        config.default_namespace.clone_from(namespace);
    }
    if let Some(other) = &options.acting_as {
        config.auth_info.impersonate = Some(other.user.clone());
        config.auth_info.impersonate_groups = Some(other.groups.clone());
    }
    Ok(config)
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
    /// The certificates or the proxy in it cannot be used.
    #[error("cannot make a client from the kubeconfig {}", path.display())]
    Client {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<kube::Error>,
    },
    /// The process is in no pod, or the pod has no token.
    #[error("this is not a pod with the token of a service account; name a kubeconfig")]
    NoPod(#[source] Box<InClusterError>),
    /// What the pod has cannot be used.
    #[error("cannot make a client from the token of this pod's service account")]
    PodClient(#[source] Box<kube::Error>),
}
