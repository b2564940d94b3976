//! The engine's one clock. It only stamps what happens to real processes; nothing is decided by it.

use std::time::SystemTime;

#[expect(clippy::disallowed_methods, reason = "real processes start and end in real time")]
pub(super) fn now() -> SystemTime {
    SystemTime::now()
}
