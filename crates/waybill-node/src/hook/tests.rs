//! Hooks that need no runtime.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::pod::PodOrigin;

/// A pod whose container has this hook before its end.
fn pod(handler: &Value) -> Pod {
    let container = json!({
        "name": "a", "lifecycle": {"preStop": handler},
        "ports": [{"name": "web", "containerPort": 81}],
    });
    let object = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [container]},
    });
    Pod::from_value(object, PodOrigin::ApiServer).unwrap()
}

async fn run_hook(handler: Value) -> Result<(), HookError> {
    let pod = pod(&handler);
    let handler: LifecycleHandler = serde_json::from_value(handler).unwrap();
    let runtime = Runtime::at("/nonexistent".as_ref()).unwrap();
    run(&runtime, &pod, "id", Some("127.0.0.1"), &handler).await
}

#[tokio::test]
async fn any_answer_will_do() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 11];
        stream.read_exact(&mut request).await.unwrap();
        assert_eq!(request, b"GET /stop H");
        stream.write_all(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    };
    let hook = run_hook(json!({"httpGet": {"port": port, "path": "stop"}}));
    let ((), outcome) = tokio::join!(serve, hook);
    outcome.unwrap();
}

#[tokio::test]
async fn a_container_that_does_not_answer_fails_its_hook() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let error = run_hook(json!({"httpGet": {"port": closed}})).await.unwrap_err();
    assert!(matches!(error, HookError::Http(_)), "{error}");
}

#[tokio::test]
async fn sleeping_is_a_hook() {
    run_hook(json!({"sleep": {"seconds": 0}})).await.unwrap();
}

#[tokio::test]
async fn a_hook_without_an_action_is_an_error() {
    assert!(matches!(run_hook(json!({})).await, Err(HookError::Unknown)));
}

#[tokio::test]
async fn a_runtime_that_does_not_answer_fails_the_hook() {
    let error = run_hook(json!({"exec": {"command": ["true"]}})).await.unwrap_err();
    assert!(matches!(error, HookError::Exec(_)), "{error}");
}

#[test]
fn a_hook_belongs_to_its_container() {
    let handler = json!({"httpGet": {"port": "web"}});
    let pod = pod(&handler);
    let handler: LifecycleHandler = serde_json::from_value(handler).unwrap();
    assert_eq!(owner(&pod, &handler).unwrap().name, "a");
    assert!(owner(&pod, &LifecycleHandler::default()).is_none());
}
