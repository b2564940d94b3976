//! The names that a namespace refuses to sessions, through the front door: no spelling of a name, no kind
//! of session and no missing namespace is a way around the list (EXEC-35).

use serde_json::{Value, json};
use waybill_api::gates::FeatureGates;

use super::{
    TestServer,
    client::{JSON, Reply},
};

const POD: &str = "/api/v1/namespaces/default/pods/web";
const NAMESPACE: &str = "/api/v1/namespaces/default";
const MERGE: &str = "application/strategic-merge-patch+json";

/// What stops an exec that was admitted, here where there are no nodes.
const ADMITTED: &str = "pod web does not have a host assigned";

struct Lab {
    server: TestServer,
}

impl Lab {
    /// A pod that nobody runs, in a namespace with this list.
    async fn start(list: &str) -> Self {
        let server = TestServer::start_with(|config| config.gates = FeatureGates::all_on()).await;
        let annotation = json!({"metadata": {"annotations": {"waybill.dev/exec-env-deny": list}}});
        let lab = Self { server };
        assert_eq!(lab.patch(NAMESPACE, &annotation).await.code, 200);
        let pods = "/api/v1/namespaces/default/pods";
        lab.server.send("admin", "POST", pods, &pod()).await.created();
        lab
    }

    async fn patch(&self, path: &str, patch: &Value) -> Reply {
        self.server.send_as("admin", "PATCH", path, MERGE, patch.to_string()).await
    }

    async fn exec(&self, name: &str) -> Reply {
        let path = format!("{POD}/exec?command=env&stdout=true&env={name}%3Dx");
        self.server.send("admin", "POST", &path, "").await
    }

    async fn refuses(&self, name: &str) {
        let reply = self.exec(name).await;
        let message = reply.json()["message"].to_string();
        assert!(reply.code == 403 && message.contains("exec-env-deny"), "{name}: {message}");
    }

    async fn admits(&self, name: &str) {
        let message = self.exec(name).await.json()["message"].to_string();
        assert!(message.contains(ADMITTED), "{name}: {message}");
    }

    /// As `kubectl debug` asks for it.
    async fn debug(&self, container: &Value) -> Reply {
        let patch = json!({"spec": {"ephemeralContainers": [container]}});
        self.patch(&format!("{POD}/ephemeralcontainers"), &patch).await
    }
}

/// A pod that stays when its namespace is deleted.
fn pod() -> String {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "finalizers": ["waybill.dev/test"]},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    });
    pod.to_string()
}

fn debugger(name: &str, env: &Value, env_from: &Value) -> Value {
    json!({"name": name, "image": "debug", "env": env, "envFrom": env_from})
}

/// Relaxed names may hold `/` (KEP-4369), and `*` stopped there.
#[tokio::test]
async fn a_slash_in_a_name_is_no_way_around_the_list() {
    let lab = Lab::start("LD_*,S?X").await;
    lab.refuses("LD_PRELOAD").await;
    lab.refuses("LD_%2F").await;
    lab.refuses("LD_a%2Fb").await;
    lab.refuses("S%2FX").await;
    lab.admits("LEVEL").await;
}

/// Programs read `http_proxy` as they read `HTTP_PROXY`.
#[tokio::test]
async fn names_are_refused_in_upper_and_lower_case() {
    let lab = Lab::start("*_PROXY,ld_*").await;
    for name in ["HTTP_PROXY", "http_proxy", "Https_Proxy", "LD_PRELOAD", "ld_preload"] {
        lab.refuses(name).await;
    }
    lab.admits("PROXY").await;
}

/// A container of `kubectl debug` is a session too.
#[tokio::test]
async fn variables_of_ephemeral_containers_are_refused_as_those_of_exec_are() {
    let lab = Lab::start("LD_*").await;
    let refused =
        lab.debug(&debugger("a", &json!([{"name": "LD_PRELOAD", "value": "x"}]), &json!([]))).await;
    let message = refused.json()["message"].to_string();
    assert!(refused.code == 403 && message.contains("LD_PRELOAD"), "{message}");
    assert!(message.contains("exec-env-deny"), "{message}");

    // What the ConfigMap will hold when the container starts is not known now.
    for prefix in ["", "L", "LD_", "ld_x"] {
        let source = json!([{"prefix": prefix, "configMapRef": {"name": "c"}}]);
        let refused = lab.debug(&debugger("a", &json!([]), &source)).await;
        let message = refused.json()["message"].to_string();
        assert!(refused.code == 403 && message.contains("envFrom"), "{prefix}: {message}");
    }
    let source = json!([{"prefix": "APP_", "configMapRef": {"name": "c"}}]);
    let taken = lab.debug(&debugger("a", &json!([{"name": "LEVEL", "value": "x"}]), &source)).await;
    assert_eq!(taken.code, 200, "{taken:?}");
}

/// A container that was there before the list does not keep others from being added.
#[tokio::test]
async fn ephemeral_containers_that_were_there_may_stay() {
    let lab = Lab::start("").await;
    let old = debugger("old", &json!([{"name": "LD_PRELOAD", "value": "x"}]), &json!([]));
    assert_eq!(lab.debug(&old).await.code, 200);
    let list = json!({"metadata": {"annotations": {"waybill.dev/exec-env-deny": "LD_*"}}});
    assert_eq!(lab.patch(NAMESPACE, &list).await.code, 200);
    let new = debugger("new", &json!([{"name": "LEVEL", "value": "x"}]), &json!([]));
    assert_eq!(lab.debug(&new).await.code, 200);
    let bad = debugger("bad", &json!([{"name": "ld_debug", "value": "x"}]), &json!([]));
    assert_eq!(lab.debug(&bad).await.code, 403);
}

/// A pod can outlive its namespace, by `finalize`; what the list says is not known then.
#[tokio::test]
async fn without_the_namespace_no_session_has_variables() {
    let server = TestServer::start_with(|config| config.gates = FeatureGates::all_on()).await;
    let ns = "/api/v1/namespaces/gone";
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gone"}});
    server.send("admin", "POST", "/api/v1/namespaces", &made.to_string()).await.created();
    let pods = format!("{ns}/pods");
    // Its service account is made by a controller.
    while server.send("admin", "POST", &pods, &pod()).await.code != 201 {
        tokio::task::yield_now().await;
    }
    let deleted = server.send("admin", "DELETE", ns, "").await;
    assert_eq!(deleted.code, 200, "{deleted:?}");
    let mut left = server.send("admin", "GET", ns, "").await.json();
    left["spec"]["finalizers"] = json!([]);
    // A controller writes to it meanwhile.
    left["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let body = left.to_string();
    let done = server.send_as("admin", "PUT", &format!("{ns}/finalize"), JSON, body).await;
    assert_eq!(done.code, 200, "{done:?}");
    assert_eq!(server.send("admin", "GET", ns, "").await.code, 404);

    let exec = format!("{ns}/pods/web/exec?command=env&stdout=true");
    let with = server.send("admin", "POST", &format!("{exec}&env=LD_PRELOAD%3Dx"), "").await;
    let message = with.json()["message"].to_string();
    assert!(with.code == 403 && message.contains("namespace"), "{with:?}");
    let without = server.send("admin", "POST", &exec, "").await.json()["message"].to_string();
    assert!(without.contains(ADMITTED), "{without}");

    let path = format!("{ns}/pods/web/ephemeralcontainers");
    let patch = async |container: &Value| {
        let patch = json!({"spec": {"ephemeralContainers": [container]}}).to_string();
        server.send_as("admin", "PATCH", &path, MERGE, patch).await.code
    };
    assert_eq!(patch(&debugger("a", &json!([{"name": "A", "value": "x"}]), &json!([]))).await, 403);
    assert_eq!(patch(&debugger("a", &json!([]), &json!([]))).await, 200);
}

/// A container that is added later is held to the provider classes as those of a new pod are.
#[tokio::test]
async fn ephemeral_containers_use_no_provider_class_that_they_may_not() {
    let lab = Lab::start("").await;
    let env = json!([{"name": "A", "valueFrom": {"csiSecretRef": {
        "driver": "d.example.com", "providerClassName": "vault", "key": "secret/x"}}}]);
    let refused = lab.debug(&debugger("a", &env, &json!([]))).await;
    let message = refused.json()["message"].to_string();
    assert!(
        refused.code == 403 && message.contains("ProviderClass 'vault' not found"),
        "{message}"
    );
}
