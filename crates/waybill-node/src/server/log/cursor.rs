//! A place in a log that grows and may be rotated under its reader.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
    thread,
    time::Duration,
};

use bytes::Bytes;

use super::{
    entry::{Entries, Stream},
    render::Renderer,
    tail,
};

/// How much is read at a time.
const CHUNK: usize = 128 << 10;

/// How often a log that is missing is looked for, and how long between two looks.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// A log file, and how far it was read.
#[derive(Debug)]
pub(super) struct Cursor {
    path: PathBuf,
    file: File,
    position: u64,
    /// The file that stands at the path now, after the log was rotated. The old one is read to its
    /// end first.
    successor: Option<File>,
    entries: Entries,
    renderer: Renderer,
    done: bool,
}

/// What reading gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Something to show.
    Data(Bytes),
    /// There is no more for now.
    End,
    /// There will be no more.
    Done,
}

impl Cursor {
    /// Opens the log at its beginning, or where its last lines begin.
    pub(super) fn open(
        path: PathBuf,
        tail: Option<(u64, Option<Stream>)>,
        renderer: Renderer,
    ) -> io::Result<Self> {
        let file = open_patiently(|| File::open(&path), || thread::sleep(PAUSE))?;
        let position = match tail {
            Some((lines, stream)) => tail::start(&file, file.metadata()?.len(), lines, stream)?,
            None => 0,
        };
        let entries = Entries::default();
        Ok(Self { path, file, position, successor: None, entries, renderer, done: false })
    }

    /// Reads on, up to something to show or the end.
    pub(super) fn advance(&mut self) -> io::Result<Step> {
        let mut out = Vec::new();
        let mut chunk = vec![0; CHUNK];
        while !self.done {
            let count = self.file.read_at(&mut chunk, self.position)?;
            if count == 0 {
                if self.is_at_end()? {
                    return Ok(Step::End);
                }
                continue;
            }
            self.position += u64::try_from(count).map_err(io::Error::other)?;
            self.entries.push(chunk.get(..count).unwrap_or_default());
            while let Some(entry) = self.entries.next() {
                self.renderer.render(entry, &mut out);
            }
            self.done = self.renderer.is_full();
            if !out.is_empty() {
                return Ok(Step::Data(out.into()));
            }
        }
        Ok(Step::Done)
    }

    /// What is left when nothing will be added any more; `None` if there is nothing.
    pub(super) fn finish(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        if let Some(entry) = self.entries.rest() {
            self.renderer.render(entry, &mut out);
        }
        self.renderer.finish(&mut out);
        self.stop();
        (!out.is_empty()).then(|| out.into())
    }

    /// Nothing more is wanted.
    pub(super) fn stop(&mut self) {
        self.done = true;
    }

    /// Whether there is really no more: the file may have a successor, or may have been emptied.
    fn is_at_end(&mut self) -> io::Result<bool> {
        if let Some(successor) = self.successor.take() {
            self.file = successor;
            self.position = 0;
            self.entries.clear();
            return Ok(false);
        }
        let own = self.file.metadata()?;
        if own.len() < self.position {
            self.position = 0;
            self.entries.clear();
            return Ok(false);
        }
        match File::open(&self.path) {
            Ok(file) => {
                let other = file.metadata()?;
                if (other.dev(), other.ino()) == (own.dev(), own.ino()) {
                    return Ok(true);
                }
                // Something may have been written to the old one since it was read.
                self.successor = Some(file);
                Ok(false)
            }
            // Between the renaming and the new file, or the pod was removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// While a log is rotated there is no file of its name, for a moment.
fn open_patiently<T>(
    mut open: impl FnMut() -> io::Result<T>,
    mut wait: impl FnMut(),
) -> io::Result<T> {
    for _ in 1..TRIES {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => wait(),
            done => return done,
        }
    }
    open()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use jiff::Timestamp;

    use super::{super::options::LogOptions, *};

    struct Fixture {
        dir: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap() }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("0.log")
        }

        fn add(&self, lines: &[&str]) {
            use std::io::Write;

            let mut file = fs::OpenOptions::new().append(true).create(true).open(self.path());
            for line in lines {
                writeln!(file.as_mut().unwrap(), "2026-08-01T10:00:00Z stdout F {line}").unwrap();
            }
        }

        fn rotate(&self) {
            fs::rename(self.path(), self.dir.path().join("0.log.old")).unwrap();
        }

        fn open(&self, query: &str) -> Cursor {
            let options = LogOptions::from_query(query).unwrap();
            let renderer = Renderer::new(&options, Timestamp::UNIX_EPOCH);
            let tail = options.tail_lines.map(|lines| (lines, options.stream));
            Cursor::open(self.path(), tail, renderer).unwrap()
        }
    }

    #[track_caller]
    fn check(cursor: &mut Cursor, expected: &[&str]) {
        let mut found = Vec::new();
        loop {
            match cursor.advance().unwrap() {
                Step::Data(bytes) => found.push(String::from_utf8(bytes.to_vec()).unwrap()),
                Step::End => found.push("END".to_owned()),
                Step::Done => found.push("DONE".to_owned()),
            }
            if matches!(found.last().map(String::as_str), Some("END" | "DONE")) {
                break;
            }
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_added_is_read() {
        let log = Fixture::new();
        log.add(&["one", "two"]);
        let mut cursor = log.open("");
        check(&mut cursor, &["one\ntwo\n", "END"]);
        check(&mut cursor, &["END"]);
        log.add(&["three"]);
        check(&mut cursor, &["three\n", "END"]);
        assert_eq!(cursor.finish(), None);
        check(&mut cursor, &["DONE"]);
    }

    #[test]
    fn a_rotated_log_is_read_on_in_its_successor() {
        let log = Fixture::new();
        log.add(&["one"]);
        let mut cursor = log.open("tailLines=0");
        check(&mut cursor, &["END"]);
        log.add(&["two"]);
        log.rotate();
        check(&mut cursor, &["two\n", "END"]);
        log.add(&["three"]);
        check(&mut cursor, &["three\n", "END"]);
        log.rotate();
        log.add(&["four"]);
        log.rotate();
        log.add(&["five"]);
        check(&mut cursor, &["five\n", "END"]);
    }

    #[test]
    fn a_log_that_is_just_being_rotated_is_waited_for() {
        let try_with = |missing: u32| {
            let (mut looks, mut waits) = (0, 0);
            let open = || {
                looks += 1;
                if looks > missing { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
            };
            let opened = open_patiently(open, || waits += 1);
            (opened.is_ok(), waits)
        };
        assert_eq!(try_with(0), (true, 0));
        assert_eq!(try_with(3), (true, 3));
        assert_eq!(try_with(u32::MAX), (false, TRIES - 1));
        let denied: io::Result<()> =
            open_patiently(|| Err(io::ErrorKind::PermissionDenied.into()), || unreachable!());
        assert_eq!(denied.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_log_that_was_emptied_is_read_from_its_beginning() {
        let log = Fixture::new();
        log.add(&["one"]);
        let mut cursor = log.open("");
        check(&mut cursor, &["one\n", "END"]);
        File::create(log.path()).unwrap();
        check(&mut cursor, &["END"]);
        log.add(&["2"]);
        check(&mut cursor, &["2\n", "END"]);
    }

    #[test]
    fn the_limit_ends_it() {
        let log = Fixture::new();
        log.add(&["one", "two"]);
        check(&mut log.open("limitBytes=5"), &["one\nt", "DONE"]);
        check(&mut log.open("limitBytes=4&tailLines=1"), &["two\n", "DONE"]);
    }

    #[test]
    fn an_end_without_line_feed_is_shown_at_the_end() {
        let log = Fixture::new();
        fs::write(log.path(), "t stdout P be\nt stdout P gun").unwrap();
        let mut cursor = log.open("");
        check(&mut cursor, &["END"]);
        assert_eq!(cursor.finish().unwrap(), "begun");
    }
}
