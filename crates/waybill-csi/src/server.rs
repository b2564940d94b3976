//! A driver as a process: its socket, its registration with the kubelet, its metrics, its end.
//!
//! Whoever may connect is root on this machine, or the user of the driver itself.

mod metrics;
mod node;
mod plugin;
mod plugin_server;
mod registration;
mod socket;

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport;
use tracing::{error, info, warn};
use waybill_core::chain::Chain;
use waybill_proto::csi::{
    identity_server::IdentityServer,
    node_server::{Node, NodeServer},
};

pub(crate) use self::node::NodeService;
use self::{plugin::Plugin, registration::Registration};
pub use self::{plugin_server::PluginServer, socket::Socket};
use crate::{cache::Cache, driver::Driver, metrics::Metrics, rate::Rate};

/// Beyond it a request is not even read; one that is too large otherwise gets an answer.
const MESSAGE_BYTES: usize = 4 << 20;

/// What calls under way may take when the driver stops.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// What a driver may take then to give back what it holds at its backend.
const RELEASE_LIMIT: Duration = Duration::from_secs(4);

/// Longest name that the interface allows.
const NAME_BYTES: usize = 63;

/// How a driver is served.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of the socket, by convention `/var/lib/kubelet/plugins/<driver>/csi.sock`.
    pub socket: PathBuf,
    /// Where the kubelet looks for new plugins, by convention `/var/lib/kubelet/plugins_registry`;
    /// nothing for a driver that somebody else registers.
    pub registration_dir: Option<PathBuf>,
    /// Where the kubelet finds the socket, if it sees it at another path than the driver does.
    pub kubelet_socket: Option<PathBuf>,
    /// What the node is called.
    pub node_id: String,
    /// How often each namespace may ask; nothing for as often as it likes.
    pub rate: Option<Rate>,
    /// How much the cache may hold.
    pub cache_bytes: usize,
    /// Where metrics are served; port 0 takes a free one.
    pub metrics_listen: Option<SocketAddr>,
}

impl Config {
    /// A driver at `socket` that does not register.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            registration_dir: None,
            kubelet_socket: None,
            node_id: "node".to_owned(),
            rate: Some(Rate::default()),
            cache_bytes: 4 << 20,
            metrics_listen: None,
        }
    }
}

/// A driver that serves. Stop it with [`Server::stop`]; on drop it ends without waiting for calls.
pub struct Server {
    name: String,
    cache: Arc<Cache>,
    metrics_address: Option<SocketAddr>,
    tasks: TaskTracker,
    stop: CancellationToken,
    failure: watch::Receiver<Option<String>>,
}

/// Why a driver cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Not what a driver can be called.
    #[error(
        "{name:?} is not a name for a driver: lower case letters, digits, '-' and '.', at most 63"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A path or an address cannot be used.
    #[error("cannot listen at {place}")]
    Listen {
        /// A path or an address.
        place: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Server {
    /// Serves `driver`; callers find it when this returns.
    pub async fn start<D: Driver>(driver: D, config: Config) -> Result<Self, ServerError> {
        Self::start_with(driver, config, |service| service).await
    }

    /// The same with something between the service and its callers.
    pub(crate) async fn start_with<D: Driver, N: Node>(
        driver: D,
        config: Config,
        wrap: impl FnOnce(NodeService<D>) -> N,
    ) -> Result<Self, ServerError> {
        let name = driver.name().to_owned();
        check_name(&name)?;
        let at = |place: String| move |source| ServerError::Listen { place, source };
        let at_path = |path: &Path| at(path.display().to_string());
        let cache = Arc::new(Cache::new(config.cache_bytes));
        let metrics = Arc::new(Metrics::new(driver.backend()));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (fail, failure) = watch::channel(None);
        let fail = Arc::new(fail);

        let metrics_address = match config.metrics_listen {
            Some(address) => {
                let (address, serving) = metrics::serve(address, Arc::clone(&metrics))
                    .await
                    .map_err(at(address.to_string()))?;
                tasks.spawn(stop.clone().run_until_cancelled_owned(serving));
                Some(address)
            }
            None => None,
        };
        let socket = Socket::bind(&config.socket).map_err(at_path(&config.socket))?;
        let registration = match &config.registration_dir {
            Some(directory) => {
                let path = directory.join(format!("{name}-reg.sock"));
                let endpoint = config.kubelet_socket.as_ref().unwrap_or(&config.socket);
                let service = Registration::new(&name, endpoint, Arc::clone(&fail));
                Some((Socket::bind(&path).map_err(at_path(&path))?, service))
            }
            None => None,
        };

        let plugin = Plugin { name: name.clone(), version: driver.version().to_owned() };
        let sweeper = Arc::clone(&cache);
        tasks.spawn(stop.clone().run_until_cancelled_owned(async move { sweeper.sweep().await }));
        let driver = Arc::new(driver);
        let service = NodeService::new(Arc::clone(&driver), &config, Arc::clone(&cache), metrics);
        let services = transport::Server::builder()
            .add_service(IdentityServer::new(plugin))
            .add_service(NodeServer::new(wrap(service)).max_decoding_message_size(MESSAGE_BYTES));
        let serving = services.serve_with_incoming_shutdown(
            socket.connections(stop.clone()),
            stop.clone().cancelled_owned(),
        );
        let serving = report(serving, Arc::clone(&fail));
        tasks.spawn(serve_and_release(serving, driver, stop.clone()));
        if let Some((socket, service)) = registration {
            tasks.spawn(service.serve(socket, stop.clone()));
        }
        info!(driver = name, socket = %config.socket.display(), "serving");
        Ok(Self { name, cache, metrics_address, tasks, stop, failure })
    }

    /// The name of the driver.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it keeps, to invalidate it.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Where metrics are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Ends when the driver fails, or when the kubelet refuses it: a driver that was refused should end, so
    /// that it is started again and asks again. Never ends if all is well.
    pub async fn failed(&mut self) -> String {
        match self.failure.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => "the server ended".to_owned(),
        }
    }

    /// Deregisters, accepts nothing new, lets calls under way end for a while, lets the driver give back what it
    /// holds at its backend, and ends.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        // Each task has a limit of its own; this one is for what nobody thought of.
        let limit = STOP_LIMIT + RELEASE_LIMIT + Duration::from_secs(1);
        if timeout(limit, self.tasks.wait()).await.is_err() {
            warn!(driver = self.name, "something is still under way at the end");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Serves until `stop`; then calls under way have their time, and the driver has its own.
async fn serve_and_release<D: Driver>(
    serving: impl Future<Output = ()>,
    driver: Arc<D>,
    stop: CancellationToken,
) {
    let late = async {
        stop.cancelled().await;
        sleep(STOP_LIMIT).await;
    };
    tokio::select! {
        () = serving => {}
        () = late => warn!(driver = driver.name(), "calls under way are given up"),
    }
    if timeout(RELEASE_LIMIT, driver.release()).await.is_err() {
        warn!(
            driver = driver.name(),
            "the backend is too slow to take everything back; the rest ends by itself"
        );
    }
}

async fn report(
    serving: impl Future<Output = Result<(), transport::Error>>,
    fail: Arc<watch::Sender<Option<String>>>,
) {
    if let Err(failure) = serving.await {
        let reason = Chain(&failure).to_string();
        error!(reason, "the server failed");
        fail.send_replace(Some(reason));
    }
}

/// The interface asks for a domain name; ours is also part of a path and a label.
fn check_name(name: &str) -> Result<(), ServerError> {
    let fit =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let ends = [name.bytes().next(), name.bytes().next_back()];
    let ends_fit = ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()));
    if name.len() <= NAME_BYTES && ends_fit && name.bytes().all(fit) && !name.contains("..") {
        return Ok(());
    }
    Err(ServerError::Name { name: name.to_owned() })
}

#[cfg(test)]
mod tests;
