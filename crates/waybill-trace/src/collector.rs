//! The collector of a node: takes what the kernel tells about programs, finds out whose they are, and writes the record.
//!
//! One task does everything: it waits for events, asks the runtime and the audit log whose they are, and writes in batches. It can be
//! killed at any moment: what is lost then is what was not written yet, and the next one writes down that there is a gap.

mod attribution;
mod bounds;
mod budget;
mod clock;
mod connector;
mod firsts;
mod lookup;
mod output;
mod past;
mod places;
mod scan;
mod sessions;
mod source;
mod turn;

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, sleep_until};

pub(crate) use self::clock::wall;
pub use self::output::Retention;
use self::{
    attribution::{Attribution, Happened},
    budget::{Budget, Share},
    clock::{BootClock, after_boot},
    firsts::Firsts,
    output::{ALIVE, BATCH, Output},
    past::Past,
    sessions::{NotKept, Sessions},
    source::Source,
};
use crate::{
    audit::AuditLog,
    journal::{Entry, LogName, json_length},
    record::{EventSource, GapReason, Whose},
    runtime::{Container, Runtime, RuntimeError},
};

/// Events wait so long for others: the kernel wakes us once for all of them.
const GATHER: Duration = Duration::from_millis(20);

/// How often the runtime is asked while something waits for its answer.
const ASK: Duration = Duration::from_millis(50);

/// How often everything else is looked at.
const TURN: Duration = Duration::from_secs(1);

/// How often it is told whose sessions were not kept.
const TELL: Duration = Duration::from_secs(60);

/// How many requests of the audit log are remembered.
const REQUESTS: usize = 4096;

/// What a collector needs to know.
#[derive(Clone, Debug)]
pub struct CollectorConfig {
    /// Where the record is.
    pub directory: PathBuf,
    /// The runtime's socket.
    pub runtime: PathBuf,
    /// The audit log of an API server on this machine, if there is one.
    pub audit_log: Option<PathBuf>,
    /// How much is kept.
    pub retention: Retention,
    /// The source of events, if it is not to be the best one.
    pub source: Option<EventSource>,
}

/// Why a collector cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectorError {
    /// The record cannot be opened.
    #[error("cannot open the record in {}", directory.display())]
    Open {
        /// Where.
        directory: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Nothing tells of processes.
    #[error("this machine tells of no processes")]
    Source(#[source] io::Error),
    /// The runtime does not tell its sessions.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The end could not be written down.
    #[error("cannot write the end of the record")]
    Finish(#[source] io::Error),
}

/// Takes events and writes the record.
#[derive(Debug)]
pub struct Collector {
    source: Source,
    attribution: Attribution,
    sessions: Sessions,
    budget: Budget,
    firsts: Firsts,
    output: Output,
    runtime: Runtime,
    audit: Option<AuditLog>,
    /// Places of containers, by their ids.
    containers: HashMap<String, Container>,
    /// When a container was first seen, by the ID of its own processes' cgroup.
    first_seen: HashMap<u64, Instant>,
    lost: u64,
    lost_at: Timestamp,
    /// When it was told last whose sessions were not kept.
    told_not_kept: Instant,
    asked: Asked,
    is_audit_read: bool,
}

/// When the runtime was asked last, and how.
#[derive(Debug)]
struct Asked {
    at: Instant,
    /// By the clock on the wall, which the runtime has too.
    time: Timestamp,
    /// For everything, not only for what is new.
    fully: Instant,
    /// Whether it answered.
    is_answered: bool,
}

impl Collector {
    /// Opens the record and the source of events, and writes down that it begins. Events are taken from now on.
    pub async fn start(config: &CollectorConfig) -> Result<Self, CollectorError> {
        // First of all: what happens from here on is not missed.
        let source = Source::open(config.source).map_err(CollectorError::Source)?;
        let directory = &config.directory;
        let failed = |source| CollectorError::Open { directory: directory.clone(), source };
        let found = Output::open(directory, config.retention).map_err(failed)?;
        let runtime = Runtime::connect(&config.runtime).await?;
        let mut audit = config.audit_log.as_deref().map(|path| AuditLog::recent(path, REQUESTS));
        if let Some(audit) = &mut audit {
            // The API server may have written nothing yet.
            let _ = audit.refresh();
        }
        let requests = audit.as_ref().map(|audit| audit.requests().keys().cloned().collect());
        let requests: HashSet<String> = requests.unwrap_or_default();
        let past = Past::read(directory, &requests).map_err(failed)?;
        let kind = source.is();
        let long_ago = Instant::now().checked_sub(Duration::from_secs(3600));
        let long_ago = long_ago.unwrap_or_else(Instant::now);
        let mut collector = Self {
            attribution: Attribution::new(lookup::machine_namespace(), kind),
            sessions: Sessions::new(share_of_sessions(config.retention)),
            budget: Budget::new(share(config.retention)),
            firsts: Firsts::new(share_of_firsts(config.retention)),
            output: found.output,
            runtime,
            audit,
            containers: HashMap::new(),
            first_seen: HashMap::new(),
            lost: 0,
            lost_at: wall(),
            told_not_kept: Instant::now(),
            asked: Asked {
                at: long_ago,
                time: Timestamp::UNIX_EPOCH,
                fully: long_ago,
                is_answered: true,
            },
            is_audit_read: true,
            source,
        };
        collector.begin(&past, found.alive, found.cut);
        collector.resume(past).await?;
        collector.output.write();
        Ok(collector)
    }

    /// Where events come from, and why from nowhere better.
    pub fn source(&self) -> (EventSource, Option<&str>) {
        (self.source.is(), self.source.why_not_better.as_deref())
    }

    /// Takes and writes events until `stop`, and then writes down that this is the end.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), CollectorError> {
        tokio::pin!(stop);
        let mut next_turn = Instant::now();
        let mut next_write = None;
        loop {
            let asks = self.attribution.has_waiting().then(|| self.asked.at + self.pause());
            let due = [Some(next_turn), next_write, asks].into_iter().flatten().min();
            tokio::select! {
                () = &mut stop => break,
                () = self.source.ready() => {
                    if self.source.comes_in_batches() {
                        sleep(GATHER).await;
                    }
                    self.take_events();
                }
                () = sleep_until(due.unwrap_or(next_turn)) => {}
            }
            let now = Instant::now();
            if asks.is_some_and(|at| at <= now) {
                self.ask().await;
            }
            if next_turn <= now {
                next_turn = now + TURN;
                self.turn().await;
            }
            if next_write.is_some_and(|at| at <= now) {
                self.output.write();
                next_write = None;
            }
            if self.output.has_waiting() && next_write.is_none() {
                next_write = Some(now + BATCH);
            }
        }
        self.finish().await
    }

    /// A runtime that does not answer is not asked so often.
    fn pause(&self) -> Duration {
        let is_new = self.attribution.has_young(after_boot());
        if self.asked.is_answered && is_new { ASK } else { TURN / 2 }
    }

    async fn finish(mut self) -> Result<(), CollectorError> {
        self.take_events();
        self.sessions.close();
        self.ask().await;
        self.turn().await;
        self.note_not_kept();
        self.output.append(LogName::Sessions, &Entry::Stop { at: wall() });
        self.output.finish().map_err(CollectorError::Finish)
    }

    fn begin(&mut self, past: &Past, alive: Option<Timestamp>, cut: u64) {
        let at = wall();
        let last = if past.is_clean { past.last } else { past.last.max(alive) };
        self.output.append(
            LogName::Sessions,
            &Entry::Start {
                at,
                source: self.source.is(),
                why_not_better: self.source.why_not_better.clone(),
                after: last.map(|last| last.min(at)),
                clean: past.is_clean || past.last.is_none(),
                cut,
                boot: boot(),
            },
        );
        self.output.introduce(&Recording {
            source: self.source.is(),
            why_not_better: self.source.why_not_better.clone(),
        });
    }

    /// Takes what the kernel told, and writes what follows from it.
    fn take_events(&mut self) {
        let clock = BootClock::now();
        let mut events = Vec::new();
        self.source.drain(|event| events.push(event));
        for event in events {
            let happened = self.attribution.hear(event, clock);
            self.record(happened);
        }
    }

    fn record(&mut self, happened: impl IntoIterator<Item = Happened>) {
        let second = after_boot() / 1_000_000_000;
        for happened in happened {
            let entry = match happened {
                Happened::Program(program) => {
                    let session = self.sessions.get(&program.session);
                    let whose = session.map_or(Whose::Node, |it| Whose::of(&it.trace));
                    let file = (program.session.as_str(), program.program.as_str());
                    let is_kept = self.budget.takes(&whose, size(&program), second)
                        || self.firsts.takes(&whose, file, size(&program), second);
                    self.sessions.count(&program.session, is_kept);
                    if !is_kept {
                        // Then its end is not kept either.
                        let _ = self.attribution.vanished(program.pid);
                        continue;
                    }
                    Entry::Program(program)
                }
                Happened::Exit(exit) => Entry::Exit(exit),
            };
            self.output.append(LogName::Programs, &entry);
        }
    }

    /// What was lost since the last time.
    fn note_lost(&mut self) {
        let now = wall();
        let lost = self.source.lost();
        let events = lost.saturating_sub(self.lost).saturating_add(self.attribution.take_lost());
        self.lost = lost;
        if events > 0 {
            let (from, reason) = (self.lost_at, GapReason::TooMany);
            let lost = Entry::Lost { from, until: now, reason, events, whose: None };
            self.output.append(LogName::Sessions, &lost);
        }
        self.lost_at = now;
    }

    /// Whose sessions were counted and not kept.
    fn note_not_kept(&mut self) {
        self.told_not_kept = Instant::now();
        for (whose, NotKept { from, until, sessions }) in self.sessions.take_not_kept() {
            let (reason, whose) = (GapReason::OverShare, Some(whose));
            let lost = Entry::Lost { from, until, reason, events: sessions, whose };
            self.output.append(LogName::Sessions, &lost);
        }
    }
}

/// About what the lines of a program take, with the one for its end.
fn size(program: &crate::journal::ProgramEntry) -> u64 {
    let words: usize = program.arguments.iter().map(|word| json_length(word)).sum();
    let size = 550 + json_length(&program.program) + words;
    size as u64
}

/// No user fills more than an eighth of the record at once, and not more than that in an hour.
fn share(retention: Retention) -> Share {
    let at_once = retention.programs / 8;
    Share { at_once, each_second: at_once / 3600 }
}

/// Who is over that has an eighth of it for programs that did not run before.
fn share_of_firsts(retention: Retention) -> Share {
    let Share { at_once, each_second } = share(retention);
    Share { at_once: at_once / 8, each_second: each_second.div_ceil(8) }
}

/// Of sessions the same at once, and as much again in a day: they are few and short, and who floods the record needs a week to push out others.
fn share_of_sessions(retention: Retention) -> Share {
    let at_once = retention.sessions / 8;
    Share { at_once, each_second: at_once.div_ceil(24 * 3600) }
}

/// The kernel's name for this boot.
fn boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.trim().to_owned()
}

/// Who records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recording {
    /// Where events come from.
    pub source: EventSource,
    /// Why from nowhere better.
    pub why_not_better: Option<String>,
}

/// Who seems to record there now.
pub fn recording(directory: &Path, now: Timestamp) -> Option<Recording> {
    let told = fs::read(directory.join(ALIVE)).ok()?;
    is_recorded(directory, now).then(|| serde_json::from_slice(&told).ok()).flatten()
}

/// Whether somebody seems to record there now.
pub fn is_recorded(directory: &Path, now: Timestamp) -> bool {
    let touched = directory.join(ALIVE).metadata().and_then(|found| found.modified());
    let touched = touched.ok().and_then(|time| Timestamp::try_from(time).ok());
    touched.is_some_and(|at| now.duration_since(at) < jiff::SignedDuration::from_secs(10))
}
