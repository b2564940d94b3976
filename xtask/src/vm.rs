//! `cargo xtask vm`: a command on another kernel, in an emulated machine.
//!
//! The machine has a Debian kernel, busybox, our binary and nothing else: no network, cgroup v2 alone, an empty ext4 at `/var` and a
//! disk to swap to, which the command may turn on. It is emulated in software, so it runs wherever qemu does, some twenty times slower
//! than this one.

mod console;
mod cpio;
mod disks;
mod initramfs;
mod kernel;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use self::disks::Disks;
pub(crate) use self::kernel::Kernel;
use crate::{process, repository::Repository, tools};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Whose kernel
    #[arg(long, value_enum, default_value_t = Kernel::Debian12)]
    kernel: Kernel,

    /// How mounts of `/` spread
    #[arg(long, value_enum, default_value_t = Root::Shared)]
    root: Root,

    /// Our binary; without this it is built
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,

    /// Another program for the machine's /bin; repeat the flag for more than one
    #[arg(long, value_name = "PATH")]
    with: Vec<PathBuf>,

    /// Another program, which is found there where it is here; repeat the flag for more than one
    #[arg(long, value_name = "PATH")]
    with_in_place: Vec<PathBuf>,

    /// The seconds after which the machine is stopped, whatever it does
    #[arg(long, value_name = "N", default_value_t = 600)]
    limit: u64,

    /// What to run there
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// How mounts spread to and from other mount namespaces.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Root {
    /// As systemd makes it
    Shared,
    /// As the kernel makes it
    Private,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<ExitCode> {
    let missing = tools::prepare(args.kernel.tools()).missing;
    if let [first, ..] = missing.as_slice() {
        bail!("{first}");
    }
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => build(repository)?,
    };
    let mut programs = vec![binary];
    programs.extend(args.with.iter().cloned());
    let in_place: Vec<_> =
        args.with_in_place.iter().map(|path| canonical(path)).collect::<Result<_>>()?;
    let machine = Machine {
        kernel: args.kernel,
        root: args.root,
        programs: &programs,
        in_place: &in_place,
        limit: args.limit,
        label: "",
    };
    Ok(ExitCode::from(machine.run(&args.command)?))
}

/// What is emulated, and for how long.
pub(crate) struct Machine<'a> {
    pub(crate) kernel: Kernel,
    pub(crate) root: Root,
    /// They are found by their names there.
    pub(crate) programs: &'a [PathBuf],
    /// They are found by their paths, which are absolute.
    pub(crate) in_place: &'a [PathBuf],
    /// In seconds.
    pub(crate) limit: u64,
    /// Before each line that it prints.
    pub(crate) label: &'a str,
}

impl Machine<'_> {
    /// Boots, runs `command` and returns its exit code.
    pub(crate) fn run(&self, command: &[String]) -> Result<u8> {
        let files = self.kernel.files()?;
        let folder = tempfile::tempdir()?;
        let initramfs = folder.path().join("initramfs");
        initramfs::write(&initramfs, &files.modules, self, command)?;
        let disks = Disks::make(folder.path())?;
        console::run(&files.image, &initramfs, &disks, self.limit, self.label)
    }
}

fn canonical(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("there is no {}", path.display()))
}

fn build(repository: &Repository) -> Result<PathBuf> {
    process::run(&mut repository.cargo(&["build", "--package", "waybill"]))?;
    repository.debug_binary("waybill")
}
