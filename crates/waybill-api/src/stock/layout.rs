//! What lies where on a node: the wrapper's configuration, and the agent's directory of memory.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use waybill_core::id::PodUid;

use super::SessionId;

/// The API group of gate.
pub const STOCK_GROUP: &str = "exec.waybill.dev";

/// Its version.
pub const STOCK_VERSION: &str = "v1";

/// How the name of the ConfigMap begins that holds a node's public key; the node's name follows.
pub const NODE_CONFIG_MAP_PREFIX: &str = "waybill-node-";

/// Its key.
pub const NODE_CONFIG_MAP_KEY: &str = "sealing";

/// The wrapper's configuration, one directory above the program.
pub const CONFIG_FILE: &str = "oci.json";

/// How old a marker of first use must be before the agent removes it, in seconds: older than anything that
/// it guards against.
pub const MARKER_SECONDS: u64 = 600;

/// How markers of debug containers begin.
const DEBUG_MARKER: &str = "debug-";

/// The wrapper's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrapperConfig {
    /// 1.
    pub version: u32,
    /// The real runtime.
    pub runtime: PathBuf,
    /// The agent's directory.
    pub run: PathBuf,
    /// What becomes of an exec without a session in a pod that the agent says nothing about.
    pub mode: Mode,
    /// Who calls the wrapper, and so whose notes about containers count: others may be what a pod brought along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
}

/// What makes containers on a node, above the OCI runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// containerd, k3s and RKE2.
    Containerd,
    /// CRI-O.
    Crio,
}

impl WrapperConfig {
    /// The version that is known here; the wrapper refuses to act on another.
    pub const VERSION: u32 = 1;
}

/// What becomes of an exec that no gate has seen and that is neither probe nor hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It is refused.
    Enforce,
    /// It happens, and is on record as nobody's.
    Record,
}

/// What the agent knows from the API's pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodFacts {
    /// 1.
    pub version: u32,
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub name: String,
    /// What its namespace asks for.
    pub mode: Mode,
    /// Its containers by name, of every kind.
    pub containers: BTreeMap<String, ContainerFacts>,
}

impl PodFacts {
    /// The version that is known here.
    pub const VERSION: u32 = 1;
}

/// What the agent knows of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerFacts {
    /// Commands of its probes, as the kubelet expands them.
    pub probes: Vec<Vec<String>>,
    /// Commands of its hooks, as they are written.
    pub hooks: Vec<Vec<String>>,
    /// Variables whose literal value in the pod is a reference.
    pub references: Vec<String>,
}

/// The agent's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    run: PathBuf,
}

impl Layout {
    /// The layout below `run`, which is `/run/waybill` on a node.
    pub fn new(run: impl Into<PathBuf>) -> Self {
        Self { run: run.into() }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.run
    }

    /// Gate's public keys.
    pub fn keys(&self) -> PathBuf {
        self.run.join("keys.json")
    }

    /// The directory of the node's private keys.
    pub fn seals(&self) -> PathBuf {
        self.run.join("seal")
    }

    /// The private key called `kid`; `None` for a name that is not fit for a file.
    pub fn seal(&self, kid: &str) -> Option<PathBuf> {
        let fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let named = (1..=64).contains(&kid.len()) && kid.bytes().all(fit);
        named.then(|| self.seals().join(kid))
    }

    /// The directory of markers of first use.
    pub fn used(&self) -> PathBuf {
        self.run.join("used")
    }

    /// The marker of a session's token.
    pub fn used_session(&self, session: &SessionId) -> PathBuf {
        self.used().join(session.as_str())
    }

    /// The marker of a debug container's token. It stays for as long as its pod lives, since that is how long the token
    /// could be used: [`Self::pod_of_debug`] says whose it is.
    pub fn used_debug(&self, pod: &PodUid, session: &SessionId) -> PathBuf {
        self.used().join(format!("{DEBUG_MARKER}{session}-{pod}"))
    }

    /// The pod of a debug container's marker, by the marker's name.
    pub fn pod_of_debug(name: &str) -> Option<PodUid> {
        let (session, pod) = name.strip_prefix(DEBUG_MARKER)?.split_once('-')?;
        SessionId::parse(session).ok()?;
        PodUid::parse(pod).ok()
    }

    /// The marker of sealed variables, by the SHA-256 of their seal.
    pub fn used_sealed(&self, digest: &[u8; 32]) -> PathBuf {
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.used().join(format!("sealed-{digits}"))
    }

    /// The directory of what is known about pods.
    pub fn pods(&self) -> PathBuf {
        self.run.join("pods")
    }

    /// What is known about one.
    pub fn pod(&self, uid: &PodUid) -> PathBuf {
        self.pods().join(format!("{uid}.json"))
    }

    /// The directory of records.
    pub fn sessions(&self) -> PathBuf {
        self.run.join("sessions")
    }

    /// The record of a session.
    pub fn session(&self, session: &SessionId) -> PathBuf {
        self.sessions().join(format!("{session}.json"))
    }

    /// The record of an exec that is no session.
    pub fn unattributed(&self, random: &SessionId) -> PathBuf {
        self.sessions().join(format!("unattributed-{random}.json"))
    }

    /// The agent's socket.
    pub fn socket(&self) -> PathBuf {
        self.run.join("agent.sock")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn files_lie_here() {
        let layout = Layout::new("/run/waybill");
        let session = SessionId::from_random([0x11; 16]);
        let digits = "11".repeat(16);
        let path = |path: PathBuf| path.to_str().unwrap().to_owned();
        assert_eq!(path(layout.keys()), "/run/waybill/keys.json");
        assert_eq!(path(layout.seal("k-1").unwrap()), "/run/waybill/seal/k-1");
        assert_eq!(path(layout.used_session(&session)), format!("/run/waybill/used/{digits}"));
        assert_eq!(
            path(layout.used_sealed(&[0x22; 32])),
            format!("/run/waybill/used/sealed-{}", "22".repeat(32))
        );
        let pod = PodUid::parse("u-1").unwrap();
        let marker = layout.used_debug(&pod, &session);
        assert_eq!(path(marker.clone()), format!("/run/waybill/used/debug-{digits}-u-1"));
        assert_eq!(Layout::pod_of_debug(marker.file_name().unwrap().to_str().unwrap()), Some(pod));
        for other in [&digits, "debug-u-1", "debug-", &format!("sealed-{digits}")] {
            assert_eq!(Layout::pod_of_debug(other), None, "{other}");
        }
        assert_eq!(path(layout.pod(&PodUid::parse("u-1").unwrap())), "/run/waybill/pods/u-1.json");
        assert_eq!(path(layout.session(&session)), format!("/run/waybill/sessions/{digits}.json"));
        assert_eq!(
            path(layout.unattributed(&session)),
            format!("/run/waybill/sessions/unattributed-{digits}.json")
        );
        assert_eq!(path(layout.socket()), "/run/waybill/agent.sock");
    }

    #[test]
    fn the_name_of_a_key_is_no_path() {
        for kid in ["", "..", "a/b", "a.b", "a\0", &"k".repeat(65)] {
            assert_eq!(Layout::new("/r").seal(kid), None, "{kid}");
        }
    }

    #[test]
    fn the_configuration_has_these_names() {
        let mut json = json!({"version": 1, "runtime": "/usr/sbin/runc", "run": "/run/waybill", "mode": "enforce"});
        let config: WrapperConfig = from_value(json.clone()).unwrap();
        assert_eq!((config.mode, config.engine), (Mode::Enforce, None));
        assert_eq!(to_value(config).unwrap(), json);
        for (name, engine) in [("containerd", Engine::Containerd), ("crio", Engine::Crio)] {
            json["engine"] = name.into();
            let config: WrapperConfig = from_value(json.clone()).unwrap();
            assert_eq!(config.engine, Some(engine));
            assert_eq!(to_value(config).unwrap(), json);
        }
    }

    #[test]
    fn facts_have_these_names() {
        let json = json!({"version": 1, "namespace": "ns", "name": "web", "mode": "record", "containers": {
            "main": {"probes": [["cat", "/x"]], "hooks": [], "references": ["PASSWORD"]}}});
        let facts: PodFacts = from_value(json.clone()).unwrap();
        assert_eq!(facts.containers["main"].probes, [["cat", "/x"]]);
        assert_eq!(to_value(facts).unwrap(), json);
    }
}
