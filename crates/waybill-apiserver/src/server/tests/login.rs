//! Tokens of the local socket, from the first word to the audit log.

use std::{fs, time::Duration};

use serde_json::Value;
use tokio::{io::AsyncReadExt, net::UnixStream};

use super::TestServer;

async fn token(server: &TestServer) -> String {
    let mut stream = UnixStream::connect(server.server.login_socket()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// Everything that was done with a token leads to the process that got it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_is_recorded_under_the_number_of_its_token() {
    let server = TestServer::start().await;
    let header = ("authorization", format!("Bearer {}", token(&server).await));
    let reply = server.send_with(&[header], "GET", "/api/v1/nodes", "").await;
    assert_eq!(reply.code, 200);
    let TestServer { dir, server, .. } = server;
    server.stop().await;

    let log = fs::read_to_string(dir.path().join("audit/audit.log")).unwrap();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |verb: &str, uri: &str| {
        let found = events.iter().rfind(|it| it["verb"] == verb && it["requestURI"] == uri);
        found.unwrap_or_else(|| panic!("no {verb} of {uri} in\n{log}"))
    };
    let (login, list) = (find("login", "/login"), find("list", "/api/v1/nodes"));
    let number = |event: &Value| {
        event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0].clone()
    };
    assert!(number(login).as_str().unwrap().starts_with("JTI="), "{login}");
    assert_eq!(number(login), number(list));
    assert_eq!(login["user"]["username"], list["user"]["username"]);
    let pid = std::process::id().to_string();
    assert_eq!(login["annotations"]["audit.waybill.dev/pid"], pid, "{login}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_lives_as_long_as_the_administrator_says() {
    let server =
        TestServer::start_with(|config| config.login_lifetime = Duration::from_secs(1)).await;
    let header = ("authorization", format!("Bearer {}", token(&server).await));
    let status = || async {
        let header = (header.0, header.1.clone());
        server.send_with(&[header], "GET", "/api/v1/nodes", "").await.code
    };
    // It may be over before the first request.
    while status().await == 200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(status().await, 401);
}
