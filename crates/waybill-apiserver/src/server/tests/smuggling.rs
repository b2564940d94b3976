//! Requests inside requests: whatever the framing says, the bytes of one request never become another one.
//!
//! Each variant carries a second request, with the token of an administrator, where a peer that counts in another way
//! would find the end of the first one. The audit log records every request that a handler gets, so a name that only
//! the hidden request has must not be in it.

use std::{collections::BTreeSet, fs, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::TestServer;

/// Longer than the server takes to answer or to give up.
const PATIENCE: Duration = Duration::from_secs(60);

const LAST: &str = "GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A request that is complete, and asks for something with this name.
fn hidden(name: &str) -> String {
    format!("GET {MAPS}/{name} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer admin-token\r\n\r\n")
}

/// The start of a request that is refused, with `user`'s token: its last header and the empty line are missing.
fn post(user: &str) -> String {
    format!(
        "POST {MAPS} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {user}-token\r\nContent-Type: application/json\r\n"
    )
}

/// `body` as one chunk, and the end of all chunks.
fn chunked(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

impl TestServer {
    /// Writes `bytes` and a request after which the connection ends, and waits for that end: whatever is hidden
    /// before it has been answered by then.
    async fn say(&self, bytes: &str) {
        let mut connection = self.connect().await;
        // A server that refuses may not read all of it, and close without a goodbye.
        let _ = connection.write_all(bytes.as_bytes()).await;
        let _ = connection.write_all(LAST.as_bytes()).await;
        let mut answer = Vec::new();
        let ended = timeout(PATIENCE, connection.read_to_end(&mut answer)).await;
        let (start, answer) = (&bytes[..bytes.len().min(400)], String::from_utf8_lossy(&answer));
        assert!(ended.is_ok(), "the connection is open after {start:?} and {answer:?}");
    }

    /// Stops the server; returns the names under [`MAPS`] that any handler was asked for.
    async fn asked_for(self) -> BTreeSet<String> {
        let Self { dir, server, .. } = self;
        server.stop().await;
        let log = fs::read_to_string(dir.path().join("audit/audit.log")).unwrap();
        let mark = format!("{MAPS}/");
        let after = log.match_indices(&mark).map(|(at, mark)| &log[at + mark.len()..]);
        after.map(|rest| rest.split(['"', '?', ' ', '\\']).next().unwrap().to_owned()).collect()
    }
}

/// Both lengths at once: RFC 9112 has the server close the connection after such a request.
fn two_framings(hidden: &str) -> Vec<String> {
    let te = "Transfer-Encoding: chunked\r\n";
    let all = chunked("{}") + hidden;
    let cl = format!("Content-Length: {}\r\n", all.len());
    let mut variants = Vec::new();
    for user in ["admin", "alice", "nobody"] {
        variants.push(format!("{}{cl}{te}\r\n{all}", post(user)));
        variants.push(format!("{}{te}{cl}\r\n{all}", post(user)));
        variants.push(format!(
            "{}Content-Length: 4\r\n{te}\r\n5c\r\n{hidden}\r\n0\r\n\r\n",
            post(user)
        ));
    }
    // Chunked or not, depending on how it is read.
    for te in [
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\tchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: Chunked",
        "Transfer-Encoding:\r\n chunked",
        "Transfer_Encoding: chunked",
        "X: y\rTransfer-Encoding: chunked",
        "X: y\nTransfer-Encoding: chunked",
        "\x0bTransfer-Encoding: chunked",
        "Transfer-Encoding: \x0bchunked",
        "Transfer-Encoding: chunked\0",
    ] {
        variants.push(format!("{}{te}\r\n{cl}\r\n{all}", post("alice")));
    }
    variants
}

/// One length, which can be read in two ways.
fn odd_lengths(hidden: &str) -> Vec<String> {
    let length = hidden.len();
    let odd = [
        format!("Content-Length: 0\r\nContent-Length: {length}"),
        format!("Content-Length: {length}\r\nContent-Length: 0"),
        format!("Content-Length: 0, {length}"),
        format!("Content-Length: {length}, {length}"),
        format!("Content-Length: +{length}"),
        format!("Content-Length: -{length}"),
        format!("Content-Length: 0x{length:x}"),
        format!("Content-Length: {length}.0"),
        format!("Content-Length: {length}\r\n 0"),
        format!("Content-Length : {length}"),
        format!("Content-Length: 1844674407370955161{length}"),
        "Content-Length: ".into(),
        "Content-Length: 99999999".into(),
    ];
    odd.iter().map(|length| format!("{}{length}\r\n\r\n{hidden}", post("alice"))).collect()
}

/// Chunks that do not say where they end.
fn odd_chunks(hidden: &str) -> Vec<String> {
    let bodies = [
        format!("0x0\r\n\r\n{hidden}"),
        format!("-1\r\n\r\n{hidden}"),
        format!("10000000000000000\r\n{hidden}"),
        format!("ffffffffffffffff\r\n{hidden}"),
        format!("2\r\n{{}}0\r\n\r\n{hidden}"),
        format!("2;a=b\nGET / HTTP/1.1\r\n{{}}\r\n0\r\n\r\n{hidden}"),
        format!("2 \x0b\r\n{{}}\r\n0\r\n\r\n{hidden}"),
        format!("2\n{{}}\n0\n\n{hidden}"),
        format!("0\r\nContent-Length: 0\r\n{hidden}"),
        format!(";x\r\n{hidden}"),
        format!("\r\n0\r\n\r\n{hidden}"),
        format!("0\r{hidden}"),
    ];
    let head = format!("{}Transfer-Encoding: chunked\r\n\r\n", post("alice"));
    bodies.iter().map(|body| format!("{head}{body}")).collect()
}

/// A body that is a request, behind something that is refused before its body is read.
fn bodies_of_refused_requests(hidden: &str) -> Vec<String> {
    let length = format!("Content-Length: {}\r\n", hidden.len());
    let mut variants = Vec::new();
    for user in ["alice", "nobody"] {
        variants.push(format!("{}{length}\r\n{hidden}", post(user)));
        variants.push(format!(
            "{}Transfer-Encoding: chunked\r\n\r\n{}",
            post(user),
            chunked(hidden)
        ));
        variants.push(format!("{}{length}Expect: 100-continue\r\n\r\n{hidden}", post(user)));
    }
    for line in [
        "GET /healthz",
        "HEAD /healthz",
        "DELETE /nothing",
        "OPTIONS *",
        "TRACE /",
        "PUT /api/v1",
        "BREW /pot",
        "POST /api/v1/namespaces/default/pods/p/exec?command=id",
        "GET http://elsewhere/api/v1/nodes",
    ] {
        variants.push(format!("{line} HTTP/1.1\r\nHost: a\r\n{length}\r\n{hidden}"));
    }
    variants
}

/// What is no request, or wants to be something else, before one.
fn broken_heads(hidden: &str) -> Vec<String> {
    let heads = [
        "GET /healthz HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n".to_owned(),
        "GET /healthz HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n".into(),
        "GET /healthz HTTP/1.1\r\nHost: a\r\nX\r\n\r\n".into(),
        "GET /healthz HTTP/1.1\r\nHost: a\r\nX: y\0\r\n\r\n".into(),
        "GET /healthz HTTP/1.1\rHost: a\r\r".into(),
        "GET /healthz HTTP/1.2\r\nHost: a\r\n\r\n".into(),
        "GET /healthz HTTP/1.0\r\n\r\n".into(),
        "GET /healthz\r\n\r\n".into(),
        "GET  /healthz HTTP/1.1\r\n\r\n".into(),
        "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".into(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
        format!("GET /healthz?{} HTTP/1.1\r\nHost: a\r\n", "x".repeat(300_000)),
        format!("GET /healthz HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(500_000)),
    ];
    heads.iter().map(|head| format!("{head}{hidden}")).collect()
}

#[tokio::test]
async fn no_bytes_of_one_request_become_another() {
    let server = TestServer::start().await;
    let mut tried = 0;
    for family in [two_framings, odd_lengths, odd_chunks, bodies_of_refused_requests, broken_heads]
    {
        for at in 0..family("").len() {
            tried += 1;
            let variant = &family(&hidden(&format!("hidden-{tried}")))[at];
            server.say(variant).await;
        }
    }
    assert!(tried >= 50, "{tried}");
    // That a request would be seen: those that stand in a row are all served, and the log knows.
    let long = "x".repeat(100_000);
    for (at, first) in [
        format!(
            "GET {MAPS}/seen-1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer admin-token\r\n\r\n"
        ),
        format!("GET /healthz?{long} HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("{}Transfer-Encoding: chunked\r\n\r\n{}", post("admin"), chunked("{}")),
        "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        server.say(&format!("{first}{}", hidden(&format!("seen-{}", at + 2)))).await;
    }
    let expected = ["seen-1", "seen-2", "seen-3", "seen-4", "seen-5"].map(str::to_owned);
    assert_eq!(server.asked_for().await, BTreeSet::from(expected));
}
