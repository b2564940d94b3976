//! The runtime about itself.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::time::sleep;
use tracing::error;
use waybill_core::chain::Chain;
use waybill_proto::cri::{
    CgroupDriver, LinuxRuntimeConfiguration, RuntimeCondition, RuntimeConfigResponse,
    RuntimeFeatures, RuntimeHandler, RuntimeHandlerFeatures, RuntimeStatus, StatusResponse,
    UpdateRuntimeConfigRequest, VersionResponse,
};

use super::Cri;
use crate::{
    engine::{Engine, EngineError},
    image::ImageError,
};

/// What `RunPodSandbox` takes as a runtime handler. There is one; it has a name besides none.
pub(crate) const HANDLERS: &[&str] = &["", "waybill"];

/// How often somebody looks whether the spawner lives.
const WATCH: Duration = Duration::from_secs(5);

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long it counts that a network could be made for a pod. Kubelets ask every few seconds, and each try costs a namespace.
const NETWORK_GOOD_FOR: Duration = Duration::from_secs(60);

/// The network of pods.
#[derive(Debug, Default)]
pub(crate) struct Network {
    /// What the kubelet told about it. Our sandboxes have loopback only, so it is shown and not used.
    pod_cidr: Mutex<String>,
    /// When one could be made for the last time.
    made_at: Mutex<Option<Instant>>,
}

impl Network {
    fn pod_cidr(&self) -> String {
        lock(&self.pod_cidr).clone()
    }

    fn set_pod_cidr(&self, cidr: String) {
        *lock(&self.pod_cidr) = cidr;
    }

    /// Why no pod can have a network of its own, by trying it now and then.
    async fn check(&self, engine: &Engine) -> Result<(), Fault> {
        if lock(&self.made_at).is_some_and(|at| at.elapsed() < NETWORK_GOOD_FOR) {
            return Ok(());
        }
        let made = engine.check_network().await;
        *lock(&self.made_at) = made.is_ok().then(Instant::now);
        made.map_err(|error| Fault {
            reason: "NoNetworkNamespace",
            message: format!("pods can have the machine's network only: {}", Chain(&error)),
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn version() -> VersionResponse {
    VersionResponse {
        // Of an interface before CRI v1; clients expect this very text.
        version: "0.1.0".to_owned(),
        runtime_name: "waybill".to_owned(),
        runtime_version: VERSION.to_owned(),
        runtime_api_version: "v1".to_owned(),
    }
}

/// We make cgroups as directories; no systemd takes part.
pub(crate) fn runtime_config() -> RuntimeConfigResponse {
    let linux = LinuxRuntimeConfiguration { cgroup_driver: CgroupDriver::Cgroupfs.into() };
    RuntimeConfigResponse { linux: Some(linux) }
}

impl Cri {
    pub(super) async fn status(&self, verbose: bool) -> StatusResponse {
        let spawner = self.engine.check().await.map_err(|error| Fault::spawner(&error));
        let ready =
            spawner.and_then(|()| self.images.check().map_err(|error| Fault::images(&error)));
        let network = match &ready {
            Ok(()) => self.network.check(&self.engine).await,
            Err(_) => Ok(()),
        };
        let info = verbose.then(|| ("info".to_owned(), self.status_info()));
        let handler = |name: &&str| RuntimeHandler {
            name: (*name).to_owned(),
            features: Some(RuntimeHandlerFeatures {
                recursive_read_only_mounts: self.machine.recursive_read_only,
                user_namespaces: self.machine.user_namespaces.is_ok(),
            }),
        };
        StatusResponse {
            status: Some(RuntimeStatus { conditions: conditions(ready.err(), network.err()) }),
            info: info.into_iter().collect(),
            runtime_handlers: HANDLERS.iter().map(handler).collect(),
            features: Some(RuntimeFeatures {
                supplemental_groups_policy: true,
                user_namespaces_host_network: false,
                exec_envs: true,
            }),
        }
    }

    /// Sees to it that there is a spawner also when nobody asks for anything, until the runtime stops.
    pub(super) async fn watch_spawner(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep(WATCH) => {}
            }
            if let Err(error) = self.engine.check().await {
                error!(error = %Chain(&error), "no container can be started without a spawner");
            }
        }
    }

    pub(super) fn update_runtime_config(&self, request: UpdateRuntimeConfigRequest) {
        let network = request.runtime_config.and_then(|config| config.network_config);
        if let Some(network) = network {
            self.network.set_pod_cidr(network.pod_cidr);
        }
    }

    fn status_info(&self) -> String {
        json!({
            "version": VERSION,
            "runDir": self.run_dir,
            "stateDir": self.state_dir,
            "streamingAddress": self.streaming.address().to_string(),
            "cgroup": if self.machine.unified { "v2" } else { "v1" },
            "userNamespaces": self.machine.user_namespaces.as_ref().err().map_or("yes", String::as_str),
            "podNetwork": "loopback",
            "podCidr": self.network.pod_cidr(),
            "unknownSandboxes": self.store.unknown_sandboxes().len(),
            "unknownContainers": self.store.unknown_containers().len(),
        })
        .to_string()
    }
}

/// Why no container can be made.
struct Fault {
    reason: &'static str,
    message: String,
}

impl Fault {
    fn spawner(error: &EngineError) -> Self {
        let message = format!("no container can be started without a spawner: {}", Chain(error));
        Self { reason: "SpawnerLost", message }
    }

    fn images(error: &ImageError) -> Self {
        Self { reason: "ImageStoreSealed", message: Chain(error).to_string() }
    }
}

fn conditions(runtime: Option<Fault>, network: Option<Fault>) -> Vec<RuntimeCondition> {
    let condition = |kind: &str, status, reason: &str, message: &str| RuntimeCondition {
        r#type: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    let runtime = match runtime {
        None => condition("RuntimeReady", true, "", ""),
        Some(Fault { reason, message }) => condition("RuntimeReady", false, reason, &message),
    };
    let network = match network {
        None => condition(
            "NetworkReady",
            true,
            "LoopbackOnly",
            "pods get the machine's network or one with nothing but loopback; CNI is not supported",
        ),
        Some(Fault { reason, message }) => condition("NetworkReady", false, reason, &message),
    };
    vec![runtime, network]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelets_find_the_conditions_they_need() {
        for needed in ["RuntimeReady", "NetworkReady"] {
            assert!(
                conditions(None, None).iter().any(|it| it.r#type == needed && it.status),
                "{needed}"
            );
        }
    }

    #[test]
    fn a_runtime_without_a_spawner_is_not_ready_and_says_why() {
        let source = std::io::Error::other("too many open files");
        let error = EngineError::Io { action: "use", path: "spawner".into(), source };
        let conditions = conditions(Some(Fault::spawner(&error)), None);
        let runtime = conditions.iter().find(|it| it.r#type == "RuntimeReady").unwrap();
        assert!(!runtime.status && runtime.reason == "SpawnerLost", "{runtime:?}");
        assert!(runtime.message.contains("too many open files"), "{runtime:?}");
    }

    #[test]
    fn the_version_is_that_of_cri_v1() {
        assert_eq!(version().runtime_api_version, "v1");
        assert_eq!(runtime_config().linux.unwrap().cgroup_driver(), CgroupDriver::Cgroupfs);
    }
}
