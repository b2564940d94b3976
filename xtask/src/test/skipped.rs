//! The tests that ran and did nothing, because this machine lacks a program.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context, Result, bail};

/// Names the file to which such a test adds a line with the name of the program.
pub(super) const VARIABLE: &str = "WAYBILL_SKIPPED";

/// That file; it goes away with this.
pub(super) struct Skipped(PathBuf);

impl Skipped {
    /// Starts with none.
    pub(super) fn none() -> Result<Self> {
        let file = env::temp_dir().join(format!("waybill-skipped-{}", process::id()));
        fs::write(&file, "").with_context(|| format!("writing {}", file.display()))?;
        Ok(Self(file))
    }

    pub(super) fn add(&self, tool: &str) -> Result<()> {
        let mut file = fs::File::options().append(true).open(&self.0)?;
        Ok(writeln!(file, "{tool}")?)
    }

    pub(super) fn file(&self) -> &Path {
        &self.0
    }

    /// How many tests each program would have served.
    pub(super) fn counts(&self) -> BTreeMap<String, usize> {
        count(&fs::read_to_string(&self.0).unwrap_or_default())
    }
}

impl Drop for Skipped {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Fails if a test was skipped for want of a program that is not excused.
pub(super) fn judge(counts: &BTreeMap<String, usize>, excused: &[&str]) -> Result<()> {
    let faults: Vec<_> =
        counts.iter().filter(|(tool, _)| !excused.contains(&tool.as_str())).map(line).collect();
    if !faults.is_empty() {
        bail!("{}", faults.join("; "));
    }
    Ok(())
}

/// One line for people.
pub(super) fn line((tool, count): (&String, &usize)) -> String {
    let tests = if *count == 1 { "test was" } else { "tests were" };
    format!("{count} {tests} skipped for want of {tool}")
}

fn count(lines: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for tool in lines.lines() {
        *counts.entry(tool.to_owned()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_is_a_failure_unless_it_is_excused() {
        let counts = count("etcd\nkubectl\nkubectl\n");
        assert_eq!(
            judge(&counts, &["etcd"]).unwrap_err().to_string(),
            "2 tests were skipped for want of kubectl"
        );
        judge(&counts, &["etcd", "kubectl"]).unwrap();
        judge(&count(""), &[]).unwrap();
    }
}
