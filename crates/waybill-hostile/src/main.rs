//! Attacks from inside a container, one for each first argument.
//!
//! Tests build this program without shared libraries (`waybill_testkit::hostile`), put it into images and run it there. An attack
//! that works exits with 0 and says on standard output what it got; one that was stopped exits with 1 and says on standard error what
//! stopped it. So a test that expects 1 has its negative control in a container where nothing stops it.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this program tells the test what happened"
)]

mod cgroups;
mod fork;
mod inheritance;
mod machine;
mod other_process;
mod planted;
mod proc_files;
mod rights;
mod running_program;
mod sockets;
mod spy;
mod user_namespace;

use std::process::ExitCode;

/// How an attack ended: what it got, or what stopped it.
type Outcome = Result<String, String>;

/// An attack, given the arguments after its name.
type Attack = fn(&[String]) -> Outcome;

/// By name.
const ATTACKS: &[(&str, Attack)] = &[
    ("abstract-sockets", sockets::connect),
    ("cgroups-enter", cgroups::enter),
    ("cgroups-lift", cgroups::lift),
    ("cgroups-see", cgroups::see),
    ("descriptors", inheritance::descriptors),
    (planted::EFFECTIVE_USER, planted::effective_user),
    ("file-of-the-machine", rights::file_of_the_machine),
    ("fork-until-refused", fork::until_refused),
    ("hidden", machine::hidden),
    ("keyring", inheritance::keyring),
    ("levers", machine::levers),
    ("outer-directory", inheritance::directory),
    (fork::STAND_STILL, fork::stand_still),
    ("overwrite", running_program::overwrite),
    ("planted", planted::run),
    ("ptrace", other_process::attach),
    ("redirected", proc_files::redirected),
    ("release-agent", machine::release_agent),
    ("rights", rights::of_the_machine),
    ("spy", spy::on_those_who_enter),
    ("stranger", rights::stranger),
    ("user-namespace", user_namespace::enter),
    ("write-memory", other_process::write),
];

/// What a call that names no attack gets, so that no test takes it for one that was stopped.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else { return usage() };
    let Some((_, attack)) = ATTACKS.iter().find(|(known, _)| known == name) else { return usage() };
    match attack(rest) {
        Ok(got) => {
            println!("{got}");
            ExitCode::SUCCESS
        }
        Err(stopped) => {
            eprintln!("{name}: {stopped}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    let names: Vec<&str> = ATTACKS.iter().map(|(name, _)| *name).collect();
    eprintln!("usage: hostile ATTACK [ARGUMENT]...; attacks: {}", names.join(" "));
    ExitCode::from(USAGE)
}
