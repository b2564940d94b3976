//! A node without an API server: its pods are the files of a directory, and nothing else is needed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tonic::transport::Endpoint;
use waybill_apiserver::{NodeFiles, NodeIdentity, issue_node};
use waybill_proto::cri::{
    Container, ContainerState, ListContainersRequest, runtime_service_client::RuntimeServiceClient,
};
use waybill_testkit::{
    kubectl::PATIENCE,
    node,
    runtime::{self, Runtime},
    skip::skip,
    stack::IMAGE,
};

use crate::{BINARY, image};

/// A runtime and the files of a node beside it. What they ran ends with them.
struct Machine {
    runtime: Option<Runtime>,
    runtime_setup: runtime::Setup,
    node: node::Setup,
    directory: tempfile::TempDir,
}

impl Machine {
    fn new() -> Option<Self> {
        let Ok(busybox) = fs::read("/bin/busybox") else {
            skip("busybox", "install the Debian package busybox-static");
            return None;
        };
        if !rustix::process::geteuid().is_root() {
            skip("root", "only root may run containers");
            return None;
        }
        let directory = tempfile::tempdir().expect("the temporary directory is writable");
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("runtime")).expect("the directory is ours");
        fs::create_dir(at("manifests")).expect("the directory is ours");
        let runtime_setup = runtime::Setup::new(BINARY, &at("runtime"));
        let runtime = runtime_setup.start();
        import(&runtime_setup.socket(), &at("image.tar"), busybox);
        let NodeFiles { serving_certificate, serving_key, authority, .. } = identity(&directory);
        let node = node::Setup::new(BINARY, &at("node"))
            .flag("--standalone")
            .flag("--drain")
            .flag("--name=alone")
            .flag("--listen=127.0.0.1:0")
            .flag(format!("--static-pods={}", at("manifests").display()))
            .flag(format!("--runtime=unix://{}", runtime_setup.socket().display()))
            .flag(format!("--tls-cert-file={}", serving_certificate.display()))
            .flag(format!("--tls-key-file={}", serving_key.display()))
            .flag(format!("--client-ca-file={}", authority.display()))
            .flag(format!("--cgroup-root=/waybill-standalone-{}", std::process::id()));
        Some(Self { runtime: Some(runtime), runtime_setup, node, directory })
    }

    fn write(&self, name: &str, script: &str) {
        let manifests = self.directory.path().join("manifests");
        let new = manifests.join(".new");
        let manifest = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{
            terminationGracePeriodSeconds: 1,
            containers: [{{name: {name}, image: '{IMAGE}', command: [sh, -c, {script:?}]}}]}}}}"
        );
        fs::write(&new, manifest).expect("the directory is ours");
        fs::rename(new, manifests.join(format!("{name}.yaml"))).expect("the directory is ours");
    }

    fn remove(&self, name: &str) {
        let file = self.directory.path().join("manifests").join(format!("{name}.yaml"));
        fs::remove_file(file).expect("the file is there");
    }

    fn pod_directories(&self) -> Vec<PathBuf> {
        let pods = fs::read_dir(self.node.state_dir().join("pods")).expect("a node made it");
        pods.map(|entry| entry.expect("the directory is ours").path()).collect()
    }

    /// What a client of CRI sees, as `crictl ps -a` does.
    fn containers(&self) -> Vec<Container> {
        let address = format!("unix://{}", self.runtime_setup.socket().display());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime of tokio").block_on(async {
            let endpoint = Endpoint::try_from(address).expect("an absolute path");
            let channel = endpoint.connect().await.expect("the runtime takes connections");
            let mut client = RuntimeServiceClient::new(channel);
            let list = client.list_containers(ListContainersRequest::default()).await;
            list.expect("the runtime answers").into_inner().containers
        })
    }

    /// The id of the one that runs, and how many there were before it.
    fn running(&self, name: &str) -> Option<(String, u32)> {
        self.containers().into_iter().find_map(|container| {
            let runs = container.state() == ContainerState::ContainerRunning;
            let metadata = container.metadata?;
            (runs && metadata.name == name).then_some((container.id, metadata.attempt))
        })
    }

    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            let (left, log) = (self.pod_directories(), self.node.log());
            assert!(start.elapsed() < PATIENCE, "not in time: {what}; {left:#?}\n{log}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if thread::panicking() {
            // Whoever starts and is told to stop again ends what a failed test left.
            let _ = self.node.start().stop();
        }
        drop(self.runtime.take());
        // Its tmpfs is the runtime's to leave behind, since containers outlive it.
        let _ = Command::new("umount").arg(self.runtime_setup.run_dir()).status();
    }
}

fn import(socket: &Path, file: &Path, busybox: Vec<u8>) {
    fs::write(file, image(busybox)).expect("the directory is ours");
    let status = Command::new(BINARY)
        .args(["image", "--runtime"])
        .arg(socket)
        .arg("import")
        .arg(file)
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("the binary starts").success(), "the image cannot be imported");
}

/// Certificates for the node's own API, as `waybill up` makes them.
fn identity(directory: &tempfile::TempDir) -> NodeFiles {
    let identity = NodeIdentity {
        name: "alone".to_owned(),
        addresses: vec![[127, 0, 0, 1].into()],
        server: String::new(),
        dir: directory.path().join("identity"),
    };
    issue_node(&directory.path().join("authority"), &identity, Timestamp::now())
        .expect("the directory is ours")
}

#[test]
fn a_node_on_its_own_runs_its_files_and_may_be_killed() {
    let Some(machine) = Machine::new() else { return };
    machine.write("steady", "exec sleep 3600");
    machine.write("ending", "sleep 1; exit 3");
    let mut node = machine.node.start();
    machine.until("both run", |it| it.running("steady").is_some());
    assert!(!machine.pod_directories().is_empty());
    machine.until("one that ends starts again", |it| {
        it.running("ending").is_some_and(|(_, attempt)| attempt > 0)
    });
    let before = machine.running("steady");
    assert_eq!(before.as_ref().map(|(_, attempt)| *attempt), Some(0));

    // A node that is gone is missed by nobody but those who want something new.
    node.kill();
    assert_eq!(machine.running("steady"), before);
    machine.write("late", "exec sleep 3600");
    let node = machine.node.start();
    machine.until("a new file is seen", |it| it.running("late").is_some());
    assert_eq!(machine.running("steady"), before);

    for name in ["steady", "ending", "late"] {
        machine.remove(name);
    }
    machine.until("all have ended", |it| it.containers().is_empty());
    machine.until("nothing of them is left", |it| it.pod_directories().is_empty());
    assert!(node.stop().success(), "{}", machine.node.log());
}

#[test]
fn a_node_on_its_own_can_be_drained() {
    let Some(machine) = Machine::new() else { return };
    machine.write("steady", "exec sleep 3600");
    let node = machine.node.start();
    machine.until("it runs", |it| it.running("steady").is_some());
    assert!(node.stop().success(), "{}", machine.node.log());
    assert!(machine.containers().is_empty());
    let node = machine.node.start();
    machine.until("the next node runs it again", |it| it.running("steady").is_some());
    assert!(node.stop().success(), "{}", machine.node.log());
}
