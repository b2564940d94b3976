//! The chores of this repository, as `cargo xtask <command>`.
//!
//! A chore is here when it is more than one cargo call, or when it checks a rule of the house that
//! no compiler knows. It relies on cargo and git, and only `gen` changes a tracked file.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer tool talks to the terminal; no part of the product calls it"
)]

mod crash;
mod deps;
mod difftest;
mod fuzz;
mod generate;
mod image;
mod load;
mod machine;
mod markdown;
mod metadata;
mod process;
mod repository;
mod source;
mod test;
mod tidy;
mod tools;
mod upgrade;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::repository::Repository;

fn main() -> ExitCode {
    match run(&Cli::parse().chore) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: &Chore) -> Result<ExitCode> {
    let repository = Repository::here()?;
    match chore {
        Chore::Crash(args) => crash::run(&repository, args),
        Chore::Deps => deps::run(&repository),
        Chore::Difftest(args) => difftest::run(&repository, args),
        Chore::Fuzz(args) => fuzz::run(&repository, args),
        Chore::Gen => generate::run(&repository),
        Chore::Image(args) => image::run(&repository, args),
        Chore::Load(args) => load::run(&repository, args),
        Chore::Test(args) => test::run(&repository, args),
        Chore::Tidy => tidy::run(&repository),
        Chore::Upgrade(args) => upgrade::run(&repository, args),
        Chore::Vm(args) => return vm::run(&repository, args),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// The chores of the Waybill repository.
///
/// Before a commit, run `cargo xtask test --quick`. CI runs `cargo xtask test`.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Kill the API server under load, again and again, on the embedded store and on etcd
    ///
    /// After each kill a new server must have every write that was acknowledged, versions must not
    /// go back, and watches must go on or say that they cannot. The test command does five rounds.
    Crash(crash::Args),
    /// Compare the dependencies between our crates with the table in ARCHITECTURE.md
    ///
    /// The table under `## Crates` says which crate may depend on which. An edge that it does not
    /// allow fails, as does a crate that it does not list, or one that it calls planned although it
    /// exists. A new edge needs a decision record and a change of the table.
    ///
    /// Also proves that waybill-core stays pure: `no_std`, and nothing but the crates on a short
    /// list below it.
    Deps,
    /// Compare how we read env files with how `bash --posix` reads them, over many random files
    ///
    /// Builds in release mode and runs the differential test of waybill-core. Each run draws a new
    /// seed and prints it; pass the seed of a failed run to see the failure again.
    Difftest(difftest::Args),
    /// Fuzz the parsers of peer input, for longer than the few seconds of the test command
    ///
    /// Runs the targets in fuzz/fuzz_targets one after the other and goes on after a crash. Needs
    /// the nightly toolchain and cargo-fuzz, and says how to get them.
    Fuzz(fuzz::Args),
    /// Write the gRPC code of waybill-proto anew from its proto files
    ///
    /// Commit what it writes. `cargo xtask tidy` fails as long as the two differ.
    Gen,
    /// Write an OCI archive with our programs, for `waybill install`
    ///
    /// It holds the program, the wrapper for nodes and the libraries that they need. No Docker is involved;
    /// `ctr --namespace k8s.io images import` and `waybill image import` take it.
    Image(image::Args),
    /// Run a command again and again beside processes that want the processor
    ///
    /// Without a command, the crash and attribution suites. Load and command are in a cgroup of their own, which gets about
    /// half of a busy machine; it goes with them, however this ends. Needs root.
    Load(load::Args),
    /// Run every check and test that this machine can run; CI runs this and nothing else
    ///
    /// The checks come in tiers. A failed tier does not stop the next one; the table at the end
    /// shows what ran, what failed, and what to install for a tier that was skipped.
    Test(test::Args),
    /// Check the repository rules that no compiler knows
    ///
    /// Prints each violation as `path:line: rule: what to do`. Looks at every file that git tracks
    /// or would track, so that a new file is checked before it is added.
    Tidy,
    /// Replace the container runtime by that of another revision and back, again and again and under load
    ///
    /// Builds the other revision in a work tree of its own below the target folder. Containers of both must run on, and each
    /// runtime must bring to its end what the other began. Needs root.
    Upgrade(upgrade::Args),
    /// Run a command on another kernel, in an emulated machine with our binary and busybox
    ///
    /// The machine has cgroup v2 alone, no disk and no network. The kernel comes from Debian and is unpacked, not
    /// installed. The exit code is that of the command.
    Vm(vm::Args),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }
}
