//! Probes: asking containers whether they have started, are alive and are ready.

mod results;

pub(crate) use self::results::{ProbeFailure, Purpose, Results};
