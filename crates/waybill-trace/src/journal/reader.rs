//! Reads a log from where it was read to, across files; what is not whole yet is left for the next time.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use super::{ChainHead, Entry, JournalFile, LogName, entry::VERSION, files};

/// A line that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadLine {
    /// One that says something.
    Entry(ChainHead, Box<Entry>),
    /// One that cannot be read.
    Unreadable,
    /// The file is of a newer version than we know, and is passed over.
    Newer(PathBuf),
}

/// How far a log was read.
#[derive(Debug)]
pub struct JournalReader {
    directory: PathBuf,
    log: LogName,
    /// The file that was read last, and how far.
    at: Option<(u64, u64)>,
}

impl JournalReader {
    /// From the beginning.
    pub fn new(directory: &Path, log: LogName) -> Self {
        Self { directory: directory.to_owned(), log, at: None }
    }

    /// Gives what is new to `take`.
    pub fn read(&mut self, mut take: impl FnMut(ReadLine)) -> io::Result<()> {
        self.read_lines(|_, line| {
            take(line);
            ControlFlow::Continue(())
        })
    }

    /// Gives what is new to `take`, with each line as it stands there, until it wants no more. Then this is of no use any more.
    pub(crate) fn read_lines(
        &mut self,
        mut take: impl FnMut(&[u8], ReadLine) -> ControlFlow<()>,
    ) -> io::Result<()> {
        for file in files(&self.directory, self.log)? {
            let from = match self.at {
                Some((number, _)) if file.number < number => continue,
                Some((number, offset)) if file.number == number => offset,
                _ => 0,
            };
            if self.read_file(&file, from, &mut take)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_file(
        &mut self,
        file: &JournalFile,
        from: u64,
        take: &mut impl FnMut(&[u8], ReadLine) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        let mut opened = match File::open(&file.path) {
            // Removed for its age meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(ControlFlow::Continue(()));
            }
            opened => opened?,
        };
        // A collector that was killed left half a line, which was cut off since.
        let from = from.min(opened.metadata()?.len());
        opened.seek(SeekFrom::Start(from))?;
        let mut reader = BufReader::with_capacity(64 << 10, opened);
        let mut offset = from;
        let mut line = Vec::new();
        loop {
            line.clear();
            let count = reader.read_until(b'\n', &mut line)?;
            if line.pop_if(|last| *last == b'\n').is_none() {
                self.at = Some((file.number, offset));
                return Ok(ControlFlow::Continue(()));
            }
            offset += count as u64;
            let taken = match parse(&line) {
                ReadLine::Entry(_, entry) if is_newer(&entry) => {
                    self.at = Some((file.number, u64::MAX));
                    return Ok(take(&line, ReadLine::Newer(file.path.clone())));
                }
                entry => take(&line, entry),
            };
            if taken.is_break() {
                return Ok(taken);
            }
        }
    }
}

fn is_newer(entry: &Entry) -> bool {
    matches!(entry, Entry::File { version, .. } if *version > VERSION)
}

pub(crate) fn parse(line: &[u8]) -> ReadLine {
    let parsed = || {
        let text = std::str::from_utf8(line).ok()?;
        Some((ChainHead::of(text)?, serde_json::from_str(text).ok()?))
    };
    parsed().map_or(ReadLine::Unreadable, |(head, entry)| ReadLine::Entry(head, Box::new(entry)))
}
