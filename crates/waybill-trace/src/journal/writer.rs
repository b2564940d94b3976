//! Writes one log: lines in memory, then in batches to the file, then to the disk; files of limited size, and not too many.
//!
//! What cannot be written is kept up to a limit and tried again; beyond it lines are refused, and whoever gave them counts. A chain
//! is never broken by that: a line that was refused never was part of it.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use jiff::{SignedDuration, Timestamp};

use super::{ChainHead, Entry, JournalFile, LogName, ReadLine, entry::VERSION, files, reader};

/// How much of a log is kept, and in what pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How large a file gets.
    pub file: u64,
    /// How large all files of the log get together.
    pub total: u64,
    /// How old lines get.
    pub age: SignedDuration,
    /// How much waits in memory when it cannot be written.
    pub waiting: usize,
}

/// One log, open for writing.
#[derive(Debug)]
pub struct JournalWriter {
    directory: PathBuf,
    log: LogName,
    limits: Limits,
    head: ChainHead,
    /// The file, by its number; nothing until there is a line for it.
    file: Option<OpenFile>,
    next_number: u64,
    /// Lines that are part of the chain and not in the file.
    waiting: Vec<u8>,
    /// The last attempt to write failed; the next one is made by who tries from time to time.
    is_stuck: bool,
    is_dirty: bool,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    /// Up to here it has whole lines.
    length: u64,
}

/// A log that was opened, and in which state it was found.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub writer: JournalWriter,
    /// How many bytes of a line that was half written were cut off.
    pub cut: u64,
}

impl JournalWriter {
    /// Opens the log in `directory`, which is made if it is not there. Half a line at the end is cut off; whole lines never are.
    pub fn open(directory: &Path, log: LogName, limits: Limits) -> io::Result<Opened> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut all = files(directory, log)?;
        let next_number = all.last().map_or(1, |file| file.number.saturating_add(1));
        let (mut cut, mut head, mut file) = (0, None, None);
        while let Some(last) = all.pop() {
            let end = End::find(&last)?;
            if end.is_newer {
                let path = last.path.display();
                return Err(io::Error::other(format!(
                    "{path} is of a newer version, and is left alone"
                )));
            }
            cut += end.cut;
            if end.head.is_some() || all.is_empty() {
                head = end.head;
                file = Some(last).filter(|_| end.length < limits.file && head.is_some());
                break;
            }
            // It was just being made.
            fs::remove_file(&last.path)?;
        }
        let file = match &file {
            Some(file) => Some(OpenFile::append(file)?),
            None => None,
        };
        let writer = Self {
            directory: directory.to_owned(),
            log,
            limits,
            head: head.unwrap_or_default(),
            file,
            next_number,
            waiting: Vec::new(),
            is_stuck: false,
            is_dirty: false,
        };
        Ok(Opened { writer, cut })
    }

    /// The last line.
    pub fn head(&self) -> &ChainHead {
        &self.head
    }

    /// Whether there are lines that are not in the file.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Adds a line, in memory. False if too many wait already and cannot be written.
    pub fn append(&mut self, entry: &Entry, now: Timestamp) -> bool {
        if self.waiting.len() >= self.limits.waiting && (self.is_stuck || self.flush().is_err()) {
            return false;
        }
        if self.is_full() && self.flush().is_ok() {
            self.close();
        }
        if self.file.is_none() && self.waiting.is_empty() {
            self.add(&Entry::File {
                version: VERSION,
                log: self.log,
                previous: self.head.clone(),
                at: now,
            });
        }
        self.add(entry);
        true
    }

    fn add(&mut self, entry: &Entry) {
        // Our own types have only what JSON has.
        let Ok(object) = serde_json::to_string(entry) else { return };
        let line = self.head.seal(&object);
        self.waiting.extend(line.bytes());
    }

    fn is_full(&self) -> bool {
        let length = self.file.as_ref().map_or(0, |open| open.length);
        length + self.waiting.len() as u64 >= self.limits.file
    }

    /// Writes what waits to the file. What cannot be written waits on, and the file ends with a whole line.
    pub fn flush(&mut self) -> io::Result<()> {
        let written = self.write_waiting();
        self.is_stuck = written.is_err();
        written
    }

    fn write_waiting(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        if self.file.is_none() {
            let file = JournalFile::new(&self.directory, self.log, self.next_number);
            self.file = Some(OpenFile::create(&file)?);
            self.next_number = self.next_number.saturating_add(1);
        }
        if let Some(open) = &mut self.file {
            open.write(&self.waiting)?;
            self.waiting.clear();
            self.is_dirty = true;
        }
        Ok(())
    }

    /// Has the disk keep what is in the file.
    pub fn sync(&mut self) -> io::Result<()> {
        if let Some(open) = self.file.as_ref().filter(|_| self.is_dirty) {
            open.file.sync_data()?;
            self.is_dirty = false;
        }
        Ok(())
    }

    /// The next line begins a file.
    fn close(&mut self) {
        // What could not be synced is as safe as the machine's memory.
        let _ = self.sync();
        self.file = None;
    }

    /// Removes files that are too old or too many, but never the last one. Returns the last line that was removed.
    pub fn remove_old(&self, now: Timestamp) -> io::Result<Option<ChainHead>> {
        let all = files(&self.directory, self.log)?;
        let mut sizes = Vec::new();
        for file in &all {
            let found = fs::metadata(&file.path)?;
            let changed = found.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
            sizes.push((file, found.len(), changed));
        }
        let mut total: u64 = sizes.iter().map(|(_, size, _)| size).sum();
        let mut removed = None;
        // The last one is being written to.
        for (file, size, changed) in sizes.iter().take(sizes.len().saturating_sub(1)) {
            let is_old = changed.is_some_and(|time| now.duration_since(time) > self.limits.age);
            if !is_old && total <= self.limits.total {
                break;
            }
            removed = End::find(file)?.head.or(removed);
            fs::remove_file(&file.path)?;
            total = total.saturating_sub(*size);
        }
        Ok(removed)
    }
}

impl OpenFile {
    fn create(file: &JournalFile) -> io::Result<Self> {
        let opened = File::options().append(true).create_new(true).mode(0o600).open(&file.path)?;
        Ok(Self { file: opened, length: 0 })
    }

    fn append(file: &JournalFile) -> io::Result<Self> {
        let opened = File::options().append(true).open(&file.path)?;
        let length = opened.metadata()?.len();
        Ok(Self { file: opened, length })
    }

    /// All of it or nothing.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(lines);
        if written.is_err() {
            // A full disk takes a part. Making a file shorter needs no room.
            let _ = self.file.set_len(self.length);
        } else {
            self.length += lines.len() as u64;
        }
        written
    }
}

/// Where a file ends.
struct End {
    /// Its last line.
    head: Option<ChainHead>,
    length: u64,
    cut: u64,
    is_newer: bool,
}

impl End {
    /// Cuts off what is no line at the end.
    fn find(file: &JournalFile) -> io::Result<Self> {
        let opened = File::options().read(true).write(true).open(&file.path)?;
        let size = opened.metadata()?.len();
        let mut reader = BufReader::with_capacity(64 << 10, &opened);
        let mut end = Self { head: None, length: 0, cut: 0, is_newer: false };
        let (mut line, mut offset) = (Vec::new(), 0);
        loop {
            line.clear();
            let count = reader.read_until(b'\n', &mut line)?;
            if line.pop_if(|last| *last == b'\n').is_none() {
                break;
            }
            offset += count as u64;
            // What stands before a line that can be read is never cut off.
            if let Some(head) = std::str::from_utf8(&line).ok().and_then(ChainHead::of) {
                if end.head.is_none()
                    && let ReadLine::Entry(_, first) = reader::parse(&line)
                    && let Entry::File { version, .. } = *first
                {
                    end.is_newer = version > VERSION;
                }
                (end.head, end.length) = (Some(head), offset);
            }
        }
        if !end.is_newer && end.length < size {
            end.cut = size - end.length;
            opened.set_len(end.length)?;
        }
        Ok(end)
    }
}

#[cfg(test)]
mod tests;
