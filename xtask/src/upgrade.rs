//! `cargo xtask upgrade`: the container runtime of another revision and ours take turns over running containers.
//!
//! The turns themselves are a test of `waybill`, which lacks the other binary otherwise.

use std::{num::NonZeroU64, path::PathBuf, process::Command};

use anyhow::Result;

use crate::{load::Load, metadata, process, repository::Repository};

const TEST: &str = "runtime::upgrade::";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The other revision
    #[arg(long, value_name = "REVISION", default_value = "origin/main")]
    from: String,

    /// A binary of it that exists; nothing is built then
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,

    /// How many upgrades and downgrades
    #[arg(long, value_name = "N", default_value = "100")]
    times: NonZeroU64,

    /// How many processes do nothing but use the processor meanwhile
    #[arg(long, value_name = "N", default_value = "20")]
    processes: u32,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let old = match &args.binary {
        Some(binary) => binary.canonicalize()?,
        None => build(repository, &args.from)?,
    };
    let test = ["test", "--package", "waybill", "--test", "crash"];
    // Not under load: only the test is of interest.
    process::run(repository.cargo(&test).arg("--no-run"))?;
    let load = Load::start(args.processes)?;
    let words = ["cargo"].into_iter().chain(test).chain(["--", TEST, "--nocapture"]);
    let mut command = load.enter(&words.map(str::to_owned).collect::<Vec<_>>());
    command.current_dir(repository.path("")).env("WAYBILL_OLD_BIN", old);
    process::run(command.env("WAYBILL_CRASH_ROUNDS", args.times.to_string()))
}

/// Builds the binary of a revision, in a work tree and a target folder of its own.
fn build(repository: &Repository, revision: &str) -> Result<PathBuf> {
    let mut git = Command::new("git");
    git.current_dir(repository.path("")).args(["rev-parse", "--verify"]);
    let commit = process::output(git.arg(format!("{revision}^{{commit}}")))?.trim().to_owned();
    let place = metadata::target_directory(repository)?.join("upgrade");
    let (tree, target) = (place.join("tree"), place.join("target"));
    let mut git = Command::new("git");
    git.current_dir(repository.path("")).args(["worktree", "add", "--force", "--detach"]);
    if tree.exists() {
        let mut switch = Command::new("git");
        process::run(switch.current_dir(&tree).args(["checkout", "--quiet", "--detach", &commit]))?;
    } else {
        process::run(git.arg(&tree).arg(&commit))?;
    }
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&tree).args(["build", "--package", "waybill", "--bin", "waybill"]);
    process::run(cargo.arg("--target-dir").arg(&target))?;
    Ok(target.join("debug/waybill"))
}
