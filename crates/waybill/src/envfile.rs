//! `waybill envfile`: the env-file grammar as a tool, for init containers, CI and editors.
//!
//! Values go to standard output where that is the point (`get`, `json`, `fmt`) and nowhere else: no
//! message of this module shows one.

mod diagnostic;
mod input;

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::{Subcommand, ValueEnum};
use serde::ser::{SerializeMap, Serializer};
use serde_json::json;
use waybill_core::{
    env::{dotenv, file::EnvFile, name::NameRules},
    secret::SecretBytes,
};

use self::{
    diagnostic::{Diagnostic, Report, Style},
    input::{Input, write_file},
};
use crate::Outcome;

/// Check, format and read env files (the files behind `fileKeyRef`).
///
/// An env file holds one NAME='value' per assignment. Everything between the single quotes is the
/// value, line breaks included; there are no escapes and nothing is expanded. Lines that start with
/// # are comments. `bash --posix` reads such a file the same way.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    /// Which names are allowed: what Kubernetes allows today (relaxed), or before 1.34 (strict).
    #[arg(long, global = true, value_name = "RULES", default_value = "relaxed")]
    names: Names,
}

const AFTER_HELP: &str = "\
Examples:
  waybill envfile check app.env
  waybill envfile fmt .env > app.env
  waybill envfile fmt /in/.env --output /config/app.env
  waybill envfile get DB_PASSWORD app.env
  produce | waybill envfile json -

Exit codes: 0 all is well, 1 the file is refused or the key is missing, 2 wrong usage.";

#[derive(Subcommand)]
enum Command {
    /// Say what is wrong with files, line by line, without showing their values.
    Check {
        /// Files to check; - is standard input.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<Input>,

        /// How to print what is wrong.
        #[arg(short, long, default_value = "text")]
        output: Output,
    },
    /// Rewrite a dotenv file into the accepted grammar, or say why that cannot be done.
    ///
    /// Unquoted and double-quoted values, `export`, spaces around `=`, Windows line endings and a
    /// byte order mark are rewritten; comments stay. Where readers of such files disagree, nothing
    /// is guessed and nothing is written.
    Fmt {
        /// File to rewrite; - is standard input.
        file: Input,

        /// Replace the file instead of printing the result.
        #[arg(short, long, conflicts_with = "output")]
        write: bool,

        /// Write the result to this file, whole or not at all; for images without a shell.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Print the value of one key, byte for byte and nothing else; on a terminal with a line break after it.
    Get {
        /// Name to look up.
        key: String,

        /// File to read; - is standard input. KEY and FILE may be swapped.
        file: String,
    },
    /// Print all variables as one JSON object; a value that is not UTF-8 as {"base64": …}.
    Json {
        /// File to read; - is standard input.
        file: Input,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Names {
    Relaxed,
    Strict,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Json,
    Text,
}

impl From<Names> for NameRules {
    fn from(names: Names) -> Self {
        match names {
            Names::Relaxed => Self::Relaxed,
            Names::Strict => Self::Strict,
        }
    }
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    let rules = args.names.into();
    match args.command {
        Command::Check { files, output } => check(&files, rules, output),
        Command::Fmt { file, write, output } => fmt(&file, rules, write, output.as_deref()),
        Command::Get { key, file } => get(&key, &file, rules),
        Command::Json { file } => json(&file, rules),
    }
}

fn check(files: &[Input], rules: NameRules, output: Output) -> Result<Outcome> {
    let mut checked = Vec::new();
    for input in files {
        let text = input.read()?;
        let diagnostics = diagnose(text.expose(), rules);
        checked.push(Checked { input, text, diagnostics });
    }
    match output {
        Output::Json => print_json(&checked)?,
        Output::Text => print_text(&checked, rules)?,
    }
    let clean = checked.iter().all(|file| file.diagnostics.is_empty());
    Ok(if clean { Outcome::Success } else { Outcome::Failure })
}

fn fmt(input: &Input, rules: NameRules, write: bool, output: Option<&Path>) -> Result<Outcome> {
    let text = input.read()?;
    let rewritten = match dotenv::rewrite(text.expose(), rules) {
        Ok(rewritten) => rewritten,
        Err(errors) => {
            let diagnostics: Vec<_> = errors.iter().map(Diagnostic::from).collect();
            return report(input, text.expose(), &diagnostics);
        }
    };
    match output {
        Some(path) => write_file(path, rewritten.expose())?,
        None if write => input.replace(rewritten.expose())?,
        None => io::stdout().write_all(rewritten.expose())?,
    }
    Ok(Outcome::Success)
}

fn get(key: &str, file: &str, rules: NameRules) -> Result<Outcome> {
    let (key, input) = key_and_file(key, file);
    let text = input.read()?;
    let Ok(parsed) = EnvFile::parse(text.expose(), rules) else {
        return report(&input, text.expose(), &diagnose(text.expose(), rules));
    };
    let Some(value) = parsed.get(key) else { bail!("{input} does not define {key:?}") };
    let mut stdout = io::stdout().lock();
    stdout.write_all(value)?;
    if stdout.is_terminal() {
        // The prompt comes next.
        writeln!(stdout)?;
    }
    stdout.flush()?;
    Ok(Outcome::Success)
}

fn json(input: &Input, rules: NameRules) -> Result<Outcome> {
    let text = input.read()?;
    let Ok(parsed) = EnvFile::parse(text.expose(), rules) else {
        return report(input, text.expose(), &diagnose(text.expose(), rules));
    };
    let mut stdout = io::stdout().lock();
    let mut serializer = serde_json::Serializer::pretty(&mut stdout);
    let mut object = serializer.serialize_map(None)?;
    for variable in parsed.variables() {
        match std::str::from_utf8(variable.value()) {
            Ok(text) => object.serialize_entry(variable.name(), text)?,
            Err(_) => {
                let encoded = json!({ "base64": STANDARD.encode(variable.value()) });
                object.serialize_entry(variable.name(), &encoded)?;
            }
        }
    }
    object.end()?;
    writeln!(stdout)?;
    Ok(Outcome::Success)
}

/// `get` takes its two arguments in either order: if only the first is a file, it is the file.
fn key_and_file<'a>(first: &'a str, second: &'a str) -> (&'a str, Input) {
    let (as_typed, swapped) = (Input::from(second), Input::from(first));
    if !as_typed.exists() && swapped.exists() { (second, swapped) } else { (first, as_typed) }
}

/// One file of `check`.
struct Checked<'a> {
    input: &'a Input,
    text: SecretBytes,
    diagnostics: Vec<Diagnostic>,
}

fn diagnose(text: &[u8], rules: NameRules) -> Vec<Diagnostic> {
    EnvFile::faults(text, rules).iter().map(Diagnostic::from).collect()
}

fn print_text(checked: &[Checked<'_>], rules: NameRules) -> Result<()> {
    for Checked { input, text, diagnostics } in checked {
        if diagnostics.is_empty() {
            let count = EnvFile::parse(text.expose(), rules)?.variables().len();
            let plural = if count == 1 { "" } else { "s" };
            writeln!(io::stdout(), "{input}: {count} variable{plural}, no faults")?;
        } else {
            report(input, text.expose(), diagnostics)?;
        }
    }
    Ok(())
}

fn print_json(checked: &[Checked<'_>]) -> Result<()> {
    let to_json = |file: &Checked<'_>| -> Vec<_> {
        file.diagnostics.iter().map(|diagnostic| diagnostic.to_json(file.input)).collect()
    };
    let all: Vec<_> = checked.iter().flat_map(to_json).collect();
    let mut stdout = io::stdout().lock();
    serde_json::to_writer_pretty(&mut stdout, &all)?;
    writeln!(stdout)?;
    Ok(())
}

/// Prints what is wrong to standard error.
fn report(input: &Input, text: &[u8], diagnostics: &[Diagnostic]) -> Result<Outcome> {
    let report = Report { input, text, diagnostics, style: Style::of_stderr() };
    write!(io::stderr().lock(), "{report}")?;
    Ok(Outcome::Failure)
}
