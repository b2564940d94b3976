//! A driver that does as a test says, and a cluster that knows its classes.

use std::{
    collections::BTreeMap,
    future::pending,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use prost::Message;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tonic::Status;
use waybill_api::gates::FeatureGates;
use waybill_proto::csi::{
    EnvVarInjection, EnvVarResult, GetPluginInfoResponse, NodeGetCapabilitiesResponse,
    NodeGetEnvVarsRequest, NodeGetEnvVarsResponse, NodeGetInfoResponse, NodeServiceCapability,
    node_service_capability::{Rpc, Type, rpc},
};

use super::{Csi, CsiConfig, Drivers, Rotations};
use crate::{
    event::Recorder,
    fake_api::{Call, FakeApi, Reply},
    fake_grpc::{self, response},
    objects::{NoObjects, ObjectSource, WatchedObjects},
    server::Metrics,
};

pub(crate) const DRIVER: &str = "mock.csi.waybill.dev";

/// What a driver does when it is asked for variables.
#[derive(Clone)]
pub(crate) enum Act {
    /// Every key is its own value.
    Echo,
    Answer(Vec<(&'static str, Vec<u8>, &'static str)>),
    Fail(tonic::Code, &'static str),
    /// Nothing, ever.
    Hang,
    /// It ends at once.
    Crash,
    /// It ends in the middle of its answer.
    CrashMidReply,
    /// Something that is no message.
    Garbage,
    /// Waits until the test lets it go on, then echoes.
    Gate(Arc<tokio::sync::Semaphore>),
}

/// A driver that a test controls.
pub(crate) struct ScriptedDriver {
    state: Arc<Mutex<Script>>,
    path: PathBuf,
    serving: Arc<Mutex<Option<DropGuard>>>,
}

struct Script {
    name: String,
    injects: bool,
    hints: Option<EnvVarInjection>,
    /// What it does next, the last of them from then on.
    acts: Vec<Act>,
    requests: Vec<NodeGetEnvVarsRequest>,
    /// Every call, in order.
    calls: Vec<String>,
}

impl ScriptedDriver {
    pub(crate) fn start(path: &Path, acts: impl IntoIterator<Item = Act>) -> Self {
        let script = Script {
            name: DRIVER.to_owned(),
            injects: true,
            hints: None,
            acts: acts.into_iter().collect(),
            requests: Vec::new(),
            calls: Vec::new(),
        };
        let driver = Self {
            state: Arc::new(Mutex::new(script)),
            path: path.to_owned(),
            serving: Arc::default(),
        };
        driver.restart();
        driver
    }

    /// Ends it, and starts it again at the same path.
    pub(crate) fn restart(&self) {
        self.stop();
        std::fs::create_dir_all(self.path.parent().unwrap()).unwrap();
        let (state, serving) = (Arc::clone(&self.state), Arc::clone(&self.serving));
        let guard = fake_grpc::serve_raw(&self.path, move |call, body| {
            answer(Arc::clone(&state), Arc::clone(&serving), call, body)
        });
        *self.serving.lock().unwrap() = Some(guard);
    }

    pub(crate) fn stop(&self) {
        drop(self.serving.lock().unwrap().take());
        let _ = std::fs::remove_file(&self.path);
    }

    pub(crate) fn set_capable(&self, injects: bool) {
        self.state.lock().unwrap().injects = injects;
    }

    pub(crate) fn set_name(&self, name: &str) {
        self.state.lock().unwrap().name = name.to_owned();
    }

    pub(crate) fn set_hints(&self, hints: EnvVarInjection) {
        self.state.lock().unwrap().hints = Some(hints);
    }

    /// The requests for variables.
    pub(crate) fn requests(&self) -> Vec<NodeGetEnvVarsRequest> {
        self.state.lock().unwrap().requests.clone()
    }

    /// How often a call was made.
    pub(crate) fn count(&self, call: &str) -> usize {
        self.state.lock().unwrap().calls.iter().filter(|found| *found == call).count()
    }
}

type Answering = Pin<Box<dyn Future<Output = fake_grpc::Reply> + Send>>;

fn answer(
    state: Arc<Mutex<Script>>,
    serving: Arc<Mutex<Option<DropGuard>>>,
    call: String,
    body: Bytes,
) -> Answering {
    Box::pin(async move {
        let act = {
            let mut script = state.lock().unwrap();
            script.calls.push(call.clone());
            if call != "NodeGetEnvVars" {
                return response(script.about(&call));
            }
            script.requests.push(NodeGetEnvVarsRequest::decode(body.clone()).unwrap());
            if script.acts.len() > 1 { script.acts.remove(0) } else { script.acts[0].clone() }
        };
        let request = NodeGetEnvVarsRequest::decode(body).unwrap();
        carry_out(act, request, &serving).await
    })
}

impl Script {
    fn about(&self, call: &str) -> Result<Vec<u8>, Status> {
        match call {
            "GetPluginInfo" => {
                let (name, vendor_version) = (self.name.clone(), "7.1".to_owned());
                let info = GetPluginInfoResponse { name, vendor_version, ..Default::default() };
                Ok(info.encode_to_vec())
            }
            "NodeGetCapabilities" => {
                let capability = |found| NodeServiceCapability { r#type: Some(found) };
                let rpc = Rpc { r#type: rpc::Type::EnvVarInjection.into() };
                let mut capabilities = Vec::new();
                capabilities.extend(self.injects.then(|| capability(Type::Rpc(rpc))));
                capabilities.extend(self.hints.map(|it| capability(Type::EnvVarInjection(it))));
                Ok(NodeGetCapabilitiesResponse { capabilities }.encode_to_vec())
            }
            "NodeGetInfo" => {
                let info = NodeGetInfoResponse { node_id: "n1".to_owned(), ..Default::default() };
                Ok(info.encode_to_vec())
            }
            other => Err(Status::unimplemented(other.to_owned())),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn carry_out(
    act: Act,
    request: NodeGetEnvVarsRequest,
    serving: &Mutex<Option<DropGuard>>,
) -> fake_grpc::Reply {
    let crash = || drop(serving.lock().unwrap().take());
    match act {
        Act::Echo => echo(request),
        Act::Gate(gate) => {
            gate.acquire().await.unwrap().forget();
            echo(request)
        }
        Act::Answer(results) => {
            let result = |(name, value, error): (&str, Vec<u8>, &str)| EnvVarResult {
                name: name.to_owned(),
                value,
                error: error.to_owned(),
            };
            let results = results.into_iter().map(result).collect();
            response(Ok(NodeGetEnvVarsResponse { results }.encode_to_vec()))
        }
        Act::Fail(code, text) => response(Err(Status::new(code, text))),
        Act::Hang => pending().await,
        Act::Crash => {
            crash();
            pending().await
        }
        Act::CrashMidReply => {
            // A hundred bytes are announced, and two come.
            let frame = Frame::data(Bytes::from_static(b"\0\0\0\0\x64\x0a\x62"));
            let (sender, told) = tokio::sync::oneshot::channel();
            let frames = stream::unfold(Some((frame, sender)), async |next| {
                let (frame, sender) = next?;
                let _ = sender.send(());
                Some((Ok(frame), None))
            });
            let frames = futures_util::StreamExt::chain(frames, stream::pending());
            let mut reply = Response::new(StreamBody::new(frames).boxed_unsync());
            let grpc = HeaderValue::from_static("application/grpc");
            reply.headers_mut().insert("content-type", grpc);
            let guard = serving.lock().unwrap().take();
            tokio::spawn(async move {
                let _ = told.await;
                // The frame is on its way once the connection had its turn.
                tokio::task::yield_now().await;
                drop(guard);
            });
            reply
        }
        Act::Garbage => response(Ok(b"\x0a\xff\xff\xff".to_vec())),
    }
}

fn echo(mut request: NodeGetEnvVarsRequest) -> fake_grpc::Reply {
    let result = |query: waybill_proto::csi::EnvVarQuery| EnvVarResult {
        name: query.name,
        value: query.key.into_bytes(),
        error: String::new(),
    };
    let results = std::mem::take(&mut request.queries).into_iter().map(result).collect();
    response(Ok(NodeGetEnvVarsResponse { results }.encode_to_vec()))
}

/// What the API server has, by the names of objects.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) classes: BTreeMap<String, Value>,
    pub(crate) csi_drivers: BTreeMap<String, Value>,
    /// Whether service accounts may use classes; `None` makes reviews fail.
    pub(crate) may_use: Option<bool>,
    /// Those who watch, by the name of the object.
    watches: BTreeMap<String, mpsc::UnboundedSender<Value>>,
    pub(crate) reviews: Vec<Value>,
    /// Reason and message.
    pub(crate) events: Vec<(String, String)>,
    pub(crate) lists: usize,
}

/// A cluster, and a node's part in it.
pub(crate) struct Cluster {
    api: FakeApi,
    pub(crate) objects: Arc<Mutex<Objects>>,
    pub(crate) dir: tempfile::TempDir,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let objects = Arc::new(Mutex::new(Objects { may_use: Some(true), ..Objects::default() }));
        let answering = Arc::clone(&objects);
        let api = FakeApi::start(move |call| answering.lock().unwrap().answer(call)).await;
        Self { api, objects, dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn set_class(&self, name: &str, parameters: Value) {
        let mut class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "ProviderClass",
            "metadata": {"name": name, "resourceVersion": "5", "uid": "u"},
            "spec": {"driver": DRIVER},
        });
        class["spec"]["parameters"] = parameters;
        let mut objects = self.objects.lock().unwrap();
        if let Some(watch) = objects.watches.get(name) {
            let _ = watch.send(json!({"type": "MODIFIED", "object": class}));
        }
        objects.classes.insert(name.to_owned(), class);
    }

    pub(crate) fn delete_class(&self, name: &str) {
        let mut objects = self.objects.lock().unwrap();
        let class = objects.classes.remove(name).unwrap();
        let watch = objects.watches.get(name).unwrap();
        watch.send(json!({"type": "DELETED", "object": class})).unwrap();
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("plugins").join(DRIVER).join("csi.sock")
    }

    pub(crate) fn config(&self) -> CsiConfig {
        config(self.dir.path())
    }

    pub(crate) fn csi(&self, config: CsiConfig) -> Csi {
        self.csi_with(config, Arc::new(NoObjects))
    }

    pub(crate) fn csi_with(&self, config: CsiConfig, objects: Arc<dyn ObjectSource>) -> Csi {
        let client = Some(self.api.client.clone());
        let (tasks, stop) = (&self.api.tasks, &self.api.stop);
        make(config, client, objects, tasks, stop)
    }

    /// Waits for the next events: reason and message.
    pub(crate) async fn events(&mut self, number: usize) -> Vec<(String, String)> {
        loop {
            let events = self.objects.lock().unwrap().events.clone();
            if events.len() >= number {
                return events;
            }
            self.api.next().await;
        }
    }
}

impl Objects {
    fn answer(&mut self, call: &Call) -> Reply {
        match call.line().as_str() {
            "POST /apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                self.reviews.push(call.body["spec"].clone());
                let mut review = call.body.clone();
                review["status"] = json!({"allowed": self.may_use});
                match self.may_use {
                    Some(_) => Reply::Json(201, review),
                    None => Reply::refuse(500, "InternalError"),
                }
            }
            "GET /apis/storage.k8s.io/v1/providerclasses" => self.read(call, "ProviderClass"),
            "GET /apis/storage.k8s.io/v1/csidrivers" => self.read(call, "CSIDriver"),
            "POST /api/v1/namespaces/shop/events" => {
                let text = |field: &str| call.body[field].as_str().unwrap().to_owned();
                self.events.push((text("reason"), text("message")));
                Reply::Json(201, call.body.clone())
            }
            // An event that happened again.
            other if other.starts_with("PATCH /api/v1/namespaces/shop/events/") => {
                Reply::ok(json!({"metadata": {}, "involvedObject": {}}))
            }
            other => panic!("nobody should ask for {other}"),
        }
    }

    fn read(&mut self, call: &Call, kind: &str) -> Reply {
        let pairs = form_urlencoded::parse(call.query.as_bytes());
        let query: BTreeMap<String, String> = pairs.into_owned().collect();
        let name = query["fieldSelector"].strip_prefix("metadata.name=").unwrap().to_owned();
        if query.get("watch").is_some_and(|watch| watch == "true") {
            let (sender, events) = mpsc::unbounded_channel();
            self.watches.insert(name, sender);
            return Reply::Watch(events);
        }
        self.lists += 1;
        let all = if kind == "CSIDriver" { &self.csi_drivers } else { &self.classes };
        let items: Vec<_> = all.get(&name).into_iter().cloned().collect();
        Reply::ok(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": format!("{kind}List"),
            "metadata": {"resourceVersion": "9"}, "items": items,
        }))
    }
}

/// Calls that are quick to fail, with sockets below `dir`.
pub(crate) fn config(dir: &Path) -> CsiConfig {
    CsiConfig {
        plugins_dir: dir.join("plugins"),
        registry_dir: dir.join("registry"),
        rpc_timeout: Duration::from_secs(5),
        rpc_retries: 1,
        retry_backoff: Duration::from_millis(1),
        allow_disk: false,
    }
}

/// A node on its own.
pub(crate) fn standalone(dir: &Path) -> Csi {
    let objects: Arc<dyn ObjectSource> = Arc::new(NoObjects);
    make(config(dir), None, objects, &TaskTracker::new(), &CancellationToken::new())
}

fn make(
    config: CsiConfig,
    client: Option<kube::Client>,
    objects: Arc<dyn ObjectSource>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Csi {
    let clock: crate::Clock = Arc::new(|| Timestamp::from_second(60).unwrap());
    Csi {
        node: "node-1".to_owned(),
        runtime: "waybill".to_owned(),
        drivers: Arc::new(Drivers::new(config.plugins_dir.clone())),
        classes: WatchedObjects::new(client.clone(), tasks, stop),
        csi_drivers: WatchedObjects::new(client.clone(), tasks, stop),
        objects,
        recorder: Recorder::start(client.clone(), "node-1", clock, tasks, stop),
        metrics: Arc::new(Metrics::new(FeatureGates::all_on())),
        rotations: Rotations::new(None),
        client,
        config,
    }
}
