//! The Unix socket that hands out local tokens.
//!
//! The protocol: connect, read one `ExecCredential` until the end of the stream, or a `Status` that says why there is
//! none. The server reads nothing, so there is no request to get wrong.
//!
//! A token that is not on record is given to nobody. Who asks more often than the audit log has room for gets the last one
//! again that is.
//!
//! The socket has mode 0666 in a directory of mode 0755, unlike our other sockets: every local user
//! may ask, and gets a token for itself only, because the kernel says who asks (`SO_PEERCRED`).
//! Processes in containers that share the host's user namespace are those users too: do not mount
//! the socket into containers.

use std::{
    collections::HashMap,
    fs::{self, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::json;
use tokio::{
    io::AsyncWriteExt,
    net::{UnixListener, UnixStream, unix::UCred},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};
use waybill_core::chain::Chain;

use super::{Issued, LocalTokens, name_service::NameServiceError, unix_user::UnixUsers};
use crate::{
    audit::{
        AuditUnavailable, Lifetime, Recorder, RequestFacts, ResponseStatus, Unwritten, mint_id,
    },
    authn::jwt::JwtError,
    clock::Clock,
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
        let given = Mutex::default();
        let server = Server { tokens, users, recorder, clock, given, abort: abort.clone() };
        let server = Arc::new(server);
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
    /// The last token of each user.
    given: Mutex<HashMap<u32, Arc<Issued>>>,
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

    async fn answer(&self, mut stream: UnixStream) {
        let Ok(caller) = stream.peer_cred() else { return };
        let answer = match self.login(caller).await {
            Ok(issued) => {
                debug!(user = issued.user.name, pid = caller.pid(), "local token issued");
                stream.write_all(issued.credential.expose()).await
            }
            Err(error) => {
                warn!(uid = caller.uid(), error = %Chain(&error), "no local token");
                stream.write_all(refusal(&error).as_bytes()).await
            }
        };
        drop(answer.and(stream.shutdown().await));
    }

    async fn login(&self, caller: UCred) -> Result<Arc<Issued>, LoginRefused> {
        let user = self.users.find(caller.uid()).await?.ok_or(LoginRefused::Nobody)?;
        match self.issue(&user, caller.pid()).await {
            Ok(issued) => {
                let issued = Arc::new(issued);
                self.given().insert(caller.uid(), Arc::clone(&issued));
                Ok(issued)
            }
            Err(error @ (LoginRefused::Unrecorded(_) | LoginRefused::Unwritten(_))) => {
                let last = self.given().get(&caller.uid()).map(Arc::clone);
                last.filter(|last| last.is_of(&user)).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// A token, which the audit log knows by its number before anybody has it.
    async fn issue(&self, user: &User, pid: Option<i32>) -> Result<Issued, LoginRefused> {
        let issued = self.tokens.issue(user, (self.clock)())?;
        let mut audit = self
            .recorder
            .begin(RequestFacts {
                id: mint_id(),
                user: &issued.user,
                impersonated: None,
                action: &Action { verb: "login".to_owned(), target: Target::Path(URI.to_owned()) },
                decision: None,
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
        Ok(issued)
    }

    /// What was given and still has some of its life before it.
    fn given(&self) -> MutexGuard<'_, HashMap<u32, Arc<Issued>>> {
        // Each change is a single operation of the map.
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let now = (self.clock)();
        given.retain(|_, issued| now < issued.half_life);
        given
    }
}

/// Why a user gets no token.
#[derive(Debug, thiserror::Error)]
enum LoginRefused {
    #[error("you are a user of another user namespace, who may be anybody")]
    Nobody,
    #[error("nobody can say who you are at the moment; try again later")]
    Nameless(#[from] NameServiceError),
    #[error("the token cannot be made")]
    Token(#[from] JwtError),
    #[error("the login cannot be recorded; try again later")]
    Unrecorded(#[from] AuditUnavailable),
    #[error("the login cannot be recorded; try again later")]
    Unwritten(#[from] Unwritten),
}

/// What the caller is told; the server's log also has the cause.
fn refusal(error: &LoginRefused) -> String {
    let message = error.to_string();
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message})
        .to_string()
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
    use std::collections::BTreeSet;

    use serde_json::Value;
    use tokio::io::AsyncReadExt;

    use jiff::Timestamp;

    use super::*;
    use crate::{
        audit::{memory_recorder, silent_recorder},
        authn::{CREDENTIAL_ID, local::unix_user::AdminRule},
    };

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    fn tokens() -> Arc<LocalTokens> {
        Arc::new(LocalTokens::new(Duration::from_secs(600)).unwrap())
    }

    fn bind(path: &Path, tokens: &Arc<LocalTokens>) -> Result<LocalSocket, SocketError> {
        bind_with(path, tokens, silent_recorder())
    }

    fn bind_with(
        path: &Path,
        tokens: &Arc<LocalTokens>,
        recorder: Recorder,
    ) -> Result<LocalSocket, SocketError> {
        let admins = AdminRule { server_uid: own_uid(), group: "system:masters".into() };
        let (users, recorder) = (UnixUsers::new(admins), Arc::new(recorder));
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

    /// Hole: who had logged in a thousand times got further tokens of which the log knew nothing.
    #[tokio::test]
    async fn a_token_that_is_not_on_record_is_given_to_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("login.sock");
        let tokens = tokens();
        let (recorder, log) = memory_recorder(Arc::new(now));
        let socket = bind_with(&path, &tokens, recorder).unwrap();
        let mut given = BTreeSet::new();
        for _ in 0..1_200 {
            let answer: Value = serde_json::from_slice(&ask(&path).await.unwrap()).unwrap();
            let user = tokens.verify(answer["status"]["token"].as_str().unwrap(), now()).unwrap();
            given.insert(user.extra[CREDENTIAL_ID][0].clone());
        }
        socket.close().await;
        assert!(given.len() < 1_100, "who asks too often gets the last one again: {}", given.len());
        let text = log.text();
        for number in given {
            assert!(text.contains(&number), "{number} was given and is not on record");
        }
        assert!(text.contains("are left out, because they are too many"), "nor is how many");
    }

    #[tokio::test]
    async fn who_asks_too_often_for_tokens_that_do_not_last_is_told_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("login.sock");
        let short_lived = Arc::new(LocalTokens::new(Duration::ZERO).unwrap());
        let (recorder, _) = memory_recorder(Arc::new(now));
        let _socket = bind_with(&path, &short_lived, recorder).unwrap();
        let mut kinds = BTreeSet::new();
        let mut last = Value::Null;
        for _ in 0..1_200 {
            last = serde_json::from_slice(&ask(&path).await.unwrap()).unwrap();
            kinds.insert(last["kind"].as_str().unwrap().to_owned());
        }
        assert_eq!(kinds.len(), 2, "{kinds:?}");
        assert_eq!(last["kind"], "Status");
        assert_eq!(last["message"], "the login cannot be recorded; try again later");
    }
}
