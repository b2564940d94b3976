//! Which of a log's older files are kept, and which are compressed: a pure function of their names.

use std::collections::BTreeSet;

/// What stands after the name of a file that is compressed, or about to be.
pub(super) const COMPRESSED: &str = "gz";
pub(super) const UNFINISHED: &str = "tmp";

/// The files that are written and just rotated.
const YOUNGEST: usize = 2;

/// What to do before a log is rotated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) remove: Vec<String>,
    pub(super) compress: Vec<String>,
}

/// Decides about the older files of a log, of which there may be `max_files` with the one that is written
/// and the one that it becomes. The newest that there is stays as it is until the next one comes:
/// somebody may still be reading it.
pub(super) fn plan(names: Vec<String>, max_files: usize) -> Plan {
    let all: BTreeSet<String> = names.into_iter().collect();
    let is_junk = |name: &str| {
        // Left by somebody who was killed.
        name.ends_with(&format!(".{UNFINISHED}")) || all.contains(&format!("{name}.{COMPRESSED}"))
    };
    let (mut remove, good): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|it| is_junk(it));
    // Names stand in the order of time.
    let excess = good.len().saturating_sub(max_files.saturating_sub(YOUNGEST));
    let mut compress = good;
    remove.extend(compress.drain(..excess));
    compress.retain(|name| !name.ends_with(&format!(".{COMPRESSED}")));
    Plan { remove, compress }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&str], max_files: usize, remove: &[&str], compress: &[&str]) {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = Plan { remove: owned(remove), compress: owned(compress) };
        assert_eq!(plan(owned(names), max_files), expected, "{names:?}");
    }

    #[test]
    fn older_files_are_compressed() {
        check(&[], 5, &[], &[]);
        check(&["l.1"], 5, &[], &["l.1"]);
        check(&["l.3", "l.1.gz", "l.2"], 5, &[], &["l.2", "l.3"]);
    }

    #[test]
    fn the_oldest_go_first() {
        check(&["l.4", "l.1.gz", "l.2.gz", "l.3.gz"], 5, &["l.1.gz"], &["l.4"]);
        check(&["l.1", "l.2"], 3, &["l.1"], &["l.2"]);
        check(&["l.1", "l.2"], 2, &["l.1", "l.2"], &[]);
        check(&["l.1"], 0, &["l.1"], &[]);
    }

    #[test]
    fn what_a_killed_node_left_goes() {
        check(&["l.1", "l.1.gz", "l.2", "l.2.tmp"], 5, &["l.1", "l.2.tmp"], &["l.2"]);
    }
}
