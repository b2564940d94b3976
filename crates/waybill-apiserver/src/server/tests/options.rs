//! What an operator may choose about the environments of pods.

use serde_json::{Value, json};
use waybill_api::gates::{FeatureGates, KubeVersion};

use super::TestServer;

/// They are judged as pods are, and need no service account that is made first.
const TEMPLATES: &str = "/api/v1/namespaces/default/podtemplates";

fn template(name: &str, mut container: Value) -> String {
    container["name"] = "c".into();
    container["image"] = "i".into();
    let volumes = json!([{"name": "v", "emptyDir": {}}]);
    let spec = json!({"containers": [container], "volumes": volumes});
    json!({"metadata": {"name": name}, "template": {"spec": spec}}).to_string()
}

/// OP-20
#[tokio::test]
async fn mounting_and_consuming_an_env_file_is_warned_of_or_refused() {
    let both = json!({
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "env": [{"name": "A", "valueFrom": {"fileKeyRef": {
            "volumeName": "v", "path": "f", "key": "A"}}}],
    });
    let lenient = TestServer::start_with(|config| config.gates = FeatureGates::all_on()).await;
    let made = lenient.send("admin", "POST", TEMPLATES, &template("t", both.clone())).await;
    assert_eq!(made.code, 201, "{made:?}");
    assert!(made.warnings.iter().any(|warning| warning.contains("volumeMounts")), "{made:?}");

    let strict = TestServer::start_with(|config| {
        config.gates = FeatureGates::all_on();
        config.env.strict_env_file_mounts = true;
    })
    .await;
    let refused = strict.send("admin", "POST", TEMPLATES, &template("t", both)).await;
    assert_eq!(refused.code, 422, "{refused:?}");
}

/// OP-33
#[tokio::test]
async fn optional_csi_secrets_come_by_version_or_by_option() {
    let optional = json!({"env": [{"name": "A", "valueFrom": {"csiSecretRef": {
        "driver": "d", "providerClassName": "p", "key": "k", "optional": true}}}]});
    let gates = || {
        FeatureGates::parse("CSIDirectEnvInjection=true", KubeVersion::parse("1.36").unwrap())
            .unwrap()
    };
    let without = TestServer::start_with(|config| config.gates = gates()).await;
    let refused = without.send("admin", "POST", TEMPLATES, &template("t", optional.clone())).await;
    assert_eq!(refused.code, 422, "{refused:?}");
    assert!(refused.json()["message"].as_str().unwrap().contains("csiEnvOptional"));

    let with = TestServer::start_with(|config| {
        config.gates = gates();
        config.env.csi_env_optional = true;
    })
    .await;
    let made = with.send("admin", "POST", TEMPLATES, &template("t", optional)).await;
    assert_eq!(made.code, 201, "{made:?}");
}
