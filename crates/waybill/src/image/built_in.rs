//! Makes a built-in image and gives it to the runtime, unless that has it already.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use super::{archive, client::Runtime};
use crate::builtin::{self, BuiltIn, Program};

/// What people call busybox; taken only while nobody else has it.
const BUSYBOX: &str = "docker.io/library/busybox:latest";

/// Imports the image. Where `mark` tells that it was made of the same programs before, and the runtime still has
/// it, nothing is done.
pub(super) async fn import(
    mut runtime: Runtime,
    image: BuiltIn,
    mark: Option<&Path>,
) -> Result<()> {
    let programs = image.programs()?;
    // Programs are known by size and time: reading them at each start would cost more than all else.
    let print = programs.iter().map(Program::print).collect::<Result<Vec<_>>>()?.join("\n");
    let images = runtime.list(None).await?;
    let has = |name: &str| images.iter().any(|it| it.repo_tags.iter().any(|tag| tag == name));
    let current = mark.and_then(|mark| fs::read_to_string(mark).ok()).is_some_and(|it| it == print);
    if current && has(image.name()) {
        return Ok(());
    }
    let made = builtin::archive(image, &programs)?;
    archive::import_bytes(&runtime, &made, None).await?;
    if image == BuiltIn::Busybox && !has(BUSYBOX) {
        archive::import_bytes(&runtime, &made, Some(BUSYBOX.to_owned())).await?;
    }
    match mark {
        Some(mark) => {
            fs::write(mark, print).with_context(|| format!("cannot write {}", mark.display()))
        }
        None => Ok(()),
    }
}
