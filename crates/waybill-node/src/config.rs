//! How a node runs.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use waybill_api::gates::FeatureGates;

use crate::{
    Clock,
    csi::CsiConfig,
    directories::Directories,
    image_collection::ImageLimits,
    pressure::EvictionLimits,
    rotation::LogLimits,
    server::{ExecEnvPolicy, ExecSessionPolicy, PairPaths},
    worker::SysctlPolicy,
};

/// Everything that a node is told at its start.
#[derive(Clone)]
pub struct Config {
    /// The name of the node, which pods name in `spec.nodeName`.
    pub name: String,
    /// Where it keeps what belongs to pods.
    pub directories: Directories,
    /// The socket of the container runtime.
    pub runtime: PathBuf,
    /// The socket of whoever records what runs in sessions; nobody need be there.
    pub collector: PathBuf,
    /// Where the node's own API listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the API server reaches it.
    pub address: IpAddr,
    /// What the node's own API shows to its clients.
    pub serving: PairPaths,
    /// Who vouches for clients of the node's own API: certificates, PEM.
    pub client_ca: PathBuf,
    /// The API server; without one the node is on its own and runs static pods only.
    pub cluster: Option<waybill_client::Options>,
    /// The directory of static pods.
    pub static_pods: Option<PathBuf>,
    /// Which features are on.
    pub gates: FeatureGates,
    /// What happens to the variables of an exec session if the runtime cannot pass them on.
    pub exec_env: ExecEnvPolicy,
    /// Which exec sessions are served: all, or those that the API server signed.
    pub exec_sessions: ExecSessionPolicy,
    /// How drivers of variables are found and called.
    pub csi: CsiConfig,
    /// Above the cgroups of all pods, such as `/waybill`.
    pub cgroup_root: String,
    /// More pods than this are not meant for the node.
    pub max_pods: u32,
    /// How many processes and threads a pod may have; none above the node's own limit unless it is positive.
    pub pod_max_pids: i64,
    /// What logs of one container may take.
    pub log_limits: LogLimits,
    /// When images that nobody uses are removed.
    pub image_limits: ImageLimits,
    /// When pods go because the machine is short of something.
    pub eviction: EvictionLimits,
    /// Which kernel settings pods may ask for.
    pub sysctls: SysctlPolicy,
    /// Labels of the node's object.
    pub labels: BTreeMap<String, String>,
    /// What time it is.
    pub clock: Clock,
}
