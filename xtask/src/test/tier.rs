//! The tiers of the test command: what each runs, and what it needs.

use std::{
    panic::resume_unwind,
    path::{Path, PathBuf},
    thread::{self, ScopedJoinHandle},
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::{Machine, skipped};
use crate::{
    deps, fuzz,
    machine::{self, Missing},
    metadata, process,
    repository::Repository,
    tidy,
    tools::{self, Tool},
    vm::{self, Kernel},
};

/// How long each fuzz target runs; enough to see that it still builds and starts.
const FUZZ_SECONDS: u64 = 4;

/// How long each machine of the `vm` tier may take; two at once need a fifth of that on a machine with nothing else to do.
const VM_SECONDS: u64 = 1500;

/// What runs there.
const VM_SCRIPT: &str = include_str!("vm.sh");

/// What is tested; doc tests are a tier of their own.
const EVERYTHING: &[&str] = &["--workspace", "--lib", "--bins", "--tests"];

/// A group of checks that passes or fails as one. They stand in the order in which they run: the
/// quick ones first, so that a slip shows early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Tier {
    Format,
    Tidy,
    Deps,
    Clippy,
    Test,
    Vm,
    DocTests,
    Docs,
    BenchSmoke,
    Deny,
    FuzzSmoke,
}

/// How a tier ended that did not fail.
pub(super) enum Verdict {
    Ran,
    Skipped(Missing),
}

impl Tier {
    pub(super) const ALL: &[Self] = &[
        Self::Format,
        Self::Tidy,
        Self::Deps,
        Self::Clippy,
        Self::Test,
        Self::Vm,
        Self::DocTests,
        Self::Docs,
        Self::BenchSmoke,
        Self::Deny,
        Self::FuzzSmoke,
    ];

    /// The name, as the `--tier` flag takes it.
    pub(super) fn name(self) -> &'static str {
        self.facts().0
    }

    pub(super) fn is_quick(self) -> bool {
        matches!(self, Self::Format | Self::Tidy | Self::Deps | Self::Clippy | Self::Test)
    }

    /// What has to be on this machine for it.
    pub(super) fn tools(self) -> &'static [Tool] {
        match self {
            Self::Test => tools::TESTS,
            Self::Vm => tools::VM,
            _ => &[],
        }
    }

    /// One line for a list.
    pub(super) fn describe(self) -> String {
        let (name, runs, needs) = self.facts();
        format!("{name:<12} {runs}; needs {needs}")
    }

    pub(super) fn run(self, repository: &Repository, machine: &Machine) -> Result<Verdict> {
        match self {
            Self::Format => format(repository),
            Self::Tidy => tidy::run(repository).map(ran),
            Self::Deps => deps::run(repository).map(ran),
            Self::Clippy => clippy(repository),
            Self::Test => test(repository, machine),
            Self::Vm => vm(repository, machine),
            Self::DocTests => cargo(repository, &["test", "--workspace", "--doc"]),
            Self::Docs => docs(repository),
            Self::BenchSmoke => bench_smoke(repository),
            Self::Deny => deny(repository),
            Self::FuzzSmoke => fuzz_smoke(repository),
        }
    }

    /// Name, what it runs, what it needs.
    fn facts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Format => ("format", "the layout of all code", "rustfmt"),
            Self::Tidy => ("tidy", "the rules of the repository", "git"),
            Self::Deps => ("deps", "the edges between our crates", "nothing"),
            Self::Clippy => ("clippy", "lints, with no warning left", "clippy"),
            Self::Test => (
                "test",
                "unit, property and integration tests",
                "programs that it fetches, and root for containers; uses cargo-nextest where it is installed",
            ),
            Self::Vm => (
                "vm",
                "the demo, a limit, swap, users of pods and attacks on the kernels of Debian 12 and 13, in emulated machines",
                "qemu and those kernels, which it fetches",
            ),
            Self::DocTests => ("doc-tests", "the examples in the documentation", "nothing"),
            Self::Docs => ("docs", "the documentation, with no broken link", "nothing"),
            Self::BenchSmoke => ("bench-smoke", "every benchmark once, unmeasured", "nothing"),
            Self::Deny => (
                "deny",
                "licences, sources and duplicates of dependencies, but not their advisories",
                "cargo-deny",
            ),
            Self::FuzzSmoke => (
                "fuzz-smoke",
                "every fuzz target for a few seconds",
                "the nightly toolchain and cargo-fuzz",
            ),
        }
    }
}

fn ran((): ()) -> Verdict {
    Verdict::Ran
}

fn cargo(repository: &Repository, args: &[&str]) -> Result<Verdict> {
    process::run(&mut repository.cargo(args)).map(ran)
}

fn format(repository: &Repository) -> Result<Verdict> {
    cargo(repository, &["fmt", "--all", "--check"]).context("`cargo fmt --all` mends the layout")
}

/// Code behind a feature can hide an error of the default build, and the other way round.
fn clippy(repository: &Repository) -> Result<Verdict> {
    let check = |features: &[&str]| {
        let mut cargo = repository.cargo(&["clippy", "--workspace", "--all-targets"]);
        process::run(cargo.args(features).args(["--", "-D", "warnings"]))
    };
    check(&["--all-features"])?;
    if metadata::packages(repository)?.iter().any(|package| package.has_features) {
        check(&[])?;
    }
    Ok(Verdict::Ran)
}

fn test(repository: &Repository, machine: &Machine) -> Result<Verdict> {
    // Tests run examples, which cargo's own runner builds beside them and nextest does not.
    process::run(repository.cargo(&["build", "--examples"]).args(EVERYTHING))?;
    let everything = run_tests(repository, machine, EVERYTHING, &[]);
    let again = with_newest_kubectl(repository, machine);
    skipped::judge(&machine.skipped.counts(), &machine.tools.excused)?;
    everything.and(again).map(ran)
}

/// `/` is a shared mount there, as on every machine with systemd.
/// On one kernel after the other. One that is missing does not keep the other from being tried.
fn vm(repository: &Repository, machine: &Machine) -> Result<Verdict> {
    let mut verdict = Verdict::Ran;
    let mut kernels = Vec::new();
    for kernel in [Kernel::Debian12, Kernel::Trixie] {
        match machine.tools.lacking(kernel.tools())? {
            Some(missing) => verdict = Verdict::Skipped(missing),
            None => kernels.push(kernel),
        }
    }
    if kernels.is_empty() {
        return Ok(verdict);
    }
    let [binary, hostile, suite, spawner] = vm_programs(repository)?;
    let script = format!(
        "SUITE={} WAYBILL_HOSTILE=/bin/waybill-hostile\nexport WAYBILL_HOSTILE\n{VM_SCRIPT}",
        process::quoted(&suite.to_string_lossy()),
    );
    let (programs, in_place) = ([binary, hostile], [suite, spawner]);
    let command = ["sh".to_owned(), "-c".to_owned(), script];
    let run = |kernel| run_vm(kernel, &programs, &in_place, &command);
    // All at once: an emulated machine seldom has work for more than one processor.
    thread::scope(|scope| {
        let machines: Vec<_> =
            kernels.into_iter().map(|kernel| scope.spawn(move || run(kernel))).collect();
        let ends: Vec<_> = machines.into_iter().map(ScopedJoinHandle::join).collect();
        ends.into_iter().try_for_each(|end| end.unwrap_or_else(|panic| resume_unwind(panic)))
    })?;
    Ok(verdict)
}

fn run_vm(
    kernel: Kernel,
    programs: &[PathBuf],
    in_place: &[PathBuf],
    command: &[String],
) -> Result<()> {
    let label = format!("{kernel:?}: ");
    let emulated = vm::Machine {
        kernel,
        root: vm::Root::Shared,
        programs,
        in_place,
        limit: VM_SECONDS,
        label: &label,
    };
    match emulated.run(command)? {
        0 => Ok(()),
        code => bail!("xtask/src/test/vm.sh ended with exit code {code} on {kernel:?}"),
    }
}

/// Our binary, the program that attacks, the tests of the runtime, and the spawner that those start. They are what the tests were built
/// with, so that nothing is built twice.
fn vm_programs(repository: &Repository) -> Result<[PathBuf; 4]> {
    let arguments = ["test", "--no-run", "--message-format=json-render-diagnostics"];
    let built = process::output(repository.cargo(&arguments).args(EVERYTHING))?;
    Ok([
        repository.debug_binary("waybill")?,
        hostile(repository)?,
        metadata::test_program(&built, "waybill-runtime", "it")?,
        repository.debug_binary("waybill-test-spawner")?,
    ])
}

/// The program that attacks, as tests build it (`waybill_testkit::hostile`): without shared libraries.
fn hostile(repository: &Repository) -> Result<PathBuf> {
    let target = repository.path("target/hostile");
    let mut build = repository.cargo(&["build", "--locked", "--package", "waybill-hostile"]);
    build.arg("--target-dir").arg(&target).env("RUSTFLAGS", "-C target-feature=+crt-static");
    process::run(&mut build)?;
    Ok(target.join("debug/waybill-hostile"))
}

/// The tests of kubectl once more, if there is a newer one than that of the first run.
fn with_newest_kubectl(repository: &Repository, machine: &Machine) -> Result<()> {
    let Some(kubectl) = tools::newest_kubectl() else {
        return machine.skipped.add(tools::NEWEST_KUBECTL);
    };
    if !machine::has_command("kubectl") {
        return Ok(());
    }
    let which = ["--package", "waybill", "--test", "kubectl"];
    run_tests(repository, machine, &which, &[("WAYBILL_KUBECTL", &kubectl)])
}

fn run_tests(
    repository: &Repository,
    machine: &Machine,
    which: &[&str],
    variables: &[(&str, &Path)],
) -> Result<()> {
    let mut cargo = if machine::has_cargo_command("nextest") {
        repository.cargo(&["nextest", "run", "--profile", "ci"])
    } else {
        println!("cargo-nextest is not installed, so cargo's own runner does it");
        repository.cargo(&["test", "--no-fail-fast"])
    };
    cargo.args(which).envs(variables.iter().copied());
    process::run(cargo.env(skipped::VARIABLE, machine.skipped.file()))
}

fn docs(repository: &Repository) -> Result<Verdict> {
    let mut cargo = repository.cargo(&["doc", "--workspace", "--no-deps"]);
    cargo.arg("--document-private-items").env("RUSTDOCFLAGS", "-D warnings");
    process::run(&mut cargo).map(ran)
}

fn bench_smoke(repository: &Repository) -> Result<Verdict> {
    if !metadata::packages(repository)?.iter().any(|package| package.has_benches) {
        let missing = Missing::new("there are no benchmarks", "nothing to install");
        return Ok(Verdict::Skipped(missing));
    }
    // `--test` runs each benchmark once and measures nothing, so what the tests were built with will do;
    // building all in release besides would take longer than every test.
    cargo(repository, &["test", "--workspace", "--bench", "*", "--", "--test"])
}

fn deny(repository: &Repository) -> Result<Verdict> {
    if !machine::has_cargo_command("deny") {
        return Ok(Verdict::Skipped(Missing::cargo_command("deny")));
    }
    println!("advisories need the network; `cargo deny check advisories` asks for them");
    cargo(repository, &["deny", "check", "bans", "licenses", "sources"])
}

fn fuzz_smoke(repository: &Repository) -> Result<Verdict> {
    if let Some(missing) = fuzz::missing(repository) {
        return Ok(Verdict::Skipped(missing));
    }
    let targets = fuzz::targets(repository)?;
    fuzz::run_each(repository, &targets, FUZZ_SECONDS, fuzz::Build::Quick).map(ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_has_one_name() {
        assert_eq!(Tier::ALL, Tier::value_variants());
        for tier in Tier::ALL {
            assert_eq!(tier.to_possible_value().unwrap().get_name(), tier.name());
        }
    }
}
