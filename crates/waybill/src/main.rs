//! The one binary. This file parses the command line and turns results into exit codes:
//! 0 success, 1 failure, 2 usage.

mod agent;
mod apiserver;
mod apply;
mod builtin;
mod cluster;
mod collector;
mod columns;
mod credential;
mod delete;
mod demo;
mod doctor;
mod driver;
mod encryption;
mod env;
mod envfile;
mod erase;
mod exec;
mod gate;
mod get;
mod hello;
mod image;
mod install;
mod log;
mod login;
mod logs;
mod machine;
mod migrate;
mod names;
mod node;
mod open_files;
mod rest;
mod runtime;
mod signals;
mod state_dir;
mod status;
mod supervised;
mod swap;
mod target;
mod terminal;
mod trace;
mod up;
mod version;

use std::{
    ffi::OsStr,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use waybill_core::chain::Chain;
use waybill_runtime::engine::Spawner;

/// kubectl runs a program of this name for `kubectl waybill`; a link to ours is enough.
const PLUGIN: &str = "kubectl-waybill";

/// Carries environment variables, and the identity behind an exec session, into containers.
#[derive(Parser)]
#[command(name = "waybill", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    /// The process with which this one ends; `waybill up` says so to its roles.
    #[arg(long, value_name = "PID", hide = true)]
    supervisor: Option<u32>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(Box<up::Args>),
    Demo(demo::Args),
    Apply(apply::Args),
    Get(get::Args),
    Credential(credential::Args),
    Delete(delete::Args),
    Logs(logs::Args),
    Env(env::Args),
    Envfile(envfile::Args),
    Exec(exec::Args),
    Image(image::Args),
    Login(login::Args),
    Migrate(migrate::Args),
    Names(names::Args),
    Apiserver(Box<apiserver::Args>),
    Node(Box<node::Args>),
    Runtime(runtime::Args),
    Driver(driver::Args),
    Collector(collector::Args),
    Encryption(encryption::Args),
    Erase(erase::Args),
    Gate(gate::Args),
    Agent(agent::Args),
    Install(install::Args),
    Uninstall(install::RemoveArgs),
    Trace(trace::Args),
    Status(status::Args),
    Doctor(doctor::Args),
    Version(version::Args),
    #[command(hide = true)]
    Hello(hello::Args),
    #[command(hide = true)]
    OnHost(agent::OnHostArgs),
}

fn main() -> ExitCode {
    // A process that the runtime started for itself goes no further.
    Spawner::serve_if_asked();
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(usage) => {
            // Help and version come this way too, with exit code 0 and standard output.
            let _ = usage.print();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2));
        }
    };
    let ended = cli.run();
    signals::wait_if_ending();
    match ended {
        Ok(outcome) => outcome.into(),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Kubeconfigs and servers have their words in it.
            let text = terminal::plain_lines(&Chain(error.as_ref()).to_string());
            let _ = writeln!(io::stderr(), "error: {text}");
            ExitCode::FAILURE
        }
    }
}

impl Cli {
    /// Reads the command line. Help and errors name the program as it was called.
    fn read() -> Result<Self, clap::Error> {
        let mut command = Self::command();
        if is_plugin(std::env::args_os().next().as_deref()) {
            command = command.bin_name("kubectl waybill");
        }
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }

    fn run(self) -> anyhow::Result<Outcome> {
        if let Some(supervisor) = self.supervisor {
            supervised::end_with(supervisor)?;
        }
        if !matches!(self.command, Command::Hello(_)) {
            // Memory holds keys, tokens and values, that of a client too: no debugger, no core dump.
            set_dumpable_behavior(DumpableBehavior::NotDumpable)
                .context("keeping debuggers away from this process")?;
        }
        if self.command.runs_plugins() {
            signals::end_plugins_too().context("listening for signals")?;
        }
        if matches!(
            self.command,
            Command::Apiserver(_) | Command::Driver(_) | Command::Gate(_) | Command::Node(_)
        ) {
            open_files::raise();
        }
        match self.command {
            Command::Agent(args) => agent::run(&args),
            Command::Apiserver(args) => apiserver::run(*args),
            Command::Apply(args) => apply::run(args),
            Command::Collector(args) => collector::run(&args),
            Command::Credential(args) => credential::run(&args),
            Command::Delete(args) => delete::run(args),
            Command::Demo(args) => demo::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Driver(args) => driver::run(args),
            Command::Encryption(args) => encryption::run(args),
            Command::Env(args) => env::run(&args),
            Command::Envfile(args) => envfile::run(args),
            Command::Erase(args) => erase::run(&args),
            Command::Exec(args) => exec::run(args),
            Command::Gate(args) => gate::run(args),
            Command::Get(args) => get::run(&args),
            Command::Hello(args) => hello::run(&args),
            Command::Image(args) => image::run(args),
            Command::Install(args) => install::run(&args),
            Command::Login(args) => login::run(&args),
            Command::Logs(args) => logs::run(&args),
            Command::Migrate(args) => migrate::run(args),
            Command::Names(args) => names::run(&args),
            Command::Node(args) => node::run(*args),
            Command::OnHost(args) => agent::run_on_host(&args),
            Command::Runtime(args) => runtime::run(args),
            Command::Status(args) => status::run(&args),
            Command::Trace(args) => trace::run(&args),
            Command::Uninstall(args) => install::run_remove(&args),
            Command::Up(args) => up::run(*args),
            Command::Version(args) => version::run(&args),
        }
    }
}

impl Command {
    /// Whether it runs credential plugins for somebody who may end it at any time. Roles end in their own ways.
    fn runs_plugins(&self) -> bool {
        match self {
            Self::Apply(_) | Self::Delete(_) | Self::Env(_) | Self::Exec(_) | Self::Get(_) => true,
            Self::Logs(_) | Self::Migrate(_) | Self::Names(_) => true,
            Self::Install(_) | Self::Status(_) | Self::Uninstall(_) => true,
            Self::Credential(args) => args.runs_plugins(),
            Self::Apiserver(_) | Self::Driver(_) | Self::Gate(_) | Self::Node(_) => false,
            Self::Demo(_) | Self::Runtime(_) | Self::Trace(_) | Self::Up(_) => false,
            Self::Agent(_)
            | Self::Collector(_)
            | Self::Doctor(_)
            | Self::OnHost(_)
            | Self::Version(_) => false,
            Self::Encryption(_)
            | Self::Envfile(_)
            | Self::Erase(_)
            | Self::Hello(_)
            | Self::Image(_)
            | Self::Login(_) => false,
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

fn is_plugin(program: Option<&OsStr>) -> bool {
    program.and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == PLUGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_of_the_right_name_is_a_plugin_of_kubectl() {
        let is_plugin = |program: &str| is_plugin(Some(OsStr::new(program)));
        assert!(is_plugin("/usr/local/bin/kubectl-waybill") && is_plugin("kubectl-waybill"));
        assert!(!is_plugin("/usr/local/bin/waybill") && !is_plugin("/kubectl-waybill/waybill"));
    }

    /// Conflicts and doubled names in the definitions of flags.
    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
