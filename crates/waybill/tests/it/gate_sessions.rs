//! `waybill gate` signs sessions for our own API server, which has webhooks and policies as stock ones do. The manifests are those of
//! `deploy/gate`, with an address in place of a Service.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1::handshake};
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, pem::PemObject,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};
use tokio_rustls::TlsConnector;
use waybill_api::stock::{EXEC_PREFIX, KeySet, SealingKey, StockClaims};
use waybill_testkit::{
    apiserver::{self, ApiServer},
    gate::{self, Gate},
    kubectl::PATIENCE,
};

const BINARY: &str = env!("CARGO_BIN_EXE_waybill");
const USERS: usize = 20;
const SESSIONS: usize = 50;
/// Fewer than a gate takes connections from one address.
const AT_ONCE: usize = 150;
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const PODS: &str = "/api/v1/namespaces/default/pods";
const HOOKS: &str = "/apis/exec.waybill.dev/v1/hooks";

/// Issue 18: through the API server, with a certificate that the gate made and told it about.
#[tokio::test]
async fn each_of_a_thousand_overlapping_sessions_is_signed_for_its_user() {
    let cluster = Cluster::start().await;
    let gate = cluster.gate(&cluster.mutual());
    cluster.install(gate.address()).await;
    cluster.pods_are_changed_or_refused().await;
    cluster.words_of_ours_are_refused().await;

    // It shows what it is asked about to whoever it refuses.
    cluster.apply(&spy()).await;
    cluster.apply(&spy_binding()).await;
    let until = Instant::now() + PATIENCE;
    while !cluster.exec("u0", "id").await.1.contains(EXEC_PREFIX) {
        assert!(Instant::now() < until, "the policy does not count");
        sleep(Duration::from_millis(50)).await;
    }
    let asked = (0..USERS * SESSIONS).map(|at| {
        let cluster = &cluster;
        async move {
            let (user, command) = (format!("u{}", at % USERS), format!("command-{at}"));
            let (_, told) = cluster.exec(&user, &command).await;
            (user, command, claims(&told))
        }
    });
    let answered: Vec<_> = stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    let records: BTreeMap<String, Value> = gate
        .records()
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter_map(|record| Some((record["session"].as_str()?.to_owned(), record)))
        .collect();
    let mut sessions = BTreeSet::new();
    for (user, command, (claims, words)) in &answered {
        let record = &records[claims.session.as_str()];
        assert_eq!(record["user"]["username"], user.as_str());
        assert_eq!((&record["verdict"], &record["container"]), (&json!("signed"), &json!("c")));
        assert_eq!((&*claims.namespace, &*claims.pod, &*claims.container), ("default", "web", "c"));
        assert_eq!(record["uid"], claims.uid.as_str());
        assert_eq!(words, &["-".to_owned(), command.clone()]);
        sessions.insert(claims.session.clone());
    }
    assert_eq!(sessions.len(), USERS * SESSIONS, "each has an ID of its own");

    drop(gate);
    let (_, told) = cluster.exec("u0", "id").await;
    assert!(told.contains("failed calling webhook"), "{told}");
    cluster.without_a_gate_a_pod_starts_that_needs_nothing_of_it().await;
    cluster.delete(&format!("{MUTATING}/waybill-enforce")).await;
    cluster
        .delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/spy")
        .await;
    for typed in ["id", "waybill-exec:x"] {
        let (_, told) = cluster.exec("u0", typed).await;
        assert!(
            told.contains("this namespace allows exec sessions that gate has signed"),
            "{told}"
        );
    }
}

/// Issue 18: a verdict is a signature, so nobody but an API server gets one.
#[tokio::test]
async fn only_the_api_server_itself_gets_a_verdict_through_its_front_proxy() {
    let cluster = Cluster::start().await;
    let front = cluster.front_proxy().await;
    // No webhook is configured here that would give it the class.
    cluster.make_pod(json!({"runtimeClassName": "waybill"})).await;
    let gate = cluster.gate(&["--caller=aggregator".to_owned()]);
    let plain = cluster.to_gate(&gate, None).await;
    plain.until_ready().await;
    let proxy = cluster.to_gate(&gate, Some(front.issue("front-proxy-client"))).await;
    let other = cluster.to_gate(&gate, Some(front.issue("somebody-else"))).await;
    let foreign =
        cluster.to_gate(&gate, Some(cluster.authority().issue("front-proxy-client"))).await;
    let review = exec_review();
    let hook = format!("{HOOKS}/exec-enforce");
    let own = [("x-remote-user", "system:apiserver")];
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, &Https, Headers<'_>); 5] = [
        ("without a certificate", &plain, &own),
        ("with another name", &other, &own),
        (
            "as another user",
            &proxy,
            &[("x-remote-user", "u0"), ("x-remote-group", "system:masters")],
        ),
        ("as nobody", &proxy, &[]),
        ("as two", &proxy, &[("x-remote-user", "u0"), ("x-remote-user", "system:apiserver")]),
    ];
    for (how, client, headers) in cases {
        for path in [&*hook, "/exec-enforce", "/validate", "/new-pods"] {
            let (status, told) = client.send("POST", path, headers, &review).await.unwrap();
            assert_eq!(status, StatusCode::FORBIDDEN, "{how}: {told}");
        }
    }
    assert!(foreign.send("POST", &hook, &own, &review).await.is_err(), "TLS does not know it");
    let (status, told) = proxy.send("POST", &hook, &own, &review).await.unwrap();
    assert_eq!(status, StatusCode::OK, "{told}");
    let answer: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
    assert_eq!(gate.records().len(), 1, "nobody else left a trace");

    cluster.keys_are_told(&proxy, &answer).await;
}

impl Cluster {
    /// The rest of the aggregated API: users are themselves there, and may what they may.
    async fn keys_are_told(&self, proxy: &Https, answer: &Value) {
        let group = "/apis/exec.waybill.dev/v1";
        let (_, told) = proxy.send("GET", &format!("{group}/keys"), &[], "").await.unwrap();
        let keys: KeySet = serde_json::from_str(&told).unwrap();
        let patch = STANDARD.decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        let word = patch[0]["value"][0].as_str().unwrap();
        let header = word.strip_prefix(EXEC_PREFIX).unwrap().split('.').next().unwrap();
        let header: Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).unwrap()).unwrap();
        assert!(keys.find(header["kid"].as_str().unwrap()).is_some(), "{told}");

        let path = format!("{group}/namespaces/default/pods/web/sealingkey");
        let as_admin = [("x-remote-user", "admin"), ("x-remote-group", "system:masters")];
        let as_ann = [("x-remote-user", "ann"), ("x-remote-group", "system:authenticated")];
        assert_eq!(proxy.send("GET", &path, &as_ann, "").await.unwrap().0, StatusCode::FORBIDDEN);
        assert_eq!(proxy.send("GET", &path, &[], "").await.unwrap().0, StatusCode::UNAUTHORIZED);
        let (status, told) = proxy.send("GET", &path, &as_admin, "").await.unwrap();
        assert!(status == StatusCode::CONFLICT && told.contains("host assigned"), "{told}");
        let bind = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
        self.post("/api/v1/nodes", &node).await;
        self.post(&format!("{PODS}/web/binding"), &bind).await;
        let key = json!({"kid": "k", "key": URL_SAFE_NO_PAD.encode([9; 32])}).to_string();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "waybill-node-n1"},
            "data": {"sealing": key}});
        self.post("/api/v1/namespaces/default/configmaps", &map).await;
        let (status, told) = proxy.send("GET", &path, &as_admin, "").await.unwrap();
        assert_eq!(status, StatusCode::OK, "{told}");
        let key: SealingKey = serde_json::from_str(&told).unwrap();
        assert_eq!((&*key.node, &*key.kid), ("n1", "k"));
        assert!(!key.pod_uid.is_empty());

        let sessions = format!("{group}/sessions");
        assert_eq!(
            proxy.send("GET", &sessions, &as_ann, "").await.unwrap().0,
            StatusCode::FORBIDDEN
        );
        let (_, told) = proxy.send("GET", &sessions, &as_admin, "").await.unwrap();
        let list: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(list["items"][0]["user"]["username"], "somebody", "{list}");
    }
}

/// An API server of ours with many users.
struct Cluster {
    server: ApiServer,
    api: Https,
    dir: TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut setup = apiserver::Setup::new(BINARY, dir.path());
        for user in 0..USERS {
            setup.tokens += &format!("t-u{user},u{user},u{user},\"system:masters\"\n");
        }
        let server = setup.start();
        let roots = fs::read(server.state().join("pki/ca.crt")).unwrap();
        let api = Https::new(server.address(), &roots, None);
        let cluster = Self { server, api, dir };
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": "waybill"}, "handler": "waybill"});
        cluster.post("/apis/node.k8s.io/v1/runtimeclasses", &class).await;
        cluster
    }

    fn pki(&self, name: &str) -> PathBuf {
        self.server.state().join("pki").join(name)
    }

    /// The flags for a gate that believes the certificate which this server shows to webhooks.
    fn mutual(&self) -> [String; 3] {
        [
            "--caller=mtls".to_owned(),
            format!("--client-ca={}", self.pki("ca.crt").display()),
            "--client-name=kube-apiserver-kubelet-client".to_owned(),
        ]
    }

    /// A gate that makes its own certificate.
    fn gate(&self, flags: &[String]) -> Gate {
        let text = fs::read_to_string(self.server.state().join("kubeconfig")).unwrap();
        let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
        kubeconfig["users"][0]["user"] = json!({"token": apiserver::ADMIN_TOKEN});
        let path = self.dir.path().join("gate.kubeconfig");
        fs::write(&path, kubeconfig.to_string()).unwrap();
        let mut all =
            vec!["--key-lead=0", "--system-namespace=default", "--serving-name=127.0.0.1"];
        all.extend(flags.iter().map(String::as_str));
        let setup = gate::Setup {
            binary: BINARY,
            dir: self.dir.path(),
            pair: Default::default(),
            kubeconfig: &path,
            group: "storage.k8s.io",
            flags: &all,
        };
        setup.start()
    }

    /// Webhooks and policies of `deploy/gate`, for the namespace `default`, and a pod.
    async fn install(&self, gate: SocketAddr) {
        let label = json!({"metadata": {"labels": {"waybill.dev/exec": "enforce"}}}).to_string();
        let merge = [("content-type", "application/merge-patch+json")];
        let (status, told) = self.send("PATCH", "/api/v1/namespaces/default", &merge, &label).await;
        assert_eq!(status, StatusCode::OK, "{told}");
        for document in deployed("policies.yaml") {
            self.apply(&document).await;
        }
        for mut document in deployed("webhooks.yaml") {
            if document["metadata"]["name"] != "waybill-enforce" {
                continue;
            }
            for webhook in document["webhooks"].as_array_mut().unwrap() {
                let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap();
                webhook["clientConfig"] = json!({"url": format!("https://{gate}{path}")});
            }
            self.apply(&document).await;
        }
        // The gate writes its authority into them.
        let until = Instant::now() + PATIENCE;
        loop {
            let (_, told) = self.send("GET", &format!("{MUTATING}/waybill-enforce"), &[], "").await;
            let found: Value = serde_json::from_str(&told).unwrap();
            let mut webhooks = found["webhooks"].as_array().unwrap().iter();
            if webhooks.all(|webhook| webhook["clientConfig"]["caBundle"].is_string()) {
                break;
            }
            assert!(Instant::now() < until, "{told}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn pods_are_changed_or_refused(&self) {
        let made = self.make_pod(json!({})).await;
        assert_eq!(made["spec"]["runtimeClassName"], "waybill", "{made}");
        let profile = &made["spec"]["securityContext"]["seccompProfile"]["type"];
        assert_eq!(profile, "RuntimeDefault", "{made}");
        let refers = |args: Value| {
            let env = json!([{"name": "S", "value": "waybill{vault/p}"}]);
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "refers"},
                "spec": {"containers": [{"name": "c", "image": "i", "env": env, "args": args}]}})
        };
        for (args, part) in [
            (json!([]), "ProviderClass 'vault' not found"),
            (
                json!(["$(S)"]),
                "spec.containers[0].args[0]: Forbidden: this variable is a reference",
            ),
        ] {
            let (_, told) = self.send("POST", PODS, &[], &refers(args).to_string()).await;
            assert!(told.contains(part), "{told}");
        }
    }

    /// ADR 0067: the condition of the webhook is what gate would decide.
    async fn without_a_gate_a_pod_starts_that_needs_nothing_of_it(&self) {
        let profile = json!({"seccompProfile": {"type": "RuntimeDefault"}});
        let spec = |class: Value, context: &Value, value: &str| {
            let container =
                json!({"name": "c", "image": "i", "env": [{"name": "A", "value": value}]});
            json!({"runtimeClassName": class, "securityContext": context, "containers": [container]})
        };
        let (ours, none) = (json!("waybill"), json!({}));
        let cases = [
            ("whole", spec(ours.clone(), &profile, "x"), true),
            ("no-class", spec(Value::Null, &profile, "x"), false),
            ("no-filter", spec(ours.clone(), &none, "x"), false),
            ("refers", spec(ours.clone(), &profile, "waybill{vault/p}"), false),
            ("inside", spec(ours, &profile, "x waybill{vault/p}"), false),
        ];
        for (name, spec, starts) in cases {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
            let (status, told) = self.send("POST", PODS, &[], &pod.to_string()).await;
            assert_eq!(status.is_success(), starts, "{name}: {told}");
            assert!(starts || told.contains("failed calling webhook"), "{name}: {told}");
        }
    }

    async fn words_of_ours_are_refused(&self) {
        for typed in [EXEC_PREFIX, "waybill-exec:eyJhbGciOiJub25lIn0.e30."] {
            let (status, told) = self.exec("u0", typed).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{told}");
            assert!(told.contains("only gate may write"), "{told}");
        }
        // As long as this client can write an address; the gate's own limit has a unit test.
        let (_, told) = self.exec("u0", &"x".repeat(60_000)).await;
        assert!(told.contains("does not have a host assigned"), "{told}");
        let (_, told) = self.exec("u0", "id").await;
        assert!(told.contains("does not have a host assigned"), "{told}");
    }

    /// The pod `web`; there is a moment before it can be made, and one before webhooks count.
    async fn make_pod(&self, mut spec: Value) -> Value {
        spec["containers"] = json!([{"name": "c", "image": "i"}]);
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec});
        let until = Instant::now() + PATIENCE;
        loop {
            let (status, told) = self.send("POST", PODS, &[], &pod.to_string()).await;
            if status == StatusCode::CREATED {
                return serde_json::from_str(&told).unwrap();
            }
            assert!(Instant::now() < until, "{told}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn exec(&self, user: &str, command: &str) -> (StatusCode, String) {
        let path = format!("{PODS}/web/exec?command={}&stdout=true", command.replace(':', "%3A"));
        let token = format!("Bearer t-{user}");
        self.api.send("POST", &path, &[("authorization", &token)], "").await.unwrap()
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (StatusCode, String) {
        let token = format!("Bearer {}", apiserver::ADMIN_TOKEN);
        let own = [("authorization", token.as_str())];
        self.api.send(method, path, &[headers, &own].concat(), body).await.unwrap()
    }

    async fn post(&self, path: &str, object: &Value) {
        let (status, told) = self.send("POST", path, &[], &object.to_string()).await;
        assert!(status.is_success(), "{told}");
    }

    async fn delete(&self, path: &str) {
        let (status, told) = self.send("DELETE", path, &[], "").await;
        assert!(status.is_success(), "{told}");
    }

    async fn apply(&self, object: &Value) {
        let group = object["apiVersion"].as_str().unwrap();
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let plural = kind.strip_suffix('y').map_or(format!("{kind}s"), |stem| format!("{stem}ies"));
        self.post(&format!("/apis/{group}/{plural}"), object).await;
    }

    /// The authority of front proxies, once the API server has told extension servers of it.
    async fn front_proxy(&self) -> Authority {
        let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        let until = Instant::now() + PATIENCE;
        loop {
            let (status, told) = self.send("GET", map, &[], "").await;
            if status == StatusCode::OK {
                break;
            }
            assert!(Instant::now() < until, "{told}");
            sleep(Duration::from_millis(50)).await;
        }
        Authority::read(&self.pki("front-proxy-ca.crt"), &self.pki("front-proxy-ca.key"))
    }

    fn authority(&self) -> Authority {
        Authority::read(&self.pki("ca.crt"), &self.pki("ca.key"))
    }

    /// A client of the gate, which made its certificate itself.
    async fn to_gate(&self, gate: &Gate, identity: Option<Identity>) -> Https {
        let until = Instant::now() + PATIENCE;
        loop {
            let secret = "/api/v1/namespaces/default/secrets/waybill-gate-ca";
            let (status, told) = self.send("GET", secret, &[], "").await;
            if status == StatusCode::OK {
                let found: Value = serde_json::from_str(&told).unwrap();
                let roots = STANDARD.decode(found["data"]["ca.crt"].as_str().unwrap()).unwrap();
                return Https::new(gate.address(), &roots, identity);
            }
            assert!(Instant::now() < until, "{told}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

struct Authority(Issuer<'static, KeyPair>);

impl Authority {
    fn read(certificate: &Path, key: &Path) -> Self {
        let key = KeyPair::from_pem(&fs::read_to_string(key).unwrap()).unwrap();
        let pem = fs::read_to_string(certificate).unwrap();
        Self(Issuer::from_ca_cert_pem(&pem, key).unwrap())
    }

    fn issue(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
    }
}

/// One server, asked on a new connection each time.
struct Https {
    address: SocketAddr,
    tls: TlsConnector,
}

impl Https {
    fn new(address: SocketAddr, roots: &[u8], identity: Option<Identity>) -> Self {
        let mut store = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(roots) {
            store.add(root.unwrap()).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(store);
        let config = match identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        Self { address, tls: TlsConnector::from(Arc::new(config)) }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<(StatusCode, String), Box<dyn std::error::Error>> {
        let stream = TcpStream::connect(self.address).await?;
        let stream = self.tls.connect(ServerName::from(self.address.ip()), stream).await?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        let mut request = Request::builder().method(method).uri(path).header("host", "server");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned())))?;
        let asked = async move {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            let body = answer.into_body().collect().await?.to_bytes();
            Ok((status, String::from_utf8_lossy(&body).into_owned()))
        };
        tokio::join!(asked, connection).0
    }

    async fn until_ready(&self) {
        let until = Instant::now() + PATIENCE;
        loop {
            // There is a moment before it has a certificate.
            let told = match self.send("GET", "/readyz", &[], "").await {
                Ok((StatusCode::OK, _)) => return,
                Ok((_, told)) => told,
                Err(error) => error.to_string(),
            };
            assert!(Instant::now() < until, "{told}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A policy that refuses every exec, and shows its command.
fn spy() -> Value {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/exec"]});
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "spy"}, "spec": {"matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "messageExpression": "object.command.join(' ')"}]}})
}

fn spy_binding() -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "spy"}, "spec": {"policyName": "spy", "validationActions": ["Deny"]}})
}

/// The claims and words of a command that the spy has shown.
fn claims(told: &str) -> (StockClaims, Vec<String>) {
    let status: Value = serde_json::from_str(told).unwrap();
    let message = status["message"].as_str().unwrap();
    let (_, command) = message.split_once(EXEC_PREFIX).unwrap_or_else(|| panic!("{message}"));
    let mut words = command.split(' ');
    let claims = words.next().unwrap().split('.').nth(1).unwrap();
    let claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    (claims, words.map(str::to_owned).collect())
}

fn exec_review() -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CONNECT", "name": "web", "namespace": "default", "subResource": "exec",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "userInfo": {"username": "somebody"}, "object": {"command": ["id"], "container": "c"}}})
    .to_string()
}

fn deployed(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/gate").join(name);
    serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap()
}
