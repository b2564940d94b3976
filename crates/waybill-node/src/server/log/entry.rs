//! The format of logs under CRI: `<time> <stream> <tags> <content>`, a line for each entry.
//!
//! No IO: bytes in, entries out, however the bytes are cut.

use memchr::memchr;

/// More than an entry of any runtime; what is longer is skipped.
const LONGEST: usize = 1 << 20;

/// Which output of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// One line of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// As it was written.
    pub(super) time: &'a str,
    pub(super) stream: Stream,
    /// The line that the process printed goes on in another entry.
    pub(super) partial: bool,
    pub(super) content: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Reads one line, without its line feed. `None` if it is none of an entry.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        let (head, content) = Head::split(line)?;
        let Head { time, stream, partial } = head;
        Some(Self { time, stream, partial, content })
    }
}

/// What stands before the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head<'a> {
    time: &'a str,
    pub(super) stream: Stream,
    pub(super) partial: bool,
}

/// No head is longer: a time with offset, the stream, and some tags.
pub(super) const LONGEST_HEAD: usize = 128;

impl<'a> Head<'a> {
    /// Reads the beginning of a line; the content may be missing or cut.
    pub(super) fn split(line: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let (time, stream, tags) = (parts.next()?, parts.next()?, parts.next()?);
        let time = str::from_utf8(time).ok().filter(|time| !time.is_empty())?;
        let stream = match stream {
            b"stdout" => Stream::Stdout,
            b"stderr" => Stream::Stderr,
            _ => return None,
        };
        // Tags stand between colons, and the first one is about the line.
        let partial = match tags.split(|byte| *byte == b':').next()? {
            b"P" => true,
            b"F" => false,
            _ => return None,
        };
        // An empty line may have no space at its end.
        Some((Self { time, stream, partial }, parts.next().unwrap_or_default()))
    }
}

/// Finds entries in bytes that arrive bit by bit.
#[derive(Debug, Default)]
pub(super) struct Entries {
    bytes: Vec<u8>,
    /// Where the next line begins.
    next: usize,
    /// Up to where there is no line feed.
    searched: usize,
    /// The line that is arriving is too long.
    skipping: bool,
}

impl Entries {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.next);
        self.searched -= self.next;
        self.next = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next entry that is complete; lines that are none are skipped.
    pub(super) fn next(&mut self) -> Option<Entry<'_>> {
        loop {
            let fresh = self.bytes.get(self.searched..)?;
            let Some(found) = memchr(b'\n', fresh) else {
                self.searched = self.bytes.len();
                if self.searched - self.next > LONGEST {
                    self.skipping = true;
                    self.next = self.searched;
                }
                return None;
            };
            let (start, end) = (self.next, self.searched + found);
            (self.next, self.searched) = (end + 1, end + 1);
            let skipped = std::mem::take(&mut self.skipping);
            let is_entry = !skipped && Entry::parse(self.bytes.get(start..end)?).is_some();
            if is_entry {
                // A second look, because the borrow checker cannot see that the first one is over.
                return Entry::parse(self.bytes.get(start..end)?);
            }
        }
    }

    /// An entry whose line feed is missing at the end of the file.
    pub(super) fn rest(&self) -> Option<Entry<'_>> {
        let line = self.bytes.get(self.next..)?;
        if self.skipping || line.is_empty() { None } else { Entry::parse(line) }
    }

    /// Forgets what is not complete.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIME: &str = "2026-08-01T10:00:00.000000001Z";

    type Parsed = (String, Stream, bool, Vec<u8>);

    fn owned(entry: Entry<'_>) -> Parsed {
        (entry.time.to_owned(), entry.stream, entry.partial, entry.content.to_vec())
    }

    fn all(chunks: &[&[u8]]) -> Vec<Parsed> {
        let mut entries = Entries::default();
        let mut found = Vec::new();
        for chunk in chunks {
            entries.push(chunk);
            while let Some(entry) = entries.next() {
                found.push(owned(entry));
            }
        }
        found
    }

    #[track_caller]
    fn check(line: &str, expected: Option<(Stream, bool, &str)>) {
        let found = Entry::parse(line.as_bytes());
        let expected = expected.map(|(stream, partial, content)| Entry {
            time: TIME,
            stream,
            partial,
            content: content.as_bytes(),
        });
        assert_eq!(found, expected, "{line:?}");
    }

    #[test]
    fn a_line_is_an_entry() {
        check(
            &format!("{TIME} stdout F hello  world "),
            Some((Stream::Stdout, false, "hello  world ")),
        );
        check(&format!("{TIME} stderr P "), Some((Stream::Stderr, true, "")));
        check(&format!("{TIME} stderr F"), Some((Stream::Stderr, false, "")));
        check(&format!("{TIME} stdout F:x:y a"), Some((Stream::Stdout, false, "a")));
    }

    #[test]
    fn other_lines_are_none() {
        for line in ["", " ", "a b", " stdout F x", "t stdin F x", "t stdout X x", "t stdout  F x"]
        {
            check(line, None);
        }
        check(&format!("{TIME}\tstdout\tF\tx"), None);
    }

    #[test]
    fn bad_lines_are_skipped_and_the_next_ones_are_not() {
        let text = format!("junk\n{TIME} stdout F one\n\n{TIME} stdout F two\n{TIME} stdout F thr");
        let contents: Vec<_> = all(&[text.as_bytes()]).into_iter().map(|entry| entry.3).collect();
        assert_eq!(contents, [b"one", b"two"]);
    }

    #[test]
    fn a_line_without_end_costs_little_memory() {
        let mut entries = Entries::default();
        entries.push(format!("{TIME} stdout F ").as_bytes());
        for _ in 0..64 {
            entries.push(&[b'x'; 64 << 10]);
            assert_eq!(entries.next(), None);
            assert!(entries.bytes.capacity() < 4 * LONGEST);
        }
        assert_eq!(entries.rest(), None);
        entries.push(format!("\n{TIME} stdout F short\n").as_bytes());
        assert_eq!(entries.next().map(|entry| entry.content.to_vec()), Some(b"short".to_vec()));
    }

    #[test]
    fn the_end_of_a_file_may_lack_its_line_feed() {
        let mut entries = Entries::default();
        entries.push(format!("{TIME} stdout F one\n{TIME} stdout F tw").as_bytes());
        assert!(entries.next().is_some() && entries.next().is_none());
        assert_eq!(entries.rest().map(|entry| entry.content), Some(b"tw".as_slice()));
    }

    prop_compose! {
        fn any_entry()(
            stderr in any::<bool>(),
            partial in any::<bool>(),
            content in prop::collection::vec(any::<u8>().prop_filter("line feed", |b| *b != b'\n'), 0..20),
        ) -> Parsed {
            let stream = if stderr { Stream::Stderr } else { Stream::Stdout };
            (TIME.to_owned(), stream, partial, content)
        }
    }

    fn write(entry: &Parsed, to: &mut Vec<u8>) {
        let stream = if entry.1 == Stream::Stderr { "stderr" } else { "stdout" };
        let tag = if entry.2 { "P" } else { "F" };
        to.extend_from_slice(format!("{} {stream} {tag} ", entry.0).as_bytes());
        to.extend_from_slice(&entry.3);
        to.push(b'\n');
    }

    proptest! {
        #[test]
        fn entries_are_found_however_the_bytes_are_cut(
            written in prop::collection::vec(any_entry(), 0..10),
            size in 1_usize..40,
        ) {
            let mut bytes = Vec::new();
            written.iter().for_each(|entry| write(entry, &mut bytes));
            let chunks: Vec<_> = bytes.chunks(size).collect();
            prop_assert_eq!(all(&chunks), written);
        }

        #[test]
        fn no_bytes_panic(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..8)) {
            let chunks: Vec<_> = chunks.iter().map(Vec::as_slice).collect();
            let _ = all(&chunks);
        }
    }
}
