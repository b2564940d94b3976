//! `waybill hello`: what the built-in image of tools does when it is told nothing else.

use std::io::{self, Write};

use anyhow::Result;
use rustix::system::uname;
use tokio::signal::unix::{SignalKind, signal};

use crate::Outcome;

/// Say hello, and wait for the end.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Do not wait.
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let host = uname().nodename().to_string_lossy().into_owned();
    writeln!(io::stdout(), "hello from {host}")?;
    io::stdout().flush()?;
    if args.once {
        return Ok(Outcome::Success);
    }
    // As the first process of a container it gets no signal that it does not ask for.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            result = tokio::signal::ctrl_c() => result?,
            _ = terminate.recv() => {}
        }
        Ok(Outcome::Success)
    })
}
