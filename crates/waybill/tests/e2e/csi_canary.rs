//! Values from a driver are in containers and nowhere else, whatever happens to pods and roles: all that the stack writes,
//! keeps and tells is searched for them.
//!
//! Then values are planted in each of these places on purpose, and the same search must find every one.

mod script;
mod search;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    time::SystemTime,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use tempfile::NamedTempFile;
use tonic::transport::Endpoint;
use waybill_proto::cri::{
    ContainerStatusRequest, ListContainersRequest, ListPodSandboxRequest, PodSandboxStatusRequest,
    runtime_service_client::RuntimeServiceClient,
};
use waybill_testkit::{
    etcd::EtcdServer,
    kubectl::Ran,
    port,
    stack::{IMAGE, Setup, Stack},
};

use self::{script::Script, search::Search};
use crate::BINARY;

const DRIVER: &str = "mock.csi.waybill.dev";

const OBJECTS: &str = "
apiVersion: storage.k8s.io/v1
kind: ProviderClass
metadata: {name: canary}
spec:
  driver: mock.csi.waybill.dev
  parameters: {allowedNamespaces: default, allowedFields: 'app/*', envInjection.refreshInterval: 10s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: uses-canary}
rules: [{apiGroups: [storage.k8s.io], resources: [providerclasses], resourceNames: [canary], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: uses-canary, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: uses-canary}
subjects: [{kind: ServiceAccount, name: default, namespace: default}]
";

/// CSI-14, CSI-49, CSI-62
#[test]
fn no_value_of_a_driver_is_anywhere_but_in_containers_csi_14_csi_49_csi_62() {
    let Some(canary) = Canary::start(None) else { return };
    canary.run();
}

/// The same with objects on etcd.
#[test]
fn no_value_of_a_driver_is_on_etcd_csi_62() {
    let Some(etcd) = EtcdServer::start() else { return };
    let Some(canary) = Canary::start(Some(etcd)) else { return };
    canary.run();
}

/// A stack whose driver has values that are searched for.
struct Canary {
    script: Script,
    stack: Stack,
    etcd: Option<EtcdServer>,
    /// Where the driver tells its metrics.
    metrics: u16,
    since: SystemTime,
}

impl Canary {
    fn start(etcd: Option<EtcdServer>) -> Option<Self> {
        let script = Script::new();
        let since = script.changed();
        let [metrics] = port::lasting();
        let flags = format!("--script {} --metrics-listen 127.0.0.1:{metrics}", script.path());
        let setup = Setup::new(BINARY).flag(format!("--driver=mock={flags}"));
        // Once with as much as can be logged.
        let setup = match &etcd {
            Some(etcd) => setup.flag(format!("--store=etcd={}", etcd.url())).flag("-v"),
            None => setup.flag("-vv"),
        };
        let stack = setup.start()?;
        Some(Self { script, stack, etcd, metrics, since })
    }

    fn run(mut self) {
        self.start_pods();
        // Seen by the node before it dies, and meanwhile the rest goes on.
        self.script.write("two");
        self.use_reader();
        self.wait_for_rotation();
        let with_pods = self.search(self.new_search());
        assert_eq!(with_pods, BTreeSet::new(), "with pods that run and pods that fail");
        for role in ["node", "runtime", "apiserver"] {
            self.stack.kill_role(role);
            self.stack.kubectl().eventually("exec reader -- echo alive", "alive");
        }
        self.stack.kill_driver("mock");
        self.delete_class();
        let afterwards = self.search(self.new_search().machine());
        assert_eq!(afterwards, BTreeSet::new(), "after deaths of all roles and a class");
        self.plant();
        self.stack.kubectl().line("delete pod --all --grace-period=1").succeeds();
        assert!(self.stack.end().success(), "it ends well");
        self.stack.check_nothing_is_left();
    }

    /// Pods that get values in every way, and pods that do not start because of theirs.
    fn start_pods(&self) {
        let kubectl = self.stack.kubectl();
        kubectl.eventually_shows("get csinodes -o yaml", DRIVER);
        kubectl.apply(OBJECTS).succeeds();
        let sleep = "[sh, -c, 'trap \"exit 3\" TERM; sleep 3600 & wait']";
        let derived = "{name: DERIVED, value: before-$(PLAIN)-after}";
        let variables = [
            variable("PLAIN", "app/plain", false),
            derived.to_owned(),
            variable("OPTIONAL", "app/plain", true),
            variable("MISSING", "app/none", true),
        ];
        kubectl.apply(&pod("reader", sleep, &variables.join(", "))).succeeds();
        let rotating = variable("ROTATING", "app/rotating", false);
        kubectl.apply(&pod("rotating", sleep, &rotating)).succeeds();
        let plain = variable("PLAIN", "app/plain", false);
        kubectl.apply(&pod("crashing", "[sh, -c, 'exit 7']", &plain)).succeeds();
        kubectl.apply(&pod("unstartable", "[/no/such/program]", &plain)).succeeds();
        for key in ["none", "large", "nul", "binary"] {
            let value = variable("VALUE", &format!("app/{key}"), false);
            let both = format!("{plain}, {value}");
            kubectl.apply(&pod(&format!("with-{key}"), sleep, &both)).succeeds();
        }
        let in_arguments = pod("arguments", "[sh, -c, 'sleep 3600', $(PLAIN)]", &plain);
        kubectl.apply(&in_arguments).fails_with(1, "holds a value from a CSI driver");
        kubectl.wait_until_ready("reader");
        kubectl.wait_until_ready("rotating");
        for (name, reason) in [
            ("crashing", "CrashLoopBackOff"),
            ("unstartable", "RunContainerError"),
            ("with-none", "CreateContainerConfigError"),
            ("with-large", "CreateContainerConfigError"),
            ("with-nul", "CreateContainerConfigError"),
            ("with-binary", "CreateContainerConfigError"),
        ] {
            kubectl.eventually_shows(
                &format!("get events --field-selector=involvedObject.name={name}"),
                "Warning",
            );
            kubectl.eventually_shows(&format!("get pod {name} -o yaml"), reason);
        }
    }

    /// Sessions in a pod, one that cannot start, and a container that dies and comes back.
    fn use_reader(&self) {
        let kubectl = self.stack.kubectl();
        let length = self.script.plain().len();
        let derived = length + "before--after".len();
        let expected = format!("{length} {derived} {length} 0");
        let show = "echo ${#PLAIN} ${#DERIVED} ${#OPTIONAL} ${#MISSING}";
        kubectl.run(&["exec", "reader", "--", "sh", "-c", show]).prints(&expected);
        let session = ["exec", "reader", "--env", "SESSION=1", "--", "sh", "-c", show];
        self.waybill(&session).prints(&expected);
        let unstartable = self.waybill(&["exec", "reader", "--", "/no/such/program"]);
        assert!(!unstartable.succeeded(), "{unstartable:?}");
        self.kill_reader();
        kubectl.eventually(&restarts("reader"), "1");
        kubectl.wait_until_ready("reader");
        kubectl.run(&["exec", "reader", "--", "sh", "-c", show]).prints(&expected);
    }

    /// The session may end with the container before it can say so.
    fn kill_reader(&self) {
        let _ = self.stack.kubectl().line("exec reader -- kill 1");
    }

    fn wait_for_rotation(&self) {
        let kubectl = self.stack.kubectl();
        kubectl.eventually_shows("get events", "EnvVarRotated");
        kubectl.eventually(&restarts("rotating"), "1");
        kubectl.wait_until_ready("rotating");
        let show = ["exec", "rotating", "--", "sh", "-c", "echo ${ROTATING##*-}"];
        kubectl.run(&show).prints("two");
    }

    /// A container that dies now does not come back.
    fn delete_class(&self) {
        let kubectl = self.stack.kubectl();
        kubectl.line("delete providerclass canary").succeeds();
        self.kill_reader();
        kubectl.eventually_shows("get events", "ProviderClass \"canary\" not found");
    }

    /// What an attentive search must find: a value in each place that it looks at and that we can write to.
    fn plant(&self) {
        let (kubectl, mark) = (self.stack.kubectl(), self.script.mark());
        // In an object, its container's log and command line, and the node's view of it.
        let command = format!("[sh, -c, 'echo {mark}; sleep 3600; true', {mark}]");
        kubectl.apply(&pod("planted", &command, "")).succeeds();
        kubectl.wait_until_ready("planted");
        kubectl.eventually("logs planted", mark);
        let event = format!(
            "{{apiVersion: v1, kind: Event, metadata: {{name: planted}}, message: '{mark}', reason: Planted,
            involvedObject: {{kind: Pod, namespace: default, name: planted}}}}"
        );
        kubectl.apply(&event).succeeds();
        // In the audit log, as part of a path.
        assert!(!kubectl.line(&format!("get pod {mark}")).succeeded());
        // Where values would be if somebody mistook memory for safe, and where nobody expects them.
        let memory = self.stack.state().join("run/runtime/planted");
        let elsewhere =
            NamedTempFile::with_prefix_in("planted-", "/dev/shm").expect("it is writable");
        for path in [memory.as_path(), elsewhere.path()] {
            fs::write(path, BASE64_STANDARD.encode(self.script.plain())).expect("it is writable");
        }
        let log = self.stack.state().join("logs/driver-mock.log");
        let log = File::options().append(true).open(log);
        log.and_then(|mut log| writeln!(log, "{mark}")).expect("it is writable");
        let found = self.search(self.new_search().machine());
        fs::remove_file(&memory).expect("it is there");
        let has = |part: &str| found.iter().any(|place| place.contains(part));
        let mut places = vec![
            "/state/audit/",
            "/state/logs/pods/",
            "/state/logs/driver-mock.log",
            "/state/run/runtime/planted",
            "/dev/shm/planted-",
            "/proc/*/cmdline",
            "verbose status of containers",
            "kubectl get events",
            "kubectl get pods",
            "kubectl logs",
        ];
        places.push(if self.etcd.is_some() { "keys of etcd" } else { "/state/store/" });
        for place in places {
            assert!(has(place), "not found in {place}, but in {found:#?}");
        }
    }

    fn new_search(&self) -> Search {
        Search::new(self.script.mark(), self.since)
    }

    /// Goes on with a search where the stack could have left something; returns where something is.
    fn search(&self, mut search: Search) -> BTreeSet<String> {
        search.directory(self.stack.dir());
        let cgroups = self.stack.cgroups();
        let cgroup = cgroups.first().and_then(|path| path.file_name()).expect("it has pods");
        search.processes(&cgroup.to_string_lossy());
        self.search_api(&mut search);
        search.text("metrics of the driver", &self.http(self.metrics, "GET /metrics", ""));
        search.text("verbose status of containers", &verbose_status(&self.stack.state()));
        if let Some(etcd) = &self.etcd {
            search.directory(etcd.directory());
            // From the first key to the last.
            let everything = r#"{"key":"AA==","range_end":"AA=="}"#;
            let keys = self.http(etcd.port(), "POST /v3/kv/range", everything);
            assert!(keys.contains("\"kvs\""), "{keys}");
            search.text("keys of etcd", &keys);
        }
        search.found()
    }

    fn search_api(&self, search: &mut Search) {
        let kubectl = self.stack.kubectl();
        let node = kubectl.line("get nodes -o name").succeeds().stdout.replace("node/", "");
        let node = format!("get --raw /api/v1/nodes/{}/proxy/metrics", node.trim());
        for line in [
            "get pods -A -o json",
            "describe pods",
            "get events -A -o json",
            "get secrets,configmaps,nodes,csinodes,csidrivers,providerclasses -A -o json",
            "get --raw /metrics",
            &node,
        ] {
            search.text(&format!("kubectl {line}"), &kubectl.line(line).succeeds().stdout);
        }
        // Not every pod has a log.
        let logs = ["reader", "rotating", "crashing", "planted"].map(|pod| {
            let ran = kubectl.line(&format!("logs {pod} --prefix"));
            format!("{}{}", ran.stdout, ran.stderr)
        });
        search.text("kubectl logs", &logs.concat());
        for pod in ["reader", "rotating"] {
            let told = self.waybill(&["env", pod, "-o", "json"]);
            assert!(told.stdout.contains(DRIVER) || !told.succeeded(), "{told:?}");
            search.text("waybill env", &format!("{}{}", told.stdout, told.stderr));
        }
        search.text("waybill env --stale", &self.waybill(&["env", "--stale"]).succeeds().stdout);
        let audit = self.stack.state();
        let audit = audit.to_str().expect("a path of ours");
        let trace = self.waybill(&["trace", "--state-dir", audit, "-o", "json"]);
        search.text("waybill trace", &trace.succeeds().stdout);
    }

    fn waybill(&self, arguments: &[&str]) -> Ran {
        let child = self.stack.waybill().args(arguments).spawn().expect("waybill starts");
        Ran::of(format!("waybill {}", arguments.join(" ")), child)
    }

    /// The answer of a server without TLS on this machine.
    fn http(&self, port: u16, request: &str, body: &str) -> String {
        let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let length = body.len();
        let head = format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        write!(connection, "{head}Content-Length: {length}\r\n\r\n{body}").expect("it reads");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
    }
}

fn variable(name: &str, key: &str, optional: bool) -> String {
    format!(
        "{{name: {name}, valueFrom: {{csiSecretRef: {{driver: {DRIVER}, providerClassName: canary, \
         key: {key}, optional: {optional}}}}}}}"
    )
}

fn pod(name: &str, command: &str, variables: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name},
            annotations: {{waybill.dev/restart-on-rotation: 'true'}}}}, spec: {{
            terminationGracePeriodSeconds: 1,
            containers: [{{name: main, image: '{IMAGE}', command: {command}, env: [{variables}]}}]}}}}"
    )
}

fn restarts(pod: &str) -> String {
    format!("get pod {pod} -o jsonpath={{.status.containerStatuses[0].restartCount}}")
}

/// What `crictl inspect` and `crictl inspectp` would show.
#[tokio::main(flavor = "current_thread")]
async fn verbose_status(state: &Path) -> String {
    let socket: PathBuf = state.join("run/runtime.sock");
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
    let mut runtime = RuntimeServiceClient::new(endpoint.connect().await.unwrap());
    let mut told = String::new();
    let containers = runtime.list_containers(ListContainersRequest::default()).await.unwrap();
    for container in containers.into_inner().containers {
        told += &format!("{container:?}");
        let request = ContainerStatusRequest { container_id: container.id, verbose: true };
        // It may be removed meanwhile.
        let Ok(status) = runtime.container_status(request).await else { continue };
        let status = status.into_inner();
        // Texts as they are: those that are printed with `Debug` have been escaped.
        told.extend(status.info.into_values());
        told += &format!("{:?}", status.status);
    }
    let sandboxes = runtime.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap();
    for sandbox in sandboxes.into_inner().items {
        let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox.id, verbose: true };
        let Ok(status) = runtime.pod_sandbox_status(request).await else { continue };
        let status = status.into_inner();
        told.extend(status.info.into_values());
        told += &format!("{:?}", status.status);
    }
    told
}
