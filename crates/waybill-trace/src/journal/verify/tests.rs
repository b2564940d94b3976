//! What somebody could do to a record, and what is found of it.

use std::fs;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::journal::{JournalWriter, Limits};

const LIMITS: Limits =
    Limits { file: 4_000, total: 1 << 20, age: SignedDuration::from_hours(24), waiting: 1 << 20 };

/// A record with 20 lines of sessions in some files, and a note of where the other log stood.
fn record() -> (tempfile::TempDir, ChainHead) {
    let directory = tempfile::tempdir().unwrap();
    let open = |log| JournalWriter::open(directory.path(), log, LIMITS).unwrap().writer;
    let (mut sessions, mut programs) = (open(LogName::Sessions), open(LogName::Programs));
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    for _ in 0..10 {
        programs.append(&Entry::Stop { at: now }, now);
    }
    for at in 0..40 {
        sessions.append(&Entry::Stop { at: Timestamp::from_second(at).unwrap() }, now);
    }
    sessions.append(&Entry::Head { log: LogName::Programs, head: programs.head().clone() }, now);
    sessions.flush().unwrap();
    programs.flush().unwrap();
    (directory, programs.head().clone())
}

/// Changes the lines of the first file of a log.
fn change(directory: &Path, log: LogName, change: impl Fn(&mut Vec<String>)) {
    let path = &files(directory, log).unwrap()[0].path;
    let mut lines: Vec<String> =
        fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
    change(&mut lines);
    fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

fn findings(directory: &Path) -> Vec<String> {
    let report = verify(directory, &[], || {}).unwrap();
    let all = report.logs.into_iter().flat_map(|log| log.findings);
    all.map(|finding| format!("{} {}", finding.place, finding.what)).collect()
}

#[track_caller]
fn check(log: LogName, damage: impl Fn(&mut Vec<String>), expected: &str) {
    let (directory, _) = record();
    change(directory.path(), log, damage);
    let found = findings(directory.path());
    assert!(found.iter().any(|it| it.contains(expected)), "{found:#?}");
}

#[test]
fn a_record_as_it_was_written_is_whole() {
    let (directory, head) = record();
    assert_eq!(findings(directory.path()), Vec::<String>::new());
    assert!(verify(directory.path(), &[head.hash], || {}).unwrap().is_whole());
}

#[test]
fn a_line_that_was_removed_is_found() {
    check(
        LogName::Sessions,
        |lines| drop(lines.remove(3)),
        "sessions-00000001.jsonl:4 is line 5, and follows line 3: 1 were removed",
    );
    check(LogName::Sessions, |lines| drop(lines.remove(0)), "lines before it were removed");
}

#[test]
fn a_line_that_was_changed_is_found() {
    let damage = |lines: &mut Vec<String>| lines[3] = lines[3].replace("1970", "1971");
    check(LogName::Sessions, damage, "sessions-00000001.jsonl:4 has a hash that does not fit");
    check(LogName::Sessions, |lines| lines[3].clear(), "is no line of a record");
}

/// Also by somebody who makes the line's own hash fit again.
#[test]
fn a_line_that_was_changed_and_sealed_again_is_found_at_the_next() {
    let damage = |lines: &mut Vec<String>| {
        let mut before = ChainHead::of(&lines[2]).unwrap();
        lines[3] =
            before.seal(r#"{"entry":"stop","at":"2000-01-01T00:00:00Z"}"#).trim_end().to_owned();
    };
    check(LogName::Sessions, damage, "sessions-00000001.jsonl:5 has a hash that does not fit");
}

#[test]
fn lines_that_were_swapped_are_found() {
    check(LogName::Sessions, |lines| lines.swap(3, 4), "lines were swapped or added");
}

#[test]
fn a_tail_that_was_cut_off_is_found_by_what_the_other_log_noted() {
    let cut = |lines: &mut Vec<String>| lines.truncate(5);
    check(LogName::Programs, cut, "notes line 11 of the programs log, which is not there");
}

/// What nobody else knows cannot be missed; what somebody wrote down elsewhere can.
#[test]
fn a_tail_that_was_cut_off_is_found_by_a_hash_that_is_known() {
    let (directory, _) = record();
    let report = verify(directory.path(), &[], || {}).unwrap();
    let head = report.logs[0].head.hash.clone();
    let last = files(directory.path(), LogName::Sessions).unwrap().pop().unwrap().path;
    let text = fs::read_to_string(&last).unwrap();
    let shorter: Vec<_> = text.lines().collect();
    let shorter = shorter[..shorter.len() - 1].join("\n") + "\n";
    fs::write(&last, shorter).unwrap();
    assert_eq!(findings(directory.path()), Vec::<String>::new());
    assert!(!verify(directory.path(), &[head], || {}).unwrap().is_whole());
}

#[test]
fn a_file_that_was_removed_is_found_unless_it_was_too_old() {
    let (directory, _) = record();
    let all = files(directory.path(), LogName::Sessions).unwrap();
    assert!(all.len() > 1);
    fs::remove_file(&all[0].path).unwrap();
    assert!(findings(directory.path())[0].contains("begins at line"));
    let mut writer =
        JournalWriter::open(directory.path(), LogName::Sessions, LIMITS).unwrap().writer;
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let first = verify(directory.path(), &[], || {}).unwrap().logs[0].first;
    let through = ChainHead { n: first - 1, hash: String::new() };
    writer.append(&Entry::Removed { log: LogName::Sessions, through, at: now }, now);
    writer.flush().unwrap();
    assert_eq!(findings(directory.path()), Vec::<String>::new());
}

/// Two logs that somebody goes on writing to.
struct Live {
    directory: tempfile::TempDir,
    sessions: JournalWriter,
    programs: JournalWriter,
    now: Timestamp,
}

impl Live {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let open = |log| JournalWriter::open(directory.path(), log, LIMITS).unwrap().writer;
        let (sessions, programs) = (open(LogName::Sessions), open(LogName::Programs));
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let mut live = Self { directory, sessions, programs, now };
        live.go_on();
        live
    }

    /// Some lines in both, and notes of where each stands.
    fn go_on(&mut self) {
        for _ in 0..50 {
            self.sessions.append(&Entry::Stop { at: self.now }, self.now);
            self.programs.append(&Entry::Stop { at: self.now }, self.now);
        }
        let heads = [self.programs.head().clone(), self.sessions.head().clone()];
        let [programs, sessions] = heads;
        let note = Entry::Head { log: LogName::Programs, head: programs };
        self.sessions.append(&note, self.now);
        self.programs.append(&Entry::Head { log: LogName::Sessions, head: sessions }, self.now);
    }

    fn verify(&mut self, mut between: impl FnMut(&mut Self)) -> Vec<String> {
        let path = self.directory.path().to_owned();
        let report = verify(&path, &[], || between(self)).unwrap();
        let all = report.logs.into_iter().flat_map(|log| log.findings);
        all.map(|finding| format!("{} {}", finding.place, finding.what)).collect()
    }
}

/// Hole: a note in one log of a line of the other, which came after that had been read, was called a cut.
#[test]
fn a_record_that_is_being_written_is_whole() {
    let mut live = Live::new();
    // The programs log has a note of lines that are not in the sessions log yet.
    live.programs.flush().unwrap();
    let mut rounds = 0;
    let found = live.verify(|live| {
        rounds += 1;
        live.sessions.flush().unwrap();
    });
    assert_eq!((found, rounds), (Vec::new(), 1));
    // And again and again, while it is read.
    live.go_on();
    live.programs.flush().unwrap();
    let found = live.verify(|live| {
        live.sessions.flush().unwrap();
        live.go_on();
        live.programs.flush().unwrap();
        live.sessions.flush().unwrap();
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_line_that_is_being_written_is_waited_for() {
    let mut live = Live::new();
    live.sessions.flush().unwrap();
    live.programs.flush().unwrap();
    let last = files(live.directory.path(), LogName::Sessions).unwrap().pop().unwrap().path;
    let text = fs::read_to_string(&last).unwrap();
    fs::write(&last, &text[..text.len() - 30]).unwrap();
    assert_eq!(live.verify(|_| fs::write(&last, &text).unwrap()), Vec::<String>::new());
    fs::write(&last, &text[..text.len() - 30]).unwrap();
    let found = live.verify(|_| {});
    assert!(found.iter().any(|it| it.contains("is half a line")), "{found:?}");
}

/// What is said of the removal of files comes after it.
#[test]
fn files_that_are_removed_for_their_age_meanwhile_are_not_missed() {
    let mut live = Live::new();
    live.go_on();
    live.sessions.flush().unwrap();
    live.programs.flush().unwrap();
    let programs = files(live.directory.path(), LogName::Programs).unwrap();
    let lines = fs::read_to_string(&programs[0].path).unwrap();
    let through = ChainHead::of(lines.lines().last().unwrap()).unwrap();
    fs::remove_file(&programs[0].path).unwrap();
    let found = live.verify(|live| {
        let (log, at) = (LogName::Programs, live.now);
        live.sessions.append(&Entry::Removed { log, through: through.clone(), at }, at);
        live.sessions.flush().unwrap();
    });
    assert_eq!(found, Vec::<String>::new());
    // A file between others was not removed for its age.
    fs::remove_file(&programs[2].path).unwrap();
    let found = live.verify(|live| live.sessions.flush().unwrap());
    assert!(found.iter().any(|it| it.contains("were removed")), "{found:?}");
}

/// Who waits for lines that are on their way does not forgive those that are not.
#[test]
fn a_cut_is_found_also_while_the_record_is_being_written() {
    let mut live = Live::new();
    live.sessions.flush().unwrap();
    live.programs.flush().unwrap();
    let last = files(live.directory.path(), LogName::Programs).unwrap().pop().unwrap().path;
    let text = fs::read_to_string(&last).unwrap();
    let lines: Vec<_> = text.lines().collect();
    fs::write(&last, lines[..lines.len() - 3].join("\n") + "\n").unwrap();
    let found = live.verify(|live| live.sessions.flush().unwrap());
    assert!(found.iter().any(|it| it.contains("which is not there")), "{found:?}");
}

/// Numbers in a file that somebody changed are whatever they like.
#[test]
fn the_highest_number_is_a_finding_and_not_a_failure() {
    let damage = |lines: &mut Vec<String>| {
        lines[3] = lines[3].replace("\"n\":4,", "\"n\":18446744073709551615,");
    };
    check(LogName::Sessions, damage, "were removed");
    let removed = r#"{"entry":"removed","log":"sessions","through":{"n":18446744073709551615,"hash":""},"at":"2000-01-01T00:00:00Z"}"#;
    let damage = |lines: &mut Vec<String>| {
        lines[3] = ChainHead::of(&lines[2]).unwrap().seal(removed).trim_end().to_owned();
    };
    check(LogName::Sessions, damage, "has a hash that does not fit");
}
