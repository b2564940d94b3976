//! Everything that the record tells, in memory.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::Path,
};

use jiff::Timestamp;

use super::live::View;
use crate::{
    hide::hide_secrets,
    join::{End, Trace, TraceKind},
    journal::{Entry, ExitEntry, JournalReader, LogName, ProgramEntry, ReadLine, SessionEntry},
    record::{
        Change, Coverage, EventSource, Gap, GapReason, ProcessQuery, ProcessState, RecordedProcess,
        RecordedSession, SessionList, SessionQuery,
    },
};

pub(crate) struct Index {
    /// None if its lines come from elsewhere.
    readers: Vec<JournalReader>,
    sessions: BTreeMap<String, Known>,
    /// What is known of a request under the name of its session, once that is known.
    by_audit_id: HashMap<String, String>,
    coverage: Coverage,
    is_recorded: bool,
}

/// One session.
#[derive(Default)]
struct Known {
    entry: Option<SessionEntry>,
    /// As the runtime has it now.
    live: Option<Trace>,
    processes: Vec<RecordedProcess>,
    /// The last program of each process.
    last: HashMap<u32, usize>,
}

impl Index {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            readers: LogName::ALL.map(|log| JournalReader::new(directory, log)).into(),
            ..Self::received()
        }
    }

    /// For lines that come from elsewhere.
    pub(crate) fn received() -> Self {
        Self {
            readers: Vec::new(),
            sessions: BTreeMap::new(),
            by_audit_id: HashMap::new(),
            coverage: Coverage::default(),
            is_recorded: false,
        }
    }

    pub(crate) fn set_recorded(&mut self, is_recorded: bool) {
        self.is_recorded = is_recorded;
    }

    /// Reads what is new in the files.
    pub(super) fn refresh(&mut self) -> io::Result<Vec<Change>> {
        let mut entries = Vec::new();
        for reader in &mut self.readers {
            reader.read(|line| {
                if let ReadLine::Entry(_, entry) = line {
                    entries.push(*entry);
                }
            })?;
        }
        Ok(self.hear(entries))
    }

    /// Takes lines, in the order in which they were written.
    pub(crate) fn hear(&mut self, entries: impl IntoIterator<Item = Entry>) -> Vec<Change> {
        let mut touched = BTreeMap::new();
        let mut processes = Vec::new();
        let before = self.coverage.clone();
        for entry in entries {
            match entry {
                Entry::Session(session) => {
                    touched.insert(session.id.clone(), ());
                    self.take_session(*session);
                }
                Entry::Program(program) => {
                    touched.insert(program.session.clone(), ());
                    processes.extend(self.take_program(*program));
                }
                Entry::Exit(exit) => processes.extend(self.take_exit(&exit)),
                other => self.take_note(other),
            }
        }
        let sessions = touched.into_keys().filter_map(|id| self.session(&id));
        let sessions = sessions.map(|session| Change::Session(Box::new(session)));
        let processes = processes.into_iter().map(|process| Change::Process(Box::new(process)));
        let mut changes: Vec<_> = sessions.chain(processes).collect();
        if self.coverage != before {
            changes.push(Change::Coverage(self.coverage()));
        }
        changes
    }

    fn take_session(&mut self, session: SessionEntry) {
        if let Some(audit_id) = &session.trace.audit_id {
            self.rename(audit_id, &session.id);
        }
        self.coverage.since = earlier(self.coverage.since, session.trace.started);
        let known = self.sessions.entry(session.id.clone()).or_default();
        known.entry = Some(session);
    }

    /// A session that was known by its request alone is the same.
    fn rename(&mut self, audit_id: &str, id: &str) {
        let before = self.by_audit_id.insert(audit_id.to_owned(), id.to_owned());
        if let Some(before) = before.filter(|before| before != id && before.starts_with("audit:")) {
            self.sessions.remove(&before);
        }
    }

    fn take_program(&mut self, entry: ProgramEntry) -> Vec<RecordedProcess> {
        let known = self.sessions.entry(entry.session.clone()).or_default();
        let mut changed = Vec::new();
        if let Some(before) = known.last.get(&entry.pid).and_then(|at| known.processes.get_mut(*at))
            && before.state == ProcessState::Running
        {
            (before.state, before.ended) = (ProcessState::Replaced, Some(entry.started));
            changed.push(before.clone());
        }
        known.last.insert(entry.pid, known.processes.len());
        let process = RecordedProcess {
            session: entry.session,
            pid: entry.pid,
            parent: entry.parent,
            parent_program: entry.parent_program,
            uid: entry.uid,
            program: entry.program,
            arguments: entry.arguments,
            cut: entry.cut,
            hidden_at: entry.hidden_at,
            started: entry.started,
            state: ProcessState::Running,
            ended: None,
            exit_code: None,
            signal: None,
            moved: entry.moved,
            source: entry.source,
        };
        known.processes.push(process.clone());
        changed.push(process);
        changed
    }

    fn take_exit(&mut self, exit: &ExitEntry) -> Option<RecordedProcess> {
        let known = self.sessions.get_mut(&exit.session)?;
        let process = known.last.get(&exit.pid).and_then(|at| known.processes.get_mut(*at))?;
        if process.started != exit.started || process.state != ProcessState::Running {
            return None;
        }
        process.state =
            if exit.ended.is_some() { ProcessState::Ended } else { ProcessState::Unknown };
        process.ended = exit.ended;
        (process.exit_code, process.signal) = (exit.exit_code, exit.signal);
        Some(process.clone())
    }

    fn take_note(&mut self, entry: Entry) {
        let coverage = &mut self.coverage;
        match entry {
            Entry::Start { at, source, why_not_better, after, .. } => {
                coverage.since = earlier(coverage.since, at);
                (coverage.source, coverage.why_not_better) = (Some(source), why_not_better);
                if let Some(from) = after {
                    let reason = GapReason::NotRunning;
                    let until = Some(at);
                    coverage.gaps.push(Gap { from, until, reason, events: None, whose: None });
                }
            }
            Entry::Lost { from, until, reason, events, whose } => {
                let gap = Gap { from, until: Some(until), reason, events: Some(events), whose };
                coverage.add(gap);
            }
            _ => {}
        }
    }

    /// Adds what is known now.
    pub(crate) fn merge(&mut self, view: View) -> Vec<Change> {
        let mut seen = HashMap::new();
        let mut changes = Vec::new();
        for trace in view.traces {
            let mut id = RecordedSession::id_of(&trace);
            if let Some(known) = trace.audit_id.as_ref().and_then(|it| self.by_audit_id.get(it))
                && trace.session.is_none()
            {
                id.clone_from(known);
            } else if let Some(audit_id) = &trace.audit_id {
                self.rename(&audit_id.clone(), &id);
            }
            let known = self.sessions.entry(id.clone()).or_default();
            let is_new = known.live.as_ref() != Some(&trace);
            known.live = Some(trace);
            seen.insert(id.clone(), ());
            if is_new && let Some(session) = self.session(&id) {
                changes.push(Change::Session(Box::new(session)));
            }
        }
        self.sessions.retain(|id, known| {
            if !seen.contains_key(id) {
                known.live = None;
            }
            known.live.is_some() || known.entry.is_some()
        });
        changes
    }

    fn coverage(&self) -> Coverage {
        let mut coverage = self.coverage.clone();
        if !self.is_recorded {
            coverage.source = None;
        }
        coverage
    }

    fn session(&self, id: &str) -> Option<RecordedSession> {
        self.sessions.get(id).and_then(|known| self.told(id, known))
    }

    fn told(&self, id: &str, known: &Known) -> Option<RecordedSession> {
        let trace = known.trace()?;
        let kept = known.processes.len() as u64;
        let (counted, not_kept, source) = match &known.entry {
            Some(entry) => (entry.programs, entry.not_kept, entry.event_source),
            None => (0, 0, None),
        };
        let programs = kept.saturating_add(not_kept).max(counted);
        // Sessions that are not there say nothing about one that is.
        let gaps = self.coverage.gaps.iter().filter(|gap| gap.whose.is_none());
        let gaps = gaps.filter(|gap| overlaps(&trace, gap));
        let (mut lost, mut has_gap) = (programs.saturating_sub(kept), false);
        for gap in gaps {
            lost = lost.saturating_add(gap.events.unwrap_or(0));
            has_gap |= gap.events.is_none();
        }
        let is_attach = trace.kind == TraceKind::Attach;
        let complete = is_attach || (lost == 0 && !has_gap && source == Some(EventSource::Ebpf));
        let id = id.to_owned();
        Some(RecordedSession { id, trace, event_source: source, programs, lost, complete })
    }

    pub(crate) fn sessions(&self, query: &SessionQuery) -> SessionList {
        let all = self.sessions.iter().filter_map(|(id, known)| {
            let session = self.told(id, known)?;
            query.takes(&session, &known.processes).then_some(session)
        });
        let mut sessions: Vec<_> = all.collect();
        sessions.sort_by(|one, other| {
            (one.trace.started, &one.id).cmp(&(other.trace.started, &other.id))
        });
        let surplus = query.limit.map_or(0, |limit| sessions.len().saturating_sub(limit));
        sessions.drain(..surplus);
        SessionList { sessions, more: surplus > 0, coverage: self.coverage() }
    }

    pub(crate) fn processes(&self, query: &ProcessQuery) -> Vec<RecordedProcess> {
        let mut found: Vec<&RecordedProcess> = match &query.session {
            Some(id) => self.sessions.get(id).map(|it| it.processes.iter().collect()),
            None => Some(self.sessions.values().flat_map(|known| &known.processes).collect()),
        }
        .unwrap_or_default();
        found.retain(|process| query.takes(process));
        if query.session.is_none() {
            found.sort_by_key(|process| process.started);
        }
        let found = found.into_iter().skip(query.offset);
        found.take(query.limit.unwrap_or(usize::MAX)).cloned().collect()
    }
}

impl Known {
    /// What the runtime says now counts for what runs, and the record for who asked and what the runtime has forgotten.
    fn trace(&self) -> Option<Trace> {
        let written = self.entry.as_ref().map(|entry| &entry.trace);
        let Some(live) = &self.live else { return written.cloned() };
        let mut trace = live.clone();
        if let Some(written) = written {
            if trace.caller.is_none() {
                trace.caller.clone_from(&written.caller);
            }
            // Only the audit log remembers it, and it says less.
            if trace.session.is_none() {
                let (processes, moved) = (trace.processes, trace.moved);
                trace = Trace { processes, moved, ..written.clone() };
            }
        }
        let program = trace.command.first().cloned().unwrap_or_default();
        (trace.command, _) = hide_secrets(&program, &trace.command);
        Some(trace)
    }
}

/// Whether events of a session may be missing because of a gap.
fn overlaps(trace: &Trace, gap: &Gap) -> bool {
    let ended = match trace.end {
        End::Exited { at, .. } | End::Over { at } => Some(at),
        End::Running | End::Unknown => None,
    };
    ended.is_none_or(|at| at >= gap.from) && gap.until.is_none_or(|until| trace.started <= until)
}

fn earlier(one: Option<Timestamp>, other: Timestamp) -> Option<Timestamp> {
    Some(one.map_or(other, |one| one.min(other)))
}
