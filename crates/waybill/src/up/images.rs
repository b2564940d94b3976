//! Imports the built-in images into the embedded runtime, unless they are there already.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use super::state::{State, write_whole};
use crate::{
    builtin::{self, Program},
    image::{import_archive, remote_image_names},
};

/// An image that is made from programs of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BuiltIn {
    /// The machine's busybox.
    Busybox,
    /// This program, and busybox where there is one.
    Tools,
}

impl BuiltIn {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Busybox => "waybill.dev/busybox:1",
            Self::Tools => "waybill.dev/tools:1",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Busybox => "busybox",
            Self::Tools => "tools",
        }
    }
}

/// What people call busybox; taken only while nobody else has it.
const BUSYBOX: &str = "docker.io/library/busybox:latest";

/// Makes sure that the runtime at `socket` has the image; `None` if the machine has no program for it.
pub(super) async fn ensure(state: &State, socket: &Path, image: BuiltIn) -> Result<Option<String>> {
    let name = image.name();
    let busybox = builtin::busybox();
    let own = std::env::current_exe().context("finding this program")?;
    let programs: Vec<Program> = match (image, busybox) {
        (BuiltIn::Busybox, None) => return Ok(None),
        (BuiltIn::Busybox, Some(busybox)) => vec![busybox],
        (BuiltIn::Tools, busybox) => {
            [Program::new("waybill", own)].into_iter().chain(busybox).collect()
        }
    };
    // Programs are known by size and time: reading them at each start would cost more than all else.
    let mark = state.dir().join("runtime").join(format!("built-in-{}", image.key()));
    let print = programs.iter().map(Program::print).collect::<Result<Vec<_>>>()?.join("\n");
    // Those of before were not pinned.
    let print = format!("pinned\n{print}");
    let names = remote_image_names(socket).await?;
    let has = |name: &str| names.iter().any(|it| it == name);
    let current = fs::read_to_string(&mark).is_ok_and(|kept| kept == print);
    if current && has(name) {
        return Ok(Some(name.to_owned()));
    }
    // Reading and packing takes a moment, and other work goes on meanwhile.
    let archive = tokio::task::spawn_blocking(move || builtin::archive(image, name, &programs));
    let archive = archive.await??;
    import_archive(socket, archive.clone(), None).await?;
    if image == BuiltIn::Busybox && !has(BUSYBOX) {
        import_archive(socket, archive, Some(BUSYBOX.to_owned())).await?;
    }
    write_whole(&mark, print.as_bytes())?;
    Ok(Some(name.to_owned()))
}
