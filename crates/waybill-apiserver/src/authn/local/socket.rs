//! The Unix socket that hands out local tokens.
//!
//! The protocol: connect, read one `ExecCredential` until the end of the stream. The server reads
//! nothing, so there is no request to get wrong.
//!
//! The socket has mode 0666 in a directory of mode 0755, unlike our other sockets: every local user
//! may ask, and gets a token for itself only, because the kernel says who asks (`SO_PEERCRED`).
//! Processes in containers that share the host's user namespace are those users too: do not mount
//! the socket into containers.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    io::AsyncWriteExt,
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};
use waybill_core::{chain::Chain, secret::SecretBytes};

use super::{LocalTokens, unix_user::UnixUsers};
use crate::{
    audit::{
        AuditUnavailable, Lifetime, Recorder, RequestFacts, ResponseStatus, Unwritten, mint_id,
    },
    authn::jwt::JwtError,
    request::{Action, Target, User},
};

/// More callers than this wait in the listen queue of the kernel.
const MAX_CONNECTIONS: usize = 64;
/// A caller that does not read its answer is dropped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// After an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What the audit log calls it.
const URI: &str = "/login";

/// What time it is; a function so that tests decide.
pub(crate) type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The listening socket and its tasks, which end when this is dropped.
pub(crate) struct LocalSocket {
    path: PathBuf,
    inode: u64,
    /// Ends the listening.
    stop: CancellationToken,
    /// Ends answers under way.
    abort: CancellationToken,
    tasks: TaskTracker,
}

impl LocalSocket {
    /// Listens at `path`, replacing the socket of a server that is gone.
    pub(crate) fn bind(
        path: &Path,
        tokens: Arc<LocalTokens>,
        users: UnixUsers,
        recorder: Arc<Recorder>,
        clock: Clock,
    ) -> Result<Self, SocketError> {
        let at = |step| move |source| SocketError { step, path: path.to_owned(), source };
        if let Some(dir) = path.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(dir)
                .map_err(at("create the directory of"))?;
        }
        remove_stale(path).map_err(at("replace"))?;
        let listener = UnixListener::bind(path).map_err(at("listen at"))?;
        fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(at("open"))?;
        let inode = fs::metadata(path).map_err(at("inspect"))?.ino();
        let (stop, abort) = (CancellationToken::new(), CancellationToken::new());
        let tasks = TaskTracker::new();
        let server = Arc::new(Server { tokens, users, recorder, clock, abort: abort.clone() });
        let accept = server.accept(listener, tasks.clone());
        let listening = stop.clone();
        tasks.spawn(async move { listening.run_until_cancelled(accept).await });
        Ok(Self { path: path.to_owned(), inode, stop, abort, tasks })
    }

    /// Stops listening and waits for answers under way, each of which has little time.
    pub(crate) async fn close(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        self.stop.cancel();
        self.abort.cancel();
        // A successor may have taken the path already.
        if fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// A step on the socket that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} the local socket {}", path.display())]
pub(crate) struct SocketError {
    step: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

struct Server {
    tokens: Arc<LocalTokens>,
    users: UnixUsers,
    recorder: Arc<Recorder>,
    clock: Clock,
    abort: CancellationToken,
}

impl Server {
    async fn accept(self: Arc<Self>, listener: UnixListener, tasks: TaskTracker) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let slot = Arc::clone(&slots).acquire_owned().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    let server = Arc::clone(&self);
                    tasks.spawn(async move {
                        let _slot = slot;
                        let answer = timeout(ANSWER_TIMEOUT, server.answer(stream));
                        server.abort.run_until_cancelled(answer).await;
                    });
                }
                Err(error) => {
                    warn!(%error, "cannot accept on the local socket");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Closes without a word if the caller is nobody; the server's log says why.
    async fn answer(&self, mut stream: UnixStream) {
        let Ok(caller) = stream.peer_cred() else { return };
        let uid = caller.uid();
        let user = match self.users.find(uid).await {
            Ok(Some(user)) => user,
            Ok(None) => {
                warn!(uid, "no local token for a user of another user namespace");
                return;
            }
            Err(error) => {
                warn!(uid, error = %Chain(&error), "no local token for a user without a name");
                return;
            }
        };
        match self.issue(&user, caller.pid()).await {
            Ok(credential) => {
                debug!(user = user.name, pid = caller.pid(), "local token issued");
                let written = stream.write_all(credential.expose()).await;
                drop(written.and(stream.shutdown().await));
            }
            Err(error) => warn!(%error, "cannot issue a local token"),
        }
    }

    /// A token, which the audit log knows by its number before anybody has it.
    async fn issue(&self, user: &User, pid: Option<i32>) -> Result<SecretBytes, IssueError> {
        let issued = self.tokens.issue(user, (self.clock)())?;
        let mut audit = self
            .recorder
            .begin(RequestFacts {
                id: mint_id(),
                user: &issued.user,
                impersonated: None,
                action: &Action { verb: "login".to_owned(), target: Target::Path(URI.to_owned()) },
                uri: URI,
                source_ips: &[],
                user_agent: "",
                lifetime: Lifetime::Short,
            })
            .await?;
        if let Some(pid) = pid {
            audit.annotate("audit.waybill.dev/pid", &pid.to_string());
        }
        audit.allowed().await?;
        audit.complete(ResponseStatus::code(200)).await?;
        Ok(issued.credential)
    }
}

/// Why a user gets no token.
#[derive(Debug, thiserror::Error)]
enum IssueError {
    #[error(transparent)]
    Token(#[from] JwtError),
    #[error(transparent)]
    Unrecorded(#[from] AuditUnavailable),
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
}

/// Removes a socket that nobody listens at; leaves everything else to fail in `bind`.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        _ => return Ok(()),
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")),
        Err(_) => fs::remove_file(path),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::{audit::silent_recorder, authn::local::unix_user::AdminRule};

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    fn tokens() -> Arc<LocalTokens> {
        Arc::new(LocalTokens::new(Duration::from_secs(600)).unwrap())
    }

    fn bind(path: &Path, tokens: &Arc<LocalTokens>) -> Result<LocalSocket, SocketError> {
        let admins = AdminRule { server_uid: own_uid(), group: "system:masters".into() };
        let users = UnixUsers::new(admins);
        let recorder = Arc::new(silent_recorder());
        LocalSocket::bind(path, Arc::clone(tokens), users, recorder, Arc::new(now))
    }

    /// What `waybill login` does, which also waits while the queue of the kernel is full.
    async fn ask(path: &Path) -> io::Result<Vec<u8>> {
        let mut stream = loop {
            match UnixStream::connect(path).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::task::yield_now().await;
                }
                stream => break stream?,
            }
        };
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(answer)
    }

    fn own_uid() -> u32 {
        fs::metadata("/proc/self").unwrap().uid()
    }

    #[tokio::test]
    async fn the_current_user_gets_a_token_for_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/login.sock");
        let tokens = tokens();
        let socket = bind(&path, &tokens).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        assert_eq!(fs::metadata(dir.path().join("run")).unwrap().mode() & 0o777, 0o755);
        let value: Value = serde_json::from_slice(&ask(&path).await.unwrap()).unwrap();
        let user = tokens.verify(value["status"]["token"].as_str().unwrap(), now()).unwrap();
        assert_eq!(user.uid, own_uid().to_string());
        assert!(user.name.starts_with("unix:") && user.groups.contains(&"system:masters".into()));
        socket.close().await;
        assert!(!path.exists());
        assert!(ask(&path).await.is_err());
    }

    #[tokio::test]
    async fn many_ask_at_once_and_silent_ones_do_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("login.sock");
        let _socket = bind(&path, &tokens()).unwrap();
        let mut silent = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            silent.push(UnixStream::connect(&path).await.unwrap());
        }
        let asks = (0..200).map(|_| ask(&path));
        for answer in futures_util::future::join_all(asks).await {
            assert!(answer.is_ok_and(|answer| answer.ends_with(b"}")));
        }
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("login.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let tokens = tokens();
        let socket = bind(&path, &tokens).unwrap();
        assert!(bind(&path, &tokens).is_err());
        assert!(ask(&path).await.is_ok());
        drop(socket);
        assert!(!path.exists());
        fs::write(&path, "a file").unwrap();
        assert!(bind(&path, &tokens).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"a file");
    }
}
