//! The record of this node, open for writing: what is lost on the way to the disk is counted, and written down when there is room again.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use tracing::{info, warn};
use waybill_core::chain::Chain;

use super::{Recording, clock::wall};
use crate::{
    journal::{Entry, JournalWriter, Limits, LogName},
    record::GapReason,
};

/// How often what was written is made safe.
const SYNC: Duration = Duration::from_secs(1);

/// How often each log notes where the other one stands, and old files are looked for.
const NOTE: Duration = Duration::from_secs(10);

/// A line waits no longer than this for others to be written with.
pub(crate) const BATCH: Duration = Duration::from_millis(200);

/// How much of the record is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How large all lines about programs get together.
    pub programs: u64,
    /// How large all lines about sessions get together.
    pub sessions: u64,
    /// How old lines get.
    pub age: SignedDuration,
}

impl Default for Retention {
    fn default() -> Self {
        Self { programs: 512 << 20, sessions: 128 << 20, age: SignedDuration::from_hours(90 * 24) }
    }
}

impl Retention {
    /// In eight files, so that not much goes at once.
    fn limits(self, log: LogName) -> Limits {
        let total = match log {
            LogName::Programs => self.programs,
            LogName::Sessions => self.sessions,
        };
        Limits {
            file: (total / 8).clamp(4 << 10, 16 << 20),
            total,
            age: self.age,
            waiting: 1 << 20,
        }
    }
}

/// Both logs, and a file that tells by its age until when somebody recorded.
#[derive(Debug)]
pub(crate) struct Output {
    directory: PathBuf,
    sessions: JournalWriter,
    programs: JournalWriter,
    /// Since when lines are refused, and how many were.
    refused: Option<(Timestamp, u64)>,
    is_failing: bool,
    synced: Instant,
    noted: Instant,
    /// Up to where the other log was noted.
    notes: [u64; 2],
}

/// What was found when the record was opened.
pub(crate) struct Found {
    pub(crate) output: Output,
    /// How many bytes of half lines were cut off.
    pub(crate) cut: u64,
    /// Until when somebody recorded.
    pub(crate) alive: Option<Timestamp>,
}

impl Output {
    pub(crate) fn open(directory: &Path, retention: Retention) -> io::Result<Found> {
        let open = |log| JournalWriter::open(directory, log, retention.limits(log));
        let (sessions, programs) = (open(LogName::Sessions)?, open(LogName::Programs)?);
        let alive = directory.join(ALIVE).metadata().and_then(|found| found.modified()).ok();
        let output = Self {
            directory: directory.to_owned(),
            sessions: sessions.writer,
            programs: programs.writer,
            refused: None,
            is_failing: false,
            synced: Instant::now(),
            noted: Instant::now(),
            notes: [0; 2],
        };
        let alive = alive.and_then(|time| Timestamp::try_from(time).ok());
        Ok(Found { output, cut: sessions.cut + programs.cut, alive })
    }

    /// Adds a line. False if there is no room for it, which is counted.
    pub(crate) fn append(&mut self, log: LogName, entry: &Entry) -> bool {
        let now = wall();
        let is_taken = self.writer(log).append(entry, now);
        if !is_taken {
            let (_, count) = self.refused.get_or_insert((now, 0));
            *count += 1;
        }
        is_taken
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.sessions.has_waiting() || self.programs.has_waiting()
    }

    /// Writes what waits, and makes it safe from time to time. What fails is tried again the next time.
    pub(crate) fn write(&mut self) {
        let written = self.try_write();
        match (&written, self.is_failing) {
            (Err(error), false) => {
                let (directory, error) = (self.directory.display(), Chain(error));
                warn!(%directory, %error, "the record cannot be written; what does not fit into memory is lost");
            }
            (Ok(()), true) => info!("the record is written again"),
            _ => {}
        }
        self.is_failing = written.is_err();
    }

    fn try_write(&mut self) -> io::Result<()> {
        // First what is about sessions: it says whose the programs are.
        self.sessions.flush()?;
        self.programs.flush()?;
        if let Some((from, events)) = self.refused.take() {
            let (until, reason) = (wall(), GapReason::NotWritten);
            let lost = Entry::Lost { from, until, reason, events, whose: None };
            self.append(LogName::Sessions, &lost);
            self.sessions.flush()?;
        }
        if self.noted.elapsed() >= NOTE {
            self.note_heads()?;
            self.remove_old()?;
            self.noted = Instant::now();
        }
        if self.synced.elapsed() >= SYNC {
            self.sync()?;
            self.synced = Instant::now();
        }
        Ok(())
    }

    /// Says who records from now on.
    pub(crate) fn introduce(&self, recording: &Recording) {
        let text = serde_json::to_vec(recording).unwrap_or_default();
        if let Err(error) = fs::write(self.directory.join(ALIVE), text) {
            tracing::debug!(%error, "the record does not say who keeps it");
        }
        self.touch();
    }

    /// Says that somebody records.
    pub(crate) fn touch(&self) {
        let touched = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.directory.join(ALIVE))
            .and_then(|file| file.set_modified(wall().into()));
        if let Err(error) = touched {
            tracing::debug!(%error, "the record does not say that it is kept");
        }
    }

    /// Writes everything, and makes it safe.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.sessions.flush()?;
        self.programs.flush()?;
        self.note_heads()?;
        self.sync()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sessions.sync()?;
        self.programs.sync()
    }

    /// What is noted is on the disk before its note is: whoever is killed in between, or loses power, must not look like somebody who cut it off.
    fn note_heads(&mut self) -> io::Result<()> {
        self.sync()?;
        let heads = LogName::ALL.map(|log| (log, self.writer(log.other()).head().clone()));
        for ((log, head), at) in heads.into_iter().zip(0..) {
            // A note is a line too, which need not be noted.
            let noted = self.notes.get(at).copied().unwrap_or(0);
            if head.n > noted.saturating_add(1) {
                if let Some(noted) = self.notes.get_mut(at) {
                    *noted = head.n;
                }
                self.append(log, &Entry::Head { log: log.other(), head });
            }
        }
        self.sessions.flush()?;
        self.programs.flush()
    }

    fn remove_old(&mut self) -> io::Result<()> {
        for log in LogName::ALL {
            let at = wall();
            if let Some(through) = self.writer(log).remove_old(at)? {
                self.append(LogName::Sessions, &Entry::Removed { log, through, at });
            }
        }
        Ok(())
    }

    fn writer(&mut self, log: LogName) -> &mut JournalWriter {
        match log {
            LogName::Sessions => &mut self.sessions,
            LogName::Programs => &mut self.programs,
        }
    }
}

/// The file whose time says until when somebody recorded.
pub(crate) const ALIVE: &str = "alive";
