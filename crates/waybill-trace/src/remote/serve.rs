//! The socket of the record, beside the collector and apart from it: a thread of its own, so that readers never keep events waiting.
//!
//! One line asks, the query of [`TraceOptions`]; one word answers whether there is an answer, and then come its lines. Root and the
//! collector's own user may ask; who else may is decided by whoever asks for them, the node.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::{UnixListener as StdListener, UnixStream as StdStream},
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    net::{UnixListener, UnixStream},
    runtime::Handle,
    sync::Semaphore,
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use waybill_api::trace::{TRACE_BUSY, TRACE_GRANTED, TRACE_REFUSED, TraceOptions};

use super::answer::Answering;
use crate::record::SessionQuery;

/// So many may read at once.
const READERS: usize = 4;

/// A query is shorter, with all its texts escaped.
const LONGEST: u64 = 64 << 10;

/// Who asks has the question ready.
const ASKING: Duration = Duration::from_secs(5);

/// A reader that takes nothing for so long is gone.
const TAKING: Duration = Duration::from_secs(30);

/// How long readers may go on when the collector ends.
const ENDING: Duration = Duration::from_secs(1);

/// How long to wait after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(200);

/// What is served, and where.
#[derive(Clone, Debug)]
pub struct RecordServerConfig {
    /// The socket.
    pub socket: PathBuf,
    /// Where the record is.
    pub directory: PathBuf,
    /// The runtime's socket.
    pub runtime: PathBuf,
    /// The audit log of an API server on this machine, if there is one.
    pub audit_log: Option<PathBuf>,
}

/// Serves a record. Dropping it ends that.
#[derive(Debug)]
pub struct RecordServer {
    socket: PathBuf,
    stop: CancellationToken,
    thread: Option<thread::JoinHandle<()>>,
}

impl RecordServer {
    /// Listens, and serves until it is dropped.
    pub fn start(config: RecordServerConfig) -> io::Result<Self> {
        let listener = bind(&config.socket)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(READERS + 1)
            .build()?;
        let (socket, stop) = (config.socket.clone(), CancellationToken::new());
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("record".to_owned()).spawn(move || {
            runtime.block_on(async {
                match UnixListener::from_std(listener) {
                    Ok(listener) => accept(&listener, Arc::new(config), &stopped).await,
                    Err(error) => warn!(%error, "the record is not served"),
                }
            });
            runtime.shutdown_timeout(ENDING);
        })?;
        Ok(Self { socket, stop, thread: Some(thread) })
    }
}

impl Drop for RecordServer {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // It says itself what goes wrong.
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.socket);
    }
}

/// In the place of one that is not served any more.
fn bind(path: &Path) -> io::Result<StdListener> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            let what = "there is something that is not a socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        Ok(_) if StdStream::connect(path).is_ok() => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process serves there"));
        }
        Ok(_) => fs::remove_file(path)?,
    }
    // The mode comes from the umask, which may change meanwhile: it is made beside, closed, and only then gets its name.
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let listener = StdListener::bind(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
    fs::rename(&new, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn accept(
    listener: &UnixListener,
    config: Arc<RecordServerConfig>,
    stop: &CancellationToken,
) {
    let readers = Arc::new(Semaphore::new(READERS));
    let owner = rustix::process::geteuid().as_raw();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let connection = match accepted {
            Ok((connection, _)) => connection,
            Err(error) => {
                warn!(%error, "cannot accept a reader of the record");
                sleep(PAUSE).await;
                continue;
            }
        };
        match connection.peer_cred() {
            Ok(peer) if peer.uid() == 0 || peer.uid() == owner => {}
            Ok(peer) => {
                warn!(uid = peer.uid(), pid = peer.pid(), "a stranger may not read the record");
                continue;
            }
            Err(_) => continue,
        }
        let permit = Arc::clone(&readers).try_acquire_owned().ok();
        let (config, stop) = (Arc::clone(&config), stop.clone());
        // For as long as the runtime of this thread lives; each has its limits.
        drop(tokio::task::spawn_blocking(move || {
            let read = read(connection, permit.is_some(), &config, &stop);
            drop(permit);
            if let Err(error) = read {
                debug!(%error, "a reader of the record is gone");
            }
        }));
    }
}

/// One reader.
fn read(
    connection: UnixStream,
    has_room: bool,
    config: &RecordServerConfig,
    stop: &CancellationToken,
) -> io::Result<()> {
    let connection = connection.into_std()?;
    connection.set_nonblocking(false)?;
    connection.set_read_timeout(Some(ASKING))?;
    connection.set_write_timeout(Some(TAKING))?;
    let mut line = String::new();
    BufReader::new((&connection).take(LONGEST)).read_line(&mut line)?;
    let mut output = io::BufWriter::with_capacity(64 << 10, &connection);
    match query(line.trim_end_matches('\n')) {
        _ if !has_room => {
            writeln!(output, "{TRACE_BUSY}others read the record now; try again later")?;
        }
        Err(reason) => writeln!(output, "{TRACE_REFUSED}{reason}")?,
        Ok((options, query)) => {
            writeln!(output, "{TRACE_GRANTED}")?;
            Answering::new(config, &options, query, stop, Handle::current()).write(&mut output)?;
        }
    }
    output.flush()
}

/// What a line asks for.
fn query(line: &str) -> Result<(TraceOptions, SessionQuery), String> {
    let options = TraceOptions::from_query(line).map_err(|error| error.to_string())?;
    let time = |name: &str, text: &Option<String>| {
        let time = text.as_ref().map(|text| text.parse::<Timestamp>());
        time.transpose().map_err(|_| format!("{name} is not a time of RFC 3339"))
    };
    let query = SessionQuery {
        user: options.user.clone(),
        pod: options.pod.clone(),
        namespace: options.namespace.clone(),
        since: time("since", &options.since)?,
        until: time("until", &options.until)?,
        command: options.command.clone(),
        variable: options.variable.clone(),
        pid: options.pid,
        session: options.session.clone(),
        text: None,
        probes: options.probes,
        limit: None,
    };
    Ok((options, query))
}

#[cfg(test)]
mod tests;
