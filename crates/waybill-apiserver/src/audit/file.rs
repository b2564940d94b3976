//! The audit log on disk: one file of JSON lines, set aside when it is full.
//!
//! Only its owner may read it. A line is never torn: what a failed or interrupted write left behind
//! is cut off, or at least ended, before the next line.

use std::{
    error::Error,
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};

use crate::audit::log::Sink;

/// When a file is full, and which full ones are kept; as upstream's flags `--audit-log-max*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// A file is not extended beyond this size; only one that starts with a larger batch exceeds
    /// it.
    pub(crate) max_bytes: u64,
    /// How many full files are kept; `None` for all.
    pub(crate) max_backups: Option<usize>,
    /// How long they are kept; `None` for ever.
    pub(crate) max_age: Option<SignedDuration>,
}

impl Default for Rotation {
    fn default() -> Self {
        Self { max_bytes: 100 << 20, max_backups: Some(10), max_age: None }
    }
}

/// The current file and its full predecessors, `audit-2024-01-31T23-59-59.123.log` beside
/// `audit.log`.
pub(crate) struct RotatingFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    /// The end of the last whole line that this process wrote or found.
    length: u64,
    /// Something after the last line break may be there that is no line.
    torn: bool,
    /// The file is full and stays in use, because it could not be set aside or an old one removed.
    stuck: bool,
}

impl RotatingFile {
    /// Opens or creates the file at `path` and the directory that holds it.
    pub(crate) fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let (file, length, torn) = open_private(path)?;
        Ok(Self { path: path.to_owned(), rotation, file, length, torn, stuck: false })
    }

    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        let mut at = now;
        let mut backup = self.backup_path(at);
        // Two full files in one millisecond, or a clock that was set back.
        while backup.try_exists()? {
            at += SignedDuration::from_millis(1);
            backup = self.backup_path(at);
        }
        match fs::rename(&self.path, &backup) {
            // An earlier attempt came so far, or another program moved it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            outcome => outcome?,
        }
        self.reopen()?;
        self.prune(now)
    }

    /// Removes the full files that are too many or too old.
    fn prune(&self, now: Timestamp) -> io::Result<()> {
        for (position, (age, path)) in self.backups(now)?.iter().enumerate() {
            let too_many = self.rotation.max_backups.is_some_and(|limit| position >= limit);
            let too_old = self.rotation.max_age.is_some_and(|limit| *age > limit);
            if too_many || too_old {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// The full files and their age, the youngest first. Files of other names are not ours.
    fn backups(&self, now: Timestamp) -> io::Result<Vec<(SignedDuration, PathBuf)>> {
        let mut backups = Vec::new();
        for entry in fs::read_dir(self.directory())? {
            let path = entry?.path();
            if let Some(since) = self.backup_time(&path) {
                backups.push((now.duration_since(since), path));
            }
        }
        backups.sort();
        Ok(backups)
    }

    fn directory(&self) -> &Path {
        match self.path.parent() {
            Some(directory) if directory != Path::new("") => directory,
            _ => Path::new("."),
        }
    }

    fn backup_path(&self, at: Timestamp) -> PathBuf {
        let mut name = OsString::from(self.path.file_stem().unwrap_or_default());
        name.push(at.strftime("-%Y-%m-%dT%H-%M-%S.%3f").to_string());
        let mut path = self.directory().join(name).into_os_string();
        if let Some(extension) = self.path.extension() {
            path.push(".");
            path.push(extension);
        }
        path.into()
    }

    fn backup_time(&self, path: &Path) -> Option<Timestamp> {
        if path.extension() != self.path.extension() {
            return None;
        }
        let stem = self.path.file_stem()?.to_str()?;
        let time = path.file_stem()?.to_str()?.strip_prefix(stem)?;
        let time = DateTime::strptime("-%Y-%m-%dT%H-%M-%S%.f", time).ok()?;
        TimeZone::UTC.to_timestamp(time).ok()
    }

    /// Makes the next byte the first of a line.
    fn mend(&mut self) -> io::Result<()> {
        // Another program may have emptied the file; only our own leftovers are cut off.
        if self.file.metadata()?.len() > self.length && self.file.set_len(self.length).is_ok() {
            self.torn = false;
            return Ok(());
        }
        self.file.write_all(b"\n")?;
        self.length = self.file.metadata()?.len();
        self.torn = false;
        Ok(())
    }
}

impl Sink for RotatingFile {
    fn append(&mut self, now: Timestamp, lines: &[u8]) -> io::Result<()> {
        let added = lines.len() as u64;
        if self.length > 0 && self.length.saturating_add(added) > self.rotation.max_bytes {
            let outcome = self.rotate(now);
            // A file that is too large is better than a lost event; one message tells of it.
            if let (Err(error), false) = (&outcome, self.stuck) {
                tracing::error!(error = error as &dyn Error, "cannot rotate the audit log");
            }
            self.stuck = outcome.is_err();
        }
        if self.torn {
            self.mend()?;
        }
        self.torn = true;
        self.file.write_all(lines)?;
        self.torn = false;
        self.length += added;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.length, self.torn) = open_private(&self.path)?;
        Ok(())
    }
}

/// The file at `path` for appending, its length, and whether its last line is torn.
fn open_private(path: &Path) -> io::Result<(File, u64, bool)> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
    // It may be an old file with another mode.
    file.set_permissions(Permissions::from_mode(0o600))?;
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.seek(SeekFrom::Start(length - 1))?;
        file.read_exact(&mut last)?;
    }
    // The name must survive a loss of power as the lines do.
    if let Some(directory) = path.parent().filter(|directory| *directory != Path::new("")) {
        File::open(directory)?.sync_all()?;
    }
    Ok((file, length, last != *b"\n"))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn open(directory: &TempDir, rotation: Rotation) -> RotatingFile {
        RotatingFile::open(&directory.path().join("audit/audit.log"), rotation).unwrap()
    }

    /// The files in order of their names, with their contents.
    fn files(directory: &TempDir) -> Vec<(String, String)> {
        let entries = fs::read_dir(directory.path().join("audit")).unwrap();
        let read = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        };
        let mut files: Vec<_> = entries.map(|entry| read(entry.unwrap())).collect();
        files.sort();
        files
    }

    #[track_caller]
    fn check(directory: &TempDir, expected: &[(&str, &str)]) {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        assert_eq!(files(directory), expected.iter().map(owned).collect::<Vec<_>>());
    }

    const SMALL: Rotation = Rotation { max_bytes: 4, max_backups: None, max_age: None };

    #[test]
    fn only_the_owner_may_read_it() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("audit/audit.log");
        drop(open(&directory, SMALL));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        drop(open(&directory, SMALL));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn a_full_file_is_set_aside_and_no_line_is_split() {
        let directory = TempDir::new().unwrap();
        let mut file = open(&directory, SMALL);
        file.append(at(0), b"a\nb\n").unwrap();
        file.append(at(1), b"longer\n").unwrap();
        file.append(at(1), b"c\n").unwrap();
        check(
            &directory,
            &[
                ("audit-2023-11-14T22-13-21.000.log", "a\nb\n"),
                ("audit-2023-11-14T22-13-21.001.log", "longer\n"),
                ("audit.log", "c\n"),
            ],
        );
    }

    #[test]
    fn only_the_youngest_files_are_kept() {
        let directory = TempDir::new().unwrap();
        let mut file = open(&directory, Rotation { max_backups: Some(2), ..SMALL });
        fs::write(directory.path().join("audit/audit-other.log"), "kept").unwrap();
        for (second, line) in [(0, b"aaaa\n"), (1, b"bbbb\n"), (2, b"cccc\n"), (3, b"dddd\n")] {
            file.append(at(second), line).unwrap();
        }
        check(
            &directory,
            &[
                ("audit-2023-11-14T22-13-22.000.log", "bbbb\n"),
                ("audit-2023-11-14T22-13-23.000.log", "cccc\n"),
                ("audit-other.log", "kept"),
                ("audit.log", "dddd\n"),
            ],
        );
    }

    #[test]
    fn files_that_are_too_old_go() {
        let directory = TempDir::new().unwrap();
        let max_age = Some(SignedDuration::from_hours(24));
        let mut file = open(&directory, Rotation { max_age, ..SMALL });
        for (second, line) in [(0, b"aaaa\n"), (1, b"bbbb\n"), (86_402, b"cccc\n")] {
            file.append(at(second), line).unwrap();
        }
        check(
            &directory,
            &[("audit-2023-11-15T22-13-22.000.log", "bbbb\n"), ("audit.log", "cccc\n")],
        );
    }

    #[test]
    fn a_line_that_a_crash_tore_is_ended_first() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("audit/audit.log");
        drop(open(&directory, SMALL));
        fs::write(&path, "{\"ki").unwrap();
        let mut file = open(&directory, Rotation::default());
        file.append(at(0), b"a\n").unwrap();
        file.append(at(0), b"b\n").unwrap();
        check(&directory, &[("audit.log", "{\"ki\na\nb\n")]);
    }

    #[test]
    fn what_a_failed_write_left_is_cut_off() {
        let directory = TempDir::new().unwrap();
        let mut file = open(&directory, Rotation::default());
        file.append(at(0), b"a\n").unwrap();
        file.file.write_all(b"half").unwrap();
        file.torn = true;
        file.append(at(0), b"b\n").unwrap();
        check(&directory, &[("audit.log", "a\nb\n")]);
    }

    #[test]
    fn a_file_that_cannot_be_set_aside_goes_on() {
        let directory = TempDir::new().unwrap();
        let mut file = open(&directory, Rotation { max_backups: Some(0), ..SMALL });
        file.append(at(0), b"aaaa\n").unwrap();
        // What bears the name of a full file and cannot be removed as one.
        let obstacle = directory.path().join("audit/audit-2023-11-14T22-13-20.000.log");
        fs::create_dir(&obstacle).unwrap();
        for line in [b"bbbb\n", b"cccc\n"] {
            file.append(at(1), line).unwrap();
        }
        assert!(file.stuck);
        fs::remove_dir(&obstacle).unwrap();
        file.append(at(2), b"dddd\n").unwrap();
        assert!(!file.stuck);
        check(&directory, &[("audit.log", "dddd\n")]);
    }

    #[test]
    fn another_program_may_move_the_file_away() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("audit/audit.log");
        let mut file = open(&directory, Rotation::default());
        file.append(at(0), b"a\n").unwrap();
        fs::rename(&path, path.with_extension("1")).unwrap();
        file.append(at(0), b"b\n").unwrap();
        file.reopen().unwrap();
        file.append(at(0), b"c\n").unwrap();
        check(&directory, &[("audit.1", "a\nb\n"), ("audit.log", "c\n")]);
    }
}
