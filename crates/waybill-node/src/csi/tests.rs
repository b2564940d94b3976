//! Variables of drivers as containers get them, and every way in which they do not: a driver at the far
//! end of a socket, and an API server, both scripted.

mod faults;
mod limits;
mod policy;
mod tokens;
mod told;

use serde_json::{Value, json};
use waybill_api::gates::FeatureGates;

use super::{
    testing::{Act, Cluster, DRIVER, ScriptedDriver},
    *,
};
use crate::{
    directories::Directories,
    environment::{ContainerProvenance, EnvironmentError, Request, Resolved, Resolver},
    objects::{
        NoObjects,
        testing::{node, pod},
    },
};

/// A node with one driver and the class `vault`.
struct Fixture {
    cluster: Cluster,
    driver: ScriptedDriver,
    resolver: Resolver,
}

impl Fixture {
    async fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        Self::with(acts, |config| config).await
    }

    async fn with(
        acts: impl IntoIterator<Item = Act>,
        change: impl FnOnce(CsiConfig) -> CsiConfig,
    ) -> Self {
        let cluster = Cluster::start().await;
        cluster.set_class("vault", json!({"addr": "https://v"}));
        let driver = ScriptedDriver::start(&cluster.socket(), acts);
        let csi = cluster.csi(change(cluster.config()));
        let resolver = resolver(&cluster, csi);
        Self { cluster, driver, resolver }
    }

    async fn resolve(&self, container: Value) -> Result<Resolved, EnvironmentError> {
        self.resolve_pod(&pod_with(container)).await
    }

    async fn resolve_pod(&self, pod: &Pod) -> Result<Resolved, EnvironmentError> {
        let container = pod.containers().next().unwrap();
        let resolved = self.resolver.resolve(Request { pod, container, pod_ips: &[] }).await;
        if let Ok(resolved) = &resolved {
            self.resolver.csi.tell_success(pod, container.name(), &resolved.injected);
        }
        resolved
    }

    /// The error of a container with one variable, `A`, without what all of them begin with.
    async fn refusal(&self) -> String {
        let error = self.resolve(env(&[("A", "k")])).await.unwrap_err().to_string();
        let about = format!(
            "failed to fetch CSI environment variables: driver \"{DRIVER}\", ProviderClass \
             \"vault\": "
        );
        let rest = error.strip_prefix(&about).unwrap_or(&error);
        rest.strip_suffix(" (variable \"A\" of container \"app\")").unwrap_or(rest).to_owned()
    }

    fn metrics(&self) -> String {
        self.resolver.csi.metrics.text(0)
    }

    #[track_caller]
    fn check_metric(&self, line: &str) {
        let text = self.metrics();
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

fn resolver(cluster: &Cluster, csi: Csi) -> Resolver {
    let state = cluster.dir.path().join("state");
    Resolver {
        objects: Arc::new(NoObjects),
        directories: Directories { logs: state.join("logs"), state },
        gates: FeatureGates::all_on(),
        node: Arc::new(crate::environment::NodeFacts { api_endpoint: None, ..node() }),
        csi: Arc::new(csi),
    }
}

/// Variables of the class `vault`, with their keys.
fn env(variables: &[(&str, &str)]) -> Value {
    let entries: Vec<_> =
        variables.iter().map(|(name, key)| variable(name, "vault", key)).collect();
    json!({"env": entries})
}

fn variable(name: &str, class: &str, key: &str) -> Value {
    json!({"name": name, "valueFrom": {"csiSecretRef": {
        "driver": DRIVER, "providerClassName": class, "key": key}}})
}

fn pod_with(mut container: Value) -> Pod {
    container["name"] = json!("app");
    pod(json!({"containers": [container], "serviceAccountName": "robot"}))
}

fn pairs(resolved: &Resolved) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let entries = resolved.environment.iter();
    entries
        .map(|entry| format!("{}={}", text(entry.name().as_bytes()), text(entry.value().expose())))
        .collect()
}

/// CSI-74, CSI-23, CSI-32, CSI-72
#[tokio::test]
async fn one_call_brings_all_variables_of_a_class_csi_23_csi_72_csi_74() {
    for number in [1, 10, 50] {
        let fixture = Fixture::new([Act::Echo]).await;
        let names: Vec<_> = (0..number).map(|at| (format!("V{at}"), format!("k/{at}"))).collect();
        let names: Vec<_> = names.iter().map(|(name, key)| (&**name, &**key)).collect();
        let resolved = fixture.resolve(env(&names)).await.unwrap();
        let expected: Vec<_> = names.iter().map(|(name, key)| format!("{name}={key}")).collect();
        assert_eq!(pairs(&resolved), expected);
        assert_eq!(fixture.driver.count("NodeGetEnvVars"), 1);
        assert!(resolved.environment.iter().all(|entry| entry.value().is_secret()));
    }
}

/// CSI-23
#[tokio::test]
async fn two_classes_are_two_calls_and_no_variable_is_none_csi_23() {
    let fixture = Fixture::new([Act::Echo]).await;
    fixture.resolve(json!({"env": [{"name": "A", "value": "x"}]})).await.unwrap();
    assert_eq!(fixture.driver.requests(), []);
    fixture.cluster.set_class("other", json!({}));
    let container = json!({"env": [
        variable("A", "vault", "1"), variable("B", "other", "2"), variable("C", "vault", "3")]});
    let resolved = fixture.resolve(container).await.unwrap();
    assert_eq!(pairs(&resolved), ["A=1", "B=2", "C=3"]);
    let mut asked: Vec<_> = fixture
        .driver
        .requests()
        .into_iter()
        .map(|request| (request.provider_class_name.clone(), request.queries.len()))
        .collect();
    asked.sort();
    assert_eq!(asked, [("other".to_owned(), 1), ("vault".to_owned(), 2)]);
}

/// CSI-08, CSI-30
#[tokio::test]
async fn every_start_fetches_again_csi_30_csi_08() {
    let value = |text: &str| Act::Answer(vec![("A", text.as_bytes().to_vec(), "")]);
    let fixture = Fixture::new([value("one"), value("two")]).await;
    for expected in ["A=one", "A=two"] {
        let resolved = fixture.resolve(env(&[("A", "k")])).await.unwrap();
        assert_eq!(pairs(&resolved), [expected]);
    }
    assert_eq!(fixture.driver.count("NodeGetEnvVars"), 2);
    assert_eq!(fixture.driver.count("NodeGetCapabilities"), 1, "once for a connection");
}

/// CSI-31, CSI-32, OP-38, CSI-69
#[tokio::test]
async fn values_are_literal_and_stand_in_the_order_of_definition_csi_31_csi_32_csi_69() {
    let fixture = Fixture::new([Act::Echo]).await;
    let container = json!({"env": [
        {"name": "A", "value": "a"},
        variable("S", "vault", "$(A)"),
        {"name": "B", "value": "<$(S)>"},
        variable("A", "vault", "late"),
        variable("E", "vault", "x"),
        {"name": "E", "value": "last"},
    ]});
    let resolved = fixture.resolve(container).await.unwrap();
    assert_eq!(pairs(&resolved), ["A=late", "S=$(A)", "B=<$(A)>", "E=last"]);
    let secret: Vec<_> = resolved.environment.iter().map(|it| it.value().is_secret()).collect();
    assert_eq!(secret, [true, true, true, false], "what is made of a secret is one");
}

/// CSI-60, CSI-14
#[tokio::test]
async fn provenance_names_driver_class_and_key_csi_60() {
    let fixture = Fixture::new([Act::Echo]).await;
    let resolved = fixture.resolve(env(&[("A", "secret/data/db")])).await.unwrap();
    let told = serde_json::to_value(ContainerProvenance::new(&resolved.environment, None)).unwrap();
    assert_eq!(
        told["variables"][0],
        json!({
            "name": "A", "tier": "baseline", "sensitive": true,
            "origin": {"kind": "csi", "driver": DRIVER, "class": "vault", "key": "secret/data/db"},
            "from": format!("CSI {DRIVER}, class vault, key secret/data/db"),
        })
    );
}

/// CSI-51, CSI-52, CSI-54, CSI-55, CSI-56, CSI-73
#[tokio::test]
async fn a_success_is_counted_and_told_csi_51_csi_52_csi_54_csi_55_csi_56_csi_73() {
    let mut fixture = Fixture::new([Act::Echo]).await;
    fixture.resolve(env(&[("A", "canary-1"), ("B", "canary-2")])).await.unwrap();
    let labels = format!("driver=\"{DRIVER}\",provider_class=\"vault\"");
    for line in [
        format!("kubelet_csi_env_injection_requests_total{{{labels},result=\"success\"}} 1"),
        format!("kubelet_csi_env_injection_duration_seconds_count{{{labels}}} 1"),
        format!(
            "kubelet_csi_env_injection_fallbacks_total{{{labels},\
             fallback_reason=\"kubelet_default\"}} 4"
        ),
        format!("kubelet_csi_env_injection_inflight_requests{{driver=\"{DRIVER}\"}} 0"),
    ] {
        fixture.check_metric(&line);
    }
    let text = fixture.metrics();
    for bucket in ["le=\"0.1\"", "le=\"0.5\""] {
        assert!(text.contains(&format!("_duration_seconds_bucket{{{bucket}")), "{bucket}\n{text}");
    }
    let events = fixture.cluster.events(1).await;
    let message = format!(
        "CSI env vars injected successfully: driver \"{DRIVER}\", ProviderClass \"vault\", pod \
         shop/web"
    );
    assert_eq!(events, [("EnvVarInjectionSuccess".to_owned(), message)]);
    assert!(!text.contains("canary"));
}
