//! The program for which a client asks.
//!
//! kubectl does not say that a server refused its credential: it runs the plugin again. So a process that asks a second time
//! is one whose credential was refused, and the agent must know it again. Its number alone could be another's by then;
//! with the time of its start it is unique.
//!
//! `kubectl apply -f -` asks twice in any case: client-go tells programs that need standard input themselves from those that do
//! not, and this one is both. Whether its second ask means anything cannot be seen.

use std::fs;

use rustix::process::getppid;
use serde::{Deserialize, Serialize};

use crate::EXEC_INFO;

/// How many scripts may stand between kubectl and us.
const WRAPPERS: usize = 8;

/// A process, and how it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Asker {
    pid: i32,
    /// In ticks since the machine started.
    start: u64,
    /// On a terminal, the two caches of client-go ask in different words.
    interactive: bool,
    reads_stdin: bool,
}

impl Asker {
    /// Our parent; or, if that is a script which was run with the same question, whoever ran it.
    pub(crate) fn of_this_process(question: &str, interactive: bool) -> Option<Self> {
        let mut pid = getppid()?.as_raw_nonzero().get();
        for _ in 0..WRAPPERS {
            let process = Process::read(pid)?;
            if !was_asked(pid, question) {
                let reads_stdin = reads_stdin(&fs::read(format!("/proc/{pid}/cmdline")).ok()?);
                return Some(Self { pid, start: process.start, interactive, reads_stdin });
            }
            pid = process.parent;
        }
        None
    }

    /// Whether it asks twice even if nothing was refused.
    pub(crate) fn reads_stdin(self) -> bool {
        self.reads_stdin
    }

    #[cfg(test)]
    pub(crate) fn test(pid: i32) -> Self {
        Self { pid, start: 1, interactive: false, reads_stdin: false }
    }

    #[cfg(test)]
    pub(crate) fn test_reading_stdin(pid: i32) -> Self {
        Self { reads_stdin: true, ..Self::test(pid) }
    }
}

struct Process {
    parent: i32,
    start: u64,
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// proc(5): the second field is a name in brackets, which may have brackets and blanks in it.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let start = fields.nth(17)?.parse().ok()?;
        Some(Self { parent, start })
    }
}

/// Whether the question stands in the environment of a process. What we may not read is not a script of ours.
fn was_asked(pid: i32, question: &str) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    let value = |entry: &[u8]| {
        entry
            .strip_prefix(EXEC_INFO.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
            .map(<[u8]>::to_vec)
    };
    environment.split(|&byte| byte == 0).filter_map(value).any(|value| value == question.as_bytes())
}

/// Whether a command line has `-f -`, in one of the ways to write it.
fn reads_stdin(command_line: &[u8]) -> bool {
    let mut words = command_line.split(|&byte| byte == 0);
    words.any(|word| word == b"-" || word == b"-f-" || word.ends_with(b"=-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_read_manifests_from_standard_input_are_known() {
        for line in
            ["kubectl\0apply\0-f\0-\0", "kubectl\0diff\0--filename=-\0", "oc\0create\0-f-\0"]
        {
            assert!(reads_stdin(line.as_bytes()), "{line:?}");
        }
        for line in ["kubectl\0apply\0-f\0a-\0", "kubectl\0get\0-A\0--\0", ""] {
            assert!(!reads_stdin(line.as_bytes()), "{line:?}");
        }
    }

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "42 (a) b (c)) S 7 1 1 0 -1 4194304 1 0 0 0 1 2 0 0 20 0 1 0 98765 1 1 18446744073709551615";
        let process = Process::parse(stat).unwrap();
        assert_eq!((process.parent, process.start), (7, 98765));
        assert!(Process::parse("").is_none() && Process::parse("1 (x) S").is_none());
    }

    #[test]
    fn our_parent_asks_unless_it_was_asked_itself() {
        let asker = Asker::of_this_process("no such question", false).unwrap();
        assert_eq!(Some(asker.pid), getppid().map(|pid| pid.as_raw_nonzero().get()));
        assert_eq!(Some(asker), Asker::of_this_process("no such question", false));
    }
}
