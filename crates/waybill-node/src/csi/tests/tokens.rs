//! Tokens for drivers that ask for them.

use jiff::Timestamp;

use super::*;
use crate::objects::testing::FakeObjects;

/// CSI-46: OP-41
#[tokio::test]
async fn a_driver_gets_the_tokens_that_its_object_asks_for_csi_46() {
    let cluster = Cluster::start().await;
    cluster.set_class("vault", json!({}));
    cluster.objects.lock().unwrap().csi_drivers.insert(
        DRIVER.to_owned(),
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
            "metadata": {"name": DRIVER, "resourceVersion": "5"},
            "spec": {"tokenRequests": [
                {"audience": "vault", "expirationSeconds": 600}, {"audience": "sts"}]},
        }),
    );
    let driver = ScriptedDriver::start(&cluster.socket(), [Act::Echo]);
    let objects = FakeObjects::default();
    *objects.tokens_from.lock().unwrap() = Some(Timestamp::from_second(0).unwrap());
    let csi = cluster.csi_with(cluster.config(), Arc::new(objects));
    let fixture = Fixture { resolver: resolver(&cluster, csi), cluster, driver };
    fixture.resolve(env(&[("A", "k")])).await.unwrap();
    let mut context = fixture.driver.requests().remove(0).pod_context.clone();
    let tokens = context.remove("csi.storage.k8s.io/serviceAccount.tokens").unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&tokens).unwrap(),
        json!({
            "sts": {"token": "token-1-sts", "expirationTimestamp": "1970-01-01T01:00:00Z"},
            "vault": {"token": "token-0-vault", "expirationTimestamp": "1970-01-01T00:10:00Z"},
        })
    );
    assert_eq!(context.len(), 5);
}

/// A driver that needs a token is not asked without.
#[tokio::test]
async fn without_its_token_a_driver_is_not_called() {
    let fixture = Fixture::new([Act::Echo]).await;
    fixture.cluster.objects.lock().unwrap().csi_drivers.insert(
        DRIVER.to_owned(),
        json!({"metadata": {"name": DRIVER}, "spec": {"tokenRequests": [{"audience": "vault"}]}}),
    );
    let told = fixture.refusal().await;
    assert!(
        told.starts_with("no token of service account \"robot\" for audience \"vault\": "),
        "{told}"
    );
    assert_eq!(fixture.driver.requests(), []);
}
