//! A provider that checks what the real ones check: those of AWS, Azure, GCP and Vault.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{Arc, Mutex},
};

use futures_util::stream;
use serde_json::Value;
use tokio::{
    net::UnixListener,
    runtime::{Builder, Runtime},
};
use tonic::{Request, Response, Status, transport::Server};
use waybill_proto::provider::{
    Error, File, MountRequest, MountResponse, ObjectVersion, VersionRequest, VersionResponse,
    csi_driver_provider_server::{CsiDriverProvider, CsiDriverProviderServer},
};

/// The provider, which ends with this.
pub(crate) struct Picky {
    state: Arc<State>,
    /// Of its own, so that its connections end with it too.
    runtime: Option<Runtime>,
}

/// How it answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Mood {
    #[default]
    Well,
    NoVersions,
    ErrorCode,
    NoFiles,
    Twice,
    Denied,
    Busy,
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) objects: Vec<String>,
    pub(crate) target_path: String,
}

#[derive(Default)]
struct State {
    mood: Mutex<Mood>,
    asked: Mutex<Vec<Asked>>,
}

impl Picky {
    pub(crate) fn start(socket: &Path) -> Self {
        let state = Arc::<State>::default();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let service = CsiDriverProviderServer::from_arc(Arc::clone(&state));
        runtime.spawn(async move {
            let listener = UnixListener::from_std(listener).unwrap();
            let incoming = stream::unfold(listener, |listener| async move {
                let accepted: io::Result<_> = listener.accept().await.map(|(stream, _)| stream);
                Some((accepted, listener))
            });
            let router = Server::builder().add_service(service);
            router.serve_with_incoming(Box::pin(incoming)).await.unwrap();
        });
        Self { state, runtime: Some(runtime) }
    }

    pub(crate) async fn stop(&mut self) {
        let runtime = self.runtime.take();
        tokio::task::spawn_blocking(|| drop(runtime)).await.unwrap();
    }

    pub(crate) fn be(&self, mood: Mood) {
        *self.state.mood.lock().unwrap() = mood;
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.state.asked.lock().unwrap().clone()
    }
}

impl Drop for Picky {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[tonic::async_trait]
impl CsiDriverProvider for State {
    async fn version(
        &self,
        _: Request<VersionRequest>,
    ) -> Result<Response<VersionResponse>, Status> {
        Ok(Response::new(VersionResponse {
            version: "v1alpha1".into(),
            runtime_name: "picky".into(),
            runtime_version: "0.1.0".into(),
        }))
    }

    async fn mount(
        &self,
        request: Request<MountRequest>,
    ) -> Result<Response<MountResponse>, Status> {
        let asked = judge(request.into_inner())?;
        self.asked.lock().unwrap().push(asked.clone());
        let mood = *self.mood.lock().unwrap();
        answer(mood, &asked.objects).map(Response::new)
    }
}

/// What real providers parse before they do anything.
fn judge(request: MountRequest) -> Result<Asked, Status> {
    let bad = |what: &str| Status::unknown(format!("failed to unmarshal {what}"));
    let attributes: BTreeMap<String, String> =
        serde_json::from_str(&request.attributes).map_err(|_| bad("attributes"))?;
    let _: Option<BTreeMap<String, String>> =
        serde_json::from_str(&request.secrets).map_err(|_| bad("secrets"))?;
    let _: u32 = serde_json::from_str(&request.permission).map_err(|_| bad("permission"))?;
    if request.target_path.is_empty() {
        return Err(Status::unknown("missing target path field"));
    }
    for name in ["pod.name", "pod.namespace", "pod.uid", "serviceAccount.name"] {
        let name = format!("csi.storage.k8s.io/{name}");
        if attributes.get(&name).is_none_or(String::is_empty) {
            return Err(Status::unknown(format!("missing {name}")));
        }
    }
    let tokens = attributes.get("csi.storage.k8s.io/serviceAccount.tokens");
    let tokens: Value =
        serde_json::from_str(tokens.map_or("", String::as_str)).map_err(|_| bad("tokens"))?;
    if !tokens["vault"]["token"].is_string() || !tokens["vault"]["expirationTimestamp"].is_string()
    {
        return Err(Status::unknown("no token for the audience vault"));
    }
    let list = attributes.get("objects").map_or("", String::as_str);
    let list: Vec<BTreeMap<String, String>> =
        serde_saphyr::from_str(list).map_err(|_| bad("objects"))?;
    let objects = list.iter().filter_map(|object| object.get("objectName").cloned()).collect();
    Ok(Asked { attributes, objects, target_path: request.target_path })
}

fn answer(mood: Mood, objects: &[String]) -> Result<MountResponse, Status> {
    if objects.iter().any(|object| object == "gone") {
        return Err(Status::unknown("error making mount request: no secret at secret/data/gone"));
    }
    let file = |path: &String| File {
        path: path.clone(),
        mode: 420,
        contents: format!("value of {path}").into_bytes(),
    };
    let version = |id: &String| ObjectVersion { id: id.clone(), version: "1".into() };
    let whole = MountResponse {
        object_version: objects.iter().map(version).collect(),
        error: None,
        files: objects.iter().map(file).collect(),
    };
    match mood {
        Mood::Well => Ok(whole),
        Mood::NoVersions => Ok(MountResponse { object_version: Vec::new(), ..whole }),
        Mood::ErrorCode => {
            Ok(MountResponse { error: Some(Error { code: "GRPCProviderError".into() }), ..whole })
        }
        Mood::NoFiles => Ok(MountResponse { files: Vec::new(), ..whole }),
        Mood::Twice => {
            let files = [whole.files.clone(), whole.files].concat();
            Ok(MountResponse { files, ..whole })
        }
        Mood::Denied => Err(Status::permission_denied("value of api-key is not for you")),
        Mood::Busy => Err(Status::unavailable("value of api-key is not there")),
    }
}
