//! A registry that says what a test wants it to say.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use base64::{Engine, engine::general_purpose::STANDARD};

use super::*;

pub(super) struct Fake {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    answers: Mutex<HashMap<String, (u16, Vec<u8>)>>,
    requests: Mutex<Vec<String>>,
    password: Mutex<Option<String>>,
    stopped: AtomicBool,
}

impl Fake {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let served = Arc::clone(&shared);
        thread::spawn(move || {
            for connection in listener.incoming() {
                if served.stopped.load(Ordering::Relaxed) {
                    break;
                }
                let served = Arc::clone(&served);
                thread::spawn(move || served.serve(&connection.unwrap(), address));
            }
        });
        Self { address, shared }.answer("/v2/", b"{}")
    }

    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Paths that were asked for.
    pub(super) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }

    pub(super) fn answer(self, path: &str, body: &[u8]) -> Self {
        self.shared.answers.lock().unwrap().insert(path.into(), (200, body.to_vec()));
        self
    }

    pub(super) fn fail(self, path: &str, status: u16, body: &str) -> Self {
        self.shared.answers.lock().unwrap().insert(path.into(), (status, body.into()));
        self
    }

    pub(super) fn image(mut self, repository: &str, tag: &str, sample: &Sample) -> Self {
        let path = |kind: &str, of: &[u8]| format!("/v2/{repository}/{kind}/{}", Digest::of(of));
        for blob in sample.blobs() {
            self = self.answer(&path("blobs", blob), blob);
        }
        self = self.answer(&path("manifests", &sample.manifest), &sample.manifest);
        self.answer(&format!("/v2/{repository}/manifests/{tag}"), &sample.manifest)
    }

    /// Answers only to a token that is given for this password.
    pub(super) fn with_tokens(self, password: &str) -> Self {
        *self.shared.password.lock().unwrap() = Some(password.into());
        self
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

const TOKEN: &str = "a-token-of-the-test";

impl Shared {
    fn serve(&self, connection: &TcpStream, address: SocketAddr) {
        let mut lines = BufReader::new(connection).lines().map_while(std::io::Result::ok);
        let Some(request) = lines.next() else { return };
        let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        self.requests.lock().unwrap().push(path.clone());
        let (status, header, body) = self.reply(&path, &headers, address);
        let head = format!(
            "HTTP/1.1 {status} x\r\n{header}content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let mut connection = connection;
        let _ = connection.write_all(head.as_bytes());
        let _ = connection.write_all(&body);
    }

    fn reply(&self, path: &str, headers: &[String], address: SocketAddr) -> (u16, String, Vec<u8>) {
        let sends = |value: &str| {
            let wanted = format!("authorization: {value}");
            headers.iter().any(|header| header.eq_ignore_ascii_case(&wanted))
        };
        if let Some(password) = self.password.lock().unwrap().as_deref() {
            if path.starts_with("/token") {
                let basic = format!("Basic {}", STANDARD.encode(format!("me:{password}")));
                return match sends(&basic) {
                    true => (200, String::new(), json!({ "token": TOKEN }).to_string().into()),
                    false => (401, String::new(), b"who are you?".to_vec()),
                };
            }
            if !sends(&format!("Bearer {TOKEN}")) {
                let realm = format!("Bearer realm=\"http://{address}/token\",service=\"test\"");
                return (401, format!("www-authenticate: {realm}\r\n"), Vec::new());
            }
        }
        match self.answers.lock().unwrap().get(path) {
            Some((status, body)) => (*status, String::new(), body.clone()),
            None => {
                let error = json!({ "errors": [
                    { "code": "MANIFEST_UNKNOWN", "message": "no such thing" }
                ] });
                (404, String::new(), error.to_string().into())
            }
        }
    }
}
