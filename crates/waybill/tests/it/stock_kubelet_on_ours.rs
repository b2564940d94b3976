//! Kubernetes' own kubelet as a node of `waybill apiserver`, on `waybill runtime`. Skipped, and says so, where nobody has built one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use jiff::Timestamp;
use waybill_apiserver::{NodeFiles, NodeIdentity, issue_node};
use waybill_testkit::{
    apiserver,
    kubectl::Kubectl,
    kubelet::{Cluster, StockKubelet},
    port, runtime,
};

use crate::stock_kubelet::{ADDRESS, BINARY, IMAGE, has_a_network_of_its_own, import, run_again};

const NODE: &str = "stock-node";

/// It waited for Services and CSINodes, which there were none of.
#[test]
fn a_stock_kubelet_is_a_node_of_our_api_server() {
    let Some(binary) = StockKubelet::find() else { return };
    if !has_a_network_of_its_own() {
        run_again("stock_kubelet_on_ours::a_stock_kubelet_is_a_node_of_our_api_server");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(kubectl) = Kubectl::find(&dir.path().join("state/kubeconfig"), dir.path()) else {
        return;
    };
    let [port] = port::lasting();
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let identity = NodeIdentity {
        name: NODE.to_owned(),
        addresses: vec![IpAddr::V4(ADDRESS.parse().unwrap())],
        server: format!("https://{listen}"),
        dir: dir.path().join("node-pki"),
    };
    let files = issue_node(&dir.path().join("state"), &identity, Timestamp::now()).unwrap();
    let mut setup = apiserver::Setup::new(BINARY, dir.path())
        .flag("--kubelet-preferred-address-types=InternalIP");
    setup.listen = listen;
    let _server = setup.start();
    let setup = runtime::Setup::new(BINARY, dir.path());
    let _runtime = setup.start();
    import(&setup.socket());
    let NodeFiles { kubeconfig, serving_certificate, serving_key, authority, .. } = &files;
    let cluster = Cluster { kubeconfig, serving_certificate, serving_key, authority };
    let kubelet = StockKubelet::start_in(cluster, &binary, dir.path(), &setup.socket(), ADDRESS);
    kubectl.eventually_shows("get nodes", "stock-node Ready ");
    let lease = "get lease -n kube-node-lease stock-node -o jsonpath={.spec.holderIdentity}";
    kubectl.eventually(lease, NODE);
    kubectl.eventually("get csinode stock-node -o name", "csinode.storage.k8s.io/stock-node");

    runs_what_pods_say(&kubectl, &kubelet);
    shows_static_pods(&kubectl, &kubelet);
}

/// Variables, files and tokens from the API server; probes; logs and sessions through it; an end by deletion.
fn runs_what_pods_say(kubectl: &Kubectl, kubelet: &StockKubelet) {
    kubectl.line("create configmap settings --from-literal=word=configured").succeeds();
    kubectl.line("create secret generic keys --from-literal=key=hidden").succeeds();
    kubectl.apply(&pod()).succeeds();
    let waited = kubectl.line("wait --for=condition=Ready pod/app --timeout=120s");
    let told = || format!("{:#?}\n{}", kubectl.line("describe pod app"), kubelet.own_log());
    assert!(waited.succeeded(), "{}", told());
    assert_eq!(
        kubectl.line("logs app -c main").succeeds().stdout,
        "configured hidden stock-node\n"
    );
    let read = |path: &str| {
        kubectl.line(&format!("exec app -c main -- cat {path}")).succeeds().stdout.clone()
    };
    assert_eq!(read("/files/settings/word"), "configured");
    assert_eq!(read("/files/keys/key"), "hidden");
    let token = read("/var/run/secrets/kubernetes.io/serviceaccount/token");
    assert_eq!(token.split('.').count(), 3, "a token has three parts");
    assert!(read("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt").contains("BEGIN"));
    assert_eq!(read("/files/vault").split('.').count(), 3);
    assert_eq!(kubectl.line("exec app -c main -- sh -c exit${IFS}7").code, Some(7));
    let restarts = "get pod app -o jsonpath={.status.containerStatuses[0].restartCount}";
    kubectl.line(restarts).prints("0");
    // What changes reaches the files of a pod that runs.
    let patch = r#"{"data":{"word":"changed"}}"#;
    kubectl.run(&["patch", "configmap", "settings", "--patch", patch]).succeeds();
    kubectl.eventually("exec app -c main -- cat /files/settings/word", "changed");
    kubectl.eventually_shows("get events", "Started");
    kubectl.line("delete pod app --wait=true --timeout=60s").succeeds();
}

fn shows_static_pods(kubectl: &Kubectl, kubelet: &StockKubelet) {
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "still", "namespace": "default"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
            "name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "3600"],
        }]},
    });
    kubelet.run(&pod);
    kubectl.eventually_shows("get pods", "still-stock-node 1/1 Running");
    kubelet.end(&pod);
    kubectl.eventually("get pods -o name", "");
}

fn pod() -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: app}}, spec: {{
        terminationGracePeriodSeconds: 1,
        volumes: [{{name: files, projected: {{sources: [
            {{configMap: {{name: settings, items: [{{key: word, path: settings/word}}]}}}},
            {{secret: {{name: keys, items: [{{key: key, path: keys/key}}]}}}},
            {{serviceAccountToken: {{path: vault, audience: vault, expirationSeconds: 600}}}}]}}}}],
        containers: [{{name: main, image: '{IMAGE}', imagePullPolicy: Never,
            command: [sh, -c, 'echo $WORD $KEY $NODE; touch /tmp/up; exec sleep 3600'],
            env: [{{name: WORD, valueFrom: {{configMapKeyRef: {{name: settings, key: word}}}}}},
                {{name: KEY, valueFrom: {{secretKeyRef: {{name: keys, key: key}}}}}},
                {{name: NODE, valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}}}],
            readinessProbe: {{exec: {{command: [test, -e, /tmp/up]}}, periodSeconds: 1}},
            livenessProbe: {{exec: {{command: ['true']}}, periodSeconds: 1}},
            volumeMounts: [{{name: files, mountPath: /files}}]}}]}}}}"
    )
}
