//! What clients and the agent say to one another over its socket.
//!
//! A frame is the lengths of its two parts, a message in JSON, and a body. Bodies are credentials and go straight into
//! memory that is wiped; messages hold nothing secret. Both sides are of the same user, so a frame that makes no sense
//! is the fault of a program and ends the connection.

use std::{io, mem, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use waybill_core::secret::SecretBytes;

use super::{asker::Asker, key::Key};
use crate::run::OUTPUT;

/// Far more than any message needs.
const MESSAGE: usize = 64 << 10;

/// What a client says first.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(crate) enum Request {
    /// It wants a credential.
    Ask(Ask),
    /// It wants to know what there is.
    List,
    /// What this plugin gave shall go, or everything.
    Forget { plugin: Option<String> },
}

/// A client that wants a credential.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ask {
    pub(crate) key: Key,
    /// As it is shown to people.
    pub(crate) plugin: String,
    /// As it is shown to people, if the plugin knows it.
    pub(crate) server: Option<String>,
    pub(crate) api_version: String,
    /// Whether a plugin that this client runs can talk to a person.
    pub(crate) interactive: bool,
    /// The program behind the client, which comes again if a server refuses the credential.
    pub(crate) asker: Option<Asker>,
    /// For how long a credential is kept that does not say when it expires.
    pub(crate) max_age: Duration,
    /// For how long a credential is kept for which nobody asks.
    pub(crate) idle: Duration,
}

/// What the agent says.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(crate) enum Reply {
    /// The body is the credential.
    Have,
    /// Run the plugin, and report. Nobody else does meanwhile.
    Run,
    /// The same, but the body is a credential that serves for a while if the plugin fails.
    Renew,
    /// Somebody else runs the plugin.
    Wait(Holder),
    /// The plugin failed when somebody else ran it.
    Failed(Failure),
    /// Your report has arrived.
    Noted,
    Listing(Listing),
    Forgot {
        count: usize,
    },
}

/// What a client says that ran the plugin.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(crate) enum Report {
    /// The body is what it printed.
    Printed,
    Failed(Failure),
}

/// The client that runs the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Holder {
    pub(crate) pid: i32,
    pub(crate) interactive: bool,
}

/// A plugin that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// With which exit code a client shall end.
    pub code: u8,
    /// What to tell people; never what the plugin printed.
    pub message: String,
}

/// What an agent tells of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listing {
    /// The agent's process.
    pub pid: u32,
    /// Whether its memory is kept out of swap.
    pub locked: bool,
    /// What it holds.
    pub held: Vec<HeldCredential>,
}

/// A credential that an agent holds. The times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldCredential {
    /// The plugin, without its arguments.
    pub plugin: String,
    /// The API server, if the plugin knows it.
    pub server: Option<String>,
    /// When the plugin gave it.
    pub obtained: i64,
    /// Until when it may be used, if the plugin said so.
    pub expires: Option<i64>,
    /// How often it was handed out.
    pub uses: u64,
}

/// Sends a message with a body, which may be empty.
pub(crate) async fn send<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &T,
    body: &[u8],
) -> io::Result<()> {
    let message = serde_json::to_vec(message)?;
    let mut head = [length(message.len())?, length(body.len())?].concat();
    head.extend(message);
    stream.write_all(&head).await?;
    stream.write_all(body).await
}

/// Receives a message and its body.
pub(crate) async fn receive<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<(T, SecretBytes)> {
    let message = stream.read_u32().await?;
    let body = stream.read_u32().await?;
    let message = read(stream, bounded(message, MESSAGE)?).await?;
    let body = read(stream, bounded(body, OUTPUT)?).await?;
    let message = serde_json::from_slice(message.expose())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no message that we know"))?;
    Ok((message, body))
}

async fn read(stream: &mut (impl AsyncRead + Unpin), length: usize) -> io::Result<SecretBytes> {
    /// Wiped as well if the rest does not come.
    struct Part(Vec<u8>);

    impl Drop for Part {
        fn drop(&mut self) {
            drop(SecretBytes::from(mem::take(&mut self.0)));
        }
    }

    // It never grows, so no copy of a credential stays behind.
    let mut part = Part(vec![0; length]);
    stream.read_exact(&mut part.0).await?;
    Ok(SecretBytes::from(mem::take(&mut part.0)))
}

fn length(length: usize) -> io::Result<[u8; 4]> {
    let length = u32::try_from(length);
    Ok(length.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?.to_be_bytes())
}

fn bounded(length: u32, most: usize) -> io::Result<usize> {
    let length = usize::try_from(length).ok().filter(|&length| length <= most);
    length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_frame_arrives_however_it_is_cut() {
        for room in [1, 2, 7, 4096] {
            let (mut one, mut other) = tokio::io::duplex(room);
            let report = Report::Failed(Failure { code: 7, message: "no".to_owned() });
            let (sent, received) =
                tokio::join!(send(&mut one, &report, b"body"), receive::<Report>(&mut other));
            sent.unwrap();
            let (report, body) = received.unwrap();
            assert!(matches!(report, Report::Failed(failure) if failure.code == 7));
            assert_eq!(body.expose(), b"body");
        }
    }

    /// A length beyond the bounds is refused before there is memory for it.
    #[tokio::test]
    async fn frames_that_make_no_sense_are_errors() {
        for bytes in [
            &b"\xff\xff\xff\xff\0\0\0\0"[..],
            b"\0\0\0\x02\xff\xff\xff\xff{}",
            b"\0\0\0\x02\0\0\0\0{}",
            b"\0\0\0\x09\0\0\0\0{\"type\":1",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\0\0",
            b"",
        ] {
            assert!(receive::<Request>(&mut &*bytes).await.is_err(), "{bytes:?}");
        }
    }
}
