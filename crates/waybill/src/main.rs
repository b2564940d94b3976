//! The one binary. This file parses the command line and turns results into exit codes:
//! 0 success, 1 failure, 2 usage.

mod apiserver;
mod cluster;
mod envfile;
mod exec;
mod image;
mod log;
mod login;
mod runtime;
mod trace;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use waybill_core::chain::Chain;
use waybill_runtime::engine::Spawner;

/// Carries environment variables, and the identity behind an exec session, into containers.
#[derive(Parser)]
#[command(name = "waybill", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Apiserver(Box<apiserver::Args>),
    Envfile(envfile::Args),
    Exec(exec::Args),
    Image(image::Args),
    Login(login::Args),
    Runtime(runtime::Args),
    Trace(trace::Args),
}

fn main() -> ExitCode {
    // A process that the runtime started for itself goes no further.
    Spawner::serve_if_asked();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => {
            // Help and version come this way too, with exit code 0 and standard output.
            let _ = usage.print();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2));
        }
    };
    let result = match cli.command {
        Command::Apiserver(args) => apiserver::run(*args),
        Command::Envfile(args) => envfile::run(args),
        Command::Exec(args) => exec::run(args),
        Command::Image(args) => image::run(args),
        Command::Login(args) => login::run(&args),
        Command::Runtime(args) => runtime::run(args),
        Command::Trace(args) => trace::run(&args),
    };
    match result {
        Ok(outcome) => outcome.into(),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", Chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// How a command that ran to its end went; what was wrong has been printed.
enum Outcome {
    Success,
    Failure,
    /// With the exit code of a command that was run for the user.
    Exit(u8),
    /// The command line was wrong.
    Usage,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Success => Self::SUCCESS,
            Outcome::Failure => Self::FAILURE,
            Outcome::Exit(code) => Self::from(code),
            Outcome::Usage => Self::from(2),
        }
    }
}

/// A reader that has seen enough, such as `head`, is not a failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = match error.downcast_ref::<serde_json::Error>() {
        Some(json) => json.io_error_kind(),
        None => error.downcast_ref::<io::Error>().map(io::Error::kind),
    };
    kind == Some(io::ErrorKind::BrokenPipe)
}
