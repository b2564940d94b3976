//! `waybill credential cache`: stands in a kubeconfig before the real plugin, so that it is not run at every start of kubectl.

use std::{
    env,
    io::{self, Write},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use waybill_core::{chain::Chain, duration::parse_duration};
use waybill_credential::{
    Options,
    agent::{Fetched, Holding, Invocation, Notice},
};

use super::agent;
use crate::{Outcome, terminal::plain_lines};

/// Keep what a credential plugin says, so that kubectl does not run it at every start.
///
/// Stands in a kubeconfig before the plugin. Credentials are in the memory of a small agent, which starts by itself, serves
/// your Unix user alone and leaves when it holds nothing; nothing is written to disk. The plugin itself is run here,
/// on your terminal, by one process at a time: when there is no credential, when it has expired or is about to, and
/// when a server refused it, which is when the same kubectl asks again.
///
/// Credentials are shared by those who have the plugin, its arguments, the cluster and all variables in common, except for
/// variables that only say where you sit, such as PWD, TERM and SSH_TTY.
#[derive(clap::Args)]
#[command(after_help = "\
Example, in a kubeconfig, where the plugin is `aws eks get-token --cluster-name prod`:
  users:
  - name: prod
    user:
      exec:
        apiVersion: client.authentication.k8s.io/v1
        interactiveMode: IfAvailable
        command: waybill
        args: [credential, cache, --, aws, eks, get-token, --cluster-name, prod]

`waybill credential list` shows what is kept, `waybill credential forget` drops it.")]
pub(super) struct Args {
    /// How long to keep a credential that does not say when it expires.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    max_age: Duration,

    /// How long to keep a credential for which nobody asks.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration)]
    idle: Duration,

    /// How long the plugin may take if it has no terminal; it may be waiting for a browser.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    timeout: Duration,

    /// A variable that makes no difference to the plugin; a star at the end stands for anything. Repeat it for more.
    #[arg(long, value_name = "NAME")]
    ignore_env: Vec<String>,

    /// Keep a credential for each working directory, for plugins that look at it by themselves. Relative paths among arguments
    /// and in variables are noticed.
    #[arg(long)]
    per_directory: bool,

    /// Say on standard error where the credential came from.
    #[arg(short, long)]
    verbose: bool,

    /// The plugin and its arguments.
    #[arg(last = true, required = true, value_name = "PLUGIN")]
    plugin: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<Outcome> {
    // We have the credential in memory, too.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .context("keeping debuggers away from this process")?;
    let invocation = args.invocation()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    deliver(&runtime.block_on(fetch(&invocation, args.verbose)))
}

impl Args {
    fn invocation(&self) -> Result<Invocation> {
        let (command, args) = self.plugin.split_first().context("no plugin is named")?;
        // kubectl looks for such a one beside the kubeconfig, which we do not know; here it would be a file of whatever
        // directory somebody works in.
        if command.contains('/') && !command.starts_with('/') {
            bail!(
                "the plugin {command:?} is a relative path: write the whole path, or a name that PATH has"
            );
        }
        let holding = Holding {
            max_age: self.max_age,
            idle: self.idle,
            ignored: self.ignore_env.clone(),
            // In one that was removed no relative path leads anywhere.
            directory: env::current_dir().ok(),
            per_directory: self.per_directory,
        };
        let options = Options { timeout: self.timeout, ..Options::default() };
        Ok(Invocation::new(command.clone(), args.to_vec(), options, holding)?)
    }
}

async fn fetch(invocation: &Invocation, verbose: bool) -> Fetched {
    let notify = |notice: Notice| tell(&notice, verbose);
    match agent::find() {
        Ok(agent) => agent.fetch(invocation, &notify).await,
        Err(error) => {
            if verbose {
                say(&format!("no agent: {}", Chain(&error)));
            }
            invocation.fetch_alone(&notify).await
        }
    }
}

/// Only what explains why nothing seems to happen is told unasked.
fn tell(notice: &Notice, verbose: bool) {
    match notice {
        Notice::Waiting { pid, interactive: true } => {
            say(&format!("waiting for process {pid}, whose credential plugin talks to somebody"));
        }
        Notice::Waiting { pid, interactive: false } => {
            say(&format!("waiting for the credential plugin that process {pid} runs"));
        }
        Notice::Cached if verbose => say("the credential comes from the agent"),
        Notice::Running if verbose => say("running the credential plugin"),
        Notice::NoAgent(error) if verbose => say(&format!("no agent: {}", Chain(error))),
        _ => {}
    }
}

fn say(text: &str) {
    let _ = writeln!(io::stderr(), "waybill credential cache: {}", plain_lines(text));
}

fn deliver(fetched: &Fetched) -> Result<Outcome> {
    match fetched {
        Fetched::Printed(answer) => {
            let mut out = io::stdout().lock();
            out.write_all(answer.expose())?;
            out.flush()?;
            Ok(Outcome::Success)
        }
        Fetched::Failed(failure) => {
            // kubectl knows our name only.
            say(&failure.message);
            Ok(Outcome::Exit(failure.code))
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "expected a duration, such as 90s or 15m".to_owned())
}
