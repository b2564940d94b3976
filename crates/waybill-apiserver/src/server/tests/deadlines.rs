//! Requests that take longer than they may.

use super::TestServer;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A version that is still to come is waited for, longer than these wait.
const TO_COME: &str = "resourceVersion=1000000";

#[tokio::test]
async fn a_read_ends_when_its_client_says() {
    let server = TestServer::start().await;
    let reply = server.send("admin", "GET", &format!("{PODS}?{TO_COME}&timeout=1ms"), "").await;
    let status = reply.json();
    assert_eq!((reply.code, &status["reason"]), (504, &"Timeout".into()), "{status}");
    let message = "Timeout: request did not complete within the allotted timeout";
    assert_eq!(status["message"], message);
}

#[tokio::test]
async fn a_timeout_that_is_none_is_refused_and_one_that_is_too_long_is_ours() {
    let server = TestServer::start().await;
    for wrong in ["x", "10", "1y"] {
        let reply = server.send("admin", "GET", &format!("{PODS}?timeout={wrong}"), "").await;
        let message = reply.json()["message"].as_str().unwrap().to_owned();
        assert!(reply.code == 400 && message.contains("invalid timeout specified"), "{message}");
    }
    for fine in ["32s", "0", "-1s", "9999h"] {
        let reply = server.send("admin", "GET", &format!("{PODS}?timeout={fine}"), "").await;
        assert_eq!(reply.code, 200, "{fine}");
    }
}

/// What lasts ends by `timeoutSeconds`.
#[tokio::test]
async fn a_watch_has_no_deadline() {
    let server = TestServer::start().await;
    let path = format!("{PODS}?watch=1&timeoutSeconds=1&timeout=1ms");
    assert_eq!(server.send("admin", "GET", &path, "").await.code, 200);
}
