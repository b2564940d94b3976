//! `waybill exec`: a command in a container, with variables of its own.

mod sealed;
mod terminal;

use std::{
    ffi::OsString,
    io::{self, IsTerminal, Write},
    os::{fd::AsFd, unix::ffi::OsStrExt},
};

use anyhow::{Context, Result};
use jiff::Timestamp;
use tokio::fs::File;
use waybill_api::exec::{ExecVar, PodExecOptions};
use waybill_client::exec::{Executor, Local};
use waybill_stream::outcome;

use self::terminal::RawTerminal;
use crate::{Outcome, cluster::ClusterArgs, target::parse_pod, terminal::plain_lines};

/// Run a command in a container, with variables for this one session.
///
/// The variables reach the command's process whatever the image holds: no shell and no `env` program
/// is needed. They win over those of the container. The cluster records the request under an audit ID,
/// which the process finds in KUBERNETES_EXEC_AUDIT_ID.
///
/// The exit code is the command's own.
#[derive(clap::Args)]
#[command(after_help = "\
Values travel in the address of the request, so servers and proxies on the way may log them, and other
users of this machine may see them in the list of processes. Waybill's own audit log masks them. On a cluster
of stock components with `waybill gate` they are sealed for the node of the pod, and nobody on the way reads them.

Examples:
  waybill exec web -- date
  waybill exec web -c app --env LOG_LEVEL=debug --env FEATURE=on -- /app/tool --check
  waybill exec -it web -- sh")]
pub(crate) struct Args {
    /// The pod, as NAME or pod/NAME.
    #[arg(value_name = "POD", value_parser = parse_pod)]
    pod: String,

    /// The container; without it the pod's default one.
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<String>,

    /// Pass the standard input to the command.
    #[arg(short = 'i', long)]
    stdin: bool,

    /// Give the command a terminal.
    #[arg(short, long)]
    tty: bool,

    /// Variable for this session, as NAME=VALUE; repeatable. The value may be empty.
    // Not parsed by clap, whose errors repeat what they refuse.
    #[arg(short, long, value_name = "NAME=VALUE", allow_hyphen_values = true)]
    env: Vec<OsString>,

    #[command(flatten)]
    cluster: ClusterArgs,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    let env = match variables(&args.env) {
        Ok(env) => env,
        Err(message) => {
            writeln!(io::stderr(), "error: {message}")?;
            return Ok(Outcome::Usage);
        }
    };
    let tty = args.tty && is_terminal(args.stdin);
    if args.tty && !tty {
        writeln!(io::stderr(), "warning: this is no terminal, so the command gets none")?;
    }
    let options = PodExecOptions {
        stdin: args.stdin,
        stdout: true,
        stderr: !tty,
        tty,
        container: args.container.unwrap_or_default(),
        command: args.command,
        env,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(session(&args.cluster, &args.pod, options));
    // A thread may still wait for a key that nobody will press.
    runtime.shutdown_background();
    outcome
}

async fn session(cluster: &ClusterArgs, pod: &str, mut options: PodExecOptions) -> Result<Outcome> {
    let executor = Executor::new(&cluster.options()).await?;
    if !options.env.is_empty() && !executor.passes_variables().await.unwrap_or(true) {
        let requests = cluster.connect().await?.requests;
        let now = Timestamp::now().as_second();
        if !sealed::seal(&requests, executor.namespace(), pod, &mut options, now).await? {
            writeln!(
                io::stderr(),
                "warning: this API server does not know variables of exec sessions and will drop them"
            )?;
        }
    }
    let session = executor.start(executor.namespace(), pod, &options).await?;
    let terminal = options.tty.then(RawTerminal::enter).transpose();
    let terminal = terminal.context("setting up the terminal")?;
    let local = Local {
        stdin: options.stdin.then(|| standard(io::stdin())).transpose()?,
        stdout: standard(io::stdout())?,
        stderr: standard(io::stderr())?,
        sizes: terminal.as_ref().map(RawTerminal::sizes).transpose()?,
    };
    let ended = session.run(local).await;
    drop(terminal);
    Ok(match ended? {
        outcome::Outcome::Success => Outcome::Success,
        outcome::Outcome::Exit(code) => {
            writeln!(io::stderr(), "command terminated with exit code {code}")?;
            Outcome::Exit(u8::try_from(code).unwrap_or(1))
        }
        outcome::Outcome::Failure(message) => {
            writeln!(io::stderr(), "error: {}", plain_lines(&message))?;
            Outcome::Failure
        }
    })
}

/// A standard stream of ours, to be awaited.
fn standard(stream: impl AsFd) -> Result<File> {
    Ok(File::from_std(stream.as_fd().try_clone_to_owned()?.into()))
}

/// The variables in their order. Errors say which one is wrong, and never repeat it: it may be a secret
/// whose name was forgotten.
fn variables(given: &[OsString]) -> Result<Vec<ExecVar>, String> {
    let parse = |(at, text): (usize, &OsString)| {
        ExecVar::parse(text.as_bytes()).map_err(|error| format!("--env number {}: {error}", at + 1))
    };
    given.iter().enumerate().map(parse).collect()
}

/// Whether there is a terminal to join the command's with.
fn is_terminal(stdin: bool) -> bool {
    if stdin { io::stdin().is_terminal() } else { io::stdout().is_terminal() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EXEC-43
    #[test]
    fn variables_keep_their_order_and_everything_after_the_first_equals_sign() {
        let given = ["B=", "A=a=b", "C=$(X) ' \""].map(OsString::from);
        let found = variables(&given).unwrap();
        let found: Vec<_> =
            found.iter().map(|variable| (variable.name(), variable.value().expose())).collect();
        assert_eq!(found, [("B", &b""[..]), ("A", b"a=b"), ("C", b"$(X) ' \"")]);
    }

    /// EXEC-44: and the text is not repeated, since it may be a secret.
    #[test]
    fn what_is_no_assignment_is_refused_by_its_place() {
        for wrong in ["hunter2", "=hunter2"] {
            let error = variables(&["A=1".into(), wrong.into()]).unwrap_err();
            assert!(error.starts_with("--env number 2: "), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
