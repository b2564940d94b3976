//! `cargo xtask fuzz`: long runs of the fuzz targets, which are a workspace of their own.
//!
//! The test command uses the same parts for a few seconds per target.

use std::{fs, num::NonZeroU32, time::Instant};

use anyhow::{Context, Result, bail};

use crate::{
    machine::{self, Missing},
    process,
    repository::Repository,
};

const TARGETS: &str = "fuzz/fuzz_targets";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long to run each target
    #[arg(long, value_name = "M", default_value = "10")]
    minutes: NonZeroU32,
    /// Which targets to run, by their names in fuzz/fuzz_targets; all of them by default
    targets: Vec<String>,
}

pub(crate) fn run(repository: &Repository, args: &Args) -> Result<()> {
    if let Some(missing) = missing(repository) {
        bail!("cannot fuzz: {missing}");
    }
    let targets = chosen(targets(repository)?, &args.targets)?;
    run_each(repository, &targets, u64::from(args.minutes.get()) * 60, Build::Optimized)
}

/// How the targets are built.
#[derive(Clone, Copy)]
pub(crate) enum Build {
    /// Runs the most inputs.
    Optimized,
    /// Is there soonest.
    Quick,
}

impl Build {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Optimized => &[],
            Self::Quick => &["--dev"],
        }
    }
}

/// Fuzzes every target for so many seconds, and ends with a summary.
pub(crate) fn run_each(
    repository: &Repository,
    targets: &[String],
    seconds: u64,
    build: Build,
) -> Result<()> {
    let mut summary = Vec::new();
    for target in targets {
        println!("fuzz: {target}, {seconds} s");
        let start = Instant::now();
        let result = run_target(repository, target, seconds, build);
        summary.push((target, start.elapsed().as_secs(), result));
    }
    println!();
    for (target, seconds, result) in &summary {
        match result {
            Ok(()) => println!("{target}: found nothing in {seconds} s"),
            Err(error) => println!("{target}: {error:#} after {seconds} s"),
        }
    }
    let failed = summary.iter().filter(|(_, _, result)| result.is_err());
    let failed: Vec<_> = failed.map(|(target, _, _)| target.as_str()).collect();
    if let [first, ..] = failed.as_slice() {
        bail!(
            "fuzz: failed: {}; an input that crashes is kept in fuzz/artifacts, and `cargo \
             +nightly fuzz run {first} <file>` runs it again",
            failed.join(", ")
        );
    }
    Ok(())
}

/// What this machine lacks to fuzz at all.
pub(crate) fn missing(repository: &Repository) -> Option<Missing> {
    if !repository.path("fuzz/Cargo.toml").is_file() {
        Some(Missing::new("there is no fuzz/Cargo.toml", "nothing to install"))
    } else if !machine::has_nightly() {
        let remedy = "run `rustup toolchain install nightly`";
        Some(Missing::new("there is no nightly toolchain", remedy))
    } else if !machine::has_cargo_command("fuzz") {
        Some(Missing::cargo_command("fuzz"))
    } else {
        None
    }
}

/// The names of all targets, sorted.
pub(crate) fn targets(repository: &Repository) -> Result<Vec<String>> {
    let directory = repository.path(TARGETS);
    let entries = fs::read_dir(&directory)
        .with_context(|| format!("cannot list {}", directory.display()))?
        .collect::<Result<Vec<_>, _>>()?;
    let names = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut targets: Vec<_> =
        names.filter_map(|name| Some(name.strip_suffix(".rs")?.to_owned())).collect();
    targets.sort();
    Ok(targets)
}

fn run_target(repository: &Repository, target: &str, seconds: u64, build: Build) -> Result<()> {
    let limit = format!("-max_total_time={seconds}");
    let mut cargo = repository.cargo(&["+nightly", "fuzz", "run"]);
    process::run(cargo.args(build.flags()).args([target, "--", &limit]))
}

fn chosen(known: Vec<String>, asked: &[String]) -> Result<Vec<String>> {
    if let Some(unknown) = asked.iter().find(|name| !known.contains(name)) {
        bail!("there is no fuzz target `{unknown}` in {TARGETS}; there are: {}", known.join(", "));
    }
    if known.is_empty() {
        bail!("there is no fuzz target in {TARGETS}");
    }
    Ok(if asked.is_empty() { known } else { asked.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_targets_run_unless_some_are_asked_for() {
        let known = || vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(chosen(known(), &[]).unwrap(), known());
        assert_eq!(chosen(known(), &["b".into()]).unwrap(), ["b"]);
    }

    #[test]
    fn an_unknown_target_is_answered_with_the_known_ones() {
        let error = chosen(vec!["a".into()], &["x".into()]).unwrap_err().to_string();
        assert_eq!(error, "there is no fuzz target `x` in fuzz/fuzz_targets; there are: a");
        assert!(chosen(Vec::new(), &[]).is_err());
    }
}
