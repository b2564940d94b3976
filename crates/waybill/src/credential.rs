//! `waybill credential`: what a credential plugin does, for people whose client only says "getting credentials";
//! and a cache for those whose client runs it at every start.

mod agent;
mod cache;
mod explain;
mod held;

use std::{
    io::{self, Write},
    time::Instant,
};

use anyhow::{Result, bail};
use jiff::Timestamp;
use waybill_client::plugin;

use crate::{Outcome, cluster::ClusterArgs, terminal};

/// See what a credential plugin does, and keep what it says.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run the plugin of a kubeconfig as a client would, and explain its answer without showing a secret.
    Run(ClusterArgs),
    /// Show how the plugin of a kubeconfig would be run, without running it.
    Status(ClusterArgs),
    Cache(cache::Args),
    /// Show what the agent of `waybill credential cache` holds, without the secrets.
    List,
    Forget(held::ForgetArgs),
    #[command(hide = true)]
    Agent,
}

impl Args {
    /// Whether a plugin may be run here; the agent runs none.
    pub(crate) fn runs_plugins(&self) -> bool {
        matches!(self.command, Command::Run(_) | Command::Cache(_))
    }
}

/// A name, and what there is to say about it.
type Row = (&'static str, String);

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    match &args.command {
        Command::Run(cluster) => block_on(show(cluster, true)),
        Command::Status(cluster) => block_on(show(cluster, false)),
        Command::Cache(args) => cache::run(args),
        Command::List => block_on(held::list()),
        Command::Forget(args) => block_on(held::forget(args)),
        Command::Agent => agent::run(),
    }
}

fn block_on(command: impl Future<Output = Result<Outcome>>) -> Result<Outcome> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

async fn show(cluster: &ClusterArgs, run: bool) -> Result<Outcome> {
    let options = cluster.options();
    let Some(plugin) = plugin(&options).await? else {
        bail!(
            "the user of {} has no credential plugin, or a static credential that takes precedence",
            options.kubeconfig.display()
        );
    };
    print(&explain::stanza(&plugin))?;
    if run {
        let begin = Instant::now();
        let answer = plugin.credential().await;
        print(&[("Time taken", format!("{:.3} s", begin.elapsed().as_secs_f64()))])?;
        match answer {
            Ok(credential) => print(&explain::credential(&credential, Timestamp::now()))?,
            Err(error) => {
                print(&explain::failure(error.plugin_error()))?;
                return Err(error.into());
            }
        }
    }
    Ok(Outcome::Success)
}

fn print(rows: &[Row]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (name, value) in rows {
        writeln!(out, "{name:<15} {}", terminal::plain_lines(value))?;
    }
    Ok(())
}
