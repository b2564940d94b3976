//! The agent: one process for each user, started by the first client, gone when it holds nothing.

use std::{
    io,
    os::{fd::AsFd, unix::net},
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::{
    mm::{MlockAllFlags, mlockall},
    net::sockopt::socket_acceptconn,
    process::{
        DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, setsid,
    },
};
use tokio::{
    io::AsyncReadExt,
    net::{UnixListener, UnixStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, interval, sleep, timeout},
};

use super::{
    place::is_of_this_user,
    store::{Decision, Store},
    wire::{Ask, Listing, Reply, Report, Request, receive, send},
};
use crate::Clock;

/// A client says what it wants at once, except on a machine that is very busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// Beyond it clients are turned away, and run their plugins as if there were no agent.
const CONNECTIONS: usize = 512;

/// How often is looked for what has come to its end.
const SWEEP: Duration = Duration::from_secs(5);

/// Serves as the agent of this user on standard input, which is the socket, until there is nothing to hold any more.
///
/// It must be the first thing that a process does: it closes all other descriptors.
pub fn serve(clock: Arc<dyn Clock>) -> Result<(), AgentStartError> {
    let stdin = io::stdin();
    if !socket_acceptconn(stdin.as_fd()).unwrap_or(false) {
        return Err(AgentStartError::NoSocket);
    }
    close_descriptors().map_err(AgentStartError::Prepare)?;
    let locked = keep_to_itself().map_err(AgentStartError::Prepare)?;
    let listener = stdin.as_fd().try_clone_to_owned().map_err(AgentStartError::Prepare)?;
    let listener = net::UnixListener::from(listener);
    listener.set_nonblocking(true).map_err(AgentStartError::Prepare)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(AgentStartError::Prepare)?.block_on(async {
        let listener = UnixListener::from_std(listener).map_err(AgentStartError::Prepare)?;
        Agent::new(clock, locked).serve(&listener).await;
        Ok(())
    })
}

/// Why there is no agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentStartError {
    /// Somebody typed the command.
    #[error("the agent is started by `waybill credential cache`, never by hand")]
    NoSocket,
    /// A protection is not to be had.
    #[error("the agent cannot protect what it would hold")]
    Prepare(#[source] io::Error),
}

/// What a client inherited from its own starter would stay open as long as we live, and somebody may wait for its end.
fn close_descriptors() -> io::Result<()> {
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&descriptor| descriptor > 2)
        .collect();
    for descriptor in open {
        // The one for the list itself is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}

/// No terminal, no debugger, no core dump and, if the kernel lets us, no swap. Says whether it did.
fn keep_to_itself() -> io::Result<bool> {
    // It was started as `/proc/self/exe`.
    rustix::thread::set_name(c"waybill-agent")?;
    setsid()?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let limit = getrlimit(Resource::Memlock);
    let _ = setrlimit(Resource::Memlock, Rlimit { current: limit.maximum, ..limit });
    // With a limit, memory could be refused later, and the agent would end in the middle of something. Root has none.
    let unlimited = limit.maximum.is_none() || rustix::process::geteuid().is_root();
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    Ok(unlimited && mlockall(flags).is_ok())
}

struct Agent {
    store: Mutex<Store>,
    /// Something has changed for those who wait.
    changed: watch::Sender<()>,
    clock: Arc<dyn Clock>,
    locked: bool,
}

impl Agent {
    fn new(clock: Arc<dyn Clock>, locked: bool) -> Arc<Self> {
        let changed = watch::Sender::new(());
        Arc::new(Self { store: Mutex::default(), changed, clock, locked })
    }

    /// Until nothing is held and nobody is there. Whoever connects in the last moment is not heard, and starts the next agent.
    async fn serve(self: Arc<Self>, listener: &UnixListener) {
        let mut connections = JoinSet::new();
        let mut sweep = interval(SWEEP);
        let mut quiet_since = Instant::now();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) if connections.len() < CONNECTIONS => {
                        connections.spawn(Arc::clone(&self).attend(stream));
                    }
                    Ok(_) => {}
                    // Out of descriptors, for example.
                    Err(_) => sleep(Duration::from_millis(100)).await,
                },
                Some(_) = connections.join_next() => {}
                _ = sweep.tick() => self.lock().sweep(self.clock.now()),
            }
            if !self.lock().is_empty() || !connections.is_empty() {
                quiet_since = Instant::now();
            } else if quiet_since.elapsed() >= SWEEP {
                return;
            }
        }
    }

    /// One client. Errors end the connection, and it knows what to do then.
    async fn attend(self: Arc<Self>, mut stream: UnixStream) -> io::Result<()> {
        is_of_this_user(&stream)?;
        let (request, _) = timeout(PATIENCE, receive(&mut stream)).await??;
        match request {
            Request::Ask(ask) => self.answer(&ask, &mut stream).await,
            Request::List => {
                let held = self.lock().list();
                let listing = Listing { pid: process::id(), locked: self.locked, held };
                send(&mut stream, &Reply::Listing(listing), &[]).await
            }
            Request::Forget { plugin } => {
                let count = self.lock().forget(plugin.as_deref());
                send(&mut stream, &Reply::Forgot { count }, &[]).await
            }
        }
    }

    async fn answer(&self, ask: &Ask, stream: &mut UnixStream) -> io::Result<()> {
        let pid = stream.peer_cred()?.pid().unwrap_or_default();
        let mut changes = self.changed.subscribe();
        let mut waited = None;
        loop {
            let decision = self.lock().decide(ask, pid, waited, self.clock.now());
            match decision {
                Decision::Have(answer) => return send(stream, &Reply::Have, answer.expose()).await,
                Decision::Failed(failure) => {
                    return send(stream, &Reply::Failed(failure), &[]).await;
                }
                Decision::Run(lease) => {
                    let lease = LeaseGuard { agent: self, ask, lease };
                    send(stream, &Reply::Run, &[]).await?;
                    return lease.wait_for_report(stream).await;
                }
                Decision::Renew(lease, answer) => {
                    let lease = LeaseGuard { agent: self, ask, lease };
                    send(stream, &Reply::Renew, answer.expose()).await?;
                    return lease.wait_for_report(stream).await;
                }
                Decision::Wait(lease, holder) => {
                    if waited.replace(lease) != Some(lease) {
                        send(stream, &Reply::Wait(holder), &[]).await?;
                    }
                    tokio::select! {
                        _ = changes.changed() => {}
                        // It says nothing more, so it is gone.
                        _ = stream.read_u8() => return Ok(()),
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        // Nothing panics while it is held.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody runs the plugin. Without a report they are gone, and the next may try.
struct LeaseGuard<'a> {
    agent: &'a Agent,
    ask: &'a Ask,
    lease: u64,
}

impl LeaseGuard<'_> {
    /// For as long as it takes: a person may be typing.
    async fn wait_for_report(self, stream: &mut UnixStream) -> io::Result<()> {
        let (report, printed) = receive(stream).await?;
        let (agent, ask, lease) = (self.agent, self.ask, self.lease);
        match report {
            Report::Printed => agent.lock().printed(ask, lease, printed, agent.clock.now()),
            Report::Failed(failure) => agent.lock().failed(ask, lease, failure),
        }
        send(stream, &Reply::Noted, &[]).await
    }
}

impl Drop for LeaseGuard<'_> {
    fn drop(&mut self) {
        self.agent.lock().abandoned(self.ask, self.lease);
        self.agent.changed.send_replace(());
    }
}

#[cfg(test)]
mod tests;
