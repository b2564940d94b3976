//! `cargo xtask difftest`: our env files against those of a real shell, at length.
//!
//! The comparison itself is a test of `waybill-core`; the test command runs it with few cases.

use std::{
    hash::{BuildHasher, RandomState},
    num::NonZeroU64,
};

use anyhow::{Result, bail};

use crate::{
    machine::{self, Missing},
    process,
    repository::Repository,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many random files to compare
    #[arg(long, value_name = "N", default_value = "2000")]
    cases: NonZeroU64,
    /// Where the random numbers start; without it, a new place each time
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    if !machine::has_command("bash") {
        bail!(Missing::new("bash is not installed", "run `apt-get install -y bash` as root"));
    }
    let seed = args.seed.unwrap_or_else(fresh_seed);
    println!("difftest: {} cases; again with `--cases {0} --seed {seed}`", args.cases);
    let mut cargo = repository.cargo(&["test", "--release", "--package", "waybill-core"]);
    cargo.args(["--test", "it", "bash_difference", "--", "--nocapture"]);
    cargo.env("WAYBILL_DIFFTEST_CASES", args.cases.to_string());
    cargo.env("WAYBILL_DIFFTEST_SEED", seed.to_string());
    process::run(&mut cargo)
}

/// Hash maps are seeded by the operating system, which saves us a crate for one random number.
fn fresh_seed() -> u64 {
    RandomState::new().hash_one(0)
}
