//! `waybill credential`: what a credential plugin does, for people whose client only says "getting credentials";
//! and a cache for those whose client runs it at every start.

mod agent;
mod cache;
mod held;

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use jiff::Timestamp;
use waybill_client::plugin;
use waybill_credential::{Authenticator, Credential, InteractiveMode};

use crate::{Outcome, cluster::ClusterArgs};

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
    describe(&plugin)?;
    if run {
        let begin = Instant::now();
        let credential = plugin.credential().await?;
        explain(&credential, begin.elapsed())?;
    }
    Ok(Outcome::Success)
}

fn describe(plugin: &Authenticator) -> io::Result<()> {
    let stanza = plugin.stanza();
    let input = match stanza.interactive_mode() {
        InteractiveMode::Never => "never",
        InteractiveMode::IfAvailable => "if it is a terminal",
        InteractiveMode::Always => "always; without a terminal the plugin is not run",
    };
    let cluster = if stanza.provides_cluster_info() { "told" } else { "not told" };
    print_rows(&[
        ("Plugin", stanza.command().to_owned()),
        ("API version", stanza.api_version().as_str().to_owned()),
        ("Standard input", input.to_owned()),
        ("Cluster", cluster.to_owned()),
    ])
}

fn explain(credential: &Credential, took: Duration) -> io::Result<()> {
    let mut rows = vec![("Time taken", format!("{:.3} s", took.as_secs_f64()))];
    rows.push((
        "Token",
        if credential.authorization().is_some() { "yes, hidden" } else { "no" }.to_owned(),
    ));
    match credential.certificate() {
        None => rows.push(("Certificate", "no".to_owned())),
        Some(certificate) => rows.extend([
            ("Certificate", certificate.subject().to_owned()),
            ("Intermediates", certificate.intermediates().to_string()),
            ("Valid from", certificate.not_before().to_string()),
            ("Valid until", certificate.not_after().to_string()),
        ]),
    }
    match (credential.expires(), credential.due()) {
        (Some(expires), Some(due)) => {
            rows.push(("Expires", expires.to_string()));
            let cache = if expires < Timestamp::now() {
                "nothing: it has expired already, and the plugin runs for every request".to_owned()
            } else {
                format!("keeps it in memory, and asks for the next from {due} on")
            };
            rows.push(("Waybill", cache));
        }
        _ => {
            rows.push(("Expires", "never, as far as the plugin says".to_owned()));
            rows.push(("Waybill", "keeps it in memory until a server refuses it".to_owned()));
        }
    }
    rows.push((
        "kubectl",
        "runs the plugin at every start; sets no time limit; returns a 401 after running it again"
            .to_owned(),
    ));
    print_rows(&rows)
}

fn print_rows(rows: &[(&str, String)]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (name, value) in rows {
        writeln!(out, "{name:<15} {value}")?;
    }
    Ok(())
}
