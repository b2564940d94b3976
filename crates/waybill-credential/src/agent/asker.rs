//! The program for which a client asks.
//!
//! kubectl does not say that a server refused its credential: it runs the plugin again. So a process that asks a second time
//! is one whose credential was refused, and the agent must know it again. Its number alone could be another's by then;
//! with the time of its start it is unique.
//!
//! A shell on a terminal gives each command a process group of its own, which kubectl does not: somebody who types the command
//! twice was not refused anything.
//!
//! `kubectl apply -f -` asks twice in any case: client-go tells programs that need standard input themselves from those that do
//! not, and this one is both. Whether its second ask means anything cannot be seen.

use std::fs;

use rustix::process::{getpgrp, getppid};
use serde::{Deserialize, Serialize};

use crate::process::{Process, has_terminal, raw, was_asked};

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
    /// Our parent; or, if that is a script which was run with the same question, whoever ran it. None if that is somebody's
    /// shell.
    pub(crate) fn of_this_process(question: &str, interactive: bool) -> Option<Self> {
        let mut pid = raw(getppid()?);
        for _ in 0..WRAPPERS {
            let process = Process::read(pid)?;
            if !was_asked(pid, question) {
                if is_shell(process, raw(getpgrp()), has_terminal()) {
                    return None;
                }
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

/// Whether a process that is above ours does job control.
fn is_shell(process: Process, own_group: i32, terminal: bool) -> bool {
    terminal && process.group != own_group
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
    fn our_parent_asks_unless_it_was_asked_itself() {
        let asker = Asker::of_this_process("no such question", false);
        let parent = raw(getppid().unwrap());
        let shell = is_shell(Process::read(parent).unwrap(), raw(getpgrp()), has_terminal());
        assert_eq!(asker.map(|asker| asker.pid), (!shell).then_some(parent));
        assert_eq!(asker, Asker::of_this_process("no such question", false));
    }

    #[test]
    fn somebody_who_types_a_command_twice_was_refused_nothing() {
        let process = |group| Process { parent: 1, group, start: 1 };
        assert!(is_shell(process(7), 8, true));
        assert!(!is_shell(process(8), 8, true), "kubectl, on a terminal");
        assert!(!is_shell(process(7), 8, false), "a client that gives us a group, as ours do");
    }
}
