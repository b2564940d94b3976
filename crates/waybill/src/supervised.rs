//! A role that `waybill up` started ends with it.
//!
//! The kernel kills it when its supervisor is gone, however that came about. Nothing is lost by
//! that: writes are durable before they are acknowledged, and containers belong to no role.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Ties this process to its parent, which is expected to be `supervisor`.
pub(crate) fn end_with(supervisor: u32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to end with the parent")?;
    // It may be gone since it started us, and then nobody would tell.
    let parent = getppid().map(Pid::as_raw_nonzero).and_then(|pid| u32::try_from(pid.get()).ok());
    if parent != Some(supervisor) {
        bail!("the supervisor (process {supervisor}) is gone");
    }
    Ok(())
}
