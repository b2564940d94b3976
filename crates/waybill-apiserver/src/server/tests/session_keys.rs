//! The keys of exec sessions, which nodes read.

use serde_json::Value;
use waybill_api::exec::SESSION_KEYS_PATH;

use super::TestServer;

async fn keys(server: &TestServer) -> Value {
    let reply = server.send("admin", "GET", SESSION_KEYS_PATH, "").await;
    assert_eq!(reply.code, 200);
    serde_json::from_slice(&reply.body).unwrap()
}

#[tokio::test]
async fn keys_are_read_by_whom_they_are_meant_for_and_written_by_nobody() {
    let server = TestServer::start().await;
    assert_eq!(server.send("", "GET", SESSION_KEYS_PATH, "").await.code, 401);
    assert_eq!(server.send("alice", "GET", SESSION_KEYS_PATH, "").await.code, 403);
    for method in ["POST", "PUT", "DELETE"] {
        assert_eq!(server.send("admin", method, SESSION_KEYS_PATH, "{}").await.code, 404);
    }
    let set = keys(&server).await;
    assert_eq!(set["keys"].as_array().unwrap().len(), 1, "{set}");
    assert_eq!(set["keys"][0]["alg"], "ES256");
}

#[tokio::test]
async fn a_server_keeps_its_key_until_somebody_removes_it() {
    let server = TestServer::start().await;
    let first = keys(&server).await;
    let server = server.restart().await;
    assert_eq!(keys(&server).await, first);
    std::fs::remove_file(server.dir.path().join("pki/exec-session.key")).unwrap();
    let server = server.restart().await;
    assert_ne!(keys(&server).await, first);
}
