//! `cargo xtask test`: every check and test that this machine can run, tier by tier.

mod report;
mod skipped;
mod tier;

use std::time::Instant;

use anyhow::{Result, bail};

use self::{
    report::{Outcome, Row},
    skipped::Skipped,
    tier::{Tier, Verdict},
};
use crate::{
    repository::Repository,
    tools::{self, Tools},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only what is worth waiting for before each commit
    ///
    /// The tiers format, tidy, deps, clippy and test.
    #[arg(long, conflicts_with = "tier")]
    quick: bool,
    /// Run this tier alone; repeat the flag for more than one
    #[arg(long, value_name = "NAME")]
    tier: Vec<Tier>,
    /// List the tiers with what each needs, and run nothing
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    if args.list {
        Tier::ALL.iter().for_each(|tier| println!("{}", tier.describe()));
        return Ok(());
    }
    let tiers = chosen(args);
    let machine = Machine {
        tools: tools::prepare(tiers.iter().flat_map(|tier| tier.tools())),
        skipped: Skipped::none()?,
    };
    let rows: Vec<_> = tiers.iter().map(|&tier| row(repository, tier, &machine)).collect();

    println!("\n{}", report::table(&rows));
    for note in &machine.tools.missing {
        println!("note: {note}");
    }
    for skipped in &machine.skipped.counts() {
        println!("note: {}", skipped::line(skipped));
    }
    // One of the plain forms that CI systems read as the result of a test run.
    println!("{}", report::closing_line(&rows));
    let failed: Vec<_> = rows.iter().filter(|row| row.has_failed()).map(|row| row.tier).collect();
    if let [first, ..] = failed.as_slice() {
        let all = failed.join(", ");
        bail!("failed: {all}; run one again with `cargo xtask test --tier {first}`");
    }
    Ok(())
}

/// What the tests find here, and what they do not.
struct Machine {
    tools: Tools,
    skipped: Skipped,
}

/// The tiers to run, in their order, whatever the order of the flags.
fn chosen(args: &Args) -> Vec<Tier> {
    let wanted = |tier: &Tier| match (args.quick, args.tier.as_slice()) {
        (true, _) => tier.is_quick(),
        (false, []) => true,
        (false, named) => named.contains(tier),
    };
    Tier::ALL.iter().copied().filter(wanted).collect()
}

fn row(repository: &Repository, tier: Tier, machine: &Machine) -> Row {
    println!("\n==> {}", tier.describe());
    let start = Instant::now();
    let outcome = match tier.run(repository, machine) {
        Ok(Verdict::Ran) => Outcome::Ran,
        Ok(Verdict::Skipped(missing)) => Outcome::Skipped(missing),
        Err(error) => {
            let message = format!("{error:#}");
            println!("{message}");
            Outcome::Failed(message)
        }
    };
    Row { tier: tier.name(), outcome, seconds: start.elapsed().as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(quick: bool, tier: &[Tier], expected: &[&str]) {
        let args = Args { quick, tier: tier.to_vec(), list: false };
        let names: Vec<_> = chosen(&args).into_iter().map(Tier::name).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn tiers_run_in_their_order() {
        check(true, &[], &["format", "tidy", "deps", "clippy", "test"]);
        check(false, &[Tier::Deny, Tier::Format], &["format", "deny"]);
        check(
            false,
            &[],
            &[
                "format",
                "tidy",
                "deps",
                "clippy",
                "test",
                "vm",
                "doc-tests",
                "docs",
                "bench-smoke",
                "deny",
                "fuzz-smoke",
            ],
        );
    }
}
