//! `waybill demo`: a throw-away cluster that shows what it can do, each thing with its proof.

mod backend;
mod drivers;
mod env_files;
mod programs;
mod rotation;
mod scenes;
mod sessions;

use std::{
    io::{self, IsTerminal, Write},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use waybill_api::gates::KubeVersion;

use self::{backend::Backend, scenes::Scenes};
use crate::{
    Outcome,
    apiserver::{EncryptionArgs, StoreArgs},
    builtin::BuiltIn,
    log::LogFormat,
    up::{self, DriverChoice, Plan, Progress, RuntimeChoice, Stack},
};

/// Show what works, on a cluster that is thrown away afterwards.
///
/// Starts a whole cluster in a temporary directory, as `waybill up` does, runs a pod there and shows what
/// came of it: each line with its proof. Ends with code 0 only if all of it held. Nothing is left
/// behind, and nothing on this machine is touched but a temporary directory, cgroups and free ports.
///
/// It needs root, as `waybill up` does, and says so.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Show the logs of all parts.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    up::check_machine("demo", &RuntimeChoice::Embedded)?;
    let directory = tempfile::Builder::new().prefix("waybill-demo-").tempdir();
    let directory = directory.context("cannot make a temporary directory")?;
    let backend = Backend::start(directory.path())?;
    let plan = Plan {
        state_dir: directory.path().to_owned(),
        listen: Some(([127, 0, 0, 1], 0).into()),
        store: StoreArgs::default(),
        encryption: EncryptionArgs::default(),
        runtime: RuntimeChoice::Embedded,
        node_name: None,
        node_flags: Vec::new(),
        collector_flags: Vec::new(),
        has_collector: true,
        drivers: vec![DriverChoice::os(), backend.driver()],
        // The second is imported only if this machine has no busybox.
        built_in_images: vec![BuiltIn::Busybox, BuiltIn::Tools],
        emulated_version: KubeVersion::NEWEST,
        gates: up::all_on_but("", KubeVersion::NEWEST)?,
        strict_env_file_mounts: false,
        log_format: LogFormat::Text,
        verbose: args.verbose,
    };
    // One thread: the kernel ends our children with the thread that started them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(perform(plan, &backend));
    drop(backend);
    up::release(directory.path());
    directory.close().context("the temporary directory cannot be removed")?;
    outcome
}

async fn perform(plan: Plan, backend: &Backend) -> Result<Outcome> {
    let mut signals = up::Signals::new()?;
    let progress = Progress::silent();
    let mut report = Report::default();
    let start = Instant::now();
    let mut stack = tokio::select! {
        stack = Stack::start(plan, &progress) => stack?,
        () = signals.next() => bail!("interrupted"),
    };
    let seconds = start.elapsed().as_secs_f64();
    report.held("a cluster starts", &format!("API server, runtime and node, in {seconds:.1} s"))?;
    let played = tokio::select! {
        played = Scenes::play(&mut stack, &mut report, backend) => played,
        () = signals.next() => Err(anyhow::anyhow!("interrupted")),
    };
    let stopped = stack.stop(&progress).await;
    played?;
    stopped.context("the cluster did not stop as it should")?;
    report.held("it stops", "pods first, then the rest; nothing is kept")?;
    report.end(start)
}

/// What was shown so far.
#[derive(Default)]
struct Report {
    held: u32,
    failed: u32,
}

impl Report {
    fn held(&mut self, claim: &str, proof: &str) -> io::Result<()> {
        self.held += 1;
        line("✓", "32", claim, proof)
    }

    /// Prints the proof if it is one, and otherwise what was seen.
    fn check(&mut self, claim: &str, holds: bool, proof: &str) -> io::Result<()> {
        if holds {
            return self.held(claim, proof);
        }
        self.failed += 1;
        line("✗", "31", claim, &format!("not so: {proof}"))
    }

    /// Neither holds nor fails: this machine lacks what it takes.
    fn left_out(&self, claim: &str, why: &str) -> io::Result<()> {
        line("-", "33", claim, &format!("not shown: {why}"))
    }

    fn end(self, start: Instant) -> Result<Outcome> {
        let Self { held, failed } = self;
        let seconds = start.elapsed().as_secs_f64();
        if failed > 0 {
            writeln!(io::stdout(), "{failed} of {} did not hold", held + failed)?;
            return Ok(Outcome::Failure);
        }
        writeln!(
            io::stdout(),
            "all {held} held, in {seconds:.1} s; for a cluster that stays: waybill up\n\
             who ran what in it, on a page for your browser: waybill trace --serve"
        )?;
        Ok(Outcome::Success)
    }
}

/// A claim, and its proof below it.
fn line(mark: &str, colour: &str, claim: &str, proof: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    if output.is_terminal() {
        writeln!(output, "\x1b[{colour}m{mark}\x1b[0m {claim}")?;
    } else {
        writeln!(output, "{mark} {claim}")?;
    }
    for line in proof.lines() {
        writeln!(output, "    {line}")?;
    }
    output.flush()
}
