//! One program that ran in a session.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::EventSource;
use crate::membership::MoveReason;

/// One program, from when a process began to run it until the process ended or ran another one.
///
/// `session`, `pid` and `started` together name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedProcess {
    /// The [`id`](super::RecordedSession::id) of its session.
    pub session: String,
    /// As the machine counts.
    pub pid: u32,
    /// The process that made it, or who took over when that was gone, as the machine counts.
    pub parent: u32,
    /// The nearest process above it that ran a program of this session; absent for the first one. This makes the tree: a shell's
    /// subshell is a parent that runs no program of its own.
    pub parent_program: Option<u32>,
    /// The user id, as the machine counts.
    pub uid: u32,
    /// The file, as whoever started it named it.
    pub program: String,
    /// Its arguments, the first of which is the name it was given. Those that look like secrets are hidden.
    pub arguments: Vec<String>,
    /// Whether there are more arguments than these, or longer ones.
    pub cut: bool,
    /// Which of them are hidden, whole or in part, counted from 0: a process may write itself whatever stands there instead.
    pub hidden_at: Vec<u32>,
    /// When it began.
    #[serde(with = "crate::time::micros")]
    pub started: Timestamp,
    /// Whether it runs, or what became of it.
    pub state: ProcessState,
    /// When it ended; absent while it runs, and where its end is not known.
    #[serde(with = "crate::time::optional_micros")]
    pub ended: Option<Timestamp>,
    /// Its exit code, if it exited.
    pub exit_code: Option<i32>,
    /// The signal, if one ended it.
    pub signal: Option<i32>,
    /// What gives away that the process did not begin in this session: then nobody is behind it who is behind the session.
    #[serde(default)]
    pub moved: Option<MoveReason>,
    /// Where this is known from.
    pub source: EventSource,
}

impl RecordedProcess {
    /// Whether a text is in the program or its arguments.
    pub(crate) fn has(&self, text: &str) -> bool {
        self.program.contains(text) || self.arguments.join(" ").contains(text)
    }

    /// The same for a text in lower case, whatever capitals there are.
    pub(crate) fn has_any_case(&self, text: &str) -> bool {
        self.program.to_lowercase().contains(text)
            || self.arguments.join(" ").to_lowercase().contains(text)
    }
}

/// Whether a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    /// It does, as far as the record can tell.
    Running,
    /// It exited, or a signal ended it.
    Ended,
    /// Its process ran another program in its place.
    Replaced,
    /// Its end was not recorded, and it does not run any more.
    Unknown,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_have_six_digits_so_that_lines_sort_as_text() {
        let process = json!({
            "session": "s1", "pid": 8, "parent": 7, "parentProgram": null, "uid": 0, "program": "/bin/sh",
            "arguments": ["sh"], "cut": false, "hiddenAt": [], "started": "2026-01-02T03:04:05.000000Z",
            "ended": "2026-01-02T03:04:05.120000Z", "exitCode": 0, "signal": null, "state": "ended",
            "moved": null, "source": "ebpf",
        });
        let read: RecordedProcess = serde_json::from_value(process.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), process);
    }
}
