//! `cargo xtask crash`: kills servers under load, many times: the API server on both stores, the container
//! runtime, or the roles of a whole stack.
//!
//! The kills themselves are tests of `waybill`; the test command does few of them.

use std::num::NonZeroU64;

use anyhow::Result;
use clap::ValueEnum;

use crate::{process, repository::Repository};

/// The modules of the tests of the runtime and of whole stacks; all others are the API server's.
const RUNTIME: &str = "runtime::";
const STACK: &str = "stack::";

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
    /// Each role of a whole stack in turn; needs root and kubectl
    Stack,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    let mut cargo = repository.cargo(&["test", "--package", "waybill", "--test", "crash", "--"]);
    match args.victim {
        Victim::Apiserver => cargo.args(["--skip", RUNTIME, "--skip", STACK]),
        Victim::Runtime => cargo.arg(RUNTIME),
        Victim::Stack => cargo.arg(STACK),
    };
    cargo.arg("--nocapture").env("WAYBILL_CRASH_ROUNDS", args.rounds.to_string());
    process::run(&mut cargo)
}
