//! `waybill runtime` under Kubernetes' own kubelet. Skipped, and says so, where nobody has built one.

use std::{
    env,
    net::UdpSocket,
    path::Path,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tonic::transport::Endpoint;
use waybill_proto::cri::{
    ListPodSandboxRequest, PodSandbox, RemovePodSandboxRequest, StopPodSandboxRequest,
    runtime_service_client::RuntimeServiceClient,
};
use waybill_testkit::{kubelet::StockKubelet, runtime::Setup};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_waybill");
pub(crate) const IMAGE: &str = "waybill.dev/busybox:1";
/// Of a network that is nobody's, on the loopback device of a namespace of our own.
pub(crate) const ADDRESS: &str = "192.0.2.1";
/// The third restart of a container comes after a pause of twenty seconds.
const PATIENCE: Duration = Duration::from_secs(180);

/// It remade pods every 30 s when a sandbox without an address told an empty one.
#[tokio::test]
async fn a_stock_kubelet_runs_pods_on_our_runtime() {
    let Some(binary) = StockKubelet::find() else { return };
    if !has_a_network_of_its_own() {
        run_again("stock_kubelet::a_stock_kubelet_runs_pods_on_our_runtime");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup::new(BINARY, directory.path());
    let mut runtime = setup.start();
    import(&setup.socket());
    let kubelet = StockKubelet::start(&binary, directory.path(), &setup.socket(), ADDRESS);
    let (pod, web) = (pod(), web());
    kubelet.run(&pod);
    kubelet.run(&web);
    until(&kubelet, "the pod is ready", || is_ready(&kubelet.pod("app")));
    until(&kubelet, "the other one answers", || {
        container(&kubelet.pod("web"), "server")["ready"] == true
    });
    let first = sandboxes(&setup.socket()).await;
    assert_eq!(first.len(), 2, "{first:?}");
    let told = kubelet.pod("app");
    let of = |name: &str| container(&told, name);
    assert_eq!(of("main")["image"], IMAGE);
    assert!(of("main")["imageID"].as_str().unwrap().contains("sha256:"), "{told}");
    assert_eq!(of("prepare")["state"]["terminated"]["reason"], "Completed");
    assert!(of("sidecar")["state"]["running"].is_object(), "{told}");
    until(&kubelet, "a hook runs and a volume is shared", || {
        let logs = kubelet.logs("main");
        logs.contains("prepared by init") && logs.contains("hooked")
    });

    // A runtime that goes and comes back is no reason to start anything anew.
    runtime.kill();
    let _runtime = setup.start();
    until(&kubelet, "a container that ends is started again, and again", || {
        container(&kubelet.pod("app"), "flaky")["restartCount"].as_u64() >= Some(3)
    });
    // Kubelets keep the logs of the last two.
    assert!(kubelet.logs("flaky").starts_with("again"));
    assert_eq!(sandboxes(&setup.socket()).await, first);
    assert_eq!(container(&kubelet.pod("app"), "main")["restartCount"], 0);

    kubelet.end(&pod);
    kubelet.end(&web);
    until(&kubelet, "the pod ends as it wishes", || kubelet.logs("main").contains("asked to end"));
    let end = Instant::now() + PATIENCE;
    while sandboxes(&setup.socket()).await.iter().any(|it| it.state == 0) {
        assert!(Instant::now() < end, "the sandbox is left; its log:\n{}", kubelet.own_log());
        sleep(Duration::from_millis(200));
    }
    drop(kubelet);
    clear(&setup.socket()).await;
}

fn pod() -> Value {
    let volume = json!([{"name": "shared", "mountPath": "/shared"}]);
    let shell = |name: &str, script: &str| {
        json!({
            "name": name, "image": IMAGE, "imagePullPolicy": "Never",
            "command": ["sh", "-c", script], "volumeMounts": volume,
        })
    };
    let probe =
        |command: &str| json!({"exec": {"command": ["sh", "-c", command]}, "periodSeconds": 1});
    let mut sidecar =
        shell("sidecar", "touch /tmp/up; trap 'exit 0' TERM; while :; do sleep 0.1; done");
    sidecar["restartPolicy"] = "Always".into();
    sidecar["startupProbe"] = probe("test -e /tmp/up");
    let mut main = shell(
        "main",
        "cat /shared/word; trap 'echo asked to end; exit 0' TERM; while :; do sleep 0.1; done",
    );
    main["readinessProbe"] = probe("test -e /shared/word");
    main["livenessProbe"] = probe("true");
    main["lifecycle"] = json!({
        "postStart": {"exec": {"command": ["sh", "-c", "echo hooked > /proc/1/fd/1"]}},
    });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app", "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 30,
            "volumes": [{"name": "shared", "emptyDir": {}}],
            "initContainers": [shell("prepare", "echo prepared by init > /shared/word"), sidecar],
            "containers": [main, shell("flaky", "echo again; sleep 0.5; exit 3")],
        },
    })
}

/// On the network of its machine, and asked over it; with an image as a volume.
fn web() -> Value {
    let port = 8099;
    let serve = format!("exec httpd -f -p {ADDRESS}:{port} -h /files/etc");
    let probe =
        json!({"httpGet": {"host": ADDRESS, "port": port, "path": "/passwd"}, "periodSeconds": 1});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "hostNetwork": true,
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "files", "image": {"reference": IMAGE, "pullPolicy": "Never"}}],
            "containers": [{
                "name": "server", "image": IMAGE, "imagePullPolicy": "Never",
                "command": ["sh", "-c", serve],
                "volumeMounts": [{"name": "files", "mountPath": "/files"}],
                "readinessProbe": probe, "livenessProbe": probe,
            }],
        },
    })
}

/// Ready are all but the one that ends again and again.
fn is_ready(pod: &Value) -> bool {
    container(pod, "main")["ready"] == true && container(pod, "sidecar")["ready"] == true
}

fn container(pod: &Value, name: &str) -> Value {
    let lists = ["containerStatuses", "initContainerStatuses"];
    let mut all = lists.iter().filter_map(|list| pod["status"][list].as_array()).flatten();
    all.find(|it| it["name"] == name).cloned().unwrap_or_default()
}

#[track_caller]
fn until(kubelet: &StockKubelet, what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        let told = || format!("{:#}\n{}", kubelet.pod("app")["status"], kubelet.own_log());
        assert!(Instant::now() < end, "never: {what}\n{}", told());
        sleep(Duration::from_millis(200));
    }
}

pub(crate) fn import(socket: &Path) {
    let runtime = format!("unix://{}", socket.display());
    let mut built_in = Command::new(BINARY);
    let status = built_in.args(["image", "built-in", "busybox", "--runtime", &runtime]).status();
    assert!(status.unwrap().success());
}

async fn client(socket: &Path) -> RuntimeServiceClient<tonic::transport::Channel> {
    let address = format!("unix://{}", socket.display());
    RuntimeServiceClient::new(Endpoint::try_from(address).unwrap().connect().await.unwrap())
}

async fn sandboxes(socket: &Path) -> Vec<PodSandbox> {
    let list = client(socket).await.list_pod_sandbox(ListPodSandboxRequest::default()).await;
    list.unwrap().into_inner().items
}

/// Kubelets keep what has ended for a while; nothing of it may outlive the test.
async fn clear(socket: &Path) {
    let mut runtime = client(socket).await;
    for PodSandbox { id, .. } in sandboxes(socket).await {
        let request = StopPodSandboxRequest { pod_sandbox_id: id.clone() };
        runtime.stop_pod_sandbox(request).await.unwrap();
        let request = RemovePodSandboxRequest { pod_sandbox_id: id };
        runtime.remove_pod_sandbox(request).await.unwrap();
    }
}

/// Runs this test once more, where the addresses are ours, as are the two places that kubelets write to wherever else they are told to, and
/// where no process outlives the first: a test that fails has no time to clear its pods away.
pub(crate) fn run_again(test: &str) {
    let script = format!(
        "ip link set lo up && ip address add {ADDRESS}/32 dev lo && \
         mkdir -p /var/lib/kubelet && mount -t tmpfs none /var/lib/kubelet && \
         mount -t tmpfs none /var/log && \"$@\"; exit $?"
    );
    let namespaces = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let output = Command::new("unshare")
        .args(namespaces)
        .args(["--propagation", "private", "sh", "-c", &script, "sh"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

pub(crate) fn has_a_network_of_its_own() -> bool {
    UdpSocket::bind((ADDRESS, 0)).is_ok()
}
