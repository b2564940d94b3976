//! What a runtime finds when it is started: its run directory, and what the one before it left there.

use std::{
    fs, io,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{OpenOptionsExt, PermissionsExt},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use rustix::mount::MountFlags;
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use waybill_core::chain::Chain;

use super::{
    Engine, Entry, Patience, Result, blocking,
    container::mourn,
    io_error,
    lifecycle::{make_directory, remove_files, spawner_error},
    silent::end_monitor,
};
use crate::engine::{
    Spawner, State,
    cgroup::{Cgroup, Hierarchies},
    client::{Client, Heard},
    message::FromMonitor,
    record::{self, ContainerFile},
    wire::Reader,
};

const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Held by a spawner for as long as it lives.
const SPAWNER_LOCK: &str = "spawner.lock";
/// How long the one before may take to end, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);
/// Where in the run directory the records of attach sessions are.
pub(super) const ATTACH_SESSIONS: &str = "attach-sessions";

/// Makes the run directory, for its owner only and on a tmpfs.
pub(super) fn prepare(run_dir: &Path) -> Result<(PathBuf, Hierarchies)> {
    let hierarchies =
        Hierarchies::detect().map_err(io_error("use", Path::new("/sys/fs/cgroup")))?;
    let failed = |action| move |error: io::Error| io_error(action, run_dir)(error);
    make_directory(run_dir).map_err(failed("make"))?;
    let run_dir_path = run_dir.canonicalize().map_err(failed("find"))?;
    mount_tmpfs(&run_dir_path).map_err(failed("mount a tmpfs at"))?;
    fs::set_permissions(&run_dir_path, fs::Permissions::from_mode(0o700))
        .map_err(failed("close to others"))?;
    for below in ["sandboxes", "containers", "sessions", ATTACH_SESSIONS] {
        make_directory(&run_dir_path.join(below)).map_err(failed("make a directory in"))?;
    }
    Ok((run_dir_path, hierarchies))
}

/// Waits until the spawner of the runtime before this one is gone, which may be about to make a sandbox or a monitor: what
/// it made after we looked would be left behind. Our own spawner gets the lock.
pub(super) fn take_over(run_dir: &Path, spawner: &Spawner) -> Result<()> {
    let path = run_dir.join(SPAWNER_LOCK);
    let failed = |error: io::Error| io_error("lock", &path)(error);
    let lock = fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    let end = Instant::now() + PATIENCE;
    while let Err(error) = lock.try_lock() {
        match error {
            fs::TryLockError::WouldBlock if Instant::now() < end => thread::sleep(PAUSE),
            error => return Err(failed(error.into())),
        }
    }
    spawner.hold(lock.into()).map_err(spawner_error)
}

fn mount_tmpfs(directory: &Path) -> io::Result<()> {
    let kind = rustix::fs::statfs(directory)?.f_type;
    if i128::from(kind) == i128::from(TMPFS_MAGIC) {
        return Ok(());
    }
    let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
    let mount = |options: &std::ffi::CStr| {
        rustix::mount::mount("waybill", directory, "tmpfs", flags, options)
    };
    // Kernels before 6.4 do not know `noswap`.
    mount(c"mode=0700,noswap").or_else(|_| mount(c"mode=0700"))?;
    Ok(())
}

impl Engine {
    /// Takes over what is in the run directory. Monitors that take their time are heard later: one that hangs must not keep
    /// the others from being served.
    pub(super) async fn recover(&self) -> Result<()> {
        let containers = self.run_dir.join("containers");
        let directories = fs::read_dir(&containers)
            .and_then(|entries| {
                entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()
            })
            .map_err(io_error("list", &containers))?;
        let mut entries = Vec::new();
        for directory in directories {
            entries.extend(self.recall_container(directory)?);
        }
        // Whose container is there may live: its monitor will tell.
        self.sessions
            .load(|session| self.state(&session.container).is_ok())
            .map_err(io_error("read the sessions in", &self.run_dir))?;
        self.attach_sessions
            .load()
            .map_err(io_error("read the attach sessions in", &self.run_dir))?;
        let greetings = entries.into_iter().map(|entry| self.greet(entry));
        let _ = timeout(self.patience.recovery, join_all(greetings)).await;
        Ok(())
    }

    /// What a directory says of a container. One that is not understood is noted as such, and left alone.
    fn recall_container(&self, directory: PathBuf) -> Result<Option<Arc<Entry>>> {
        let Some(id) = directory.file_name().and_then(|name| name.to_str()).map(str::to_owned)
        else {
            return Ok(None);
        };
        let record = directory.join(record::RECORD);
        let file: ContainerFile = match record::load(&record) {
            Ok(Some(file)) => file,
            Ok(None) => {
                // Left by somebody who was about to make or had removed a container.
                remove_files(&directory).map_err(io_error("remove", &directory))?;
                return Ok(None);
            }
            Err(error) => {
                let reason = format!("{}: {}", record.display(), Chain(&error));
                tracing::error!(
                    container = id,
                    reason,
                    "a container is not understood and left as it is"
                );
                self.unknown().insert(id, reason);
                return Ok(None);
            }
        };
        let Some(cgroup) = Cgroup::new(&self.hierarchies, &file.cgroup) else { return Ok(None) };
        let cgroup = cgroup.with_layout(file.layout());
        let entry = Entry::new(&id, directory, cgroup, file.made, self.patience, State::Silent);
        let entry = Arc::new(entry);
        self.entries().insert(id, Arc::clone(&entry));
        Ok(Some(entry))
    }

    /// Hears from a monitor how far its container is, and follows it from then on.
    fn greet(&self, entry: Arc<Entry>) -> JoinHandle<()> {
        let (engine, gone, patience) = (self.me.clone(), self.gone.clone(), self.patience);
        self.followers.spawn(async move {
            let word = tokio::select! {
                word = first_word(&entry, patience) => word,
                () = gone.cancelled() => return,
            };
            match word {
                Some((
                    Heard::Message(FromMonitor::Hello { state, sessions, .. }),
                    client,
                    reader,
                )) => {
                    let Some(engine) = engine.upgrade() else { return };
                    let client = Arc::new(client);
                    engine.sessions.lose_but(&entry.id, &sessions);
                    entry.connect(Arc::clone(&client));
                    entry.recall(state);
                    drop(engine.follow(entry, client, reader));
                }
                Some((heard @ (Heard::Newer { .. } | Heard::Garbage), ..)) => entry.mystify(&heard),
                Some((Heard::Message(_) | Heard::Gone, ..)) | None => mourn(&engine, &entry).await,
            }
        })
    }
}

/// Connects to a monitor and waits for its first word. `None` if it is gone; one that does not say a word is ended, since
/// nobody could tell what becomes of its container.
async fn first_word(entry: &Arc<Entry>, patience: Patience) -> Option<(Heard, Client, Reader)> {
    if entry.directory.join(record::EXIT).exists() {
        return None;
    }
    let word = async {
        let client = Client::new(connect(&entry.directory).await.ok()?).ok()?;
        let mut reader = Reader::default();
        Some((client.greeting(&mut reader).await, client, reader))
    };
    match timeout(patience.work, word).await {
        Ok(word) => word,
        Err(_) => {
            let silent = Arc::clone(entry);
            let _ = blocking(move || Ok(end_monitor(&silent.directory))).await;
            None
        }
    }
}

/// The path of a socket may be longer than an address can hold, so it is reached through its directory. Where so many wait
/// for a monitor that the kernel takes no more, tries again.
async fn connect(directory: &Path) -> io::Result<UnixStream> {
    let directory = fs::File::open(directory)?;
    let path = format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), record::MONITOR_SOCKET);
    loop {
        match tokio::net::UnixStream::connect(&path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(PAUSE).await,
            connected => return connected?.into_std(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

    use super::*;

    /// A stopped monitor accepts nobody. Once the kernel's queue was full, the thread that tried hung with it.
    #[tokio::test]
    async fn nobody_hangs_at_the_door_of_a_monitor_that_does_not_open() {
        let directory = tempfile::tempdir().unwrap();
        let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let path = directory.path().join(record::MONITOR_SOCKET);
        bind(&listener, &SocketAddrUnix::new(&*path).unwrap()).unwrap();
        listen(&listener, 0).unwrap();
        let _first = connect(directory.path()).await.unwrap();
        let second = timeout(Duration::from_millis(50), connect(directory.path())).await;
        assert!(second.is_err(), "it is waited for, and given up");
    }
}
