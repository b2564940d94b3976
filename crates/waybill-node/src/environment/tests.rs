//! Environments as containers get them.

mod files;

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use waybill_api::gates::{FeatureGates, KubeVersion};

use super::*;
use crate::{
    objects::NoObjects,
    objects::testing::{FakeObjects, node, pod},
};

const CANARY: &str = "hunter2";

struct Fixture {
    resolver: Resolver,
    state: tempfile::TempDir,
}

impl Fixture {
    fn new(objects: impl ObjectSource + 'static) -> Self {
        let state = tempfile::tempdir().unwrap();
        let directories =
            Directories { state: state.path().to_owned(), logs: state.path().join("logs") };
        let resolver = Resolver {
            objects: Arc::new(objects),
            directories,
            gates: FeatureGates::all_on(),
            node: Arc::new(NodeFacts { api_endpoint: None, ..node() }),
            csi: Arc::new(crate::csi::testing::standalone(state.path())),
        };
        Self { resolver, state }
    }

    async fn resolve_pod(&self, pod: &Pod) -> Result<Resolved, EnvironmentError> {
        let container = pod.containers().next().unwrap();
        let ips = ["198.51.100.7".to_owned(), "2001:db8::7".to_owned()];
        self.resolver.resolve(Request { pod, container, pod_ips: &ips }).await
    }

    async fn resolve(&self, container: Value) -> Result<Resolved, EnvironmentError> {
        self.resolve_pod(&pod(with_container(container))).await
    }

    /// The variables as `NAME=value`, in their order.
    #[track_caller]
    fn check(&self, container: Value, expected: &[&str]) {
        let resolved = block_on(self.resolve(container)).unwrap();
        assert_eq!(pairs(&resolved), expected);
        assert_eq!(resolved.warnings, []);
    }

    #[track_caller]
    fn check_refused(&self, container: Value, expected: &str) {
        let error = block_on(self.resolve(container)).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    /// Writes into the volume `v` of the pod.
    fn write(&self, path: &str, content: &str) {
        let uid = pod(json!({"containers": []})).uid().clone();
        let file = self.resolver.directories.volume(&uid, "empty-dir", "v").join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A pod with that container, called `app`, and a volume `v`.
fn with_container(mut container: Value) -> Value {
    container["name"] = json!("app");
    json!({
        "containers": [container],
        "serviceAccountName": "robot",
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x"}}],
    })
}

fn pairs(resolved: &Resolved) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let entries = resolved.environment.iter();
    entries
        .map(|entry| format!("{}={}", text(entry.name().as_bytes()), text(entry.value().expose())))
        .collect()
}

fn env(name: &str, from: Value) -> Value {
    let mut container = json!({"env": [{"name": name}]});
    container["env"][0]["valueFrom"] = from;
    container
}

fn fixture() -> Fixture {
    Fixture::new(
        FakeObjects::default()
            .with_config_map("cm", &[("a", "1"), ("b.c", "2"), ("1-data", "3")])
            .with_config_map("other", &[("a", "other")])
            .with_secret("db", &[("password", CANARY), ("user", "root")]),
    )
}

#[test]
fn a_container_without_variables_has_none() {
    fixture().check(json!({}), &[]);
}

/// OP-38: a value sees what was defined before it, and only `value` is expanded.
#[test]
fn values_see_earlier_variables_and_env_from() {
    fixture().check(
        json!({
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm"}}],
            "env": [
                {"name": "EARLY", "value": "$(LATE) $(P_a) $$(P_a) $(NOBODY)"},
                {"name": "LATE", "value": "late"},
                {"name": "AFTER", "value": "<$(LATE)>"},
            ],
        }),
        &[
            "P_1-data=3",
            "P_a=1",
            "P_b.c=2",
            "EARLY=$(LATE) 1 $(P_a) $(NOBODY)",
            "LATE=late",
            "AFTER=<late>",
        ],
    );
    let objects = FakeObjects::default().with_config_map("cm", &[("k", "$(A)")]);
    Fixture::new(objects).check(
        json!({"env": [
            {"name": "A", "value": "a"},
            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}},
        ]}),
        &["A=a", "B=$(A)"],
    );
}

/// NAME-14, CSI-32
#[test]
fn env_wins_over_env_from_and_later_over_earlier_name_14() {
    let fixture = fixture();
    let container = json!({
        "envFrom": [{"configMapRef": {"name": "cm"}}, {"configMapRef": {"name": "other"}}],
        "env": [{"name": "b.c", "value": "x"}, {"name": "A", "value": "1"}, {"name": "A", "value": "2$(A)"}],
    });
    fixture.check(container.clone(), &["1-data=3", "a=other", "b.c=x", "A=21"]);
    let resolved = block_on(fixture.resolve(container)).unwrap();
    let provenance = ContainerProvenance::new(&resolved.environment, None);
    assert_eq!(
        serde_json::to_value(&provenance).unwrap()["variables"][1],
        json!({
            "name": "a",
            "tier": "baseline",
            "origin": {"kind": "configMap", "name": "other", "key": "a"},
            "from": "ConfigMap other, key a",
            "sensitive": false,
            "shadowed": [{
                "tier": "baseline",
                "origin": {"kind": "configMap", "name": "cm", "key": "a"},
                "from": "ConfigMap cm, key a",
            }],
        })
    );
}

/// NAME-09, NAME-10, NAME-11, NAME-12, NAME-13, NAME-19, NAME-20
#[test]
fn every_stored_name_is_passed_on_unchanged_name_12() {
    let names = [r##"!"#$%&'()"##, "* +,-./0123456789", ":;<>?@", r"[\]^_`{}|~", "Ü", "\u{1}"];
    let entries = names.map(|name| json!({"name": name, "value": "x"}));
    let expected = names.map(|name| format!("{name}=x"));
    let expected: Vec<_> = expected.iter().map(|pair| &**pair).collect();
    fixture().check(json!({"env": entries}), &expected);

    for prefix in ["1-", "$_-", "ABC_", "#@!"] {
        let [one, two, three] = ["1-data=3", "a=1", "b.c=2"].map(|pair| format!("{prefix}{pair}"));
        fixture().check(
            json!({"envFrom": [{"prefix": prefix, "configMapRef": {"name": "cm"}}]}),
            &[&one, &two, &three],
        );
    }
    fixture().check(
        json!({"env": [
            {"name": "Logging:LogLevel:Default", "value": "Debug"},
            {"name": "B", "value": "$(Logging:LogLevel:Default)"},
        ]}),
        &["Logging:LogLevel:Default=Debug", "B=Debug"],
    );
}

/// Only a pod that no API server has judged can have such a prefix.
#[tokio::test]
async fn names_that_cannot_be_are_skipped_with_a_warning() {
    let container = json!({"envFrom": [{"prefix": "A=", "secretRef": {"name": "db"}}]});
    let resolved = fixture().resolve(container).await.unwrap();
    assert!(resolved.environment.is_empty());
    assert_eq!(
        resolved.warnings,
        [Warning {
            reason: "InvalidEnvironmentVariableNames",
            message:
                "Keys [\"A=password\", \"A=user\"] from the EnvFrom Secret shop/db were skipped \
                      since they are considered invalid environment variable names."
                    .to_owned(),
        }]
    );
}

#[test]
fn missing_objects_and_keys_are_errors_unless_optional() {
    let config_map = |name: &str, key: &str, optional: bool| {
        env("A", json!({"configMapKeyRef": {"name": name, "key": key, "optional": optional}}))
    };
    let secret = |name: &str, key: &str, optional: bool| {
        env("A", json!({"secretKeyRef": {"name": name, "key": key, "optional": optional}}))
    };
    let fixture = fixture();
    let of = r#"(variable "A" of container "app")"#;
    fixture.check(config_map("cm", "a", false), &["A=1"]);
    fixture.check(secret("db", "user", false), &["A=root"]);
    fixture
        .check_refused(config_map("no", "a", false), &format!(r#"configmap "no" not found {of}"#));
    fixture.check_refused(secret("no", "a", false), &format!(r#"secret "no" not found {of}"#));
    fixture.check_refused(
        config_map("cm", "z", false),
        &format!("couldn't find key z in ConfigMap shop/cm {of}"),
    );
    fixture.check_refused(
        secret("db", "z", false),
        &format!("couldn't find key z in Secret shop/db {of}"),
    );
    for optional in [
        config_map("no", "a", true),
        config_map("cm", "z", true),
        secret("no", "a", true),
        secret("db", "z", true),
        json!({"envFrom": [{"secretRef": {"name": "no", "optional": true}}]}),
        json!({"envFrom": [{"configMapRef": {"name": "no", "optional": true}}]}),
    ] {
        fixture.check(optional, &[]);
    }
    fixture.check_refused(
        json!({"envFrom": [{"configMapRef": {"name": "cm"}}, {"secretRef": {"name": "no"}}]}),
        r#"secret "no" not found (envFrom[1] of container "app")"#,
    );
}

#[test]
fn optional_excuses_absence_and_nothing_else() {
    let container = env("A", json!({"secretKeyRef": {"name": "db", "key": "k", "optional": true}}));
    Fixture::new(NoObjects).check_refused(
        container,
        "secret \"db\" is not available in standalone mode: there is no API server \
         (variable \"A\" of container \"app\")",
    );
}

#[test]
fn what_no_process_can_have_is_refused() {
    let fixture = fixture();
    fixture.check_refused(
        json!({"env": [{"name": "A", "value": "x"}, {"name": "", "value": "x"}]}),
        r#"environment variable name must be non-empty (env[1] of container "app")"#,
    );
    fixture.check_refused(
        json!({"env": [{"name": "A", "value": "x\u{0}"}]}),
        "an environment variable value cannot contain NUL (found at byte 1) \
         (variable \"A\" of container \"app\")",
    );
    fixture.check_refused(
        env("A", json!({"futureRef": {}})),
        r#"valueFrom names no source that this node knows (variable "A" of container "app")"#,
    );
    // OP-3
    let long = "x".repeat(131_070);
    let error = block_on(fixture.resolve(json!({"env": [{"name": "A", "value": long}]})));
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("environment variable A takes 131072 bytes"), "{error}");

    let objects = FakeObjects::default().with_secret("bin", &[("key", "a\0b")]);
    Fixture::new(objects).check_refused(
        json!({"envFrom": [{"prefix": "P_", "secretRef": {"name": "bin"}}]}),
        "an environment variable value cannot contain NUL (found at byte 1) \
         (variable \"P_key\" of container \"app\")",
    );
}

#[test]
fn fields_of_the_pod_and_the_node_become_values() {
    let fixture = fixture();
    for (path, value) in [
        ("metadata.name", "web"),
        ("metadata.namespace", "shop"),
        ("metadata.uid", "9d5e1a2c-uid"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['note']", "hello"),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "robot"),
        ("status.hostIP", "192.0.2.1"),
        ("status.hostIPs", "192.0.2.1,2001:db8::1"),
        ("status.podIP", "198.51.100.7"),
        ("status.podIPs", "198.51.100.7,2001:db8::7"),
    ] {
        fixture.check(env("A", json!({"fieldRef": {"fieldPath": path}})), &[&format!("A={value}")]);
    }
    fixture.check_refused(
        env("A", json!({"fieldRef": {"fieldPath": "spec.containers"}})),
        r#"field label not supported: spec.containers (variable "A" of container "app")"#,
    );
    fixture.check_refused(
        env("A", json!({"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}})),
        r#"unsupported pod version: v2 (variable "A" of container "app")"#,
    );
}

#[tokio::test]
async fn a_pod_on_the_network_of_the_host_has_its_addresses() {
    let mut spec = with_container(env("A", json!({"fieldRef": {"fieldPath": "status.podIP"}})));
    spec["hostNetwork"] = json!(true);
    let (fixture, pod) = (fixture(), pod(spec));
    let container = pod.containers().next().unwrap();
    let request = Request { pod: &pod, container, pod_ips: &[] };
    let resolved = fixture.resolver.resolve(request).await.unwrap();
    assert_eq!(pairs(&resolved), ["A=192.0.2.1"]);
}

#[test]
fn the_api_server_is_told_unless_the_pod_says_otherwise() {
    let mut fixture = fixture();
    fixture.resolver.node = Arc::new(node());
    fixture.check(
        json!({"env": [
            {"name": "KUBERNETES_SERVICE_PORT", "value": "1"},
            {"name": "A", "value": "$(KUBERNETES_SERVICE_HOST)"},
        ]}),
        &["KUBERNETES_SERVICE_HOST=192.0.2.9", "KUBERNETES_SERVICE_PORT=1", "A=192.0.2.9"],
    );
}

fn file_key(volume: &str, path: &str, key: &str, optional: bool) -> Value {
    env(
        "A",
        json!({"fileKeyRef": {
            "volumeName": volume, "path": path, "key": key, "optional": optional}}),
    )
}

/// CSI-27, CSI-28: without an API server there are no classes, so the container does not start.
#[test]
fn csi_variables_need_a_class_csi_28() {
    let mut fixture = fixture();
    let container = env(
        "A",
        json!({"csiSecretRef": {
            "driver": "vault.csi", "providerClassName": "c", "key": "k",
            "parameters": {"token": CANARY}}}),
    );
    fixture.check_refused(
        container.clone(),
        "failed to fetch CSI environment variables: driver \"vault.csi\", ProviderClass \"c\": \
         ProviderClass \"c\" not found: there is no API server in standalone mode (variable \"A\" of \
         container \"app\")",
    );
    fixture.resolver.gates = FeatureGates::new(KubeVersion::parse("1.35").unwrap());
    fixture.check_refused(
        container,
        "csiSecretRef: CSIDirectEnvInjection feature gate is not enabled \
         (variable \"A\" of container \"app\")",
    );
}

#[tokio::test]
async fn each_object_is_asked_for_once() {
    let objects = Arc::new(FakeObjects::default().with_secret("db", &[("k", "v")]));
    let mut fixture = fixture();
    fixture.resolver.objects = objects.clone();
    let key = |name: &str| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": "db", "key": "k"}}});
    let container =
        json!({"env": [key("A"), key("B"), key("C")], "envFrom": [{"secretRef": {"name": "db"}}]});
    fixture.resolve(container).await.unwrap();
    assert_eq!(objects.asked.load(Ordering::Relaxed), 1);
}

/// D9: also what is made of others, and what is in a file.
#[tokio::test]
async fn what_comes_from_secrets_is_sensitive() {
    let fixture = fixture();
    fixture.write("a.env", "K='v'\n");
    let container = json!({"env": [
        {"name": "PLAIN", "value": "x"},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}},
        {"name": "MADE", "value": "postgres://$(SECRET)@db"},
        {"name": "FILE", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "a.env", "key": "K"}}},
        {"name": "CM", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "a"}}},
    ]});
    let resolved = fixture.resolve(container).await.unwrap();
    let secret = resolved.environment.iter().filter(|entry| entry.value().is_secret());
    let secret: Vec<_> = secret.map(|entry| entry.name().to_string()).collect();
    assert_eq!(secret, ["SECRET", "MADE", "FILE"]);
}

/// No error, `Debug` text, warning or provenance holds a value, wherever it came from.
#[tokio::test]
async fn values_are_never_shown() {
    let objects = FakeObjects::default()
        .with_secret("db", &[("password", CANARY), ("nul", "hunter2\0")])
        .with_config_map("cm", &[("a", CANARY)]);
    let fixture = Fixture::new(objects);
    fixture.write("good.env", "K='hunter2'\n");
    fixture.write("bad.env", "K='hunter2\n");
    let good = json!({
        "envFrom": [{"secretRef": {"name": "db"}}, {"prefix": "=", "configMapRef": {"name": "cm"}}],
        "env": [
            {"name": "nul", "value": CANARY},
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}},
            {"name": "B", "value": "$(A)"},
            {"name": "C", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "good.env", "key": "K"}}},
        ],
    });
    let mut shown = String::new();
    let mut show = |text: String| shown.push_str(&text);
    // Without the value that no environment can hold.
    let without = json!({"env": good["env"], "envFrom": [good["envFrom"][1]]});
    let pod = pod(with_container(without));
    let resolved = fixture.resolve_pod(&pod).await.unwrap();
    assert!(pairs(&resolved).contains(&"B=hunter2".to_owned()));
    let container = pod.containers().next().unwrap();
    let provenance = ContainerProvenance::new(&resolved.environment, None);
    show(format!("{resolved:?} {provenance:?} {pod:?} {container:?}"));
    show(serde_json::to_string(&provenance).unwrap());
    for bad in [
        good,
        json!({"env": [{"name": "A", "value": "hunter2\u{0}"}]}),
        json!({"env": [{"name": "A", "value": CANARY.repeat(20_000)}]}),
        env("A", json!({"secretKeyRef": {"name": "db", "key": "nul"}})),
        env("A", json!({"configMapKeyRef": {"name": "cm", "key": "z"}})),
        env("A", json!({"csiSecretRef": {"driver": "d", "parameters": {"p": CANARY}}})),
        file_key("v", "bad.env", "K", true),
        file_key("v", "good.env", "Z", false),
    ] {
        let error = fixture.resolve(bad).await.unwrap_err();
        show(format!("{error} {error:?}"));
    }
    assert!(!shown.contains(CANARY), "{shown}");
    let host = fixture.state.path().to_str().unwrap();
    assert!(!shown.contains(host), "no path of the host (FILE-20): {shown}");
}
