//! What is refused before a driver hears of it.

use waybill_api::gates::KubeVersion;

use super::{super::testing::standalone, *};
use crate::pod::PodOrigin;

/// CSI-25, CSI-13, CSI-20, CSI-71: no right, no call.
#[tokio::test]
async fn an_account_without_use_is_refused_before_any_call_csi_20_csi_25_csi_71() {
    let mut fixture = Fixture::new([Act::Echo]).await;
    fixture.cluster.objects.lock().unwrap().may_use = Some(false);
    assert_eq!(fixture.refusal().await, "access denied to ProviderClass \"vault\"");
    assert_eq!(fixture.driver.count("NodeGetCapabilities"), 0);
    let review = fixture.cluster.objects.lock().unwrap().reviews.remove(0);
    assert_eq!(
        review,
        json!({
            "user": "system:serviceaccount:shop:robot",
            "groups": [
                "system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"],
            "resourceAttributes": {
                "verb": "use", "group": "storage.k8s.io", "version": "v1",
                "resource": "providerclasses", "name": "vault", "namespace": "shop"},
        })
    );
    let events = fixture.cluster.events(1).await;
    assert_eq!(
        events,
        [(
            "EnvVarInjectionFailed".to_owned(),
            format!(
                "CSI env injection failed: unauthorized: driver \"{DRIVER}\", ProviderClass \
                 \"vault\", pod shop/web: access denied to ProviderClass \"vault\""
            )
        )]
    );
    fixture.check_metric(&format!(
        "kubelet_csi_env_injection_errors_total{{driver=\"{DRIVER}\",error_type=\"unauthorized\"}} 1"
    ));
    // A grant counts at once, and so does taking it back.
    fixture.cluster.objects.lock().unwrap().may_use = Some(true);
    assert!(fixture.resolve(env(&[("A", "k")])).await.is_ok());
    fixture.cluster.objects.lock().unwrap().may_use = None;
    let told = fixture.refusal().await;
    assert!(told.starts_with("access to ProviderClass \"vault\" could not be checked: "), "{told}");
}

/// CSI-25
#[tokio::test]
async fn a_static_pod_is_told_what_to_do_instead_csi_25() {
    let fixture = Fixture::new([Act::Echo]).await;
    let mut container = env(&[("A", "k")]);
    container["name"] = json!("app");
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {"containers": [container]},
    });
    let pod = Pod::from_value(object, PodOrigin::File).unwrap();
    let told = fixture.resolve_pod(&pod).await.unwrap_err().to_string();
    let text = "a static pod has no service account that could use ProviderClass \"vault\"; create \
                the pod at the API server";
    assert!(told.contains(text), "{told}");
    assert_eq!(fixture.driver.requests(), []);
    assert_eq!(fixture.cluster.objects.lock().unwrap().lists, 0);
}

/// CSI-62: containerd keeps the specification of each container in a database on disk.
#[tokio::test]
async fn a_runtime_that_may_write_values_to_disk_gets_none_csi_62() {
    let fixture = Fixture::new([Act::Echo]).await;
    let mut csi = fixture.cluster.csi(fixture.cluster.config());
    csi.runtime = "containerd".to_owned();
    let refusing = Fixture { resolver: resolver(&fixture.cluster, csi), ..fixture };
    let told = refusing.refusal().await;
    assert!(told.starts_with("the runtime \"containerd\" may write the environment"), "{told}");
    assert_eq!(refusing.driver.requests(), []);
    let config = CsiConfig { allow_disk: true, ..refusing.cluster.config() };
    let mut csi = refusing.cluster.csi(config);
    csi.runtime = "containerd".to_owned();
    let allowing = Fixture { resolver: resolver(&refusing.cluster, csi), ..refusing };
    assert!(allowing.resolve(env(&[("A", "k")])).await.is_ok());
}

/// CSI-18, CSI-19, CSI-25, CSI-73
#[tokio::test]
async fn classes_are_watched_and_not_read_at_each_start_csi_18_csi_19_csi_25() {
    let fixture = Fixture::new([Act::Echo]).await;
    for _ in 0..3 {
        fixture.resolve(env(&[("A", "k")])).await.unwrap();
    }
    assert_eq!(fixture.cluster.objects.lock().unwrap().lists, 2, "one class, one CSIDriver");
    fixture.cluster.set_class("vault", json!({"addr": "new"}));
    let sees = |parameter: &str| {
        let last = fixture.driver.requests().pop().unwrap();
        last.class_parameters["addr"] == parameter
    };
    loop {
        fixture.resolve(env(&[("A", "k")])).await.unwrap();
        if sees("new") {
            break;
        }
    }
    fixture.cluster.delete_class("vault");
    let told = loop {
        if let Err(error) = fixture.resolve(env(&[("A", "k")])).await {
            break error.to_string();
        }
    };
    assert_eq!(
        told,
        format!(
            "failed to fetch CSI environment variables: driver \"{DRIVER}\", ProviderClass \
             \"vault\": ProviderClass \"vault\" not found (variable \"A\" of container \"app\")"
        )
    );
    assert_eq!(fixture.cluster.objects.lock().unwrap().lists, 2);
    fixture.check_metric(
        "kubelet_csi_env_injection_errors_total{driver=\"\",error_type=\"not_found\"} 1",
    );
}

/// CSI-13, CSI-73, OP-35: cross-namespace attempts and look-alike keys.
#[tokio::test]
async fn the_class_decides_on_namespace_and_key_csi_13_csi_73() {
    let fixture = Fixture::new([Act::Echo]).await;
    fixture.cluster.set_class("vault", json!({"allowedNamespaces": "prod"}));
    assert_eq!(fixture.refusal().await, "Unauthorized: namespace not in allowedNamespaces");
    fixture.cluster.set_class("fields", json!({"allowedFields": "app/*"}));
    for key in ["app/a/b", "app/../db", "db", "app/%2e%2e/db", "app//x"] {
        let container = json!({"env": [variable("A", "fields", key)]});
        let told = fixture.resolve(container).await.unwrap_err().to_string();
        assert!(
            told.contains(&format!("Key '{key}' not in allowedFields pattern 'app/*'")),
            "{told}"
        );
    }
    let mut container = env(&[("A", "k")]);
    container["env"][0]["valueFrom"]["csiSecretRef"]["driver"] = json!("../../evil");
    let told = fixture.resolve(container).await.unwrap_err().to_string();
    assert!(told.contains("ProviderClass 'vault' is not for driver '../../evil'"), "{told}");
    assert_eq!(fixture.driver.requests(), []);
    assert_eq!(fixture.cluster.objects.lock().unwrap().reviews, Vec::<Value>::new());
}

/// CSI-27, CSI-28
#[tokio::test]
async fn the_errors_of_all_classes_are_in_one_message_csi_28_csi_27() {
    let fixture = Fixture::new([Act::Echo]).await;
    fixture.cluster.set_class("closed", json!({"allowedNamespaces": ""}));
    let container = json!({"env": [
        variable("A", "nowhere", "1"), variable("B", "closed", "2"), variable("C", "vault", "3"),
        variable("D", "nowhere", "4")]});
    let told = fixture.resolve(container).await.unwrap_err().to_string();
    assert_eq!(
        told,
        format!(
            "failed to fetch CSI environment variables: driver \"{DRIVER}\", ProviderClass \
             \"nowhere\": ProviderClass \"nowhere\" not found; driver \"{DRIVER}\", ProviderClass \
             \"closed\": Unauthorized: namespace not in allowedNamespaces (variables \"A\", \"D\", \
             \"B\" of container \"app\")"
        )
    );
}

/// CSI-62: `/proc/*/cmdline` would show it.
#[tokio::test]
async fn a_value_in_an_argument_is_refused_unless_the_pod_says_so_csi_62() {
    let fixture = Fixture::new([Act::Echo]).await;
    let mut container = env(&[("A", "k")]);
    container["args"] = json!(["--token=$(A)"]);
    let told = fixture.resolve(container.clone()).await.unwrap_err().to_string();
    assert!(told.contains("args[0]: \"A\" holds a value from a CSI driver"), "{told}");
    assert!(told.contains("waybill.dev/allow-csi-env-in-args: \"true\""), "{told}");
    assert_eq!(fixture.driver.requests(), []);
    container["name"] = json!("app");
    let object = json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u",
            "annotations": {"waybill.dev/allow-csi-env-in-args": "true"}},
        "spec": {"containers": [container]},
    });
    let pod = Pod::from_value(object, crate::pod::PodOrigin::ApiServer).unwrap();
    assert!(fixture.resolve_pod(&pod).await.is_ok());
}

/// CSI-67, CSI-75
#[tokio::test]
async fn with_the_gate_off_nothing_is_asked_csi_67_csi_75() {
    let mut fixture = Fixture::new([Act::Echo]).await;
    fixture.resolver.gates = FeatureGates::new(KubeVersion::parse("1.35").unwrap());
    assert_eq!(
        fixture.refusal().await,
        "csiSecretRef: CSIDirectEnvInjection feature gate is not enabled"
    );
    assert_eq!(fixture.cluster.objects.lock().unwrap().lists, 0);
    assert_eq!(fixture.driver.count("NodeGetCapabilities"), 0);
}

/// A class belongs to a cluster.
#[tokio::test]
async fn a_node_on_its_own_has_no_classes() {
    let fixture = Fixture::new([Act::Echo]).await;
    let resolver = resolver(&fixture.cluster, standalone(fixture.cluster.dir.path()));
    let fixture = Fixture { resolver, ..fixture };
    assert_eq!(
        fixture.refusal().await,
        "ProviderClass \"vault\" not found: there is no API server in standalone mode"
    );
}
