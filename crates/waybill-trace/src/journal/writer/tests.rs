//! What a log keeps through full files, half lines and full disks.

use super::*;
use crate::journal::{JournalReader, verify};

pub(crate) fn limits() -> Limits {
    Limits { file: 2_000, total: 10_000, age: SignedDuration::from_hours(24), waiting: 100_000 }
}

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

fn stop(second: i64) -> Entry {
    Entry::Stop { at: Timestamp::from_second(second).unwrap() }
}

fn open(directory: &Path) -> Opened {
    JournalWriter::open(directory, LogName::Sessions, limits()).unwrap()
}

/// The seconds of all stops.
fn stops(directory: &Path) -> Vec<i64> {
    let mut found = Vec::new();
    let mut reader = JournalReader::new(directory, LogName::Sessions);
    let take = |line| match line {
        ReadLine::Entry(_, entry) => {
            if let Entry::Stop { at } = *entry {
                found.push(at.as_second());
            }
        }
        other => panic!("{other:?}"),
    };
    reader.read(take).unwrap();
    found
}

#[test]
fn lines_are_kept_in_order_across_files_and_restarts() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let mut writer = open(directory.path()).writer;
        for second in 0..20 {
            assert!(writer.append(&stop(round * 20 + second), now()));
        }
        writer.flush().unwrap();
        writer.sync().unwrap();
    }
    assert_eq!(stops(directory.path()), (0..60).collect::<Vec<_>>());
    assert!(files(directory.path(), LogName::Sessions).unwrap().len() > 2);
    let report = verify(directory.path(), &[], || {}).unwrap();
    assert!(report.is_whole(), "{report:?}");
}

#[test]
fn half_a_line_is_cut_off_and_that_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = open(directory.path()).writer;
    writer.append(&stop(1), now());
    writer.flush().unwrap();
    let file = &files(directory.path(), LogName::Sessions).unwrap()[0].path;
    for torn in ["{\"n\":3,\"entry\":\"st", "\0\0\0\0\n\0\0"] {
        let mut opened = File::options().append(true).open(file).unwrap();
        opened.write_all(torn.as_bytes()).unwrap();
        let opened = open(directory.path());
        assert_eq!(opened.cut, torn.len() as u64);
    }
    let mut writer = open(directory.path()).writer;
    writer.append(&stop(2), now());
    writer.flush().unwrap();
    assert_eq!(stops(directory.path()), [1, 2]);
    assert!(verify(directory.path(), &[], || {}).unwrap().is_whole());
}

/// Somebody who damages a line in the middle must not have us remove the ones after it.
#[test]
fn no_whole_line_is_cut_off_whatever_stands_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = open(directory.path()).writer;
    for second in 0..5 {
        writer.append(&stop(second), now());
    }
    writer.flush().unwrap();
    let file = files(directory.path(), LogName::Sessions).unwrap()[0].path.clone();
    let text = fs::read_to_string(&file).unwrap();
    let damaged: Vec<_> =
        text.lines().enumerate().map(|(at, line)| if at == 2 { "x" } else { line }).collect();
    fs::write(&file, damaged.join("\n") + "\n").unwrap();
    assert_eq!(open(directory.path()).cut, 0);
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 6);
    assert!(!verify(directory.path(), &[], || {}).unwrap().is_whole());
}

#[test]
fn old_files_go_by_size_and_by_age_but_never_the_last() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = open(directory.path()).writer;
    for second in 0..200 {
        writer.append(&stop(second), now());
    }
    writer.flush().unwrap();
    let removed = writer.remove_old(Timestamp::now()).unwrap().unwrap();
    let left = stops(directory.path());
    assert!(left.len() < 200 && left.last() == Some(&199));
    assert!(removed.n > 0 && removed.n < writer.head().n);
    let size = |file: &JournalFile| fs::metadata(&file.path).unwrap().len();
    assert!(
        files(directory.path(), LogName::Sessions).unwrap().iter().map(size).sum::<u64>() <= 10_000
    );
    let tomorrow = Timestamp::now() + SignedDuration::from_hours(25);
    writer.remove_old(tomorrow).unwrap();
    assert_eq!(files(directory.path(), LogName::Sessions).unwrap().len(), 1);
}

#[test]
fn a_file_of_a_newer_version_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let newer = Entry::File {
        version: VERSION + 1,
        log: LogName::Sessions,
        previous: ChainHead::default(),
        at: now(),
    };
    let line = ChainHead::default().seal(&serde_json::to_string(&newer).unwrap());
    let file = JournalFile::new(directory.path(), LogName::Sessions, 1);
    fs::write(&file.path, format!("{line}half a l")).unwrap();
    let error = JournalWriter::open(directory.path(), LogName::Sessions, limits()).unwrap_err();
    assert!(error.to_string().contains("newer"), "{error}");
    assert!(fs::read_to_string(&file.path).unwrap().ends_with("half a l"));
}

/// Hole: a user whose programs had long arguments made lines of others be refused, although the disk had room.
#[test]
fn nothing_is_refused_while_the_disk_takes_it() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { waiting: 1_000, ..limits() };
    let opened = JournalWriter::open(directory.path(), LogName::Sessions, limits).unwrap();
    let mut writer = opened.writer;
    for number in 0..100 {
        assert!(writer.append(&stop(number), now()), "{number}");
    }
    writer.flush().unwrap();
    assert_eq!(stops(directory.path()), (0..100).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_written_waits_and_more_than_that_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let limits = Limits { waiting: 1_000, ..limits() };
    let mut writer = JournalWriter::open(&path, LogName::Sessions, limits).unwrap().writer;
    fs::remove_dir(&path).unwrap();
    let mut kept = 0;
    while writer.append(&stop(kept), now()) {
        kept += 1;
        writer.flush().unwrap_err();
    }
    assert!((3..100).contains(&kept));
    fs::create_dir(&path).unwrap();
    writer.flush().unwrap();
    assert!(writer.append(&stop(kept), now()));
    writer.flush().unwrap();
    assert_eq!(stops(&path), (0..=kept).collect::<Vec<_>>());
    assert!(verify(&path, &[], || {}).unwrap().is_whole());
}
