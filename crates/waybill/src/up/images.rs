//! Has the built-in images imported into the embedded runtime, unless they are there already.
//!
//! By a process of its own: packing an image takes some megabytes, and a supervisor that runs for months would
//! keep them.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::{process::Command, time::timeout};

use super::state::State;
use crate::builtin::{self, BuiltIn};

/// Longer than packing and importing takes on a machine that is slow and busy with something else.
const PATIENCE: Duration = Duration::from_secs(300);

/// Makes sure that the runtime at `socket` has the image; `None` if the machine has no program for it.
pub(super) async fn ensure(state: &State, socket: &Path, image: BuiltIn) -> Result<Option<String>> {
    if image == BuiltIn::Busybox && builtin::busybox().is_none() {
        return Ok(None);
    }
    let program = std::env::current_exe().context("finding this program")?;
    let mark = state.dir().join("runtime").join(format!("built-in-{}", image.key()));
    let import = Command::new(program)
        .args(["image", "built-in", image.key()])
        .arg("--runtime")
        .arg(format!("unix://{}", socket.display()))
        .arg("--mark")
        .arg(mark)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let doing = || format!("cannot import {}", image.name());
    let Ok(output) = timeout(PATIENCE, import).await else {
        bail!("{}: it was not done within {} s", doing(), PATIENCE.as_secs());
    };
    let output = output.with_context(doing)?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        bail!("cannot import {}: {}", image.name(), told.trim().trim_start_matches("error: "));
    }
    Ok(Some(image.name().to_owned()))
}
