//! Kubernetes' own kubelet, where somebody has built one: alone, with static pods and no API server, or as the node of one.

use std::{
    env, fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::{child::Killed, port, skip::skip};

/// Names the folder with `kubelet`.
const VARIABLE: &str = "WAYBILL_STOCK_BIN";

/// What xtask calls it; tests that lack it are no fault.
const NAME: &str = "stock-kubelet";

/// A kubelet that runs what its folder of manifests holds. Stopped on drop; its pods are not.
#[derive(Debug)]
pub struct StockKubelet {
    _child: Killed,
    directory: PathBuf,
    port: u16,
}

/// The API server that a kubelet is a node of, and who it is there; all are files.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// With which it connects to the API server.
    pub kubeconfig: &'a Path,
    /// What it shows to its own clients.
    pub serving_certificate: &'a Path,
    /// The key of that certificate.
    pub serving_key: &'a Path,
    /// Who vouches for its clients.
    pub authority: &'a Path,
}

impl StockKubelet {
    /// The program; `None`, with a word about it, where nobody has built one.
    pub fn find() -> Option<PathBuf> {
        let binary = env::var_os(VARIABLE).map(|folder| Path::new(&folder).join("kubelet"));
        let found = binary.filter(|binary| binary.is_file());
        if found.is_none() {
            skip(NAME, &format!("build one, and name its folder with {VARIABLE}"));
        }
        found
    }

    /// Starts it on a runtime, with all it has in `directory`. Kubelets refuse loopback as the address of their node, so
    /// `address` is another one of this network namespace.
    pub fn start(binary: &Path, directory: &Path, runtime: &Path, address: &str) -> Self {
        let [port] = port::lasting();
        let serving = format!(
            "address: 127.0.0.1\nport: 0\nreadOnlyPort: {port}\n\
             authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: false}}}}\n\
             authorization: {{mode: AlwaysAllow}}\n"
        );
        let configuration = configuration(directory, runtime, &serving);
        Self::spawn(binary, directory, &configuration, address, None, port)
    }

    /// The same as the node `stock-node` of an API server, which it asks about whoever connects to it.
    pub fn start_in(
        cluster: Cluster<'_>,
        binary: &Path,
        directory: &Path,
        runtime: &Path,
        address: &str,
    ) -> Self {
        let [port] = port::lasting();
        let serving = format!(
            "address: {address}\nport: {port}\ntlsCertFile: {}\ntlsPrivateKeyFile: {}\n\
             authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, \
             x509: {{clientCAFile: {}}}}}\nauthorization: {{mode: Webhook}}\n",
            cluster.serving_certificate.display(),
            cluster.serving_key.display(),
            cluster.authority.display(),
        );
        let configuration = configuration(directory, runtime, &serving);
        let kubeconfig = Some(cluster.kubeconfig);
        Self::spawn(binary, directory, &configuration, address, kubeconfig, port)
    }

    fn spawn(
        binary: &Path,
        directory: &Path,
        configuration: &str,
        address: &str,
        kubeconfig: Option<&Path>,
        port: u16,
    ) -> Self {
        let below = |name: &str| directory.join(name).display().to_string();
        for name in ["manifests", "pod-logs"] {
            fs::create_dir_all(below(name)).expect("the directory is ours");
        }
        fs::write(below("kubelet.yaml"), configuration).expect("the directory is ours");
        let log = fs::File::create(below("kubelet.log")).expect("the directory is ours");
        let mut command = Command::new(binary);
        command.args(["--config", &below("kubelet.yaml"), "--root-dir", &below("kubelet")]);
        command.args(["--cert-dir", &below("tls"), "--node-ip", address]);
        command.args(["--hostname-override", "stock-node"]).current_dir(directory);
        if let Some(kubeconfig) = kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        let child = Killed::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log));
        Self { _child: child, directory: directory.to_owned(), port }
    }

    /// Writes a manifest, which is a pod.
    pub fn run(&self, pod: &Value) {
        let path = self.manifest(pod);
        // Under a name that it ignores until all is there.
        let new = path.with_file_name(".new");
        fs::write(&new, pod.to_string()).expect("the directory is ours");
        fs::rename(new, path).expect("the directory is ours");
    }

    /// Removes a manifest, and with it the pod.
    pub fn end(&self, pod: &Value) {
        fs::remove_file(self.manifest(pod)).expect("the pod runs");
    }

    /// What it says of a pod; `Null`, if it does not know it or does not answer.
    pub fn pod(&self, name: &str) -> Value {
        let pods = self.get("/pods").and_then(|text| serde_json::from_str(&text).ok());
        let pods: Value = pods.unwrap_or_default();
        let items = pods.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        let named = format!("{name}-stock-node");
        items.into_iter().find(|pod| self::name(pod) == Some(named.as_str())).unwrap_or_default()
    }

    /// All that the containers of this name wrote, without times and streams.
    pub fn logs(&self, container: &str) -> String {
        let pods = fs::read_dir(self.directory.join("pod-logs")).expect("the directory is ours");
        let mut text = String::new();
        for pod in pods.flatten() {
            let files = fs::read_dir(pod.path().join(container)).into_iter().flatten().flatten();
            for file in files {
                text.push_str(&fs::read_to_string(file.path()).unwrap_or_default());
            }
        }
        let words = text.lines().filter_map(|line| line.splitn(4, ' ').nth(3));
        words.collect::<Vec<_>>().join("\n")
    }

    /// The end of its own log.
    pub fn own_log(&self) -> String {
        let log = fs::read_to_string(self.directory.join("kubelet.log")).unwrap_or_default();
        let skipped = log.lines().count().saturating_sub(60);
        log.lines().skip(skipped).collect::<Vec<_>>().join("\n")
    }

    fn manifest(&self, pod: &Value) -> PathBuf {
        let name = name(pod).expect("a pod has a name");
        self.directory.join("manifests").join(format!("{name}.json"))
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        // HTTP/1.0 has no chunks, and the server closes.
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
    }
}

/// Pods have cgroups of the runtime's choice: a kubelet makes its own at the root of the machine, and leaves them.
fn configuration(directory: &Path, runtime: &Path, serving: &str) -> String {
    let below = |name: &str| directory.join(name).display().to_string();
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         enableServer: true\nhealthzPort: 0\n{serving}containerRuntimeEndpoint: unix://{}\n\
         staticPodPath: {}\npodLogsDir: {}\nvolumePluginDir: {}\nresolvConf: ''\n\
         cgroupDriver: cgroupfs\ncgroupsPerQOS: false\nenforceNodeAllocatable: []\n\
         failCgroupV1: false\nfailSwapOn: false\nmakeIPTablesUtilChains: false\n\
         fileCheckFrequency: 1s\nsyncFrequency: 2s\n\
         evictionHard: {{memory.available: 1Mi, nodefs.available: 1Mi, imagefs.available: 1Mi}}\n\
         imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n",
        runtime.display(),
        below("manifests"),
        below("pod-logs"),
        below("volume-plugins"),
    )
}

fn name(pod: &Value) -> Option<&str> {
    pod.pointer("/metadata/name")?.as_str()
}
