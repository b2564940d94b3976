//! `waybill node` and `waybill runtime` on Kubernetes' own API server. Skipped, and says so, where nobody has built one.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use waybill_testkit::{kubectl::Kubectl, node, runtime, stock::StockApiServer};

const BINARY: &str = env!("CARGO_BIN_EXE_waybill");
const IMAGE: &str = "waybill.dev/busybox:1";
/// Names the folder with the API server.
const STOCK: &str = "WAYBILL_STOCK_BIN";
/// Set in the test that the test runs.
const WITHIN: &str = "WAYBILL_TEST_WITHIN";
const CGROUP: &str = "/waybill-test-on-a-stock-api-server";

/// It did not register where there is no swap: a capacity of nothing must not be told.
#[test]
#[expect(clippy::disallowed_methods, reason = "it runs where the folder is given")]
fn a_node_of_ours_runs_pods_of_a_stock_api_server() {
    if env::var_os(WITHIN).is_none() && env::var_os(STOCK).is_some() {
        run_again("stock_node::a_node_of_ours_runs_pods_of_a_stock_api_server");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::new(&dir);
    let Some(server) = pki.server() else { return };
    let Some(kubectl) = server.kubectl("admin") else { return };
    prepare(&kubectl);
    let runtime = runtime::Setup::new(BINARY, dir.path());
    let running = runtime.start();
    import(&runtime.socket());
    let node = pki.node(&server, &runtime.socket());
    let mut serving = node.start();
    kubectl.eventually_shows("get nodes", "stock-node Ready ");

    kubectl.apply(&pod()).succeeds();
    kubectl.wait_until_ready("app");
    assert_eq!(kubectl.line("logs app -c main").succeeds().stdout, "on stock-node with 200\n");
    let read = |path: &str| {
        kubectl.line(&format!("exec app -c main -- cat {path}")).succeeds().stdout.clone()
    };
    assert_eq!(read("/about/greeting"), "hello");
    assert_eq!(read("/about/memory"), "64");
    assert!(read("/image/etc/passwd").contains("root"));
    // A container that ends with 42 starts again, whatever the pod says.
    let restarts =
        "get pod app -o jsonpath={.status.containerStatuses[?(@.name==\"again\")].restartCount}";
    kubectl.eventually(restarts, "1");
    resize(&kubectl);

    // A node that is started anew disturbs nobody.
    serving.kill();
    let serving = node.start();
    kubectl.eventually("exec app -c main -- echo alive", "alive");
    let main =
        "get pod app -o jsonpath={.status.containerStatuses[?(@.name==\"main\")].restartCount}";
    kubectl.line(main).prints("0");
    kubectl.line("delete pod app --wait=true").succeeds();
    assert!(serving.stop().success(), "{}", node.log());
    drop(running);
}

/// Runs this test once more, where no process and no mount outlives the first: a test that fails has no time to clear its pods away.
fn run_again(test: &str) {
    let status = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["--propagation", "private"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(WITHIN, "1")
        .status();
    assert!(status.unwrap().success());
}

/// In place for `main`, by a restart for `anew`, and later if others have it.
fn resize(kubectl: &Kubectl) {
    let patch = |container: &str, resources: &str| {
        let patch = format!(
            "{{\"spec\":{{\"containers\":[{{\"name\":\"{container}\",\"resources\":{resources}}}]}}}}"
        );
        kubectl
            .run(&["patch", "pod", "app", "--subresource", "resize", "--patch", &patch])
            .succeeds();
    };
    let has = |container: &str, field: &str| {
        format!(
            "get pod app -o jsonpath={{.status.containerStatuses[?(@.name==\"{container}\")].{field}}}"
        )
    };
    let limit = "exec app -c main -- sh -c cat${IFS}/sys/fs/cgroup/memory.max${IFS}||cat${IFS}/sys/fs/cgroup/memory/memory.limit_in_bytes";
    patch("main", r#"{"requests":{"cpu":"150m"},"limits":{"cpu":"300m","memory":"96Mi"}}"#);
    kubectl.eventually(&has("main", "resources.limits"), r#"{"cpu":"300m","memory":"96Mi"}"#);
    kubectl.line(&has("main", "allocatedResources.cpu")).prints("150m");
    kubectl.eventually(limit, &(96 << 20).to_string());
    kubectl.line(&has("main", "restartCount")).prints("0");

    patch("anew", r#"{"limits":{"memory":"48Mi"}}"#);
    kubectl.eventually(&has("anew", "restartCount"), "1");
    kubectl.eventually(&has("anew", "resources.limits.memory"), "48Mi");

    // All that the node has, of which another pod has a part.
    let filler =
        "{apiVersion: v1, kind: Pod, metadata: {name: filler}, spec: {nodeName: stock-node,
        terminationGracePeriodSeconds: 0, containers: [{name: main, image: 'waybill.dev/busybox:1',
        imagePullPolicy: Never, command: [sleep, '3600'], resources: {requests: {cpu: 100m}}}]}}";
    kubectl.apply(filler).succeeds();
    kubectl.wait_until_ready("filler");
    let all = "get node stock-node -o jsonpath={.status.allocatable.cpu}";
    let all = kubectl.line(all).succeeds().stdout.clone();
    patch("main", &format!(r#"{{"requests":{{"cpu":"{all}"}},"limits":{{"cpu":"{all}"}}}}"#));
    let pending =
        "get pod app -o jsonpath={.status.conditions[?(@.type==\"PodResizePending\")].reason}";
    kubectl.eventually(pending, "Deferred");
    kubectl.line(&has("main", "resources.limits.cpu")).prints("300m");
    kubectl.line("delete pod filler --wait=true").succeeds();
    kubectl.eventually(&has("main", "resources.limits.cpu"), &all);
    kubectl.eventually(pending, "");
}

/// What controllers would make.
fn prepare(kubectl: &Kubectl) {
    kubectl.line("create serviceaccount default").succeeds();
    kubectl.line("create configmap kube-root-ca.crt --from-literal=ca.crt=none").succeeds();
}

fn pod() -> String {
    let shell = |name: &str, script: &str, more: &str| {
        format!(
            "{{name: {name}, image: '{IMAGE}', imagePullPolicy: Never, command: [sh, -c, '{script}'], {more}}}"
        )
    };
    let wait = "while :; do sleep 0.2; done";
    let main = shell(
        "main",
        &format!("echo on $NODE with $CPU; {wait}"),
        "resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}},
        env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}},
            {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}],
        volumeMounts: [{name: about, mountPath: /about}, {name: image, mountPath: /image}]",
    );
    let anew = shell(
        "anew",
        wait,
        "resources: {requests: {memory: 16Mi}, limits: {memory: 32Mi}},
        resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]",
    );
    let again = shell(
        "again",
        "test -e /once/file && exec sleep 3600; touch /once/file; exit 42",
        "restartPolicy: Never, volumeMounts: [{name: once, mountPath: /once}],
        restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]",
    );
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: app, annotations: {{greeting: hello}}}}, spec: {{
        nodeName: stock-node, terminationGracePeriodSeconds: 1,
        volumes: [{{name: once, emptyDir: {{}}}}, {{name: image, image: {{reference: '{IMAGE}', pullPolicy: Never}}}},
            {{name: about, downwardAPI: {{items: [
                {{path: greeting, fieldRef: {{fieldPath: \"metadata.annotations['greeting']\"}}}},
                {{path: memory, resourceFieldRef: {{containerName: main, resource: limits.memory, divisor: 1Mi}}}}]}}}}],
        containers: [{main}, {anew}, {again}]}}}}"
    )
}

fn import(socket: &Path) {
    let runtime = format!("unix://{}", socket.display());
    let mut built_in = Command::new(BINARY);
    let status = built_in.args(["image", "built-in", "busybox", "--runtime", &runtime]).status();
    assert!(status.unwrap().success());
}

/// One authority for both ways between API server and node.
struct Pki<'a> {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: &'a Path,
}

impl<'a> Pki<'a> {
    fn new(dir: &'a TempDir) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let pki = Self { issuer, dir: dir.path() };
        fs::write(pki.file("ca.crt"), pki.issuer.pem()).unwrap();
        pki.issue("node", "system:node:stock-node", "system:nodes");
        pki.issue("client", "kube-apiserver", "system:masters");
        pki
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn issue(&self, file: &str, name: &str, group: &str) {
        let mut params = CertificateParams::new([String::from("127.0.0.1")]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.file(&format!("{file}.crt")), certificate.pem()).unwrap();
        fs::write(self.file(&format!("{file}.key")), key.serialize_pem()).unwrap();
    }

    fn server(&self) -> Option<StockApiServer> {
        let flag = |name: &str, file: &str| format!("--{name}={}", self.file(file).display());
        let flags = [
            flag("kubelet-client-certificate", "client.crt"),
            flag("kubelet-client-key", "client.key"),
            flag("kubelet-certificate-authority", "ca.crt"),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ];
        let keys = KeyPair::generate().unwrap();
        StockApiServer::start_with((&keys.serialize_pem(), &keys.public_key_pem()), &flags)
    }

    fn node(&self, server: &StockApiServer, runtime: &Path) -> node::Setup {
        let file = |name: &str| self.file(name).display().to_string();
        let flags = [
            ("name", "stock-node".to_owned()),
            ("kubeconfig", server.kubeconfig("node").display().to_string()),
            ("tls-cert-file", file("node.crt")),
            ("tls-key-file", file("node.key")),
            ("client-ca-file", file("ca.crt")),
            ("runtime", format!("unix://{}", runtime.display())),
            ("listen", "127.0.0.1:0".to_owned()),
            ("cgroup-root", CGROUP.to_owned()),
        ];
        let setup = node::Setup::new(BINARY, self.dir).flag("--drain");
        flags
            .into_iter()
            .fold(setup, |setup, (name, value)| setup.flag(format!("--{name}={value}")))
    }
}
