//! The socket on which the runtime serves, and its start and stop.
//!
//! Whoever may connect is root on this machine: the socket is for its owner only, and the kernel says
//! who calls.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::stream;
use rustix::process::{DumpableBehavior, Resource, getrlimit, set_dumpable_behavior};
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport;
use tracing::{info, warn};
use waybill_core::chain::Chain;
use waybill_proto::{
    cri::{image_service_server::ImageServiceServer, runtime_service_server::RuntimeServiceServer},
    runtime::{images_server::ImagesServer, sessions_server::SessionsServer},
};
use waybill_stream::open_connections::MostConnections;

use super::{
    Clock, Cri,
    authority::Caller,
    deadline::Deadlines,
    error::CriError,
    events::Events,
    image::ImageService,
    image_transfer::ImageTransfer,
    machine::{self, Machine},
    service::Runtime,
    sessions::SessionService,
    stats::Samples,
    status::Network,
    store::Store,
};
use crate::{
    engine::{Engine, EngineError, Spawner},
    image::{ImageError, Images},
    streaming::{Limits, Streaming},
};

/// As large as kubelets send and take.
const MESSAGE_BYTES: usize = 16 << 20;
/// After an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What requests under way may take when the runtime stops.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// How a runtime runs.
#[derive(Clone)]
pub struct Config {
    /// Path of the Unix socket.
    pub listen: PathBuf,
    /// For images and what containers write; on disk.
    pub state_dir: PathBuf,
    /// For all that must not outlive the machine; a tmpfs is mounted here if there is none.
    pub run_dir: PathBuf,
    /// Where clients of exec, attach and port-forward connect; port 0 takes a free one.
    pub streaming_address: SocketAddr,
    /// Variables that every exec session gets, over all others (EXEC-05).
    pub exec_env: Vec<(String, Vec<u8>)>,
    /// How many files containers may open; without it as many as this process.
    pub container_open_files: Option<OpenFiles>,
    /// What a container gets whose request names no seccomp profile.
    pub unset_seccomp_profile: UnsetSeccompProfile,
    /// What time it is.
    pub clock: Clock,
}

/// A limit of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// What counts.
    pub soft: u64,
    /// How far a process may raise it by itself.
    pub hard: u64,
}

/// What a request without a seccomp profile means. Our node always names one; stock kubelets without `seccompDefault` do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnsetSeccompProfile {
    /// Confined, as every container of ours that does not say otherwise.
    #[default]
    RuntimeDefault,
    /// As containerd and CRI's own validation suite read it.
    Unconfined,
}

/// A running runtime. Containers go on when it stops.
pub struct Server {
    cri: Arc<Cri>,
    listen: PathBuf,
    serving: JoinHandle<Result<(), transport::Error>>,
}

/// Why a runtime cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The engine cannot start.
    #[error("cannot start the engine")]
    Engine(#[from] EngineError),
    /// The image store cannot be opened.
    #[error("cannot open the image store")]
    Images(#[from] ImageError),
    /// What an earlier runtime left cannot be read.
    #[error("cannot continue with what an earlier runtime left")]
    Recover(#[from] CriError),
    /// A path or an address cannot be used.
    #[error("cannot {action} {place}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// A path or an address.
        place: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Whether pods can have users of their own, by having some.
async fn try_user_namespaces(engine: &Engine, images: &Images) -> Result<(), String> {
    machine::maps_layers()?;
    let tried = engine.check_user_namespaces(images.layers_path()).await;
    tried.map_err(|error| Chain(&error).to_string())
}

impl Server {
    /// Takes over what an earlier runtime left, and serves.
    pub async fn start(config: Config, spawner: Spawner) -> Result<Self, ServerError> {
        let at = |action, place: String| move |source| ServerError::Io { action, place, source };
        // The variables of sessions wait in our memory: no debugger and no core dump.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(|error| at("hide", "our memory".to_owned())(error.into()))?;
        let listen = config.listen.clone();
        let path = |path: &Path| path.display().to_string();
        fs::create_dir_all(&config.state_dir)
            .map_err(at("make the state directory", path(&config.state_dir)))?;
        let state_dir = fs::canonicalize(&config.state_dir)
            .map_err(at("find the state directory", path(&config.state_dir)))?;
        let images = Images::open(&state_dir)?;
        let history = state_dir.join("history");
        let engine = Engine::with_history(spawner, config.run_dir.clone(), history).await?;
        let run_dir = fs::canonicalize(&config.run_dir)
            .map_err(at("find the run directory", path(&config.run_dir)))?;
        let address = config.streaming_address;
        let open_files = getrlimit(Resource::Nofile).current;
        let limits =
            Limits { connections: MostConnections::within(open_files), ..Limits::default() };
        let streaming = Streaming::bind(address, Arc::clone(&engine), limits)
            .await
            .map_err(at("listen for streams at", address.to_string()))?;
        if !engine.guards_devices() {
            warn!("this kernel guards no devices for us: no container may make nodes of them");
        }
        let user_namespaces = try_user_namespaces(&engine, &images).await;
        if let Err(reason) = &user_namespaces {
            warn!(reason, "no pod can have a user namespace");
        }
        let cri = Arc::new(Cri {
            machine: Machine {
                user_namespaces,
                container_open_files: config.container_open_files,
                unset_seccomp_profile: config.unset_seccomp_profile,
                ..Machine::look_up(engine.guards_devices())
            },
            engine,
            images,
            streaming,
            store: Store::default(),
            events: Events::default(),
            samples: Samples::default(),
            network: Network::default(),
            run_dir,
            state_dir,
            exec_env: config.exec_env,
            clock: config.clock,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        cri.recover().await?;
        let listener = bind(&listen).map_err(at("listen at", path(&listen)))?;
        cri.tasks.spawn(Arc::clone(&cri).watch_exits());
        cri.tasks.spawn(Arc::clone(&cri).watch_spawner());
        cri.tasks.spawn(Arc::clone(&cri.streaming).serve(cri.stop.clone()));
        let serving = cri.tasks.spawn(serve(Arc::clone(&cri), listener));
        info!(socket = %listen.display(), streaming = %cri.streaming.address(), "serving");
        Ok(Self { cri, listen, serving })
    }

    /// Where clients of streams connect.
    pub fn streaming_address(&self) -> SocketAddr {
        self.cri.streaming.address()
    }

    /// Ends when the server fails; never, if all is well.
    pub async fn failed(&mut self) -> String {
        match (&mut self.serving).await {
            Ok(Ok(())) => "the server ended".to_owned(),
            Ok(Err(error)) => Chain(&error).to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Accepts nothing new, lets requests under way end for a while, and ends. Containers go on.
    pub async fn stop(self) {
        self.cri.stop.cancel();
        self.cri.tasks.close();
        if timeout(STOP_LIMIT, self.cri.tasks.wait()).await.is_err() {
            warn!("requests under way are given up");
        }
        if let Err(error) = fs::remove_file(&self.listen) {
            warn!(socket = %self.listen.display(), %error, "the socket is left");
        }
    }
}

/// Listens at `path` for its owner only, in place of a runtime that is gone.
fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            let what = "there is something that is not a socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        Ok(_) => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "another process serves there",
                ));
            }
            fs::remove_file(path)?;
        }
    }
    // The kernel takes the mode of a socket from the umask, which is not ours alone to change; so
    // it is made beside, closed, and only then gets its name.
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
    fs::rename(&new, path)?;
    Ok(listener)
}

async fn serve(cri: Arc<Cri>, listener: UnixListener) -> Result<(), transport::Error> {
    let stop = cri.stop.clone();
    let owner = rustix::process::geteuid().as_raw();
    let connections = stream::unfold(listener, move |listener| async move {
        let connection = accept(&listener, owner).await;
        Some((Ok::<_, io::Error>(Caller::new(connection)), listener))
    });
    let runtime = RuntimeServiceServer::new(Runtime(Arc::clone(&cri)))
        .max_decoding_message_size(MESSAGE_BYTES);
    let images = ImageService::new(cri.images.clone(), Arc::clone(&cri.clock), cri.tasks.clone());
    let images = ImageServiceServer::new(images).max_decoding_message_size(MESSAGE_BYTES);
    let transfer = ImageTransfer::new(cri.images.clone(), cri.tasks.clone());
    transport::Server::builder()
        .layer(Deadlines)
        .add_service(runtime)
        .add_service(images)
        .add_service(ImagesServer::new(transfer))
        .add_service(SessionsServer::new(SessionService(cri)))
        .serve_with_incoming_shutdown(connections, stop.cancelled_owned())
        .await
}

/// The next connection of somebody who may.
async fn accept(listener: &UnixListener, owner: u32) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((connection, _)) => match connection.peer_cred() {
                Ok(peer) if peer.uid() == 0 || peer.uid() == owner => return connection,
                Ok(peer) => warn!(uid = peer.uid(), pid = peer.pid(), "a stranger was refused"),
                Err(error) => warn!(%error, "a caller whom the kernel does not name was refused"),
            },
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_socket_is_for_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/runtime.sock");
        let first = bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        bind(&path).unwrap();
    }

    #[tokio::test]
    async fn what_is_not_a_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runtime.sock");
        fs::write(&path, "precious").unwrap();
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
