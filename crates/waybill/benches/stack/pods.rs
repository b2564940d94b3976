//! Pods, created and awaited as a user would.

use futures_util::{AsyncReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api,
    api::{DeleteParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use waybill_client::{Options, Requests};

/// The image that every stack brings.
pub(crate) const IMAGE: &str = "waybill.dev/busybox:1";

/// What pods run; nobody else sleeps for so long.
pub(crate) const COMMAND: [&str; 2] = ["sleep", "31415926"];

pub(crate) struct Pods(Api<Pod>);

impl Pods {
    pub(crate) async fn connect(options: &Options) -> Self {
        let session = waybill_client::connect(options).await.unwrap();
        Self(Api::namespaced(session.client, "default"))
    }

    /// Creates a pod that sleeps, and waits until it is told that it runs.
    pub(crate) async fn run(&self, name: &str) {
        let spec = json!({
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "Never",
                "command": COMMAND,
            }],
        });
        self.run_spec(name, spec).await;
    }

    /// The same with a spec of its own.
    pub(crate) async fn run_spec(&self, name: &str, spec: Value) {
        // As it is: the types of the client do not know variables of drivers.
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        let made = self.create("/api/v1/namespaces/default/pods", &pod).await;
        let version = made.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap();
        self.until(name, version, |event| {
            let WatchEvent::Modified(pod) = event else { return false };
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        })
        .await;
    }

    pub(crate) async fn config_map(&self, name: &str, data: &Value) {
        let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": data}));
        let maps = Api::<ConfigMap>::namespaced(self.0.clone().into_client(), "default");
        let _ = maps.create(&PostParams::default(), &map.unwrap()).await.unwrap();
    }

    /// Any object, at the path of its kind.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Value {
        let requests = Requests::new(self.0.clone().into_client());
        requests.create(path, object).await.unwrap()
    }

    /// How long the node has spent on environments since it started.
    pub(crate) async fn environment_seconds(&self) -> f64 {
        self.node_metric("waybill_node_environment_seconds_sum").await
    }

    /// The sum of a metric of the node over all its labels.
    pub(crate) async fn node_metric(&self, name: &str) -> f64 {
        let requests = Requests::new(self.0.clone().into_client());
        let nodes = requests.get("/api/v1/nodes").await.unwrap();
        let node = nodes.pointer("/items/0/metadata/name").and_then(Value::as_str).unwrap();
        let path = format!("/api/v1/nodes/{node}/proxy/metrics");
        let mut text = String::new();
        let mut metrics = requests.stream(&path).await.unwrap();
        metrics.read_to_string(&mut text).await.unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix(name));
        let own = lines.filter(|rest| rest.starts_with(['{', ' ']));
        own.map(|rest| rest.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    pub(crate) async fn delete(&self, name: &str) {
        let seen = self.0.get(name).await.unwrap().metadata.resource_version.unwrap();
        let _ = self.0.delete(name, &DeleteParams::default()).await.unwrap();
        self.until(name, &seen, |event| matches!(event, WatchEvent::Deleted(_))).await;
    }

    async fn until(&self, name: &str, version: &str, wanted: impl Fn(&WatchEvent<Pod>) -> bool) {
        let only = WatchParams::default().fields(&format!("metadata.name={name}"));
        let mut events = Box::pin(self.0.watch(&only, version).await.unwrap());
        while let Some(event) = events.try_next().await.unwrap() {
            if wanted(&event) {
                return;
            }
        }
        panic!("the watch of pod {name} ended");
    }
}
