//! Env files on nodes of their own: one that lacks the feature, one with static pods, one without an API
//! server. Each uses the runtime of a stack, beside the stack's own node.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use waybill_apiserver::{NodeFiles, NodeIdentity, issue_node};
use waybill_testkit::{
    kubectl::PATIENCE,
    node::{self, Node},
    stack::{IMAGE, Setup, Stack},
};

use crate::BINARY;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A node beside that of a stack. It ends, with its pods, when this is dropped.
struct Beside {
    node: Option<Node>,
    cgroup: String,
}

/// How such a node is started.
struct Plan<'a> {
    stack: &'a Stack,
    name: &'a str,
    files: NodeFiles,
}

impl<'a> Plan<'a> {
    fn new(stack: &'a Stack, name: &'a str) -> Self {
        let server = "config view -o jsonpath={.clusters[0].cluster.server}";
        let identity = NodeIdentity {
            name: name.to_owned(),
            addresses: vec![LOCAL],
            server: stack.kubectl().line(server).succeeds().stdout.clone(),
            dir: stack.dir().join(name).join("pki"),
        };
        fs::create_dir_all(stack.dir().join(name).join("static")).unwrap();
        let files = issue_node(&stack.state(), &identity, jiff::Timestamp::now()).unwrap();
        Self { stack, name, files }
    }

    fn dir(&self) -> PathBuf {
        self.stack.dir().join(self.name)
    }

    /// Where its static pods are.
    fn static_pods(&self) -> PathBuf {
        self.dir().join("static")
    }

    /// Starts it, and waits until it serves.
    fn start(&self, flags: &[&str]) -> Beside {
        let cgroup = format!("/waybill-test-{}-{}", std::process::id(), self.name);
        let socket = self.stack.state().join("run/runtime.sock");
        let setup = node::Setup::new(BINARY, &self.dir())
            .flag(format!("--name={}", self.name))
            .flag("--listen=127.0.0.1:0")
            .flag(format!("--cgroup-root={cgroup}"))
            .flag(format!("--runtime=unix://{}", socket.display()))
            .flag(format!("--static-pods={}", self.static_pods().display()))
            .flag(format!("--tls-cert-file={}", self.files.serving_certificate.display()))
            .flag(format!("--tls-key-file={}", self.files.serving_key.display()))
            .flag(format!("--client-ca-file={}", self.files.authority.display()));
        let setup = flags.iter().fold(setup, |setup, flag| setup.flag(*flag));
        Beside { node: Some(setup.start()), cgroup }
    }

    /// As a member of the cluster.
    fn join(&self, flags: &[&str]) -> Beside {
        let kubeconfig = self.files.kubeconfig.display().to_string();
        let node = self.start(&[&["--kubeconfig", &kubeconfig], flags].concat());
        let ready = format!("wait --for=condition=Ready node/{} --timeout=60s", self.name);
        let exists = format!("get node {} -o name", self.name);
        self.stack.kubectl().eventually(&exists, &format!("node/{}", self.name));
        self.stack.kubectl().line(&ready).succeeds();
        node
    }
}

impl Beside {
    /// Ends the process; its containers go on unless it drains.
    fn stop(&mut self) {
        if let Some(node) = self.node.take() {
            node.stop();
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.stop();
        let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        for place in hierarchies.map(|it| it.path()).chain([PathBuf::from("/sys/fs/cgroup")]) {
            // Only an empty one can be removed, and most hierarchies do not have it.
            let _ = fs::remove_dir(place.join(self.cgroup.trim_start_matches('/')));
        }
    }
}

/// A pod with a variable from a file; `main` is told apart by how long it means to sleep.
fn manifest(name: &str, node: &str, seconds: u32) -> String {
    let write = "echo \"A='from a file'\" > /v/app.env";
    let loyal = format!("trap 'exit 0' TERM; while true; do sleep 0.1; done; sleep {seconds}");
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default}}
spec:
  terminationGracePeriodSeconds: 1
{node}  volumes: [{{name: v, emptyDir: {{}}}}]
  initContainers:
  - {{name: write, image: '{IMAGE}', command: [sh, -c, {write:?}], volumeMounts: [{{name: v, mountPath: /v}}]}}
  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, {loyal:?}]
    env: [{{name: A, valueFrom: {{fileKeyRef: {{volumeName: v, path: app.env, key: A}}}}}}]
"
    )
}

#[track_caller]
fn of_file(stack: &Stack, name: &str) -> Option<String> {
    let ran = stack.kubectl().line(&format!("exec {name} -c main -- cat /proc/1/environ"));
    let mut all = ran.succeeds().stdout.split_terminator('\0');
    all.find(|it| it.starts_with("A=")).map(str::to_owned)
}

/// FILE-25, FILE-41: the API server has the feature, its node does not yet.
#[test]
fn a_node_without_the_feature_ignores_the_field_file_41() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let plan = Plan::new(&stack, "behind");
    let mut node = plan.join(&["--feature-gates", "EnvFiles=false"]);
    let pod = manifest("skew", "  nodeName: behind\n", 271_801);
    stack.kubectl().with_input(&["apply", "--validate=false", "-f", "-"], &pod).succeeds();
    stack.kubectl().wait_until_ready("skew");
    assert_eq!(of_file(&stack, "skew"), None, "not set at all");
    node.stop();
    let node = plan.join(&["--drain"]);
    stack.kubectl().eventually("exec skew -c main -- echo alive", "alive");
    assert_eq!(of_file(&stack, "skew"), None, "a running container is left alone");
    stack.kubectl().line("exec skew -c main -- kill 1").ends_its_container();
    let restarts = "get pod skew -o jsonpath={.status.containerStatuses[0].restartCount}";
    stack.kubectl().eventually(restarts, "1");
    stack.kubectl().wait_until_ready("skew");
    assert_eq!(of_file(&stack, "skew").as_deref(), Some("A=from a file"));
    stack.kubectl().line("delete pod skew").succeeds();
    stack.kubectl().line("delete node behind").succeeds();
    drop(node);
    stack.stop();
}

/// FILE-22, FILE-44: static pods, which the API server only mirrors.
#[test]
fn static_pods_take_variables_from_files_file_22() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let plan = Plan::new(&stack, "still");
    let file = plan.static_pods().join("web.yaml");
    fs::write(&file, manifest("web", "", 271_802)).unwrap();
    let node = plan.join(&["--drain"]);
    stack.kubectl().eventually("get pod web-still -o jsonpath={.status.phase}", "Running");
    assert_eq!(of_file(&stack, "web-still").as_deref(), Some("A=from a file"));
    fs::remove_file(&file).unwrap();
    stack.kubectl().eventually("get pods -o name", "");
    drop(node);
    stack.kubectl().line("delete node still").succeeds();
    stack.stop();
}

/// FILE-22, FILE-44: no API server at all.
#[test]
fn a_standalone_node_takes_variables_from_files_file_22() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let plan = Plan::new(&stack, "alone");
    let file = plan.static_pods().join("web.yaml");
    fs::write(&file, manifest("web", "", 271_803)).unwrap();
    let node = plan.start(&["--standalone", "--drain"]);
    let pid = wait_for(|| process_with("sleep 271803"));
    let environ = fs::read(Path::new("/proc").join(pid.to_string()).join("environ")).unwrap();
    let found = environ.split(|byte| *byte == 0).find(|it| it.starts_with(b"A="));
    assert_eq!(found, Some(&b"A=from a file"[..]));
    fs::remove_file(&file).unwrap();
    wait_for(|| process_with("sleep 271803").is_none().then_some(()));
    drop(node);
    stack.stop();
}

#[track_caller]
fn wait_for<T>(look: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "not in time");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A shell of busybox whose script has `part` in it. Our own roles show no scripts.
fn process_with(part: &str) -> Option<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut arguments = line.split(|byte| *byte == 0);
        let is_shell = arguments.next().is_some_and(|first| first == b"sh");
        is_shell && arguments.any(|it| String::from_utf8_lossy(it).ends_with(part))
    })
}
