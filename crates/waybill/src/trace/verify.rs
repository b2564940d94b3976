//! `waybill trace verify`: whether the record is as it was written.

use std::{
    io::{self, Write},
    time::Duration,
};

use anyhow::{Result, bail};
use waybill_trace::journal::{LogName, files, verify};

use super::{Args, recorded::record_directory};
use crate::Outcome;

/// So many findings of a log are shown.
const SHOWN: usize = 20;

/// What the chain proves by itself.
const CHAINED: &str = "\
Every line follows from the one before it: none was changed, removed or swapped by itself. Who is root here could have made all lines from
some point on anew, or cut off the end of both logs; that cannot be seen from the record alone.";

/// What it takes to see that too.
const PIN: &str = "\
Keep the last hashes elsewhere, where root of this machine cannot change them, and give them to `waybill trace verify --hash` later: then
everything up to them is proven to be as it is now.";

/// The collector writes what it has some times in a second.
const A_MOMENT: Duration = Duration::from_millis(500);

pub(super) fn run(args: &Args, known: &[String]) -> Result<Outcome> {
    let directory = record_directory(args)?;
    if files(&directory, LogName::Sessions)?.is_empty() {
        bail!("there is no record in {}; a collector writes it", directory.display());
    }
    let report = verify(&directory, known, || std::thread::sleep(A_MOMENT))?;
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
    let pinned = match known.len() {
        0 => PIN.to_owned(),
        count => format!(
            "The record goes on from the {count} hashes that were given: up to there nothing was made anew."
        ),
    };
    writeln!(output, "{CHAINED}\n{pinned}")?;
    Ok(Outcome::Success)
}
