//! `waybill trace verify`: whether the record is as it was written.

use std::io::{self, Write};

use anyhow::{Result, bail};
use waybill_trace::journal::{LogName, files, verify};

use super::{Args, recorded::record_directory};
use crate::Outcome;

/// So many findings of a log are shown.
const SHOWN: usize = 20;

pub(super) fn run(args: &Args, known: &[String]) -> Result<Outcome> {
    let directory = record_directory(args)?;
    if files(&directory, LogName::Sessions)?.is_empty() {
        bail!("there is no record in {}; a collector writes it", directory.display());
    }
    let report = verify(&directory, known)?;
    let mut output = io::stdout().lock();
    for log in &report.logs {
        let (name, head) = (log.log.as_str(), &log.head);
        writeln!(
            output,
            "{name}: {} lines, from line {} to line {}; the last hash is {}",
            log.lines, log.first, head.n, head.hash
        )?;
        for finding in log.findings.iter().take(SHOWN) {
            writeln!(output, "  {} {}", finding.place, finding.what)?;
        }
        if log.findings.len() > SHOWN {
            writeln!(output, "  and {} more", log.findings.len() - SHOWN)?;
        }
    }
    if !report.is_whole() {
        writeln!(output, "The record is not as it was written.")?;
        return Ok(Outcome::Failure);
    }
    writeln!(
        output,
        "Every line follows from the one before it. Whether the end of both logs was cut off cannot be known from here: keep the last \
         hashes elsewhere, and give them to `waybill trace verify --hash` later."
    )?;
    Ok(Outcome::Success)
}
