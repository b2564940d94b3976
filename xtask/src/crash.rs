//! `cargo xtask crash`: kills the server under load, many times, on both stores.
//!
//! The kills themselves are tests of `waybill`; the test command does few of them.

use std::num::NonZeroU64;

use anyhow::Result;

use crate::{process, repository::Repository};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How often each server is killed
    #[arg(long, value_name = "N", default_value = "200")]
    rounds: NonZeroU64,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let mut cargo = repository.cargo(&["test", "--package", "waybill", "--test", "crash"]);
    cargo.args(["--", "--nocapture"]).env("WAYBILL_CRASH_ROUNDS", args.rounds.to_string());
    process::run(&mut cargo)
}
