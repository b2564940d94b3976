//! The drivers of this node: where each is, what it can do, and how many calls to it are under way.
//!
//! A driver that registered is where it said. Any other is looked for at the fixed path, so that a
//! driver without a registrar works too (CSI-26).

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::timeout};
use tonic::Code;
use tonic::transport::Channel;
use waybill_core::id::DriverName;
use waybill_proto::csi::{
    GetPluginInfoRequest, NodeGetCapabilitiesRequest, NodeServiceCapability,
    identity_client::IdentityClient,
    node_client::NodeClient,
    node_service_capability::{Type, rpc},
};

use super::{
    connection::{Dialled, Socket, dial},
    error::CsiError,
    in_flight::InFlight,
    limits::DriverHints,
};

/// The socket of a driver in its own directory.
const SOCKET: &str = "csi.sock";

/// All drivers.
pub(crate) struct Drivers {
    plugins: PathBuf,
    registered: watch::Sender<BTreeMap<DriverName, Registered>>,
    connections: Mutex<HashMap<DriverName, Arc<Connection>>>,
    in_flight: Mutex<HashMap<Pool, Arc<InFlight>>>,
}

/// Calls that are limited together: those to a driver, or those of one class to it.
type Pool = (DriverName, Option<String>);

/// A driver that registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(super) endpoint: PathBuf,
    /// The socket by which it registered.
    pub(super) by: PathBuf,
    /// The version of CSI that it speaks.
    pub(super) version: Version,
    pub(super) node_id: String,
    pub(super) topology_keys: Vec<String>,
    /// Whether it gives variables.
    pub(super) injects: bool,
}

/// Major, minor, patch.
pub(super) type Version = (u64, u64, u64);

/// A driver that was asked what it can do.
pub(super) struct Connection {
    socket: Socket,
    dialled: Dialled,
    pub(super) about: About,
}

/// What a driver says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct About {
    pub(super) vendor_version: String,
    /// Whether it has ENV_VAR_INJECTION (CSI-06).
    pub(super) injects: bool,
    pub(super) hints: DriverHints,
}

impl Drivers {
    pub(crate) fn new(plugins: PathBuf) -> Self {
        Self {
            plugins,
            registered: watch::Sender::default(),
            connections: Mutex::default(),
            in_flight: Mutex::default(),
        }
    }

    /// The socket of a driver, wherever it says that it is.
    pub(super) fn socket(&self, endpoint: &Path) -> Result<Socket, CsiError> {
        Ok(Socket::find(endpoint)?.below(&self.plugins))
    }

    /// The drivers that registered, now and later.
    pub(super) fn registered(&self) -> watch::Receiver<BTreeMap<DriverName, Registered>> {
        self.registered.subscribe()
    }

    /// The socket that keeps `by` from registering under a name: as kubelets have it, only a higher
    /// version displaces another; and nobody displaces a driver of variables while it is there.
    pub(super) fn holder(&self, name: &DriverName, by: &Path, version: Version) -> Option<PathBuf> {
        holder(&self.registered.borrow(), name, by, version)
    }

    /// Registers a driver, unless another has the name by now: that is the socket in the error. Who was
    /// displaced is returned.
    pub(super) fn register(
        &self,
        name: &DriverName,
        driver: Registered,
    ) -> Result<Option<PathBuf>, PathBuf> {
        let mut result = Ok(None);
        self.registered.send_if_modified(|all| {
            if let Some(other) = holder(all, name, &driver.by, driver.version) {
                result = Err(other);
                return false;
            }
            let by = driver.by.clone();
            let before = all.insert(name.clone(), driver).map(|before| before.by);
            result = Ok(before.filter(|before| *before != by));
            true
        });
        result
    }

    /// Waits until nobody is registered under a name.
    pub(super) async fn free(&self, name: &DriverName) {
        // The sender is ours, so there is news as long as we wait.
        let _ = self.registered().wait_for(|all| !all.contains_key(name)).await;
    }

    /// Whoever registered by the socket `by` is not there any more.
    pub(super) fn deregister(&self, by: &Path) {
        self.registered.send_if_modified(|all| {
            let before = all.len();
            all.retain(|_, driver| driver.by != by);
            all.len() < before
        });
    }

    /// A connection to the driver, which has been asked what it can do; the one that there is, unless
    /// the driver was started again since.
    pub(super) async fn connection(
        &self,
        name: &DriverName,
        limit: Duration,
    ) -> Result<Arc<Connection>, CsiError> {
        let socket = self.socket(&self.endpoint(name))?;
        let held = lock(&self.connections).get(name).cloned();
        if let Some(held) = held
            && held.socket == socket
            && !held.dialled.is_closed()
        {
            return Ok(held);
        }
        let dialled = dial(&socket).await?;
        // Several may do this at once, so that none waits for another's slow answer.
        let about = match timeout(limit, About::ask(name, &socket, &dialled.channel, limit)).await {
            Ok(about) => about?,
            Err(_) => return Err(CsiError::Timeout { limit }),
        };
        let connection = Arc::new(Connection { socket, dialled, about });
        lock(&self.connections).insert(name.clone(), Arc::clone(&connection));
        Ok(connection)
    }

    /// The connection did not hold; the next call dials anew.
    pub(super) fn forget(&self, name: &DriverName, connection: &Arc<Connection>) {
        let mut connections = lock(&self.connections);
        if connections.get(name).is_some_and(|held| Arc::ptr_eq(held, connection)) {
            connections.remove(name);
        }
    }

    /// The calls to one driver that are under way, but for those of classes that have a limit of their own;
    /// or the calls of such a class.
    pub(super) fn in_flight(&self, name: &DriverName, class: Option<&str>) -> Arc<InFlight> {
        let mut all = lock(&self.in_flight);
        // Who has no calls is held by nobody else.
        all.retain(|_, calls| Arc::strong_count(calls) > 1);
        Arc::clone(all.entry((name.clone(), class.map(str::to_owned))).or_default())
    }

    fn endpoint(&self, name: &DriverName) -> PathBuf {
        let registered = self.registered.borrow().get(name).map(|driver| driver.endpoint.clone());
        registered.unwrap_or_else(|| self.plugins.join(name.as_str()).join(SOCKET))
    }
}

impl Connection {
    pub(super) fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.dialled.channel.clone())
    }
}

impl About {
    /// Asks a driver, and makes sure that it is the one that is meant.
    pub(super) async fn ask(
        name: &DriverName,
        socket: &Socket,
        channel: &Channel,
        limit: Duration,
    ) -> Result<Self, CsiError> {
        let failed = |status| CsiError::of_status(name.as_str(), &status, limit);
        let mut identity = IdentityClient::new(channel.clone());
        let info = match identity.get_plugin_info(GetPluginInfoRequest {}).await {
            Ok(info) => info.into_inner(),
            // Only who speaks of itself can be found out.
            Err(status) if status.code() == Code::Unimplemented => Default::default(),
            Err(status) => return Err(failed(status)),
        };
        if !info.name.is_empty() && info.name != name.as_str() {
            return Err(CsiError::OtherName {
                path: socket.path.clone(),
                driver: name.to_string(),
                found: super::error::shown(&info.name),
            });
        }
        let mut node = NodeClient::new(channel.clone());
        let capabilities = node.node_get_capabilities(NodeGetCapabilitiesRequest {}).await;
        let capabilities = match capabilities {
            Ok(answer) => answer.into_inner().capabilities,
            Err(status) if status.code() == Code::Unimplemented => Vec::new(),
            Err(status) => return Err(failed(status)),
        };
        Ok(Self { vendor_version: info.vendor_version, ..Self::of(&capabilities) })
    }

    fn of(capabilities: &[NodeServiceCapability]) -> Self {
        let mut about = Self::default();
        for capability in capabilities {
            match &capability.r#type {
                Some(Type::Rpc(rpc)) => {
                    about.injects |= rpc.r#type() == rpc::Type::EnvVarInjection;
                }
                Some(Type::EnvVarInjection(told)) => about.hints = DriverHints::read(told),
                None => {}
            }
        }
        about
    }
}

fn holder(
    all: &BTreeMap<DriverName, Registered>,
    name: &DriverName,
    by: &Path,
    version: Version,
) -> Option<PathBuf> {
    // Whoever took the name of a driver of variables would get tokens of pods, and could give them any value.
    let stays = |other: &&Registered| other.injects || other.version >= version;
    let other = all.get(name).filter(|other| other.by != by).filter(stays);
    other.map(|other| other.by.clone())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
