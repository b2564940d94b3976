//! The log of a container, in CRI's format: `<time> <stream> <F|P> <line>`.
//!
//! A line is written when it is complete or longer than [`LONGEST`], in which case all parts but the last are marked
//! as partial. So is what has no end of line when the stream ends, and readers then add none. The time is that of writing.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use jiff::Timestamp;

/// The longest part of a line in one entry, as in other runtimes.
const LONGEST: usize = 16 << 10;

/// Which of a process's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// An open log file.
pub(super) struct Log {
    path: PathBuf,
    file: File,
    stdout: Lines,
    stderr: Lines,
}

impl Log {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        Ok(Self { path: path.to_owned(), file, stdout: Lines::default(), stderr: Lines::default() })
    }

    /// Goes on in a new file at the same path.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        Ok(())
    }

    /// Writes what is complete. What cannot be written is lost: a full disk must not stop the container.
    pub(super) fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let mut entries = Vec::with_capacity(bytes.len() + 64);
        self.lines(stream).push(stream, bytes, Timestamp::now(), &mut entries);
        self.append(&entries);
    }

    /// Writes what is left of lines that will not be completed.
    pub(super) fn finish(&mut self) {
        let mut entries = Vec::new();
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.lines(stream).finish(stream, Timestamp::now(), &mut entries);
        }
        self.append(&entries);
    }

    /// Writes as many entries as there is room for. No half of one stays: readers would take the next one for its end.
    fn append(&mut self, entries: &[u8]) {
        let mut written = 0;
        while let Some(rest) = entries.get(written..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let whole = memchr::memrchr(b'\n', entries.get(..written).unwrap_or(entries));
        let torn = written - whole.map_or(0, |end| end + 1);
        if torn > 0 {
            let length = self.file.metadata().map_or(0, |file| file.len());
            if let Some(length) = length.checked_sub(torn as u64) {
                let _ = self.file.set_len(length);
            }
        }
    }

    fn lines(&mut self, stream: Stream) -> &mut Lines {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

/// Cuts a stream into entries.
#[derive(Default)]
struct Lines {
    /// The beginning of a line whose end has not come yet; shorter than [`LONGEST`].
    begun: Vec<u8>,
}

impl Lines {
    fn push(&mut self, stream: Stream, mut bytes: &[u8], now: Timestamp, entries: &mut Vec<u8>) {
        while !bytes.is_empty() {
            let room = LONGEST - self.begun.len();
            let window = bytes.get(..room.min(bytes.len())).unwrap_or(bytes);
            match memchr::memchr(b'\n', window) {
                Some(end) => {
                    let (line, rest) = bytes.split_at(end);
                    self.entry(stream, line, Tag::Full, now, entries);
                    bytes = rest.get(1..).unwrap_or_default();
                }
                None if window.len() == room && bytes.get(room) != Some(&b'\n') => {
                    let (part, rest) = bytes.split_at(room);
                    self.entry(stream, part, Tag::Partial, now, entries);
                    bytes = rest;
                }
                None if window.len() == room => {
                    let (line, rest) = bytes.split_at(room);
                    self.entry(stream, line, Tag::Full, now, entries);
                    bytes = rest.get(1..).unwrap_or_default();
                }
                None => {
                    self.begun.extend_from_slice(window);
                    bytes = &[];
                }
            }
        }
    }

    fn finish(&mut self, stream: Stream, now: Timestamp, entries: &mut Vec<u8>) {
        if !self.begun.is_empty() {
            self.entry(stream, &[], Tag::Partial, now, entries);
        }
    }

    fn entry(&mut self, stream: Stream, rest: &[u8], tag: Tag, now: Timestamp, to: &mut Vec<u8>) {
        let stream = match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        let tag = match tag {
            Tag::Full => 'F',
            Tag::Partial => 'P',
        };
        // Writing to memory does not fail.
        let _ = write!(to, "{now:.9} {stream} {tag} ");
        to.append(&mut self.begun);
        to.extend_from_slice(rest);
        to.push(b'\n');
    }
}

#[derive(Clone, Copy)]
enum Tag {
    Full,
    Partial,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn entries(chunks: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut entries = Vec::new();
        for chunk in chunks {
            lines.push(Stream::Stdout, chunk, NOW, &mut entries);
        }
        lines.finish(Stream::Stdout, NOW, &mut entries);
        String::from_utf8(entries).unwrap().lines().map(str::to_owned).collect()
    }

    fn texts(chunks: &[&[u8]]) -> Vec<String> {
        let head = "1970-01-01T00:00:00.000000000Z stdout ";
        entries(chunks).iter().map(|entry| entry.strip_prefix(head).unwrap().to_owned()).collect()
    }

    #[test]
    fn a_line_is_one_entry_however_it_arrives() {
        assert_eq!(texts(&[b"one\ntwo\n"]), ["F one", "F two"]);
        assert_eq!(texts(&[b"o", b"ne", b"\n\nend"]), ["F one", "F ", "P end"]);
        assert!(texts(&[b""]).is_empty());
    }

    #[test]
    fn a_long_line_is_cut_and_only_its_last_part_is_full() {
        let long = vec![b'x'; LONGEST * 2 + 3];
        let found = texts(&[&long, b"\n"]);
        assert_eq!(found.len(), 3);
        assert!(found[0].starts_with("P x") && found[1].starts_with("P x"));
        assert_eq!(found[2], "F xxx");
        assert_eq!(found[0].len(), LONGEST + 2);
    }

    #[test]
    fn a_line_of_just_the_longest_length_is_whole() {
        let mut line = vec![b'x'; LONGEST];
        line.push(b'\n');
        let found = texts(&[&line]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("F x"));
    }

    #[test]
    fn reopening_goes_on_in_a_new_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = Log::open(&path).unwrap();
        log.write(Stream::Stderr, b"one\n");
        std::fs::rename(&path, directory.path().join("old")).unwrap();
        log.reopen().unwrap();
        log.write(Stream::Stderr, b"two\n");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with(" stderr F two\n") && text.lines().count() == 1, "{text}");
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o777, 0o640);
    }
}
