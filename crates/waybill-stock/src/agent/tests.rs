//! An agent between an API server of this file, a real driver, a kubelet that is played, and a wrapper that is played.

use std::{
    convert::Infallible,
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::{sleep, timeout},
};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;
use waybill_api::stock::{Answer, AskedReference, AskedValues, PodFacts, PublicKey};
use waybill_core::secret::SecretBytes;
use waybill_csi::{
    driver::{self, Call, Driver, Query},
    server::{Config, Server},
};
use waybill_proto::csi::{
    NodePublishVolumeRequest, NodeUnpublishVolumeRequest, node_client::NodeClient,
};

use super::*;

const CANARY: &str = "hunter2-canary";

/// Its values are the canary, and it wants to see the pod's token.
struct Vault;

impl Driver for Vault {
    fn name(&self) -> &str {
        "vault.example.com"
    }

    fn backend(&self) -> &'static str {
        "vault"
    }

    async fn fetch(
        &self,
        call: &Call,
        queries: &[Query],
    ) -> Result<Vec<driver::Answer>, driver::FetchError> {
        assert_eq!(call.pod.name, "web");
        let answer = |query: &Query| match query.key.as_str() {
            "password" => Ok(SecretBytes::copy_of(CANARY.as_bytes())),
            _ => Err(driver::FetchError::not_found("there is no such key")),
        };
        Ok(queries.iter().map(answer).collect())
    }
}

/// What an API server was told.
#[derive(Default)]
struct Cluster {
    sealing: Mutex<Option<Value>>,
    label: Mutex<Option<Value>>,
    allowed: bool,
    /// Whether its pod is of the RuntimeClass.
    of_the_class: bool,
}

impl Cluster {
    fn client(self: &Arc<Self>) -> Client {
        let cluster = Arc::clone(self);
        let service = service_fn(move |request: Request<Body>| {
            let cluster = Arc::clone(&cluster);
            async move { Ok::<_, Infallible>(cluster.answer(request).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Said> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default();
        if query.contains("watch=") {
            let nothing = stream::pending::<Result<Frame<Bytes>, io::Error>>();
            return Response::new(StreamBody::new(nothing).boxed_unsync());
        }
        let list = |kind: &str, items: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": items});
        let answer = match (parts.method, parts.uri.path()) {
            (Method::GET, "/api/v1/pods") => {
                assert!(query.contains("spec.nodeName%3Dn1"), "{query}");
                let mut pod = pod();
                if self.of_the_class {
                    pod["spec"]["runtimeClassName"] = json!("waybill");
                }
                list("PodList", json!([pod]))
            }
            (Method::GET, "/api/v1/namespaces") => {
                let labels = json!({"waybill.dev/exec": "enforce"});
                list("NamespaceList", json!([{"metadata": {"name": "shop", "labels": labels}}]))
            }
            (Method::GET, "/api/v1/namespaces/shop/pods/web") => pod(),
            (Method::GET, "/api/v1/nodes/n1") => node(),
            (Method::PATCH, "/api/v1/nodes/n1") => {
                let label = body.pointer("/metadata/labels/waybill.dev~1ready").cloned();
                *self.label.lock().unwrap() = label;
                node()
            }
            (Method::GET, "/apis/waybill.dev/v1/providerclasses/db") => {
                json!({"apiVersion": "waybill.dev/v1", "kind": "ProviderClass", "metadata": {"name": "db"},
                    "spec": {"driver": "vault.example.com", "parameters": {"allowedNamespaces": "shop", "allowedFields": "pass*"}}})
            }
            (Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews") => {
                assert_eq!(body["spec"]["user"], "system:serviceaccount:shop:shopper");
                let mut review = body;
                review["status"] = json!({"allowed": self.allowed});
                review
            }
            (Method::GET, "/api/v1/namespaces/waybill-system/configmaps/waybill-gate-keys") => {
                let key = PublicKey::es256("k1", &[1; 32], &[2; 32]);
                json!({"data": {"k1": json!({"until": 1, "key": key}).to_string()}})
            }
            (Method::PATCH, "/api/v1/namespaces/waybill-system/configmaps/waybill-node-n1") => {
                *self.sealing.lock().unwrap() = Some(body.clone());
                body
            }
            (_, path) => {
                let status = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": path, "status": "Failure"});
                let mut answer = said(&status);
                *answer.status_mut() = http::StatusCode::NOT_FOUND;
                return answer;
            }
        };
        said(&answer)
    }
}

type Said = UnsyncBoxBody<Bytes, io::Error>;

fn said(answer: &Value) -> Response<Said> {
    let body = Full::new(Bytes::from(answer.to_string()));
    Response::new(body.map_err(|never: Infallible| match never {}).boxed_unsync())
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "resourceVersion": "1"},
        "spec": {"nodeName": "n1", "serviceAccountName": "shopper", "containers": [{
            "name": "main", "livenessProbe": {"exec": {"command": ["true"]}},
            "env": [{"name": "PASSWORD", "value": "waybill{db/password}"}]}]}})
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"nodeInfo": {
        "containerRuntimeVersion": "containerd://1.7.27", "kubeletVersion": "v1.33.0", "operatingSystem": "linux",
        "architecture": "", "bootID": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "osImage": "",
        "systemUUID": ""}}})
}

/// A node in a folder of memory. What was mounted there goes with it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir_in("/dev/shm").unwrap())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn config(&self) -> AgentConfig {
        AgentConfig {
            node: "n1".to_owned(),
            root: self.0.path().to_owned(),
            run: "/run/waybill".into(),
            kubelet: "/var/lib/kubelet".into(),
            mode: Mode::Record,
            group: "waybill.dev".to_owned(),
            records: None,
            clock: || SystemTime::UNIX_EPOCH,
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(self.path("run/waybill"), flags);
    }
}

async fn kubelet(socket: PathBuf) -> NodeClient<Channel> {
    let connector = service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    NodeClient::new(endpoint.connect_with_connector(connector).await.unwrap())
}

fn publish(uid: &str) -> NodePublishVolumeRequest {
    let mut request = NodePublishVolumeRequest::default();
    request.volume_id = "v-1".to_owned();
    request.target_path = TARGET.to_owned();
    for (name, value) in [("pod.name", "web"), ("pod.namespace", "shop"), ("pod.uid", uid)] {
        request.volume_context.insert(format!("csi.storage.k8s.io/{name}"), value.to_owned());
    }
    request.volume_context.insert(fetch::TOKENS.to_owned(), "{}".to_owned());
    request
}

const TARGET: &str = "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~csi/waybill/mount";

async fn ask(socket: &Path, name: &str) -> Answer {
    let asked = AskedValues {
        version: AskedValues::VERSION,
        uid: "u-1".to_owned(),
        container: "main".to_owned(),
        attempt: Some(0),
        references: vec![AskedReference {
            name: name.to_owned(),
            class: "db".to_owned(),
            key: "password".to_owned(),
        }],
    };
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(&asked.to_line()).await.unwrap();
    let mut line = Vec::new();
    timeout(Duration::from_secs(30), stream.read_to_end(&mut line)).await.unwrap().unwrap();
    Answer::parse(&line).unwrap()
}

async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3000 {
        if let Some(found) = look() {
            return found;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("not in time: {what}");
}

#[track_caller]
fn refusal(answer: &Answer) -> &str {
    match answer {
        Answer::Refused { error, .. } => error,
        Answer::Values(_) => panic!("there are values"),
    }
}

/// No file below `folder` has the canary in it.
fn assert_no_file_has_it(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            assert_no_file_has_it(&entry.path());
        } else if kind.is_file() {
            let content = fs::read(entry.path()).unwrap();
            let found = content.windows(CANARY.len()).any(|it| it == CANARY.as_bytes());
            assert!(!found, "{}", entry.path().display());
        }
    }
}

#[tokio::test]
async fn values_come_with_the_volume_are_given_to_the_wrapper_and_go_with_the_volume() {
    let folder = Folder::new();
    let cluster = Arc::new(Cluster { allowed: true, ..Cluster::default() });
    let socket = folder.path("var/lib/kubelet/plugins/vault.example.com/csi.sock");
    let driver = Server::start(Vault, Config::new(&socket)).await.unwrap();
    let agent = Agent::start(folder.config(), cluster.client()).await.unwrap();
    let plugins = folder.path("var/lib/kubelet");
    assert!(plugins.join("plugins_registry/values.csi.waybill.dev-reg.sock").exists());
    let wrapper = folder.path("run/waybill/agent.sock");

    // What the wrapper reads.
    let facts = folder.path("run/waybill/pods/u-1.json");
    let facts = eventually("the facts of the pod", || {
        let facts: PodFacts = serde_json::from_slice(&fs::read(&facts).ok()?).ok()?;
        (facts.mode == Mode::Enforce).then_some(facts)
    });
    let facts = facts.await;
    assert_eq!(facts.containers["main"].probes, [["true"]]);
    assert_eq!(facts.containers["main"].references, ["PASSWORD"]);
    let sealing =
        eventually("the key for sealing", || cluster.sealing.lock().unwrap().take()).await;
    let sealing: Value =
        serde_json::from_str(sealing["data"]["sealing"].as_str().unwrap()).unwrap();
    let seal = folder.path("run/waybill/seal").join(sealing["kid"].as_str().unwrap());
    assert_eq!(fs::read(seal).unwrap().len(), 32);

    // Before and after the kubelet has brought the volume.
    assert!(refusal(&ask(&wrapper, "PASSWORD").await).contains("not here yet"));
    let mut kubelet = kubelet(plugins.join("plugins/values.csi.waybill.dev/csi.sock")).await;
    kubelet.node_publish_volume(publish("u-1")).await.unwrap();
    assert!(folder.path(TARGET.trim_start_matches('/')).is_dir());
    match ask(&wrapper, "PASSWORD").await {
        Answer::Values(values) => assert!(values[0].value.constant_time_eq(CANARY.as_bytes())),
        refused @ Answer::Refused { .. } => panic!("{refused:?}"),
    }
    assert!(refusal(&ask(&wrapper, "SMUGGLED").await).contains("does not have this reference"));
    assert_no_file_has_it(&folder.path(""));

    // Another life of the pod, and a path elsewhere.
    let other = kubelet.node_publish_volume(publish("u-2")).await.unwrap_err();
    assert!(other.message().contains("not on this node"), "{other}");
    let mut elsewhere = publish("u-1");
    elsewhere.target_path = "/var/lib/kubelet/pods/../../../etc".to_owned();
    let elsewhere = kubelet.node_publish_volume(elsewhere).await.unwrap_err();
    assert!(elsewhere.message().contains("not among the volumes"), "{elsewhere}");

    let request =
        NodeUnpublishVolumeRequest { volume_id: "v-1".to_owned(), target_path: TARGET.to_owned() };
    kubelet.node_unpublish_volume(request).await.unwrap();
    assert!(!folder.path(TARGET.trim_start_matches('/')).exists());
    assert!(refusal(&ask(&wrapper, "PASSWORD").await).contains("not here yet"));
    agent.stop().await;
    driver.stop().await;
}

#[tokio::test]
async fn a_service_account_that_may_not_use_the_class_gets_nothing() {
    let folder = Folder::new();
    let cluster = Arc::new(Cluster::default());
    let socket = folder.path("var/lib/kubelet/plugins/vault.example.com/csi.sock");
    let driver = Server::start(Vault, Config::new(&socket)).await.unwrap();
    let agent = Agent::start(folder.config(), cluster.client()).await.unwrap();
    let socket = folder.path("var/lib/kubelet/plugins/values.csi.waybill.dev/csi.sock");
    let refused = kubelet(socket).await.node_publish_volume(publish("u-1")).await.unwrap_err();
    assert!(refused.message().contains("shop/shopper needs the verb"), "{refused}");
    agent.stop().await;
    driver.stop().await;
}

#[tokio::test]
async fn a_node_is_set_up_and_taken_back() {
    let folder = Folder::new();
    let cluster = Arc::new(Cluster::default());
    let host = Host::new(folder.path(""));
    host.replace("/usr/sbin/runc", b"#!", 0o755).unwrap();
    let agent = Agent::start(folder.config(), cluster.client()).await.unwrap();
    // There is no systemd here, which is said; the files are written.
    let error = agent.set_up(b"wrapper", &[]).await.unwrap_err();
    assert!(matches!(error, AgentError::Restart(_)), "{error:?}");
    let config = fs::read_to_string(folder.path("etc/containerd/config.toml")).unwrap();
    assert!(config.contains("runtimes.waybill"));
    let told: WrapperConfig =
        serde_json::from_slice(&fs::read(folder.path("opt/waybill/oci.json")).unwrap()).unwrap();
    assert_eq!(told.runtime, Path::new("/usr/sbin/runc"));
    assert_eq!(told.run, Path::new("/run/waybill"));
    // The restart is not forgotten, until somebody has done it.
    assert!(agent.set_up(b"wrapper", &[]).await.is_err());
    fs::remove_file(folder.path("run/waybill/restart")).unwrap();
    agent.set_up(b"wrapper", &[]).await.unwrap();
    assert_eq!(*cluster.label.lock().unwrap(), Some(json!("true")));

    let error = agent.tear_down(&[]).await.unwrap_err();
    assert!(matches!(error, AgentError::Restart(_)), "{error:?}");
    assert_eq!(*cluster.label.lock().unwrap(), Some(json!("removing")));
    fs::remove_file(folder.path("run/waybill/restart")).unwrap();
    agent.tear_down(&[]).await.unwrap();
    assert_eq!(*cluster.label.lock().unwrap(), Some(Value::Null));
    assert!(!folder.path("etc/containerd/config.toml").exists());
    assert!(!folder.path("opt/waybill").exists());
    agent.stop().await;
}

/// containerd refuses to enter a pod whose handler it does not know any more.
#[tokio::test]
async fn while_pods_of_the_class_live_their_handler_stays_and_a_link_to_the_real_runtime() {
    let folder = Folder::new();
    let cluster = Arc::new(Cluster { of_the_class: true, ..Cluster::default() });
    let host = Host::new(folder.path(""));
    host.replace("/usr/sbin/runc", b"#!", 0o755).unwrap();
    let agent = Agent::start(folder.config(), cluster.client()).await.unwrap();
    assert!(agent.set_up(b"wrapper", &[]).await.is_err());
    fs::remove_file(folder.path("run/waybill/restart")).unwrap();
    agent.tear_down(&[]).await.unwrap();
    assert_eq!(*cluster.label.lock().unwrap(), Some(Value::Null));
    let config = fs::read_to_string(folder.path("etc/containerd/config.toml")).unwrap();
    assert!(config.contains("runtimes.waybill"));
    let link = fs::read_link(folder.path("opt/waybill/bin/waybill-oci")).unwrap();
    assert_eq!(link, Path::new("/usr/sbin/runc"));
    agent.stop().await;
}
