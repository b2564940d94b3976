//! The audit log on disk: one file of JSON lines, set aside when it is full.
//!
//! Only its owner may read it. A line is never torn: what a failed or interrupted write left behind is
//! cut off. Room on the disk is set aside ahead of the lines, so that what is under way can still be
//! recorded when others fill the disk.

use std::{
    error::Error,
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};
use prometheus_client::metrics::counter::Counter;
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};

use crate::audit::{log::Sink, notice::Notice};

/// How much room is set aside; more is asked for when half of it is used.
const ROOM: u64 = 1 << 20;

/// How far from its end an unfinished line is looked for.
const LONGEST_LINE: u64 = 16 << 20;

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
    /// One that goes for `max_backups` before it is so old is told of in the log.
    pub(crate) keep_at_least: SignedDuration,
}

impl Default for Rotation {
    fn default() -> Self {
        Self {
            max_bytes: 100 << 20,
            max_backups: Some(10),
            max_age: None,
            keep_at_least: SignedDuration::from_hours(7 * 24),
        }
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
    /// Notices that stand before the next lines.
    pending: Vec<u8>,
    /// Counts full files that were removed while they were young.
    dropped: Counter,
    /// Up to here the disk has room.
    reserved: u64,
    /// The file is full and stays in use, because it could not be set aside or an old one removed.
    stuck: bool,
}

impl RotatingFile {
    /// Opens or creates the file at `path` and the directory that holds it.
    pub(crate) fn open(path: &Path, rotation: Rotation, now: Timestamp) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let Opened { file, length, removed } = open_private(path)?;
        Ok(Self {
            path: path.to_owned(),
            rotation,
            file,
            length,
            pending: torn(removed, now),
            dropped: Counter::default(),
            reserved: 0,
            stuck: false,
        })
    }

    /// The same with a counter of full files that are removed while they are young.
    pub(crate) fn counting(self, dropped: Counter) -> Self {
        Self { dropped, ..self }
    }

    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        let mut at = now;
        let mut backup = self.backup_path(at);
        // Two full files in one millisecond, or a clock that was set back.
        while backup.try_exists()? {
            at += SignedDuration::from_millis(1);
            backup = self.backup_path(at);
        }
        // The room after its last line is free for others again.
        self.cut()?;
        match fs::rename(&self.path, &backup) {
            // An earlier attempt came so far, or another program moved it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            outcome => outcome?,
        }
        self.reopen(now)?;
        self.prune(now)
    }

    /// Removes the full files that are too many or too old.
    fn prune(&mut self, now: Timestamp) -> io::Result<()> {
        for (position, (age, path)) in self.backups(now)?.iter().enumerate() {
            let too_many = self.rotation.max_backups.is_some_and(|limit| position >= limit);
            let too_old = self.rotation.max_age.is_some_and(|limit| *age > limit);
            if too_many || too_old {
                fs::remove_file(path)?;
                if !too_old && *age < self.rotation.keep_at_least {
                    self.tell_dropped(path, now);
                }
            }
        }
        Ok(())
    }

    fn tell_dropped(&mut self, path: &Path, now: Timestamp) {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let until = self.backup_time(path).unwrap_or(now);
        tracing::error!(%file, "young audit records were removed: the log has reached its size");
        self.pending.extend(Notice::Dropped { file: &file, until }.line(now));
        self.dropped.inc();
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

    /// Removes what a failed write left behind. Another program may have emptied the file.
    fn cut(&mut self) -> io::Result<()> {
        self.length = self.length.min(self.file.metadata()?.len());
        self.file.set_len(self.length)?;
        self.reserved = self.length;
        Ok(())
    }
}

impl Sink for RotatingFile {
    fn append(&mut self, now: Timestamp, lines: &[u8]) -> io::Result<()> {
        let added = (self.pending.len() + lines.len()) as u64;
        if self.length > 0 && self.length.saturating_add(added) > self.rotation.max_bytes {
            let outcome = self.rotate(now);
            // A file that is too large is better than a lost event; one message tells of it.
            if let (Err(error), false) = (&outcome, self.stuck) {
                tracing::error!(error = error as &dyn Error, "cannot rotate the audit log");
            }
            self.stuck = outcome.is_err();
        }
        let written = self.file.write_all(&self.pending).and_then(|()| self.file.write_all(lines));
        if let Err(error) = written {
            // A part of it would be no line. If this fails too, the next attempt begins with it.
            let _ = self.cut();
            return Err(error);
        }
        self.length += (self.pending.len() + lines.len()) as u64;
        self.pending = Vec::new();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn make_room(&mut self) -> io::Result<()> {
        if self.reserved >= self.length.saturating_add(ROOM / 2) {
            return Ok(());
        }
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.length, ROOM) {
            Ok(()) => self.reserved = self.length.saturating_add(ROOM),
            // Not every file system can do that. There a full disk is noticed when a write fails.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.reserved = u64::MAX,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn reopen(&mut self, now: Timestamp) -> io::Result<()> {
        let Opened { file, length, removed } = open_private(&self.path)?;
        self.pending.extend(torn(removed, now));
        (self.file, self.length, self.reserved) = (file, length, 0);
        Ok(())
    }
}

/// The notice about a line of so many bytes that was removed.
fn torn(removed: u64, now: Timestamp) -> Vec<u8> {
    match removed {
        0 => Vec::new(),
        bytes => Notice::Torn { bytes }.line(now),
    }
}

struct Opened {
    file: File,
    length: u64,
    /// How long the unfinished line at its end was.
    removed: u64,
}

/// The file at `path` for appending, without the line that a crash left unfinished.
fn open_private(path: &Path) -> io::Result<Opened> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
    // It may be an old file with another mode.
    file.set_permissions(Permissions::from_mode(0o600))?;
    let found = file.metadata()?.len();
    let removed = unfinished(&mut file, found)?;
    if removed > 0 {
        file.set_len(found - removed)?;
    }
    // The name must survive a loss of power as the lines do.
    if let Some(directory) = path.parent().filter(|directory| *directory != Path::new("")) {
        File::open(directory)?.sync_all()?;
    }
    Ok(Opened { file, length: found - removed, removed })
}

/// How many bytes follow the last line break of a file of this length.
fn unfinished(file: &mut File, length: u64) -> io::Result<u64> {
    let looked_at = length.min(LONGEST_LINE);
    let mut last = [b'\n'];
    if length > 0 {
        file.seek(SeekFrom::Start(length - 1))?;
        file.read_exact(&mut last)?;
    }
    if last == *b"\n" {
        return Ok(0);
    }
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length - looked_at))?;
    file.take(looked_at).read_to_end(&mut tail)?;
    let after = tail.iter().rev().position(|byte| *byte == b'\n').unwrap_or(tail.len());
    Ok(after as u64)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use waybill_testkit::disk::SmallDisk;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn open(directory: &TempDir, rotation: Rotation) -> RotatingFile {
        RotatingFile::open(&directory.path().join("audit/audit.log"), rotation, at(0)).unwrap()
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

    const SMALL: Rotation = Rotation {
        max_bytes: 4,
        max_backups: None,
        max_age: None,
        keep_at_least: SignedDuration::ZERO,
    };

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

    /// The hole: what a flood pushed out was gone without a word.
    #[test]
    fn a_young_file_that_goes_for_want_of_room_is_told_of() {
        let directory = TempDir::new().unwrap();
        let keep_at_least = SignedDuration::from_secs(10);
        let rotation = Rotation { max_backups: Some(1), keep_at_least, ..SMALL };
        let dropped = Counter::default();
        let mut file = open(&directory, rotation).counting(dropped.clone());
        for (second, line) in [(0, b"aaaa\n"), (1, b"bbbb\n"), (2, b"cccc\n")] {
            file.append(at(second), line).unwrap();
        }
        assert_eq!(dropped.get(), 1);
        let text = fs::read_to_string(directory.path().join("audit/audit.log")).unwrap();
        let (notice, rest) = text.split_once('\n').unwrap();
        let notice: serde_json::Value = serde_json::from_str(notice).unwrap();
        let file = &notice["annotations"]["audit.waybill.dev/file"];
        assert_eq!(file, "audit-2023-11-14T22-13-21.000.log");
        assert_eq!(rest, "cccc\n");
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

    /// Every line of the log is JSON, also after a crash in the middle of a write.
    #[test]
    fn a_line_that_a_crash_tore_is_removed_and_a_notice_tells() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("audit/audit.log");
        drop(open(&directory, SMALL));
        fs::write(&path, "{}\n{\"ki").unwrap();
        let mut file = open(&directory, Rotation::default());
        file.append(at(0), b"{\"a\":1}\n").unwrap();
        file.append(at(0), b"{\"b\":1}\n").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(lines[1]["annotations"]["audit.waybill.dev/bytes"], "4");
        assert_eq!((&lines[2]["a"], &lines[3]["b"]), (&1.into(), &1.into()));
    }

    /// The hole: a write that failed left half a line, or made the next one begin with an empty line.
    #[test]
    fn a_failed_write_leaves_nothing_and_the_next_one_succeeds() {
        let Some(disk) = SmallDisk::mount(2) else { return };
        let path = disk.path().join("audit.log");
        let mut file = RotatingFile::open(&path, Rotation::default(), at(0)).unwrap();
        file.append(at(0), b"a\n").unwrap();
        disk.fill();
        let long = [vec![b'b'; 1 << 20], vec![b'\n']].concat();
        for _ in 0..2 {
            let error = file.append(at(0), &long).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            assert_eq!(fs::read_to_string(&path).unwrap(), "a\n");
        }
        disk.free();
        file.append(at(0), b"c\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nc\n");
    }

    #[test]
    fn lines_find_the_room_that_was_made_on_a_disk_that_is_full() {
        let Some(disk) = SmallDisk::mount(4) else { return };
        let path = disk.path().join("audit.log");
        let mut file = RotatingFile::open(&path, Rotation::default(), at(0)).unwrap();
        file.make_room().unwrap();
        disk.fill();
        let line = [vec![b'x'; 99_999], vec![b'\n']].concat();
        for _ in 0..4 {
            file.append(at(0), &line).unwrap();
            file.make_room().unwrap();
        }
        for _ in 0..4 {
            file.append(at(0), &line).unwrap();
        }
        let error = file.make_room().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        file.append(at(0), &line).unwrap();
        disk.free();
        file.make_room().unwrap();
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
        file.reopen(at(1)).unwrap();
        file.append(at(0), b"c\n").unwrap();
        check(&directory, &[("audit.1", "a\nb\n"), ("audit.log", "c\n")]);
    }
}
