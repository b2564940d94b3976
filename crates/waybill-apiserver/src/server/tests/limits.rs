//! What a client that asks for much and reads little can make the server hold, or wait for.

use std::{fs, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{Empty, Full};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{RequestLimits, TestServer};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// One HTTP/2 connection of a client that lets nothing through its window, or next to nothing.
struct ClosedWindow {
    sender: http2::SendRequest<Empty<Bytes>>,
}

impl ClosedWindow {
    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    async fn open(server: &TestServer, window: u32) -> Self {
        let mut tls = ClientConfig::clone(&server.tls);
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let tcp = TcpStream::connect(server.server.address()).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.unwrap();
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        Self { sender }
    }

    /// The head of an answer whose body is never read.
    async fn get(&mut self, user: &str, path: &str) -> Response<Incoming> {
        let request = Request::get(format!("https://localhost{path}"))
            .header(header::AUTHORIZATION, format!("Bearer {user}-token"))
            .body(Empty::new())
            .unwrap();
        self.sender.ready().await.unwrap();
        timeout(PATIENCE, self.sender.send_request(request)).await.unwrap().unwrap()
    }
}

fn resident_bytes() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Hole: 1,000 lists on one connection that reads nothing made the server hold 1.6 GB. Each list that
/// was not sent yet was there as a whole.
#[tokio::test]
async fn lists_that_nobody_reads_take_no_memory() {
    const MAP: usize = 500_000;
    const MAPS_MADE: usize = 16;
    let server = TestServer::start().await;
    for number in 0..MAPS_MADE {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("m{number}")}, "data": {"a": "x".repeat(MAP)}});
        server.send("admin", "POST", MAPS, &map.to_string()).await.created();
    }
    let mut client = ClosedWindow::open(&server, 0).await;
    let before = resident_bytes();
    let mut unread = Vec::new();
    for _ in 0..90 {
        let answer = client.get("admin", MAPS).await;
        assert_eq!(answer.status(), StatusCode::OK);
        unread.push(answer);
    }
    let grown = resident_bytes().saturating_sub(before);
    let lists = 90 * MAPS_MADE * MAP;
    assert!(grown < lists / 8, "{grown} bytes are held for {lists} bytes of lists");
}

/// Hole: 100 watches of one large pod that nobody read made the server hold 270 MB: each had its own
/// copy of the first event.
#[tokio::test]
async fn watches_that_nobody_reads_take_no_memory() {
    const MAP: usize = 900_000;
    const WATCHES: usize = 60;
    let server = TestServer::start().await;
    // More than sockets hold.
    for number in 0..10 {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("m{number}")}, "data": {"k": "x".repeat(MAP)}});
        server.send("admin", "POST", MAPS, &map.to_string()).await.created();
    }
    let before = resident_bytes();
    let mut unread = Vec::new();
    for _ in 0..WATCHES {
        let mut connection = server.connect().await;
        let head = format!(
            "GET {MAPS}?watch=1 HTTP/1.1\r\nHost: localhost\r\n\
                            Authorization: Bearer admin-token\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut first = [0; 12];
        timeout(PATIENCE, connection.read_exact(&mut first)).await.unwrap().unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        unread.push(connection);
    }
    // Whoever asks now is answered after what could be written to the others has been.
    for _ in 0..3 {
        server.send("admin", "GET", &format!("{MAPS}?limit=1"), "").await;
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < WATCHES * MAP / 2, "{grown} bytes are held for {WATCHES} unread events");
}

/// Hole: a hundred bodies of three megabytes on one connection were held at once, and a hundred answers of that size that nobody read.
#[tokio::test]
async fn one_connection_takes_no_more_than_its_room() {
    const MAP: usize = 900_000;
    const REQUESTS: usize = 90;
    let server = TestServer::start().await;
    let map = |name: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"a": "x".repeat(MAP)}});
        map.to_string()
    };
    server.send("admin", "POST", MAPS, &map("m")).await.created();
    let mut refusals = 0;
    // With a byte let through, HTTP/2 takes an answer out of our hands, and it must not be all of it.
    for window in [0, 1] {
        let mut client = ClosedWindow::open(&server, window).await;
        let before = resident_bytes();
        let mut unread = Vec::new();
        for _ in 0..REQUESTS {
            unread.push(client.get("admin", &format!("{MAPS}/m")).await);
        }
        let codes = |code: StatusCode| unread.iter().filter(|one| one.status() == code).count();
        let (sent, refused) = (codes(StatusCode::OK), codes(StatusCode::TOO_MANY_REQUESTS));
        assert_eq!(sent + refused, REQUESTS);
        assert!((4..20).contains(&sent), "{sent} of {REQUESTS} with a window of {window}");
        refusals += refused;
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 64 << 20, "{grown} bytes are held for {REQUESTS} unread answers");
        // What was given up makes room.
        drop(unread);
        let served = async {
            while client.get("admin", &format!("{MAPS}/m")).await.status() != StatusCode::OK {
                refusals += 1;
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, served).await.expect("there is room again");
    }

    // Bodies wait for each other, and all are answered.
    let body = Bytes::from(map("n"));
    let sender = server.connect_http2().await;
    let before = resident_bytes();
    let answers = (0..REQUESTS / 3).map(|_| {
        let (mut sender, body) = (sender.clone(), body.clone());
        async move {
            let request = Request::post(format!("https://localhost{MAPS}?dryRun=All"))
                .header(header::AUTHORIZATION, "Bearer admin-token")
                .body(Full::new(body))
                .unwrap();
            sender.ready().await.unwrap();
            sender.send_request(request).await.unwrap().status()
        }
    });
    let answers = futures_util::future::join_all(answers);
    let answers = timeout(PATIENCE, answers).await.unwrap();
    let is_one =
        |code: &StatusCode| matches!(*code, StatusCode::CREATED | StatusCode::GATEWAY_TIMEOUT);
    assert!(answers.iter().all(is_one), "{answers:?}");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 128 << 20, "{grown} bytes are held for {} bodies", REQUESTS / 3);

    // What a client did not get is not on record as sent.
    let lost = answers.iter().filter(|code| **code == StatusCode::GATEWAY_TIMEOUT).count();
    drop(sender);
    let events = super::audit::events(server).await;
    let recorded =
        |code: u16| events.iter().filter(|it| it["responseStatus"]["code"] == code).count();
    assert_eq!((recorded(429), recorded(504)), (refusals, lost));
}

/// The pieces of a large list are one list, whatever its form.
#[tokio::test]
async fn a_list_in_pieces_is_whole() {
    let server = TestServer::start().await;
    for number in 0..8 {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("m{number}"), "labels": {"large": "yes"},
                "annotations": {"a": "x".repeat(60_000)}}});
        server.send("admin", "POST", MAPS, &map.to_string()).await.created();
    }
    let path = format!("{MAPS}?labelSelector=large");
    for (accept, items) in [
        ("application/json", "/items"),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "/items"),
        ("application/json;as=Table;g=meta.k8s.io;v=v1", "/rows"),
    ] {
        let list = server.get_accepting(&path, accept).await;
        assert_eq!(list.pointer(items).unwrap().as_array().unwrap().len(), 8, "{accept}");
        assert!(list["metadata"]["resourceVersion"].is_string(), "{accept}");
    }
    let empty = server.get_accepting(&format!("{MAPS}?labelSelector=none"), "*/*").await;
    assert_eq!(empty["items"], json!([]));
}

impl TestServer {
    /// Without making her an administrator, who is not counted.
    async fn let_alice_do_all(&self) {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "readers"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        self.send("admin", "POST", path, &binding.to_string()).await.created();
    }

    async fn get_accepting(&self, path: &str, accept: &str) -> Value {
        let mut stream = self.connect().await;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Accept: {accept}\r\nAuthorization: Bearer admin-token\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
        serde_json::from_slice(&unchunked(&answer)).unwrap()
    }
}

/// The body of an answer of HTTP/1.1, with or without chunks.
fn unchunked(answer: &[u8]) -> Vec<u8> {
    let head_end = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let (head, mut rest) = answer.split_at(head_end);
    if !String::from_utf8_lossy(head).to_lowercase().contains("transfer-encoding: chunked") {
        return rest.to_vec();
    }
    let mut body = Vec::new();
    loop {
        let line_end = rest.windows(2).position(|end| end == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line_end]).unwrap(), 16);
        let size = size.unwrap();
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&rest[line_end + 2..line_end + 2 + size]);
        rest = &rest[line_end + 2 + size + 2..];
    }
}

/// Who does not read uses up their own share, and nobody else's.
#[tokio::test]
async fn a_user_with_too_many_requests_is_told_to_come_back_and_others_are_served() {
    let limits = RequestLimits { max_requests_inflight: 4, ..RequestLimits::default() };
    let server = TestServer::start_with(|config| config.limits = limits).await;
    server.let_alice_do_all().await;
    let mut client = ClosedWindow::open(&server, 0).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let first = client.get("alice", roles).await;
    let second = client.get("alice", roles).await;
    assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::OK));
    let refused = server.send("alice", "GET", MAPS, "").await;
    assert_eq!(refused.code, 429, "{refused:?}");
    assert_eq!(refused.json()["reason"], "TooManyRequests");
    assert_eq!(refused.retry_after.as_deref(), Some("1"));
    assert_eq!(server.send("admin", "GET", MAPS, "").await.code, 200);
    let version = server.send("alice", "GET", "/version", "").await;
    assert_eq!(version.code, 200, "probes and discovery do not count");
    // What she gives up counts no longer.
    drop((first, second, client));
    let served = async {
        while server.send("alice", "GET", MAPS, "").await.code != 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, served).await.expect("her requests are over");
}

/// Hole: a user with a right to watch one thing held a place of the audit log with each watch, until
/// there was none for anybody: what was changed then is not on record.
#[tokio::test]
async fn watches_of_one_user_have_a_limit() {
    let limits = RequestLimits { max_lasting_requests: 4, ..RequestLimits::default() };
    let server = TestServer::start_with(|config| config.limits = limits).await;
    server.let_alice_do_all().await;
    let mut client = ClosedWindow::open(&server, 0).await;
    let watch = format!("{MAPS}?watch=1");
    let held = [client.get("alice", &watch).await, client.get("alice", &watch).await];
    assert!(held.iter().all(|answer| answer.status() == StatusCode::OK));
    assert_eq!(client.get("alice", &watch).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(client.get("admin", &watch).await.status(), StatusCode::OK);
    assert_eq!(server.send("alice", "GET", MAPS, "").await.code, 200);
}

/// Hole: whoever was let in could take as long as they liked for a body.
#[tokio::test]
async fn a_body_that_does_not_come_ends_the_request() {
    let limits =
        RequestLimits { request_timeout: Duration::from_millis(200), ..RequestLimits::default() };
    let server = TestServer::start_with(|config| config.limits = limits).await;
    for (method, path) in [
        ("POST", MAPS),
        ("PUT", "/api/v1/namespaces/default/configmaps/c"),
        ("PATCH", "/api/v1/namespaces/default/configmaps/c"),
        ("DELETE", "/api/v1/namespaces/default/configmaps/c"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token"),
        ("GET", MAPS),
    ] {
        let mut stream = server.connect().await;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\
             Content-Type: application/json\r\nAuthorization: Bearer admin-token\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The connection ends too: what comes later is not waited for.
        let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "{method} {path} goes on");
        let expected = if method == "GET" { "HTTP/1.1 200" } else { "HTTP/1.1 504" };
        let text = String::from_utf8_lossy(&answer);
        assert!(text.starts_with(expected), "{method} {path}: {text}");
    }
}

/// A client that always sends a little is no better: the time is for all of the body.
#[tokio::test]
async fn a_body_that_comes_in_drops_ends_the_request() {
    let limits =
        RequestLimits { request_timeout: Duration::from_millis(300), ..RequestLimits::default() };
    let server = TestServer::start_with(|config| config.limits = limits).await;
    for (user, path, expected) in [
        ("admin", MAPS, "HTTP/1.1 504"),
        ("admin", "/api/v1/namespaces/default/pods/p/eviction", "HTTP/1.1 504"),
        ("alice", MAPS, "HTTP/1.1 403"),
        ("nobody", MAPS, "HTTP/1.1 401"),
    ] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\
             Content-Type: application/json\r\nAuthorization: Bearer {user}-token\r\n\r\n1\r\n{{\r\n"
        );
        let (mut reader, mut writer) = tokio::io::split(server.connect().await);
        writer.write_all(head.as_bytes()).await.unwrap();
        // As long as the server reads; each drop comes before any time for one alone could be over.
        let drip = async {
            while writer.write_all(b"1\r\n \r\n").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let mut answer = Vec::new();
        // A server that closes while the client sends may reset the connection.
        let read = async { drop(reader.read_to_end(&mut answer).await) };
        let ended = timeout(PATIENCE, async { tokio::join!(read, drip) }).await;
        assert!(ended.is_ok(), "{user} {path} goes on");
        let text = String::from_utf8_lossy(&answer);
        assert!(text.starts_with(expected), "{user} {path}: {text}");
    }
}

/// Hole: the largest number of seconds made a watch panic.
#[tokio::test]
async fn the_largest_numbers_are_no_harm() {
    let server = TestServer::start_with_account().await;
    for seconds in ["18446744073709551615", "9223372036854775807", "99999999999999999999999"] {
        let mut watch = server.watch(&format!("{MAPS}?watch=1&timeoutSeconds={seconds}")).await;
        assert!(watch.next().await.is_some(), "there is a ConfigMap in every namespace");
        let list = server.send("admin", "GET", &format!("{MAPS}?limit={seconds}"), "").await;
        assert_eq!(list.code, 200, "{list:?}");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
        let pods = "/api/v1/namespaces/default/pods";
        server.send("admin", "POST", pods, &pod.to_string()).await.created();
        let path = format!("{pods}/p?gracePeriodSeconds={seconds}");
        let marked = server.send("admin", "DELETE", &path, "").await;
        assert_eq!(marked.code, 200, "{marked:?}");
        assert_eq!(marked.json()["metadata"]["deletionGracePeriodSeconds"], i64::MAX);
        let path = format!("{pods}/p?gracePeriodSeconds=0");
        assert_eq!(server.send("admin", "DELETE", &path, "").await.code, 200);
        let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": i64::MAX}});
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        let refused = server.send("admin", "POST", path, &token.to_string()).await;
        assert_eq!(refused.code, 422, "{refused:?}");
    }
}

/// Hole: a token that was only tried was good.
#[tokio::test]
async fn a_dry_run_issues_no_token() {
    let server = TestServer::start_with_account().await;
    let token =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let issued = server.send("admin", "POST", path, &token.to_string()).await.created();
    assert!(issued["status"]["token"].as_str().unwrap().len() > 100);
    let tried =
        server.send("admin", "POST", &format!("{path}?dryRun=All"), &token.to_string()).await;
    let tried = tried.created();
    assert_eq!(tried["status"]["token"], "");
    assert_eq!(tried["spec"], issued["spec"]);
    let bad =
        server.send("admin", "POST", &format!("{path}?dryRun=Some"), &token.to_string()).await;
    assert_eq!(bad.code, 400, "{bad:?}");
}
