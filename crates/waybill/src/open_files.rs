//! How many files a role may have open: as many as the machine lets it.
//!
//! The usual soft limit of 1,024 is for programs that use `select`. A few hundred sessions exhaust it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use waybill_runtime::cri::OpenFiles;

/// Raises the limit as far as it goes; what it was before, if it is another now.
pub(crate) fn raise() -> Option<OpenFiles> {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let (soft, hard) = (before.current?, before.maximum.unwrap_or(u64::MAX));
    // Where it cannot be done, servers hold fewer connections.
    (soft < hard && setrlimit(Resource::Nofile, raised).is_ok()).then_some(OpenFiles { soft, hard })
}
