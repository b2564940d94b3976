//! `waybill gate` beside a real API server, asked as API servers ask.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1::handshake};
use hyper_util::rt::TokioIo;
use kube::{
    Api, Client, Config,
    api::{DeleteParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustix::process::{Pid, Signal, kill_process};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use waybill_testkit::{
    apiserver::{self, ApiServer},
    gate::{self, Gate},
    kubectl::PATIENCE,
};

const BINARY: &str = env!("CARGO_BIN_EXE_waybill");
const STORAGE: &str = "storage.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// CSI-13, CSI-21, CSI-22
#[tokio::test]
async fn classes_and_pods_are_judged_alike_by_every_replica_csi_13_csi_21_csi_22() {
    let cluster = Cluster::start();
    let gates = [cluster.gate(), cluster.gate()];
    for gate in &gates {
        gate.until_ready().await;
    }
    let bad = class("vault", &json!({"parameters": {"allowedFields": "a,,b"}}));
    let unknown = "ProviderClass 'vault' not found";
    for gate in &gates {
        let answer = gate.review("/validate", &class_review("CREATE", &bad, &Value::Null)).await;
        assert_eq!(answer["response"]["uid"], "the-uid");
        assert_eq!(
            refusal(&answer),
            "ProviderClass.storage.k8s.io \"vault\" is invalid: [spec.driver: Required value: driver \
             name is required, spec.parameters[allowedFields]: Invalid value: \"a,,b\": item 2 is \
             empty]"
        );
        assert_eq!(refusal(&gate.pod("app", "secret/x").await), unknown);
    }

    let good = class(
        "vault",
        &json!({"driver": "d.example.com",
            "parameters": {"allowedNamespaces": "app", "allowedFields": "secret/*"}}),
    );
    for gate in &gates {
        let answer = gate.review("/validate", &class_review("CREATE", &good, &Value::Null)).await;
        assert_eq!(refusal(&answer), "");
        let mut other = good.clone();
        other["spec"]["driver"] = "e.example.com".into();
        let answer = gate.review("/validate", &class_review("UPDATE", &other, &good)).await;
        assert!(refusal(&answer).contains("field is immutable"), "{answer}");
    }
    cluster.create(STORAGE, "ProviderClass", &good).await;
    // Every gate knows a class that was made a moment ago.
    for gate in &gates {
        assert_eq!(
            refusal(&gate.pod("app", "secret/x").await),
            "access denied to ProviderClass \"vault\": service account app/web needs the verb \
             \"use\" on providerclasses.storage.k8s.io"
        );
        assert_eq!(
            refusal(&gate.pod("elsewhere", "secret/x").await),
            "Unauthorized: namespace not in allowedNamespaces"
        );
        assert_eq!(
            refusal(&gate.pod("app", "secret/../x").await),
            "Key 'secret/../x' not in allowedFields pattern 'secret/*'"
        );
    }

    cluster.grant().await;
    for gate in &gates {
        gate.until_pod("app", "secret/x", "").await;
        // An attack: the name would be part of an address.
        for name in ["vault?x=y", "vault#", "../providerclasses/vault"] {
            let review = pod_review_of(name, "web", "app", "secret/x");
            let told = refusal(&gate.review("/validate-pods", &review).await);
            assert_eq!(told, format!("ProviderClass '{name}' not found"));
        }
    }
    cluster.delete_class("vault").await;
    for gate in &gates {
        gate.until_pod("app", "secret/x", unknown).await;
        let (_, metrics) = gate.get("/metrics").await;
        let counted =
            "waybill_gate_reviews_total{webhook=\"providerclasses\",outcome=\"allowed\"} 1";
        assert!(metrics.contains(counted), "{metrics}");
    }
}

/// CSI-22: without its API server a gate has no verdict on pods, says so, and recovers by itself.
#[tokio::test]
async fn a_gate_that_cannot_know_says_so_and_gives_no_verdict_csi_22() {
    let mut cluster = Cluster::start();
    let gate = cluster.gate();
    gate.until_ready().await;
    cluster.server.kill();
    gate.until("/readyz", StatusCode::SERVICE_UNAVAILABLE).await;
    assert_eq!(gate.get("/healthz").await.0, StatusCode::OK);
    let (status, told) = gate.post("/validate-pods", &pod_review("app", "secret/x")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(told.starts_with("the classes of the cluster are not known: "), "{told}");
    // A class needs nobody else to be judged.
    let bad = class_review("CREATE", &class("c", &json!({})), &Value::Null);
    assert!(refusal(&gate.review("/validate", &bad).await).contains("driver name is required"));

    cluster.server = cluster.setup.start();
    gate.until_ready().await;
    let told = refusal(&gate.pod("app", "secret/x").await);
    assert_eq!(told, "ProviderClass 'vault' not found");
}

#[tokio::test]
async fn a_gate_refuses_what_is_no_review_and_ends_when_it_is_told() {
    let cluster = Cluster::start();
    let mut gate = cluster.gate();
    for (body, part) in [
        ("hunter2", "it is not JSON"),
        ("{\"kind\": \"hunter2\"}", "it is not an AdmissionReview of admission.k8s.io/v1"),
    ] {
        let (status, told) = gate.post("/validate", body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(told.contains(part) && !told.contains("hunter2"), "{told}");
    }
    assert_eq!(gate.get("/validate").await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(gate.get("/other").await.0, StatusCode::NOT_FOUND);
    // The connection may be closed before all of it was sent, and then there is no answer.
    let large = gate.send("POST", "/validate-pods", &" ".repeat(9 << 20)).await;
    assert!(
        large.is_err() || large.is_ok_and(|(status, _)| status == StatusCode::PAYLOAD_TOO_LARGE)
    );
    let pid = i32::try_from(gate.process.pid()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert!(gate.process.wait().success());
}

/// CSI-22: large bodies whose end is held back wait for room, and stop nobody who asks as API servers do.
#[tokio::test]
async fn bodies_that_never_end_stop_no_review_csi_22() {
    let cluster = Cluster::start();
    let gate = cluster.gate();
    let mut flood = Vec::new();
    for _ in 0..20 {
        let mut stream = gate.connect().await;
        let begin = "POST /validate HTTP/1.1\r\nhost: x\r\ncontent-length: 7000000\r\n\r\n[";
        stream.write_all(begin.as_bytes()).await.unwrap();
        flood.push(stream);
    }
    let good = class("vault", &json!({"driver": "d.example.com"}));
    let answer = gate.review("/validate", &class_review("CREATE", &good, &Value::Null)).await;
    assert_eq!(refusal(&answer), "");
    let mut told = Vec::new();
    for mut stream in flood {
        let mut line = [0; 12];
        stream.read_exact(&mut line).await.unwrap();
        told.push(String::from_utf8(line.to_vec()).unwrap());
    }
    let (busy, slow) = ("HTTP/1.1 503", "HTTP/1.1 408");
    assert!(told.iter().all(|line| line == busy || line == slow), "{told:?}");
    assert!(told.iter().any(|line| line == busy) && told.iter().any(|line| line == slow));
}

/// An API server, and the certificate of its gates.
struct Cluster {
    setup: apiserver::Setup,
    server: ApiServer,
    pair: (PathBuf, PathBuf),
    certificate: Vec<u8>,
    dir: TempDir,
}

impl Cluster {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let setup = apiserver::Setup::new(BINARY, dir.path())
            .flag("--feature-gates=CSIDirectEnvInjection=true")
            .on_a_lasting_port();
        let server = setup.start();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let pair = (dir.path().join("gate.crt"), dir.path().join("gate.key"));
        fs::write(&pair.0, cert.pem()).unwrap();
        fs::write(&pair.1, signing_key.serialize_pem()).unwrap();
        Self { setup, server, pair, certificate: cert.der().to_vec(), dir }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("state/kubeconfig")
    }

    fn gate(&self) -> Asked {
        // A token that outlives the server, as that of a service account does.
        let text = fs::read_to_string(self.kubeconfig()).unwrap();
        let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
        kubeconfig["users"][0]["user"] = json!({"token": apiserver::ADMIN_TOKEN});
        let path = self.dir.path().join("gate.kubeconfig");
        fs::write(&path, kubeconfig.to_string()).unwrap();
        let process = gate::Setup {
            binary: BINARY,
            dir: self.dir.path(),
            pair: self.pair.clone(),
            kubeconfig: &path,
            group: STORAGE,
            flags: &["--caller=anyone", "--key-lead=0", "--system-namespace=default"],
        }
        .start();
        Asked::new(process, &self.certificate)
    }

    async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        Client::try_from(config).unwrap()
    }

    async fn create(&self, group: &str, kind: &str, object: &Value) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(self.client().await, &resource);
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn delete_class(&self, name: &str) {
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk(STORAGE, "v1", "ProviderClass"));
        let api: Api<DynamicObject> = Api::all_with(self.client().await, &resource);
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Lets the service account of the pods use the class.
    async fn grant(&self) {
        let metadata = json!({"name": "use-vault"});
        let role = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": metadata,
            "rules": [{"apiGroups": [STORAGE], "resources": ["providerclasses"], "verbs": ["use"],
                "resourceNames": ["vault"]}]});
        let binding = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "use-vault"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "app", "name": "web"}]});
        self.create(RBAC, "ClusterRole", &role).await;
        self.create(RBAC, "ClusterRoleBinding", &binding).await;
    }
}

/// A gate, and a client that trusts it.
pub(crate) struct Asked {
    process: Gate,
    tls: TlsConnector,
}

impl Asked {
    pub(crate) fn new(process: Gate, certificate: &[u8]) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(certificate.to_vec())).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { process, tls: TlsConnector::from(Arc::new(config)) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.process.address()
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, String) {
        self.send("GET", path, "").await.unwrap()
    }

    async fn post(&self, path: &str, body: &str) -> (StatusCode, String) {
        self.send("POST", path, body).await.unwrap()
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.process.address()).await.unwrap();
        let name = ServerName::from(self.process.address().ip());
        self.tls.connect(name, stream).await.unwrap()
    }

    /// One request on a connection of its own.
    async fn send(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<(StatusCode, String), hyper::Error> {
        let stream = self.connect().await;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "gate")
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        let asked = async move {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            let body = answer.into_body().collect().await?.to_bytes();
            Ok((status, String::from_utf8(body.to_vec()).unwrap()))
        };
        tokio::join!(asked, connection).0
    }

    /// The answer to a question that is understood.
    async fn review(&self, path: &str, review: &str) -> Value {
        let (status, body) = self.post(path, review).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    async fn pod(&self, namespace: &str, key: &str) -> Value {
        self.review("/validate-pods", &pod_review(namespace, key)).await
    }

    pub(crate) async fn until_ready(&self) {
        self.until("/readyz", StatusCode::OK).await;
    }

    async fn until(&self, path: &str, expected: StatusCode) {
        let begun = Instant::now();
        loop {
            let (status, told) = self.get(path).await;
            if status == expected {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{path}: {status} {told}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn until_pod(&self, namespace: &str, key: &str, expected: &str) {
        self.until_pod_of("web", namespace, key, expected).await;
    }

    /// Asks for a pod of a service account until that is refused as expected; empty if it is to be allowed.
    pub(crate) async fn until_pod_of(
        &self,
        account: &str,
        namespace: &str,
        key: &str,
        expected: &str,
    ) {
        let begun = Instant::now();
        let review = pod_review_of("vault", account, namespace, key);
        loop {
            let told = refusal(&self.review("/validate-pods", &review).await);
            if told == expected {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{told:?}, not {expected:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Why an answer refuses; empty if it does not.
fn refusal(answer: &Value) -> String {
    let response = &answer["response"];
    let told = response["status"]["message"].as_str().unwrap_or_default();
    assert_eq!(response["allowed"], told.is_empty(), "{answer}");
    told.to_owned()
}

fn class(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "ProviderClass", "metadata": {"name": name},
        "spec": spec})
}

fn class_review(operation: &str, object: &Value, old: &Value) -> String {
    review(
        operation,
        "",
        &json!({"group": STORAGE, "version": "v1", "resource": "providerclasses"}),
        object,
        old,
    )
}

fn pod_review(namespace: &str, key: &str) -> String {
    pod_review_of("vault", "web", namespace, key)
}

fn pod_review_of(class: &str, account: &str, namespace: &str, key: &str) -> String {
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "serviceAccountName": account,
        "containers": [{"name": "c", "env": [{"name": "A", "valueFrom": {"csiSecretRef": {
            "driver": "d.example.com", "providerClassName": class, "key": key}}}]}]}});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    review("CREATE", namespace, &resource, &pod, &Value::Null)
}

fn review(
    operation: &str,
    namespace: &str,
    resource: &Value,
    object: &Value,
    old: &Value,
) -> String {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "the-uid", "operation": operation, "namespace": namespace,
            "resource": resource, "object": object, "oldObject": old},
    })
    .to_string()
}
