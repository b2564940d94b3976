//! The files of the record, and their order.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// Which log a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogName {
    /// Who asked, for what and until when, and what happened to the record.
    Sessions,
    /// What ran.
    Programs,
}

impl LogName {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sessions, Self::Programs];

    /// As in the names of files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Programs => "programs",
        }
    }

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Sessions => Self::Programs,
            Self::Programs => Self::Sessions,
        }
    }
}

/// One file of a log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JournalFile {
    /// Later files have higher numbers.
    pub number: u64,
    /// Where it is.
    pub path: PathBuf,
}

impl JournalFile {
    /// `sessions-00000001.jsonl`.
    pub(super) fn new(directory: &Path, log: LogName, number: u64) -> Self {
        let path = directory.join(format!("{}-{number:08}.jsonl", log.as_str()));
        Self { number, path }
    }
}

/// The files of a log, oldest first. None if there is no such directory.
pub fn files(directory: &Path, log: LogName) -> io::Result<Vec<JournalFile>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| {
            let number = name.strip_prefix(log.as_str())?.strip_prefix('-')?;
            number.strip_suffix(".jsonl")?.parse().ok()
        });
        if let Some(number) = number {
            found.push(JournalFile { number, path: directory.join(&name) });
        }
    }
    found.sort();
    Ok(found)
}
