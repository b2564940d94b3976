//! `waybill doctor`: what this machine lacks for a cluster, and what to do about it.

use std::io::{self, Write};

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    Outcome,
    machine::{self, Finding, Verdict},
};

/// Look at what this machine lacks for a cluster, and say what to do about it.
///
/// Changes nothing. Exits with 1 if `waybill up` could not run here.
#[derive(clap::Args)]
#[command(after_help = "\
✓ is there; ! is not, and a cluster runs with less; ✗ is not, and no cluster runs.")]
pub(crate) struct Args {
    /// How to print.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Json,
    Table,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let findings = machine::examine();
    let text = match args.output {
        Output::Json => {
            let all: Vec<_> = findings.iter().map(object).collect();
            serde_json::to_string_pretty(&all)? + "\n"
        }
        Output::Table => findings.iter().map(line).collect(),
    };
    write!(io::stdout(), "{text}")?;
    let fit = findings.iter().all(|it| it.verdict != Verdict::Missing);
    Ok(if fit { Outcome::Success } else { Outcome::Failure })
}

fn line(finding: &Finding) -> String {
    let sign = match finding.verdict {
        Verdict::Good => '✓',
        Verdict::Less => '!',
        Verdict::Missing => '✗',
    };
    let mut line = format!("{sign} {:<16} {}", finding.subject, finding.seen).trim_end().to_owned();
    if !finding.remedy.is_empty() {
        line.push_str(&format!("; {}", finding.remedy));
    }
    line + "\n"
}

fn object(finding: &Finding) -> Value {
    let verdict = match finding.verdict {
        Verdict::Good => "good",
        Verdict::Less => "less",
        Verdict::Missing => "missing",
    };
    json!({
        "subject": finding.subject,
        "verdict": verdict,
        "seen": finding.seen,
        "remedy": finding.remedy,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_sign_subject_and_remedy() {
        let lacking = Finding {
            subject: "overlay",
            verdict: Verdict::Missing,
            seen: "is not there".to_owned(),
            remedy: "run `modprobe overlay`",
        };
        assert_eq!(line(&lacking), "✗ overlay          is not there; run `modprobe overlay`\n");
        let good =
            Finding { verdict: Verdict::Good, seen: String::new(), remedy: "", ..lacking.clone() };
        assert_eq!(line(&good), "✓ overlay\n");
        assert_eq!(object(&lacking)["verdict"], "missing");
    }
}
