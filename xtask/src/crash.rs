//! `cargo xtask crash`: kills servers under load, many times: the API server on both stores, or the container runtime.
//!
//! The kills themselves are tests of `waybill`; the test command does few of them.

use std::num::NonZeroU64;

use anyhow::Result;
use clap::ValueEnum;

use crate::{process, repository::Repository};

/// The module of the runtime's tests; all others are the API server's.
const RUNTIME: &str = "runtime::";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Who is killed
    #[arg(value_enum, default_value_t = Victim::Apiserver)]
    victim: Victim,

    /// How often
    #[arg(long, value_name = "N", default_value = "200")]
    rounds: NonZeroU64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Victim {
    /// The API server, and etcd
    Apiserver,
    /// The container runtime, and monitors of containers; needs root
    Runtime,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let mut cargo = repository.cargo(&["test", "--package", "waybill", "--test", "crash", "--"]);
    match args.victim {
        Victim::Apiserver => cargo.args(["--skip", RUNTIME]),
        Victim::Runtime => cargo.arg(RUNTIME),
    };
    cargo.arg("--nocapture").env("WAYBILL_CRASH_ROUNDS", args.rounds.to_string());
    process::run(&mut cargo)
}
