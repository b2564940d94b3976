//! Clients that speak SPDY, over TCP and in the messages of a WebSocket.

use std::collections::HashMap;

use bytes::{Buf, BytesMut};
use futures_util::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::task::TaskTracker;
use waybill_stream::command::Streams;

use super::{
    ALL, Server,
    client::{Client, exit},
    limits,
};

/// A client made by hand: it knows frames, and compresses nothing.
struct Spdy<S> {
    io: S,
    input: BytesMut,
    next: u32,
    /// What was said on each stream, and whether that is all.
    heard: HashMap<u32, (Vec<u8>, bool)>,
    replies: usize,
    pings: Vec<u32>,
    gone_away: bool,
}

impl Spdy<TcpStream> {
    /// The connection, or the status and the whole answer.
    async fn connect(url: &str, versions: &[&str]) -> Result<Self, (u16, String)> {
        let rest = url.strip_prefix("http://").unwrap();
        let (address, path) = rest.split_at(rest.find('/').unwrap());
        let mut io = TcpStream::connect(address).await.unwrap();
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\
             content-length: 0\r\n"
        );
        for version in versions {
            request.push_str(&format!("x-stream-protocol-version: {version}\r\n"));
        }
        io.write_all(format!("{request}\r\n").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(io.read_u8().await.unwrap());
        }
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        if status != 101 {
            return Err((status, answer));
        }
        assert!(answer.contains(&format!("x-stream-protocol-version: {}", versions[0])));
        Ok(Self::new(io))
    }
}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> Spdy<S> {
    fn new(io: S) -> Self {
        Self {
            io,
            input: BytesMut::new(),
            next: 1,
            heard: HashMap::new(),
            replies: 0,
            pings: Vec::new(),
            gone_away: false,
        }
    }

    async fn open(&mut self, headers: &[(&str, &str)]) -> u32 {
        let stream = self.next;
        self.next += 2;
        let mut text = u32::try_from(headers.len()).unwrap().to_be_bytes().to_vec();
        for word in headers.iter().flat_map(|(name, value)| [name, value]) {
            text.extend_from_slice(&u32::try_from(word.len()).unwrap().to_be_bytes());
            text.extend_from_slice(word.as_bytes());
        }
        let length = u16::try_from(text.len()).unwrap();
        let mut body = stream.to_be_bytes().to_vec();
        body.extend_from_slice(&[0; 6]);
        if stream == 1 {
            body.extend_from_slice(&[0x78, 0x01]);
        }
        body.push(0);
        body.extend_from_slice(&length.to_le_bytes());
        body.extend_from_slice(&(!length).to_le_bytes());
        body.extend_from_slice(&text);
        self.control(1, &body).await;
        stream
    }

    async fn control(&mut self, kind: u8, body: &[u8]) {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let frame = [&[0x80, 3, 0, kind, 0], &length[1..], body].concat();
        self.io.write_all(&frame).await.unwrap();
    }

    async fn data(&mut self, stream: u32, bytes: &[u8], last: bool) {
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        let frame = [&stream.to_be_bytes(), &[u8::from(last)][..], &length[1..], bytes].concat();
        self.io.write_all(&frame).await.unwrap();
    }

    /// Hears one frame; `false` at the end of the connection.
    async fn step(&mut self) -> bool {
        let needed = |input: &[u8]| {
            let header = input.first_chunk::<8>()?;
            Some(8 + u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize)
        };
        while needed(&self.input).is_none_or(|needed| self.input.len() < needed) {
            if self.io.read_buf(&mut self.input).await.unwrap_or(0) == 0 {
                return false;
            }
        }
        let mut frame = self.input.split_to(needed(&self.input).unwrap());
        let (word, flags) = (frame.get_u32(), frame.get_u8());
        frame.advance(3);
        match word {
            0x8003_0002 => self.replies += 1,
            0x8003_0006 => self.pings.push(frame.get_u32()),
            0x8003_0007 => self.gone_away = true,
            0x8003_0003 => self.heard.entry(frame.get_u32()).or_default().1 = true,
            stream => {
                assert!(stream < 0x8000_0000, "{stream:x}");
                let (bytes, ended) = self.heard.entry(stream).or_default();
                bytes.extend_from_slice(&frame);
                *ended |= flags == 1;
            }
        }
        true
    }

    async fn replies(&mut self, count: usize) {
        while self.replies < count {
            assert!(self.step().await, "the server has left");
        }
    }

    /// Hears until a stream has ended.
    async fn ended(&mut self, stream: u32) -> String {
        while !self.heard.get(&stream).is_some_and(|(_, ended)| *ended) {
            assert!(self.step().await, "the server has left");
        }
        String::from_utf8(self.heard[&stream].0.clone()).unwrap()
    }
}

#[tokio::test]
async fn a_command_has_a_stream_for_each_of_its_own() {
    let server = Server::start(limits()).await;
    let url = server.exec_url("cat; echo problem >&2; exit 3", ALL);
    let mut client =
        Spdy::connect(&url, &["v4.channel.k8s.io", "v3.channel.k8s.io"]).await.ok().unwrap();
    let error = client.open(&[("streamtype", "error")]).await;
    client.replies(1).await;
    let stdin = client.open(&[("streamtype", "stdin")]).await;
    let stdout = client.open(&[("streamtype", "stdout")]).await;
    client.control(6, &1_u32.to_be_bytes()).await;
    client.replies(3).await;
    assert_eq!(server.machine.started(), 0, "it waits for the last stream");
    let stderr = client.open(&[("streamtype", "stderr")]).await;
    client.replies(4).await;
    assert_eq!(client.pings, [1]);
    client.control(6, &3_u32.to_be_bytes()).await;
    client.data(stdin, b"hello ", false).await;
    client.data(stdin, b"world", true).await;
    assert_eq!(client.ended(stdout).await, "hello world");
    assert_eq!(client.ended(stderr).await, "problem\n");
    let status = client.ended(error).await;
    assert!(status.contains(&exit(3)), "{status}");
    while client.step().await {
        if client.gone_away {
            client.control(7, &[0; 8]).await;
        }
    }
    assert!(client.gone_away);
    assert_eq!(client.pings, [1, 3]);
}

#[tokio::test]
async fn a_terminal_is_resized_over_a_stream() {
    let server = Server::start(limits()).await;
    let streams = Streams { stdin: true, stdout: true, stderr: false, tty: true };
    let url = server.exec_url("read line; stty size", streams);
    let mut client = Spdy::connect(&url, &["v4.channel.k8s.io"]).await.ok().unwrap();
    client.open(&[("streamtype", "error")]).await;
    let stdin = client.open(&[("streamtype", "stdin")]).await;
    let stdout = client.open(&[("streamtype", "stdout")]).await;
    let resize = client.open(&[("streamtype", "resize")]).await;
    client.replies(4).await;
    client.data(resize, b"{\"Width\":100,\"Height\":40}\n", false).await;
    client.data(stdin, b"\n", false).await;
    let out = client.ended(stdout).await;
    assert!(out.contains("40 100"), "{out}");
}

#[tokio::test]
async fn older_versions_tell_a_failure_as_text() {
    let server = Server::start(limits()).await;
    let streams = Streams { stdout: true, ..Streams::default() };
    let url = server.exec_url("exit 2", streams);
    let mut client = Spdy::connect(&url, &["channel.k8s.io"]).await.ok().unwrap();
    let error = client.open(&[("streamtype", "error")]).await;
    client.open(&[("streamtype", "stdout")]).await;
    let text = client.ended(error).await;
    assert_eq!(text, "command terminated with non-zero exit code: 2");
}

#[tokio::test]
async fn a_client_that_opens_too_little_or_too_much_starts_nothing() {
    let limits = super::Limits { streams: std::time::Duration::from_millis(50), ..limits() };
    let server = Server::start(limits).await;
    for stream in ["stdout", "data"] {
        let url = server.exec_url("true", ALL);
        let mut client = Spdy::connect(&url, &["v4.channel.k8s.io"]).await.ok().unwrap();
        client.open(&[("streamtype", stream)]).await;
        while !client.gone_away {
            assert!(client.step().await);
        }
    }
    assert_eq!(server.machine.started(), 0);
}

#[tokio::test]
async fn versions_must_be_named_and_known() {
    let server = Server::start(limits()).await;
    let refused = async |url: String, versions: &[&str]| {
        Spdy::connect(&url, versions).await.err().expect("it is refused")
    };
    let (status, _) = refused(server.exec_url("true", ALL), &[]).await;
    assert_eq!(status, 400);
    let (status, answer) = refused(server.exec_url("true", ALL), &["v9.channel.k8s.io"]).await;
    assert_eq!(status, 403);
    let accepted = "x-accepted-stream-protocol-versions: v4.channel.k8s.io, v3.channel.k8s.io";
    assert!(answer.contains(accepted), "{answer}");
    let url = server.streaming.forward_url("p1", Vec::new()).unwrap();
    assert_eq!(refused(url, &["v4.channel.k8s.io"]).await.0, 403);
}

#[tokio::test]
async fn a_client_that_vanishes_closes_the_streams() {
    let server = Server::start(limits()).await;
    let streams = Streams { stdin: true, ..Streams::default() };
    let url = server.exec_url("cat; exit 31", streams);
    let mut client = Spdy::connect(&url, &["v4.channel.k8s.io"]).await.ok().unwrap();
    client.open(&[("streamtype", "error")]).await;
    client.open(&[("streamtype", "stdin")]).await;
    client.replies(2).await;
    drop(client);
    assert_eq!(server.machine.ended().await, 31);
}

/// Says everything twice, until the client has said all.
async fn doubling_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    TaskTracker::new().spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut text = Vec::new();
            stream.read_to_end(&mut text).await.unwrap();
            stream.write_all(&text.repeat(2)).await.unwrap();
        }
    });
    port
}

async fn forward<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(mut client: Spdy<S>) {
    let port = doubling_port().await.to_string();
    let mut open = Vec::new();
    for request in ["0", "1"] {
        let headers =
            |kind| [("streamtype", kind), ("port", port.as_str()), ("requestid", request)];
        let error = client.open(&headers("error")).await;
        client.data(error, b"", true).await;
        open.push((client.open(&headers("data")).await, error));
    }
    client.replies(4).await;
    for (data, _) in &open {
        client.data(*data, format!("<{data}>").as_bytes(), true).await;
    }
    for (data, error) in open {
        assert_eq!(client.ended(data).await, format!("<{data}><{data}>"));
        assert_eq!(client.ended(error).await, "");
    }
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let port = closed.to_string();
    let headers = |kind| [("streamtype", kind), ("port", port.as_str()), ("requestid", "2")];
    let error = client.open(&headers("error")).await;
    client.open(&headers("data")).await;
    let text = client.ended(error).await;
    assert!(text.contains("refused"), "{text}");
}

#[tokio::test]
async fn ports_are_opened_as_the_client_likes() {
    let server = Server::start(limits()).await;
    let url = server.streaming.forward_url("p1", Vec::new()).unwrap();
    forward(Spdy::connect(&url, &["portforward.k8s.io"]).await.ok().unwrap()).await;
}

/// As kubectl does since 1.31.
#[tokio::test]
async fn ports_through_a_websocket() {
    let server = Server::start(limits()).await;
    let url = server.streaming.forward_url("p1", Vec::new()).unwrap();
    let client = Client::connect(&url, &["SPDY/3.1+portforward.k8s.io"]).await.unwrap();
    let (inside, outside) = duplex(1024);
    let carrier = TaskTracker::new();
    carrier.spawn(carry(client, outside));
    forward(Spdy::new(inside)).await;
}

async fn carry(client: Client, outside: DuplexStream) {
    let (mut send, mut receive) = client.socket.split();
    let (mut read, mut write) = split(outside);
    tokio::join!(
        async {
            let mut buffer = [0; 100];
            while let Ok(count @ 1..) = read.read(&mut buffer).await {
                send.send(Message::binary(buffer[..count].to_vec())).await.unwrap();
            }
            send.close().await.unwrap();
        },
        async {
            while let Some(Ok(message)) = receive.next().await {
                if let Message::Binary(bytes) = message {
                    let _ = write.write_all(&bytes).await;
                }
            }
        },
    );
}
