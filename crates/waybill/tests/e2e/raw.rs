//! Requests that no client sends: byte by byte, over TLS.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n";

pub(crate) const SPDY: &str = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
    X-Stream-Protocol-Version: v4.channel.k8s.io\r\n";

/// No upgrade.
pub(crate) const PLAIN: &str = "Connection: close\r\n";

/// A server, and a caller with a token.
pub(crate) struct Raw {
    address: SocketAddr,
    token: String,
    tls: Arc<ClientConfig>,
}

/// What a server said, to the end of the connection.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: u16,
    /// Everything after the status line.
    pub(crate) text: String,
}

impl Raw {
    pub(crate) fn new(address: SocketAddr, authority: &Path, token: &str) -> Self {
        let pem = fs::read(authority).expect("the API server wrote it");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem).expect("it is PEM")).expect("it is one");
        let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("there are some")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { address, token: token.to_owned(), tls: Arc::new(tls) }
    }

    /// Sends `line`, such as `GET /path`, with these headers, each with its line end.
    pub(crate) fn ask(&self, line: &str, headers: &str) -> Said {
        let tcp = TcpStream::connect(self.address).expect("somebody listens");
        tcp.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
        let name = ServerName::from(self.address.ip());
        let tls = ClientConnection::new(Arc::clone(&self.tls), name).expect("the name is good");
        let mut stream = StreamOwned::new(tls, tcp);
        let token = &self.token;
        let head = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n{headers}\r\n",
            self.address
        );
        // A server that refuses may not read all of it.
        let _ = stream.write_all(head.as_bytes());
        let answer = read_answer(&mut stream);
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        let code = code.unwrap_or_else(|| panic!("no answer to {:?}: {answer:?}", cut(line)));
        let text = answer.split_once("\r\n").map(|(_, rest)| rest.to_owned());
        Said { code, text: text.unwrap_or_default() }
    }
}

/// To the end of the connection, or of the body if the server keeps the connection open.
fn read_answer(stream: &mut impl Read) -> String {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let answer = String::from_utf8_lossy(&bytes).into_owned();
        if is_complete(&answer) {
            return answer;
        }
        match stream.read(&mut buffer) {
            Ok(0) => return answer,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_patience(&error) => panic!("it says no more than {answer:?}"),
            // Peers may end a session without a word of TLS.
            Err(_) => return answer,
        }
    }
}

/// A session has no length; it is complete when the server closes it.
fn is_complete(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    if head.contains("transfer-encoding: chunked") {
        return body.ends_with("0\r\n\r\n");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.and_then(|length| length.trim().parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}

fn is_patience(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn cut(line: &str) -> &str {
    line.get(..120).unwrap_or(line)
}
