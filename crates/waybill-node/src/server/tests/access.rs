//! Who is served.

use http::Method;

use super::{Authority, Client, Fixture, Setup};
use crate::server::tls::Tls;

#[tokio::test]
async fn nobody_is_anonymous() {
    let fixture = Fixture::new().await;
    let client = fixture.anonymous();
    for path in ["/healthz", "/pods", "/metrics", "/exec/default/web/main", "/nothing"] {
        let said = client.get(path).await;
        assert_eq!(said.summary(), (401, "Unauthorized"), "{path}");
    }
    assert!(fixture.cluster().asked().is_empty());
    assert!(fixture.runtime.state().calls.is_empty());
}

#[tokio::test]
async fn certificates_of_strangers_are_refused_by_tls() {
    let fixture = Fixture::new().await;
    let who = Some(("kube-apiserver-kubelet-client", ["waybill:node-clients"].as_slice()));
    let tls = fixture.authority.client_issued_by(&Authority::new(), who);
    let client = Client::new(fixture.server.address(), tls);
    let answer = client.request(Method::GET, "/healthz", http::HeaderMap::new()).await;
    assert!(answer.is_err());
}

#[tokio::test]
async fn a_certificate_is_authorized_once_for_each_right() {
    let fixture = Fixture::new().await;
    let client = fixture.client_as("admin", &["ops", "dev"]);
    for _ in 0..3 {
        assert_eq!(client.get("/metrics").await.code, 200);
    }
    assert_eq!(client.get("/stats/summary").await.code, 200);
    let groups = "ops,dev,system:authenticated";
    let expected =
        [format!("admin get metrics as {groups}"), format!("admin get stats as {groups}")];
    assert_eq!(fixture.cluster().asked(), expected);
}

#[tokio::test]
async fn what_is_denied_is_remembered_as_well() {
    let fixture = Fixture::new().await;
    fixture.cluster().deny("bob get proxy");
    let client = fixture.client_as("bob", &[]);
    for _ in 0..2 {
        let said = client.get("/containerLogs/default/web/main").await;
        let text = "Forbidden (user=bob, verb=get, resource=nodes, subresource(s)=[\"proxy\"])";
        assert_eq!(said.summary(), (403, text));
    }
    assert_eq!(fixture.cluster().asked().len(), 1);
    assert!(fixture.runtime.state().calls.is_empty());
}

#[tokio::test]
async fn the_wider_right_serves_where_the_narrow_one_is_missing() {
    let fixture = Fixture::new().await;
    fixture.cluster().deny("bob get pods");
    assert_eq!(fixture.client_as("bob", &[]).get("/pods").await.code, 200);
    let asked = fixture.cluster().asked();
    assert_eq!(asked.len(), 2);
    assert!(asked[0].starts_with("bob get pods ") && asked[1].starts_with("bob get proxy "));
}

#[tokio::test]
async fn tokens_are_reviewed_once() {
    let fixture = Fixture::new().await;
    let good = fixture.anonymous().with_token("good");
    for _ in 0..2 {
        assert_eq!(good.get("/healthz").await.summary(), (200, "ok"));
    }
    let bad = fixture.anonymous().with_token("bad");
    for _ in 0..2 {
        assert_eq!(bad.get("/healthz").await.summary(), (401, "Unauthorized"));
    }
    let right = "alice get healthz as dev,system:authenticated";
    assert_eq!(fixture.cluster().asked(), ["token good", right, "token bad"]);
}

#[tokio::test]
async fn an_api_server_that_fails_is_not_a_stranger_at_the_door() {
    let fixture = Fixture::new().await;
    fixture.cluster().break_down();
    let said = fixture.anonymous().with_token("good").get("/healthz").await;
    assert_eq!(said.code, 503);
    assert!(said.text.starts_with("the API server could not be asked who holds this token: "));
    let said = fixture.client().get("/healthz").await;
    assert_eq!(said.code, 503);
    assert!(said.text.starts_with("the API server could not be asked what this user may do: "));
}

#[tokio::test]
async fn a_node_without_api_server_serves_administrators_and_api_servers() {
    let fixture = Fixture::with(Setup { cluster: false, ..Setup::default() }).await;
    assert_eq!(fixture.client().get("/healthz").await.code, 200);
    assert_eq!(fixture.client_as("root", &["system:masters"]).get("/healthz").await.code, 200);
    assert_eq!(fixture.client_as("bob", &["dev"]).get("/healthz").await.code, 403);
    assert_eq!(fixture.anonymous().with_token("good").get("/healthz").await.code, 401);
}

/// A connection, and a TLS session that is resumed, may be older than its certificate's end.
#[tokio::test]
async fn a_certificate_that_has_ended_is_nobody() {
    let now = "2101-01-01T00:00:00Z".parse().unwrap();
    let fixture = Fixture::with(Setup { now, ..Setup::default() }).await;
    assert_eq!(fixture.client().get("/healthz").await.code, 401);
}

#[test]
fn certificates_are_read_again_when_they_change() {
    let authority = Authority::new();
    let tls = Tls::read(authority.serving(), authority.certificate_path()).unwrap();
    let first = tls.config();
    assert!(!tls.refresh().unwrap());
    authority.renew();
    // Sizes and times of two certificates may be the same on a coarse clock; files that are replaced
    // have other numbers.
    let path = authority.serving().certificate;
    let copy = path.with_extension("new");
    std::fs::copy(&path, &copy).unwrap();
    std::fs::rename(&copy, &path).unwrap();
    assert!(tls.refresh().unwrap());
    let second = tls.config();
    assert!(!std::sync::Arc::ptr_eq(&first, &second));
    std::fs::write(&path, "half").unwrap();
    let error = tls.refresh().unwrap_err().to_string();
    assert!(error.contains("node.crt"), "{error}");
    assert!(std::sync::Arc::ptr_eq(&second, &tls.config()));
}
