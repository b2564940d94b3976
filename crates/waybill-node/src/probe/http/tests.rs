//! GET requests to a server on loopback, and where redirects lead.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;

fn target(location: &str) -> Step {
    let target = Target {
        is_tls: false,
        place: Place::Host("10.0.0.1".to_owned()),
        port: 8080,
        path: PathAndQuery::from_static("/a"),
    };
    target.follow(location)
}

#[test]
fn redirects_stay_on_the_host() {
    let url = |location: &str| match target(location) {
        Step::Next(next) => next.url(),
        Step::Elsewhere(to) => format!("elsewhere {to}"),
    };
    assert_eq!(url("/b?c=d"), "http://10.0.0.1:8080/b?c=d");
    assert_eq!(url("http://10.0.0.1/b"), "http://10.0.0.1:80/b");
    assert_eq!(url("https://10.0.0.1:8443/"), "https://10.0.0.1:8443/");
    assert_eq!(url("http://example.com/"), "elsewhere http://example.com/");
    assert_eq!(url("ftp://10.0.0.1/"), "elsewhere ftp://10.0.0.1/");
    assert_eq!(url("not a url"), "elsewhere not a url");
}

/// Asks a server that gives these answers to one connection each; what it was asked, and the outcome.
async fn ask(answers: &[&str], action: serde_json::Value) -> (String, Result<Reached, GetError>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = async {
        let mut asked = String::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            asked.push_str(&String::from_utf8(request).unwrap());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        asked
    };
    let mut action: HTTPGetAction = serde_json::from_value(action).unwrap();
    action.port = IntOrString::Int(i32::from(port));
    let runtime = Runtime::at("/nonexistent".as_ref()).unwrap();
    let place = Place::Host("127.0.0.1".to_owned());
    let container = Container::default();
    let asking = get(Caller::Probe, (&runtime, &place), &container, &action);
    let (asked, outcome) = tokio::join!(serve, asking);
    (asked.replace(&format!(":{port}"), ":PORT"), outcome)
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn a_request_says_who_asks() {
    let header = json!({"name": "X-Mine", "value": "v"});
    let (asked, outcome) =
        ask(&[OK], json!({"port": 1, "path": "/h?q=1", "httpHeaders": [header]})).await;
    assert_eq!(outcome.unwrap(), Reached::Final(StatusCode::OK));
    let asked = asked.to_lowercase();
    assert!(asked.starts_with("get /h?q=1 http/1.1\r\n"), "{asked}");
    for line in [
        "x-mine: v",
        "user-agent: kube-probe/1.37",
        "accept: */*",
        "connection: close",
        "host: 127.0.0.1:port",
    ] {
        assert!(asked.contains(&format!("\r\n{line}\r\n")), "{line} in {asked}");
    }
}

#[tokio::test]
async fn headers_of_the_probe_win() {
    let headers = json!([
        {"name": "Host", "value": "example.com"}, {"name": "User-Agent", "value": "mine"},
    ]);
    let (asked, outcome) = ask(&[OK], json!({"port": 1, "httpHeaders": headers})).await;
    outcome.unwrap();
    let asked = asked.to_lowercase();
    assert!(asked.contains("\r\nhost: example.com\r\n"), "{asked}");
    assert!(asked.contains("\r\nuser-agent: mine\r\n"), "{asked}");
}

#[tokio::test]
async fn bad_statuses_fail() {
    let answer = "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n";
    let (_, outcome) = ask(&[answer], json!({"port": 1})).await;
    let error = outcome.unwrap_err().to_string();
    assert_eq!(error, "HTTP probe failed with statuscode: 500");
}

#[tokio::test]
async fn redirects_are_followed_or_reported() {
    let redirect = "HTTP/1.1 302 Found\r\nlocation: /next\r\ncontent-length: 0\r\n\r\n";
    let (asked, outcome) = ask(&[redirect, OK], json!({"port": 1})).await;
    assert_eq!(outcome.unwrap(), Reached::Final(StatusCode::OK));
    assert!(asked.contains("GET /next "), "{asked}");
    let away = "HTTP/1.1 302 Found\r\nlocation: http://example.com/\r\ncontent-length: 0\r\n\r\n";
    let (_, outcome) = ask(&[away], json!({"port": 1})).await;
    assert_eq!(outcome.unwrap(), Reached::Elsewhere("http://example.com/".to_owned()));
}

#[tokio::test]
async fn endless_redirects_fail() {
    let redirect = "HTTP/1.1 302 Found\r\nlocation: /next\r\ncontent-length: 0\r\n\r\n";
    let (_, outcome) = ask(&[redirect; 11], json!({"port": 1})).await;
    assert!(matches!(outcome, Err(GetError::Redirects { .. })), "{outcome:?}");
}
