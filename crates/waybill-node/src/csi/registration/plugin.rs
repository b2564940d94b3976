//! One plugin: asked who it is, judged, and told what came of it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::timeout;
use tonic::{Response, Status, transport::Channel};
use tracing::warn;
use waybill_api::names::qualified_name_faults;
use waybill_core::id::DriverName;
use waybill_proto::{
    csi::{NodeGetInfoRequest, NodeGetInfoResponse, node_client::NodeClient},
    registration::{
        InfoRequest, PluginInfo, RegistrationStatus, registration_client::RegistrationClient,
    },
};

use super::super::{
    connection::{Socket, dial},
    drivers::{About, Drivers, Registered, Version},
    error::{CsiError, shown},
};

/// Plugins of other types are for others.
const CSI_PLUGIN: &str = "CSIPlugin";
/// What a plugin may take to say who it is.
const INFO: Duration = Duration::from_secs(10);
/// What a driver may take to say which node this is, as kubelets wait for it.
const NODE_INFO: Duration = Duration::from_secs(120);

/// What a path of the kernel holds.
const ENDPOINT_BYTES: usize = 4095;
/// Of the CSI specification. A longer one, or an empty one, would make the API server refuse the whole
/// CSINode, with all other drivers in it.
const NODE_ID_BYTES: usize = 256;
/// Far more than any driver has.
const TOPOLOGY_KEYS: usize = 64;

/// Why a plugin is not registered. Words of the plugin are cut to a length that a log can bear.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RegistrationError {
    #[error("the plugin cannot be asked")]
    Unreachable(#[source] CsiError),
    #[error("plugins of type \"{0}\" are not known here, only CSIPlugin is")]
    Type(String),
    #[error("\"{0}\" cannot be the name of a driver")]
    Name(String),
    #[error("none of the versions \"{0}\" is supported, only 1.x is")]
    Version(String),
    #[error("the endpoint \"{0}\" is not an absolute path of at most {ENDPOINT_BYTES} bytes")]
    Endpoint(String),
    #[error("the id of the node has {0} bytes, and must have 1 to {NODE_ID_BYTES}")]
    NodeId(usize),
    #[error("there are {0} topology keys, and must be at most {TOPOLOGY_KEYS}")]
    TopologyKeys(usize),
    #[error("the topology key \"{0}\" is not a qualified name")]
    TopologyKey(String),
    #[error("the driver cannot be asked")]
    Driver(#[source] CsiError),
    #[error("driver {name} is registered already, by {}, and is not displaced", by.display())]
    Taken { name: DriverName, by: PathBuf },
}

/// Registers the plugin at `socket`, and tells it so.
pub(super) async fn register(
    socket: &Socket,
    drivers: &Drivers,
) -> Result<DriverName, RegistrationError> {
    let dialled = dial(socket).await.map_err(RegistrationError::Unreachable)?;
    let mut plugin = RegistrationClient::new(dialled.channel.clone());
    let info = within(INFO, socket, plugin.get_info(InfoRequest {})).await;
    let info = info.map_err(RegistrationError::Unreachable)?;
    let registered = admit(&socket.path, &info, drivers).await;
    let error =
        registered.as_ref().err().map(|error| waybill_core::chain::Chain(error).to_string());
    let status =
        RegistrationStatus { plugin_registered: error.is_none(), error: error.unwrap_or_default() };
    // Whoever does not listen to the answer is registered all the same.
    let _ = timeout(INFO, plugin.notify_registration_status(status)).await;
    registered
}

async fn admit(
    by: &Path,
    info: &PluginInfo,
    drivers: &Drivers,
) -> Result<DriverName, RegistrationError> {
    let (name, version, endpoint) = judge(info)?;
    if let Some(by) = drivers.holder(&name, by, version) {
        return Err(RegistrationError::Taken { name, by });
    }
    let socket = drivers.socket(&endpoint).map_err(RegistrationError::Driver)?;
    let dialled = dial(&socket).await.map_err(RegistrationError::Driver)?;
    let (info, about) = ask_driver(&name, &socket, &dialled.channel).await?;
    let (node_id, topology_keys) = judge_node(info)?;
    let injects = about.injects;
    let by = by.to_owned();
    let driver = Registered { endpoint, by, version, node_id, topology_keys, injects };
    // Another may have come while the driver took its time.
    match drivers.register(&name, driver) {
        Ok(None) => {}
        Ok(Some(displaced)) => {
            let displaced = shown(&displaced.to_string_lossy());
            warn!(driver = %name, %displaced, "a driver is displaced by one of a higher version");
        }
        Err(by) => return Err(RegistrationError::Taken { name, by }),
    }
    Ok(name)
}

/// What a driver says about its node, if a CSINode can hold it.
fn judge_node(info: NodeGetInfoResponse) -> Result<(String, Vec<String>), RegistrationError> {
    if !(1..=NODE_ID_BYTES).contains(&info.node_id.len()) {
        return Err(RegistrationError::NodeId(info.node_id.len()));
    }
    let segments = info.accessible_topology.unwrap_or_default().segments;
    if segments.len() > TOPOLOGY_KEYS {
        return Err(RegistrationError::TopologyKeys(segments.len()));
    }
    if let Some(bad) = segments.keys().find(|key| !qualified_name_faults(key).is_empty()) {
        return Err(RegistrationError::TopologyKey(shown(bad)));
    }
    let mut keys: Vec<String> = segments.into_keys().collect();
    // So that the same keys are the same list each time.
    keys.sort();
    Ok((info.node_id, keys))
}

async fn ask_driver(
    name: &DriverName,
    socket: &Socket,
    channel: &Channel,
) -> Result<(NodeGetInfoResponse, About), RegistrationError> {
    let mut node = NodeClient::new(channel.clone());
    let info = within(NODE_INFO, socket, node.node_get_info(NodeGetInfoRequest {})).await;
    let info = info.map_err(RegistrationError::Driver)?;
    let about = timeout(INFO, About::ask(name, socket, channel, INFO)).await;
    let about = about.unwrap_or(Err(CsiError::Timeout { limit: INFO }));
    Ok((info, about.map_err(RegistrationError::Driver)?))
}

async fn within<T>(
    limit: Duration,
    socket: &Socket,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CsiError> {
    match timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => {
            let why = shown(status.message());
            Err(CsiError::Connect { path: socket.path.clone(), why })
        }
        Err(_) => Err(CsiError::Timeout { limit }),
    }
}

/// What a plugin says about itself, if that can be.
fn judge(info: &PluginInfo) -> Result<(DriverName, Version, PathBuf), RegistrationError> {
    if info.r#type != CSI_PLUGIN {
        return Err(RegistrationError::Type(shown(&info.r#type)));
    }
    let Ok(name) = DriverName::parse(&info.name) else {
        return Err(RegistrationError::Name(shown(&info.name)));
    };
    let versions = info.supported_versions.iter().filter_map(|text| parse_version(text));
    let Some(version) = versions.filter(|version| version.0 == 1).max() else {
        return Err(RegistrationError::Version(shown(&info.supported_versions.join(", "))));
    };
    // Never an address of a network, whatever the plugin says (CSI-26).
    let path = info.endpoint.strip_prefix("unix://").unwrap_or(&info.endpoint);
    match Path::new(path) {
        path if path.is_absolute() && path.as_os_str().len() <= ENDPOINT_BYTES => {
            Ok((name, version, path.to_owned()))
        }
        _ => Err(RegistrationError::Endpoint(shown(&info.endpoint))),
    }
}

/// `1.0.0`, with or without a `v` in front and what follows a `-`.
fn parse_version(text: &str) -> Option<Version> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts = text.split(['-', '+']).next()?.split('.').map(str::parse);
    let version = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    parts.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, endpoint: &str, versions: &[&str]) -> PluginInfo {
        PluginInfo {
            r#type: CSI_PLUGIN.to_owned(),
            name: name.to_owned(),
            endpoint: endpoint.to_owned(),
            supported_versions: versions.iter().map(|version| (*version).to_owned()).collect(),
        }
    }

    /// CSI-26
    #[test]
    fn a_plugin_has_a_name_a_path_and_a_version_of_csi_1_csi_26() {
        let found = judge(&info("a.b", "/p/csi.sock", &["0.3.0", "1.0.0", "v1.2.0-rc1"])).unwrap();
        assert_eq!(found.1, (1, 2, 0));
        assert_eq!(found.2, Path::new("/p/csi.sock"));
        assert!(judge(&info("a.b", "unix:///p/csi.sock", &["1.0.0"])).is_ok());
        for bad in [
            info("../a", "/p", &["1.0.0"]),
            info("", "/p", &["1.0.0"]),
            info("a.b", "csi.sock", &["1.0.0"]),
            info("a.b", "tcp://192.0.2.1:9000", &["1.0.0"]),
            info("a.b", "192.0.2.1:9000", &["1.0.0"]),
            info("a.b", "", &["1.0.0"]),
            info("a.b", "/p", &[]),
            info("a.b", "/p", &["0.9.0", "2.0.0", "1", "x"]),
            PluginInfo { r#type: "DevicePlugin".to_owned(), ..info("a.b", "/p", &["1.0.0"]) },
        ] {
            assert!(judge(&bad).is_err(), "{bad:?}");
        }
    }

    /// Each try is a line in the log.
    #[test]
    fn words_of_a_plugin_are_cut_in_errors_csi_26() {
        let long = "x\n".repeat(100_000);
        for bad in [
            info(&long, "/p", &["1.0.0"]),
            info("a.b", &long, &["1.0.0"]),
            info("a.b", &format!("/{long}"), &["1.0.0"]),
            info("a.b", "/p", &[&long]),
            info("a.b", "/p", &["0.1.0"; 10_000]),
            PluginInfo { r#type: long.clone(), ..info("a.b", "/p", &["1.0.0"]) },
        ] {
            let error = judge(&bad).unwrap_err().to_string();
            assert!(error.len() < 2000 && !error.contains('\n'), "{error:.200}");
        }
    }
}
