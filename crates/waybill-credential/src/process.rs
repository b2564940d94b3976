//! What the kernel tells about processes.

use std::fs;

use rustix::{
    fs::{Mode, OFlags, open},
    process::Pid,
};

use crate::EXEC_INFO;

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// In ticks since the machine started. With it the number of a process is unique.
    pub(crate) start: u64,
}

impl Process {
    pub(crate) fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// All that can be seen.
    pub(crate) fn all() -> impl Iterator<Item = (i32, Self)> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter_map(|pid| Some((pid, Self::read(pid)?)))
    }

    /// proc(5): the second field is a name in brackets, which may have brackets and blanks in it.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let start = fields.nth(16)?.parse().ok()?;
        Some(Self { parent, group, start })
    }
}

/// Whether a plugin's question stands in the environment of a process. What we may not read has none.
pub(crate) fn was_asked(pid: i32, question: &str) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    let value = |entry: &[u8]| {
        entry
            .strip_prefix(EXEC_INFO.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
            .map(<[u8]>::to_vec)
    };
    environment.split(|&byte| byte == 0).filter_map(value).any(|value| value == question.as_bytes())
}

/// Whether a person could be asked something, wherever standard input comes from.
pub(crate) fn has_terminal() -> bool {
    open("/dev/tty", OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

/// The same number as others have it.
pub(crate) fn raw(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "42 (a) b (c)) S 7 8 9 0 -1 4194304 1 0 0 0 1 2 0 0 20 0 1 0 98765 1 1 18446744073709551615";
        let process = Process::parse(stat).unwrap();
        assert_eq!(process, Process { parent: 7, group: 8, start: 98765 });
        assert!(Process::parse("").is_none() && Process::parse("1 (x) S").is_none());
    }

    #[test]
    fn this_process_is_among_all() {
        let own = raw(rustix::process::getpid());
        let found = Process::all().find(|&(pid, _)| pid == own).unwrap().1;
        assert_eq!(found.group, raw(rustix::process::getpgrp()));
    }
}
