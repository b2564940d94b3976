//! How drivers come to be known: each leaves a socket in one directory, and answers there who it is.
//!
//! This is the kubelet's own protocol, so registrars of stock drivers work. A directory is looked at
//! whenever the kernel says that something changed in it, and now and then in case it did not say.

mod plugin;

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::{
    net::unix::pipe::Receiver,
    time::{sleep, timeout},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tracing::{info, warn};
use waybill_core::chain::Chain;

use self::plugin::{RegistrationError, register};
use super::{connection::Socket, drivers::Drivers, error::shown};
use crate::retry::Pauses;

/// Between two looks that nobody asked for.
const LOOK: Duration = Duration::from_secs(10);
/// Before a plugin that could not be registered is asked again, at first and at last.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Registers the plugins of one directory.
pub(crate) struct Registry {
    directory: PathBuf,
    drivers: Arc<Drivers>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A socket that was found. Its plugin is being asked, or was registered.
struct Found {
    socket: Socket,
    _asking: DropGuard,
}

impl Registry {
    pub(crate) fn new(
        directory: &Path,
        drivers: Arc<Drivers>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        Self { directory: directory.to_owned(), drivers, tasks: tasks.clone(), stop: stop.clone() }
    }

    /// Follows the directory until the node stops.
    pub(crate) async fn run(self) {
        let mut found = HashMap::new();
        loop {
            // A new one each time, before the look: so no change is missed, and the directory may
            // have been made anew.
            let changes = watch(&self.directory);
            self.look(&mut found);
            match &changes {
                Ok(changes) => {
                    let _ = timeout(LOOK, changes.readable()).await;
                }
                Err(error) => {
                    let directory = self.directory.display();
                    warn!(%directory, %error, "drivers that register are noticed late");
                    sleep(LOOK).await;
                }
            }
        }
    }

    /// Begins with what is new, and forgets what is gone.
    fn look(&self, found: &mut HashMap<PathBuf, Found>) {
        let sockets = sockets(&self.directory);
        for (path, known) in found.extract_if(|_, known| !sockets.contains(&known.socket)) {
            // Nobody asks it any more once its name is free.
            drop(known);
            self.drivers.deregister(&path);
        }
        for socket in sockets {
            if found.contains_key(&socket.path) {
                continue;
            }
            let asking = self.stop.child_token();
            let ask = ask(socket.clone(), Arc::clone(&self.drivers));
            self.tasks.spawn(asking.clone().run_until_cancelled_owned(ask));
            let path = socket.path.clone();
            found.insert(path, Found { socket, _asking: asking.drop_guard() });
        }
    }
}

/// Asks a plugin until it is registered, and again when whoever displaced it is gone. None waits for
/// another.
async fn ask(socket: Socket, drivers: Arc<Drivers>) {
    let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let path = shown(&socket.path.to_string_lossy());
        match register(&socket, &drivers).await {
            Ok(driver) => {
                info!(%driver, %path, "a driver registered");
                pauses.reset();
                drivers.free(&driver).await;
            }
            Err(error) => {
                warn!(%path, error = %Chain(&error), "a plugin cannot be registered");
                let pause = sleep(pauses.next());
                match error {
                    RegistrationError::Taken { name, .. } => tokio::select! {
                        () = drivers.free(&name) => {}
                        () = pause => {}
                    },
                    _ => pause.await,
                }
            }
        }
    }
}

/// The sockets in a directory, but for hidden ones and those that others may have left there.
fn sockets(directory: &Path) -> Vec<Socket> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let visible = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    visible.filter_map(|entry| Socket::find_own(&entry.path())).collect()
}

/// Becomes readable when something changes in the directory. A pipe's end is what Tokio can wait for
/// without `unsafe`; nothing is read from it.
fn watch(directory: &Path) -> io::Result<Receiver> {
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let changes = WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::ONLYDIR;
    inotify::add_watch(&watch, directory, changes)?;
    Receiver::from_owned_fd_unchecked(watch)
}

#[cfg(test)]
mod tests;
