//! What others are told of variables: drivers, and the log.

use super::*;
use crate::fake_log::Log;

/// CSI-02, CSI-04, CSI-24, OP-41
#[tokio::test]
async fn a_driver_hears_who_asks_and_what_the_class_says_csi_04_csi_24() {
    let fixture = Fixture::new([Act::Echo]).await;
    let mut container = env(&[("A", "k")]);
    container["env"][0]["valueFrom"]["csiSecretRef"]["parameters"] =
        json!({"addr": "mine", "field": "password"});
    fixture.resolve(container).await.unwrap();
    let request = fixture.driver.requests().remove(0);
    let text = |value: &str| value.to_owned();
    assert_eq!(request.provider_class_name, "vault");
    assert_eq!(request.class_parameters, [(text("addr"), text("https://v"))].into());
    assert_eq!(
        request.queries[0].query_parameters,
        [(text("addr"), text("mine")), (text("field"), text("password"))].into()
    );
    assert_eq!(
        request.pod_context,
        [
            (text("namespace"), text("shop")),
            (text("serviceAccount"), text("robot")),
            (text("podName"), text("web")),
            (text("podUID"), text("9d5e1a2c-uid")),
            (text("nodeName"), text("node-1")),
        ]
        .into()
    );
    assert_eq!(request.version, "7.1");
}

/// CSI-61, CSI-49
#[tokio::test]
async fn the_log_has_pod_container_and_count_and_nothing_of_a_variable_csi_61_csi_49() {
    let fixture = Fixture::new([Act::Echo, Act::Fail(tonic::Code::NotFound, "no key")]).await;
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let container = env(&[("SECRET_NAME", "canary-1"), ("B", "canary-2")]);
    fixture.resolve(container.clone()).await.unwrap();
    let text = log.text();
    let line = text.lines().find(|line| line.contains("are fetched")).unwrap();
    assert_eq!(
        line.trim(),
        "message=CSI environment variables are fetched pod=\"web\" container=\"app\" variables=2"
    );
    fixture.resolve(container).await.unwrap_err();
    let text = log.text();
    for hidden in ["canary", "SECRET_NAME"] {
        assert!(!text.contains(hidden), "{hidden} is in {text}");
    }
    assert!(text.contains("CSI env injection failed: not_found"), "{text}");
}

/// CSI-69, CSI-23
#[tokio::test]
async fn pods_without_such_variables_ask_nobody_csi_69_csi_23() {
    let fixture = Fixture::new([Act::Echo]).await;
    let container = json!({"env": [{"name": "A", "value": "a"}]});
    assert_eq!(pairs(&fixture.resolve(container).await.unwrap()), ["A=a"]);
    assert_eq!(fixture.driver.requests(), []);
    let objects = fixture.cluster.objects.lock().unwrap();
    assert_eq!((objects.lists, objects.reviews.len(), objects.events.len()), (0, 0, 0));
}
