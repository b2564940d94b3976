//! The streaming server of a runtime, as far as the node sees one.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

/// Upgrades and sends back what comes, and says `bye` when its client is done.
pub(super) struct FakeStreaming {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    /// Sessions that run.
    pub(super) sessions: TaskTracker,
    _running: DropGuard,
}

impl FakeStreaming {
    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (seen, sessions) = (Arc::clone(&heads), TaskTracker::new());
        let (stop, tracker) = (CancellationToken::new(), sessions.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tracker.spawn(serve(stream, Arc::clone(&seen)));
            }
        }));
        Self { address, heads, sessions, _running: stop.drop_guard() }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/token/secret", self.address)
    }

    /// The heads of requests, in lower case.
    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

const GRANTED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: \
    SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nSet-Cookie: secret\r\n\r\n";

const REFUSED: &str = "HTTP/1.1 403 Forbidden\r\nX-Accepted-Stream-Protocol-Versions: \
    v4.channel.k8s.io\r\nContent-Length: 10\r\n\r\nno version";

async fn serve(mut stream: TcpStream, heads: Arc<Mutex<Vec<String>>>) {
    stream.set_nodelay(true).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let refuse = head.contains("/refuse");
    heads.lock().unwrap().push(head);
    if refuse {
        stream.write_all(REFUSED.as_bytes()).await.unwrap();
        return;
    }
    let (mut reader, mut writer) = stream.split();
    // The node may be gone at any moment.
    let _ = writer.write_all(GRANTED.as_bytes()).await;
    let _ = tokio::io::copy(&mut reader, &mut writer).await;
    let _ = writer.write_all(b"bye").await;
    let _ = writer.shutdown().await;
}
