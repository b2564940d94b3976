//! What this machine has: commands, cargo subcommands, toolchains.

use std::{fmt, process::Command};

use crate::process;

/// Something that a chore needs and this machine lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// What is not there.
    pub(crate) why: String,
    /// What to do about it.
    pub(crate) remedy: String,
}

impl Missing {
    pub(crate) fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { why: why.into(), remedy: remedy.into() }
    }

    /// A cargo subcommand that comes as a crate `cargo-<name>`.
    pub(crate) fn cargo_command(name: &str) -> Self {
        Self::new(
            format!("cargo-{name} is not installed"),
            format!("run `cargo install cargo-{name} --locked`"),
        )
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why, self.remedy)
    }
}

/// Whether the shell finds a command of this name.
pub(crate) fn has_command(name: &str) -> bool {
    process::succeeds(Command::new("sh").args(["-c", "command -v \"$1\"", "sh", name]))
}

/// Whether cargo knows the subcommand `name`.
pub(crate) fn has_cargo_command(name: &str) -> bool {
    process::succeeds(Command::new("cargo").args([name, "--version"]))
}

/// Whether rustup has a nightly toolchain. Asking cargo instead could make rustup download one.
pub(crate) fn has_nightly() -> bool {
    process::output(Command::new("rustup").args(["toolchain", "list"]))
        .is_ok_and(|list| list.lines().any(|line| line.starts_with("nightly")))
}

/// Whether we may install packages.
pub(crate) fn is_root() -> bool {
    process::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_found_by_name() {
        assert!(has_command("sh"));
        assert!(!has_command("no-such-command-anywhere"));
        assert!(!has_cargo_command("no-such-command-anywhere"));
    }
}
