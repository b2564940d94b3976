//! Monitors that live and do not answer, because somebody stopped them or they hang.
//!
//! Nothing is done to a container because its monitor is slow: what was asked fails after its time. Only when the
//! container is to end, or a runtime that came back cannot learn how far it is, the monitor is ended, and the container is told
//! to be one whose monitor is lost.

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::timeout;

use super::{Engine, Entry, Result, blocking, container, io_error};
use crate::engine::{Exit, message::Request, record};

/// How long monitors may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// To answer what needs nobody else.
    pub answer: Duration,
    /// To make or start something, and to say the first word to a runtime that came back.
    pub work: Duration,
    /// All of them together, before a runtime that came back serves without the first word of some.
    pub recovery: Duration,
    /// To tell of the end of a container that was killed.
    pub end: Duration,
}

impl Default for Patience {
    /// For machines that have much else to do.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { answer: seconds(30), work: seconds(120), recovery: seconds(10), end: seconds(20) }
    }
}

impl Patience {
    pub(super) fn with(self, request: &Request) -> Duration {
        match request {
            Request::Create(_) | Request::Start | Request::Exec(_) => self.work,
            Request::Signal { .. } | Request::Attach { .. } | Request::ReopenLog => self.answer,
        }
    }
}

impl Engine {
    pub(super) async fn wait_for_killed(&self, id: &str) -> Result<Exit> {
        let entry = self.entry(id)?;
        match timeout(self.patience.end, self.wait(id)).await {
            Ok(exit) => return exit,
            Err(_) => self.end_silent(&entry).await?,
        }
        // A process that cannot die keeps its monitor, and nobody should have to wait for it.
        let limit = self.patience.end + container::PATIENCE;
        timeout(limit, self.wait(id)).await.unwrap_or_else(|_| Err(entry.silent(limit)))
    }

    /// Ends a monitor that tells nothing although no process of its container is left.
    pub(super) async fn end_silent(&self, entry: &Arc<Entry>) -> Result<()> {
        let entry = Arc::clone(entry);
        blocking(move || {
            let empty = entry.cgroup.wait_until_empty(Duration::ZERO);
            if empty.map_err(io_error("watch", &entry.cgroup.path()))? {
                end_monitor(&entry.directory).map_err(io_error("end", &entry.directory))?;
            }
            Ok(())
        })
        .await
    }
}

/// Kills the monitor that works in a container's directory, if there is one.
pub(super) fn end_monitor(directory: &Path) -> io::Result<()> {
    for process in fs::read_dir("/proc")? {
        let name = process?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|pid| is_monitor_in(*pid, directory)) else { continue };
        // Held and looked at again, so that nobody else gets what is meant for it.
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if is_monitor_in(pid, directory) {
            tracing::warn!(?directory, "a monitor that does not answer is ended");
            pidfd_send_signal(held, Signal::KILL)?;
        }
    }
    Ok(())
}

fn is_monitor_in(pid: Pid, directory: &Path) -> bool {
    let process = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
    let named = fs::read(process.join("comm")).is_ok_and(|name| {
        name.strip_suffix(b"\n").unwrap_or(&name) == record::MONITOR_NAME.to_bytes()
    });
    named && fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == directory)
}
