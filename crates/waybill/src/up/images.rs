//! Has the built-in images imported into the embedded runtime, unless they are there already.
//!
//! By a process of its own: packing an image takes some megabytes, and a supervisor that runs for months would
//! keep them.

use std::{path::Path, process::Stdio};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use super::state::State;
use crate::builtin::{self, BuiltIn};

/// Makes sure that the runtime at `socket` has the image; `None` if the machine has no program for it.
pub(super) async fn ensure(state: &State, socket: &Path, image: BuiltIn) -> Result<Option<String>> {
    if image == BuiltIn::Busybox && builtin::busybox().is_none() {
        return Ok(None);
    }
    let program = std::env::current_exe().context("finding this program")?;
    let mark = state.dir().join("runtime").join(format!("built-in-{}", image.key()));
    let output = Command::new(program)
        .args(["image", "built-in", image.key()])
        .arg("--runtime")
        .arg(format!("unix://{}", socket.display()))
        .arg("--mark")
        .arg(mark)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot import {}", image.name()))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        bail!("cannot import {}: {}", image.name(), told.trim().trim_start_matches("error: "));
    }
    Ok(Some(image.name().to_owned()))
}
