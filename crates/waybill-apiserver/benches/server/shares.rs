//! What one user, or one connection, can take from all others.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::TlsConnector;

use crate::{
    Result,
    client::{Connection, load, request, request_as, trusting},
    process::{GREEDY, OTHER, Process},
    scenario::{Asker, Size, config_map, expect, show},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// So many clients of one user, each with one list after the other.
const GREEDY_CLIENTS: usize = 20;

/// How much another user's GET is slowed down by lists without end. Clients that list take the processor from everybody, so the
/// same clients at another server are what it is compared with.
pub(crate) async fn fair(size: Size) -> Result<()> {
    let (server, elsewhere) = (with_objects(size).await?, with_objects(size).await?);
    let ask = request_as(OTHER, "GET", &format!("{MAPS}/object-0"), "");
    let mut found = Vec::new();
    for (what, crowded) in [
        ("GET of one client, alone", None),
        ("  20 clients list at another server", Some(&elsewhere)),
        ("  20 clients of another user list here", Some(&server)),
        ("  once more at another server", Some(&elsewhere)),
        ("  once more here", Some(&server)),
    ] {
        let greedy = crowded.map(Greedy::start).transpose()?;
        // Their connections are made, and what they asked first is under way.
        tokio::time::sleep(size.duration() / 4).await;
        let connection = Connection::open(&server).await?;
        let asker = Asker { connection, request: ask.clone() };
        let measured = load(vec![asker], size.duration()).await?;
        show(what, &measured, None);
        let seconds = |percent| measured.percentile(percent).as_secs_f64();
        found.push([seconds(50), seconds(99), 1.0 / measured.rate()]);
        drop(greedy);
    }
    if let [_, there, here, there_again, here_again] = found.as_slice() {
        for (at, what) in ["p50", "p99", "mean"].into_iter().enumerate() {
            let of = |it: &[f64; 3]| it.get(at).copied().unwrap_or_default();
            let ratio = of(here).midpoint(of(here_again)) / of(there).midpoint(of(there_again));
            println!("{:<46} {ratio:>11.2}x", format!("  slowed down by, {what}"));
        }
    }
    Ok(())
}

/// A server that has objects to list.
async fn with_objects(size: Size) -> Result<Process> {
    let server = Process::start("--serve").await?;
    let mut admin = prepare(&server).await?;
    for number in 0..size.objects() {
        let ask = request("POST", MAPS, &config_map(&format!("object-{number}"), "x"));
        expect(201, admin.call(&ask).await?)?;
    }
    Ok(server)
}

/// What the server holds at most for one HTTP/2 connection of a client that sends much and reads nothing.
pub(crate) async fn connection(size: Size) -> Result<()> {
    const LARGE: usize = 1_000_000;
    let server = Process::start("--serve").await?;
    let mut admin = prepare(&server).await?;
    let large = |name: &str, bytes: usize| {
        let map = json!({"metadata": {"name": name}, "data": {"filler": "x".repeat(bytes)}});
        map.to_string()
    };
    for number in 0..size.changes() {
        let ask = request("POST", MAPS, &large(&format!("large-{number}"), LARGE));
        expect(201, admin.call(&ask).await?)?;
    }
    let one = format!("{MAPS}/large-0");
    for (what, method, path, body) in [
        ("100 lists of 20 MB that nobody reads", "GET", MAPS, Bytes::new()),
        ("100 objects of 1 MB that nobody reads", "GET", one.as_str(), Bytes::new()),
        ("100 bodies of 3 MB", "POST", MAPS, Bytes::from(large("body", 3 * LARGE))),
        (
            "100 changes whose answers nobody reads",
            "PUT",
            one.as_str(),
            Bytes::from(large("large-0", LARGE)),
        ),
    ] {
        // A client that lets one byte through makes HTTP/2 take answers out of the server's hands.
        for window in [0, 1] {
            server.forget_peak()?;
            let before = server.resident()?;
            let held = ask_without_reading(&server, (method, path), &body, window).await?;
            let peak = server.peak()?;
            let what = format!("{what}, window of {window}");
            println!("{what:<58} {:>9.1} MB", peak - before);
            drop(held);
        }
    }
    Ok(())
}

/// Lets both users do everything.
async fn prepare(server: &Process) -> Result<Connection> {
    let mut admin = Connection::open(server).await?;
    let binding = json!({
        "metadata": {"name": "bench"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    expect(201, admin.call(&request("POST", path, &binding.to_string())).await?)?;
    Ok(admin)
}

/// A hundred requests at once on one connection whose windows are closed; returned with all that came of them.
async fn ask_without_reading(
    server: &Process,
    (method, path): (&str, &str),
    body: &Bytes,
    window: u32,
) -> Result<impl Sized> {
    let stream = TcpStream::connect(server.address).await?;
    let mut config = rustls::ClientConfig::clone(server.connector.config());
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::IpAddress(server.address.ip().into());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(stream))
        .await?;
    let mut kept = JoinSet::new();
    kept.spawn(connection);
    let mut answers = JoinSet::new();
    for _ in 0..100 {
        let mut sender = sender.clone();
        let request = Request::builder()
            .method(method)
            .uri(format!("https://bench{path}"))
            .header(header::AUTHORIZATION, format!("Bearer {GREEDY}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.clone()))?;
        answers.spawn(async move {
            sender.ready().await?;
            sender.send_request(request).await
        });
    }
    let mut unread = Vec::new();
    while let Some(answer) = answers.join_next().await {
        unread.push(answer?);
    }
    Ok((unread, kept))
}

/// The clients that list, in a process of their own: they shall not wait for the one that is timed, nor it for them.
struct Greedy(Child);

impl Greedy {
    fn start(server: &Process) -> Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .arg("--greedy")
            .arg(server.address.to_string())
            .arg(server.authority())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Greedy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What that process does until it is killed.
pub(crate) async fn list_without_end(address: &str, authority: &Path) -> Result<()> {
    let address: SocketAddr = address.parse()?;
    let connector = trusting(&fs::read_to_string(authority)?)?;
    let ask = request_as(GREEDY, "GET", MAPS, "");
    let mut clients = JoinSet::new();
    for _ in 0..GREEDY_CLIENTS {
        let mut connection = Connection::to(address, &connector).await?;
        let ask = ask.clone();
        clients.spawn(async move {
            loop {
                // Those who have too much under way are told so, and try again.
                if connection.call(&ask).await? == 429 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
    }
    match clients.join_next().await {
        Some(ended) => ended?,
        None => Ok(()),
    }
}
