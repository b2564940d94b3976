//! The agent that keeps credentials for all commands of a user, and the way to it.

use std::{env, path::Path, sync::Arc};

use anyhow::Result;
use waybill_credential::{
    SystemClock,
    agent::{Agent, Launcher, Place, PlaceError, serve},
};

use crate::Outcome;

/// The agent itself, started by the first who needs it.
pub(super) fn run() -> Result<Outcome> {
    serve(Arc::new(SystemClock))?;
    Ok(Outcome::Success)
}

/// The agent of this user, whether it runs or not.
pub(super) fn find() -> Result<Agent, PlaceError> {
    #[expect(clippy::disallowed_methods, reason = "it says where sockets of this user are")]
    let runtime_dir = env::var_os("XDG_RUNTIME_DIR");
    let place = Place::find(runtime_dir.as_deref().map(Path::new), &env::temp_dir())?;
    // Not by its name: it may have been replaced by a newer one since we were started.
    let program = "/proc/self/exe".into();
    let arguments = ["credential", "agent"].map(Into::into).into();
    Ok(Agent::new(place, Launcher { program, name: "waybill".into(), arguments }))
}
