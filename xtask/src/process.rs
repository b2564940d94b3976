//! Runs other programs, and says which one failed.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs `command` with its output shown, and fails if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = display(command);
    println!("$ {line}");
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs `command` and returns what it printed to its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let printed = output_bytes(command)?;
    let other = || format!("`{}` printed other than UTF-8", display(command));
    String::from_utf8(printed).with_context(other)
}

/// The same, of a program that prints more than text.
pub(crate) fn output_bytes(command: &mut Command) -> Result<Vec<u8>> {
    let line = display(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed ({})", output.status);
    }
    Ok(output.stdout)
}

/// Whether `command` starts and succeeds; nothing is shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// The command as one would type it.
fn display(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let variables = set.map(|(name, value)| {
        format!("{}={}", name.to_string_lossy(), quoted(&value.to_string_lossy()))
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(|word| quoted(&word.to_string_lossy()));
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=+:,@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_is_typed() {
        let mut command = Command::new("cargo");
        command.args(["bench", "--bench", "*"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(display(&command), "RUSTDOCFLAGS='-D warnings' cargo bench --bench '*'");
    }

    #[test]
    fn a_failed_command_is_named_in_the_error() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "`sh -c 'exit 3'` failed (exit status: 3)");
        assert!(output(Command::new("false").arg("x")).is_err());
        assert!(!succeeds(&mut Command::new("no-such-command-anywhere")));
    }
}
