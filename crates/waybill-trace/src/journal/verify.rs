//! Whether a record is as it was written: finds lines that are missing, changed or in another order.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    path::Path,
};

use super::{ChainHead, Entry, LogName, ReadLine, entry::VERSION, files, reader};

/// What was found about both logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// One for each log.
    pub logs: Vec<LogReport>,
}

/// What was found about one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogReport {
    /// Which.
    pub log: LogName,
    /// How many lines there are.
    pub lines: u64,
    /// The number of the first line that is there; the ones before it were removed for their age, or by somebody.
    pub first: u64,
    /// The last line. Who knows it from elsewhere can tell whether the end was cut off.
    pub head: ChainHead,
    /// Everything that is not as it was written, in order.
    pub findings: Vec<Finding>,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, and the number of the line in it.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

impl Report {
    /// Whether nothing was found.
    pub fn is_whole(&self) -> bool {
        self.logs.iter().all(|log| log.findings.is_empty())
    }
}

/// A record that is being written is read on so often, until everything fits.
const ROUNDS: u32 = 5;

/// Reads the whole record in `directory`, which somebody may be writing to. `known` are lines that are known from elsewhere, by their
/// hashes. `wait` is called when something may be there a moment later: the two logs are not written in one step.
///
/// Only what lines say about lines elsewhere is held in memory, until those are found.
pub fn verify(directory: &Path, known: &[String], mut wait: impl FnMut()) -> io::Result<Report> {
    let mut notes = Notes { known: known.iter().cloned().collect(), ..Notes::default() };
    let mut walks = LogName::ALL.map(Walk::new);
    for round in 0..ROUNDS {
        for walk in &mut walks {
            walk.go_on(directory, &mut notes)?;
        }
        if round + 1 == ROUNDS || walks.iter().all(|walk| walk.is_settled(&notes)) {
            break;
        }
        wait();
    }
    // What was noted after its line had gone by.
    for log in LogName::ALL {
        let with_open = if notes.has_open(log) { files(directory, log)? } else { Vec::new() };
        for file in with_open {
            notes.look_in(log, &file.path)?;
        }
    }
    let mut reports: Vec<_> = walks.into_iter().map(|walk| walk.finish(&notes)).collect();
    let missing: Vec<Finding> = notes
        .known
        .iter()
        .map(|hash| Finding {
            place: "the record".to_owned(),
            what: format!(
                "has no line with the hash {hash}: it was cut off, changed or made anew, or removed for its age"
            ),
        })
        .collect();
    if let Some(first) = reports.first_mut() {
        first.findings.extend(missing);
    }
    Ok(Report { logs: reports })
}

/// What lines say about lines elsewhere.
#[derive(Default)]
struct Notes {
    /// Hashes of lines that are known from elsewhere, as long as they are not found.
    known: BTreeSet<String>,
    /// Where a log stood, by the number of its line, with its hash and where that is said; as long as it is not found.
    heads: BTreeMap<(LogName, u64), Vec<(String, String)>>,
    /// Up to where files were removed on purpose.
    removed: BTreeMap<LogName, u64>,
}

impl Notes {
    fn note(&mut self, log: LogName, head: &ChainHead, place: String) {
        self.heads.entry((log, head.n)).or_default().push((head.hash.clone(), place));
    }

    /// A line that is there.
    fn saw(&mut self, log: LogName, head: &ChainHead) {
        self.known.remove(&head.hash);
        if let Some(noted) = self.heads.get_mut(&(log, head.n)) {
            noted.retain(|(hash, _)| *hash != head.hash);
            if noted.is_empty() {
                self.heads.remove(&(log, head.n));
            }
        }
    }

    fn has_open(&self, log: LogName) -> bool {
        self.heads.keys().any(|(of, _)| *of == log)
    }

    /// Looks at what lines say of themselves, and at nothing else.
    fn look_in(&mut self, log: LogName, path: &Path) -> io::Result<()> {
        let Some(file) = open(path)? else { return Ok(()) };
        let mut reader = BufReader::with_capacity(64 << 10, file);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            line.pop_if(|last| *last == b'\n');
            if let Some(head) = std::str::from_utf8(&line).ok().and_then(ChainHead::of) {
                self.saw(log, &head);
            }
            line.clear();
        }
        Ok(())
    }

    /// Up to which line a log was removed on purpose.
    fn removed(&self, log: LogName) -> u64 {
        self.removed.get(&log).copied().unwrap_or(0)
    }

    /// Whether a line is noted that a log does not have yet.
    fn is_ahead_of(&self, report: &LogReport) -> bool {
        let later = (report.log, report.head.n.saturating_add(1))..=(report.log, u64::MAX);
        self.heads.range(later).next().is_some()
    }

    fn compare(&self, report: &mut LogReport) {
        let removed = self.removed(report.log);
        let open = self.heads.iter().filter(|((log, n), _)| {
            // What was removed meanwhile is not looked for.
            *log == report.log && *n >= report.first && *n > removed
        });
        for ((log, n), noted) in open {
            let what = format!(
                "notes line {n} of the {} log, which is not there: it was cut off or changed",
                log.as_str()
            );
            let places = noted.iter().map(|(_, place)| place.clone());
            report.findings.extend(places.map(|place| Finding { place, what: what.clone() }));
        }
        if report.first > removed.saturating_add(1) {
            let first = report.first;
            let what = format!(
                "begins at line {first}, and the record does not say that what was before was removed for its age or size"
            );
            report
                .findings
                .insert(0, Finding { place: format!("the {} log", report.log.as_str()), what });
        }
    }
}

/// One log, as far as it was read.
struct Walk {
    head: Option<ChainHead>,
    report: LogReport,
    at: Option<Position>,
    /// Half a line at the end.
    half: Option<String>,
    /// Files that are missing between others, by their last line and who says so: they may have been removed for their age meanwhile.
    gaps: Vec<(u64, Finding)>,
}

/// Up to where a file was read.
#[derive(Clone, Copy)]
struct Position {
    file: u64,
    offset: u64,
    lines: u64,
}

impl Walk {
    fn new(log: LogName) -> Self {
        let report =
            LogReport { log, lines: 0, first: 1, head: ChainHead::default(), findings: Vec::new() };
        Self { head: None, report, at: None, half: None, gaps: Vec::new() }
    }

    /// Reads what is new.
    fn go_on(&mut self, directory: &Path, notes: &mut Notes) -> io::Result<()> {
        for file in files(directory, self.report.log)? {
            let from = match self.at {
                Some(at) if file.number < at.file => continue,
                Some(at) if file.number == at.file => at,
                _ => Position { file: file.number, offset: 0, lines: 0 },
            };
            // It was left for another one, so nobody goes on writing it.
            if let Some(place) = self.half.take().filter(|_| from.offset == 0) {
                self.find(place, HALF);
            }
            self.file(&file.path, from, notes)?;
        }
        Ok(())
    }

    /// Whether nothing is missing that may be there a moment later.
    fn is_settled(&self, notes: &Notes) -> bool {
        let removed = notes.removed(self.report.log);
        self.half.is_none()
            && self.gaps.iter().all(|(through, _)| *through <= removed)
            && self.report.first <= removed.saturating_add(1)
            && !notes.is_ahead_of(&self.report)
    }

    fn finish(mut self, notes: &Notes) -> LogReport {
        if let Some(place) = self.half.take() {
            self.find(place, HALF);
        }
        let removed = notes.removed(self.report.log);
        let missing = self.gaps.into_iter().filter(|(through, _)| *through > removed);
        self.report.findings.extend(missing.map(|(_, finding)| finding));
        notes.compare(&mut self.report);
        self.report
    }

    fn file(&mut self, path: &Path, from: Position, notes: &mut Notes) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(mut opened) = open(path)? else { return Ok(()) };
        opened.seek(SeekFrom::Start(from.offset))?;
        let mut reader = BufReader::with_capacity(64 << 10, opened);
        let (mut line, mut at) = (Vec::new(), from);
        self.at = Some(at);
        loop {
            line.clear();
            let count = reader.read_until(b'\n', &mut line)?;
            if count == 0 {
                return Ok(());
            }
            let place = format!("{name}:{}", at.lines + 1);
            if line.pop_if(|last| *last == b'\n').is_none() {
                self.half = Some(place);
                return Ok(());
            }
            at = Position { offset: at.offset + count as u64, lines: at.lines + 1, ..at };
            self.at = Some(at);
            match reader::parse(&line) {
                ReadLine::Entry(_, entry) if matches!(*entry, Entry::File { version, .. } if version > VERSION) =>
                {
                    self.find(
                        place,
                        "is of a newer version than this program knows, so the file is not checked",
                    );
                    self.head = None;
                    self.at = Some(Position { offset: u64::MAX, ..at });
                    return Ok(());
                }
                ReadLine::Entry(head, entry) => self.line(&line, head, &entry, place, notes),
                _ => self.find(place, "is no line of a record: it was changed"),
            }
        }
    }

    fn line(
        &mut self,
        line: &[u8],
        head: ChainHead,
        entry: &Entry,
        place: String,
        notes: &mut Notes,
    ) {
        self.report.lines += 1;
        let text = std::str::from_utf8(line).unwrap_or_default();
        let before = match (&self.head, entry) {
            (Some(before), Entry::File { previous, .. }) if previous.n > before.n => {
                let what = removed_between(&head, before);
                self.gaps.push((previous.n, Finding { place: place.clone(), what }));
                Some(previous.clone())
            }
            (Some(before), _) => Some(before.clone()),
            // The first file that is there says itself where the one before it ended.
            (None, Entry::File { previous, .. }) => {
                self.report.first = head.n;
                Some(previous.clone())
            }
            (None, _) => {
                self.report.first = head.n;
                None
            }
        };
        match before {
            Some(before) => self.follow(&before, text, &head, place.clone()),
            None => self.find(place.clone(), "is the first line that is there, and does not begin a file: lines before it were removed"),
        }
        match entry {
            Entry::Head { log, head } => notes.note(*log, head, place),
            Entry::Removed { log, through, .. } => {
                notes.removed.insert(*log, through.n);
            }
            _ => {}
        }
        notes.saw(self.report.log, &head);
        self.report.head = head.clone();
        self.head = Some(head);
    }

    fn follow(&mut self, before: &ChainHead, text: &str, head: &ChainHead, place: String) {
        let expected = before.n.saturating_add(1);
        let what = if head.n > expected {
            removed_between(head, before)
        } else if head.n < expected {
            format!(
                "is line {}, and follows line {}: lines were swapped or added",
                head.n, before.n
            )
        } else if !before.is_followed_by(text) {
            "has a hash that does not fit: it or the line before it was changed".to_owned()
        } else {
            return;
        };
        self.find(place, &what);
    }

    fn find(&mut self, place: String, what: &str) {
        self.report.findings.push(Finding { place, what: what.to_owned() });
    }
}

const HALF: &str = "is half a line: it is being written, or its writer was killed";

fn removed_between(head: &ChainHead, before: &ChainHead) -> String {
    let removed = head.n.saturating_sub(before.n).saturating_sub(1);
    format!("is line {}, and follows line {}: {removed} were removed", head.n, before.n)
}

/// Nothing if it was removed for its age meanwhile.
fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

#[cfg(test)]
mod tests;
