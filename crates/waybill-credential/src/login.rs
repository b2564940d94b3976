//! The client of `waybill login`: a token from a local API server, which sees from its socket who asks.
//!
//! The protocol: connect, read one `ExecCredential` until the end of the stream, or a `Status` that says why there is none.
//! Nothing is sent, so nobody can ask for somebody else.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use serde::Deserialize;
use tokio::{io::AsyncReadExt, net::UnixStream, time::timeout};
use waybill_core::secret::SecretBytes;

use crate::{ApiVersion, provider::ExecAnswer};

/// Before another attempt to connect, while the queue of the kernel is full.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);

/// The last step, which the server decides.
const REFUSED: &str = "get a credential from";

/// Answers have about 1 KiB.
const MAX_ANSWER: u64 = 64 * 1024;

/// Asks the server at `path` for a credential: what `waybill login` prints.
pub async fn fetch(path: &Path, patience: Duration) -> Result<SecretBytes, LoginError> {
    let at = |step| move |source| LoginError { step, path: path.to_owned(), source };
    let exchange = async {
        let stream = connect(path).await.map_err(at("connect to"))?;
        let mut answer = Vec::with_capacity(4096);
        stream.take(MAX_ANSWER).read_to_end(&mut answer).await.map_err(at("read from"))?;
        Ok(SecretBytes::from(answer))
    };
    let answer = timeout(patience, exchange)
        .await
        .unwrap_or_else(|_| Err(at("get an answer from")(io::ErrorKind::TimedOut.into())))?;
    let refused = at(REFUSED);
    if answer.is_empty() {
        return Err(refused(io::ErrorKind::PermissionDenied.into()));
    }
    match refusal(&answer) {
        Some(message) => Err(refused(io::Error::new(io::ErrorKind::PermissionDenied, message))),
        None => Ok(answer),
    }
}

/// What the server says in place of a credential.
fn refusal(answer: &SecretBytes) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        kind: &'a str,
        // Not there in a credential, of which nothing is copied.
        message: Option<String>,
    }

    let answer: Answer<'_> = serde_json::from_slice(answer.expose()).ok()?;
    answer.message.filter(|_| answer.kind == "Status")
}

/// The same credential, which clients use until `end` at most.
pub fn shorten(credential: &SecretBytes, end: Timestamp) -> Result<SecretBytes, ShortenError> {
    // Borrowed, so that no copy of the token stays behind.
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        status: Status<'a>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Status<'a> {
        token: &'a str,
        expiration_timestamp: &'a str,
    }

    let answer: Answer<'_> =
        serde_json::from_slice(credential.expose()).map_err(|_| ShortenError)?;
    let own: Timestamp = answer.status.expiration_timestamp.parse().map_err(|_| ShortenError)?;
    let answer = ExecAnswer {
        token: Some(SecretBytes::copy_of(answer.status.token.as_bytes())),
        expires: Some(own.min(end)),
        ..ExecAnswer::default()
    };
    answer.to_json(ApiVersion::V1).map_err(|_| ShortenError)
}

/// Connects, also while so many others ask that the queue of the kernel is full.
async fn connect(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(CONNECT_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// Why there is no credential. The server's log says why it gave none.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} the local socket {}", path.display())]
pub struct LoginError {
    step: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl LoginError {
    /// What the kernel said of the socket, or `PermissionDenied` where the server gave none.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Whether the server answered, and gave none.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        self.step == REFUSED
    }
}

/// What came from the server is no credential of a local user.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's answer is no ExecCredential with a token and a time of expiry")]
pub struct ShortenError;

#[cfg(test)]
mod tests {
    use tokio::{
        io::AsyncWriteExt,
        net::{UnixListener, UnixSocket},
    };

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Hole: any local user who connected without end kept all others from getting a token.
    #[tokio::test]
    async fn a_full_queue_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("login.sock");
        let socket = UnixSocket::new_stream().unwrap();
        socket.bind(&path).unwrap();
        let listener = socket.listen(1).unwrap();
        let mut queue = Vec::new();
        while let Ok(stream) = UnixStream::connect(&path).await {
            queue.push(stream);
        }
        let serve = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.write_all(b"{}").await;
            }
        };
        tokio::select! {
            biased;
            answer = fetch(&path, PATIENCE) => assert_eq!(answer.unwrap().expose(), b"{}"),
            () = serve => {}
        }
    }

    #[test]
    fn a_life_is_made_shorter_and_never_longer() {
        let answer = |end: &str| {
            format!(
                r#"{{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{{"expirationTimestamp":"{end}","token":"t"}}}}"#
            )
        };
        let given = SecretBytes::from(answer("2030-01-01T00:10:00Z").into_bytes());
        for (end, expected) in [
            ("2030-01-01T00:00:01Z", "2030-01-01T00:00:01Z"),
            ("2031-01-01T00:00:00Z", "2030-01-01T00:10:00Z"),
        ] {
            let shortened = shorten(&given, end.parse().unwrap()).unwrap();
            assert_eq!(str::from_utf8(shortened.expose()).unwrap(), answer(expected));
        }
        let other = SecretBytes::from(b"{}".to_vec());
        assert_eq!(shorten(&other, Timestamp::MAX).err(), Some(ShortenError));
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("login.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let error = fetch(&path, Duration::from_millis(20)).await.err().unwrap();
        assert!(error.to_string().starts_with("cannot get an answer from the local socket"));
    }

    #[tokio::test]
    async fn a_server_that_gives_nothing_is_told_apart_from_one_that_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("login.sock");
        let error = fetch(&path, PATIENCE).await.err().unwrap();
        assert!(error.to_string().starts_with("cannot connect to the local socket"));
        let listener = UnixListener::bind(&path).unwrap();
        let (answer, _) = tokio::join!(fetch(&path, PATIENCE), async {
            drop(listener.accept().await.unwrap());
        });
        let error = answer.err().unwrap();
        assert!(error.to_string().starts_with("cannot get a credential from the local socket"));
    }

    #[tokio::test]
    async fn a_refusal_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("login.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (answer, _) = tokio::join!(fetch(&path, PATIENCE), async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let status = br#"{"kind":"Status","apiVersion":"v1","message":"too \"often\""}"#;
            stream.write_all(status).await.unwrap();
        });
        let error = answer.err().unwrap();
        assert!(error.to_string().starts_with("cannot get a credential from the local socket"));
        assert_eq!(error.source.to_string(), "too \"often\"");
    }
}
