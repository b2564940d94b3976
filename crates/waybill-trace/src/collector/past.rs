//! What an earlier collector left in the record: until when it recorded, and which sessions and programs it knew to be running.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::Path,
};

use jiff::Timestamp;

use crate::{
    join::End,
    journal::{Entry, JournalReader, LogName, ReadLine, SessionEntry},
};

/// What is there.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// Whether the last collector ended in order.
    pub(crate) is_clean: bool,
    /// The last moment that a line tells of.
    pub(crate) last: Option<Timestamp>,
    /// Sessions that were not over.
    pub(crate) open: HashMap<String, SessionEntry>,
    /// Programs of those that did not end, by session and process.
    pub(crate) running: HashMap<(String, u32), Timestamp>,
    /// Those of `requests` whose sessions are recorded.
    pub(crate) recorded: HashSet<String>,
}

impl Past {
    /// Reads the record in `directory`.
    pub(crate) fn read(directory: &Path, requests: &HashSet<String>) -> io::Result<Self> {
        let mut past = Self::default();
        JournalReader::new(directory, LogName::Sessions).read(|line| {
            if let ReadLine::Entry(_, entry) = line {
                past.hear(*entry, requests);
            }
        })?;
        // Most of the time nothing ran.
        if !past.open.is_empty() {
            JournalReader::new(directory, LogName::Programs).read(|line| {
                if let ReadLine::Entry(_, entry) = line {
                    past.hear(*entry, requests);
                }
            })?;
        }
        Ok(past)
    }

    fn hear(&mut self, entry: Entry, requests: &HashSet<String>) {
        match entry {
            Entry::Start { at, .. } => {
                self.is_clean = false;
                self.saw(at);
            }
            Entry::Stop { at } => {
                self.is_clean = true;
                self.saw(at);
            }
            Entry::Session(session) => {
                if let Some(id) =
                    session.trace.audit_id.as_ref().filter(|id| requests.contains(*id))
                {
                    self.recorded.insert(id.clone());
                }
                self.saw(session.trace.started);
                if session.trace.end == End::Running {
                    self.open.insert(session.id.clone(), *session);
                } else {
                    self.open.remove(&session.id);
                }
            }
            Entry::Program(program) if self.open.contains_key(&program.session) => {
                self.saw(program.started);
                self.running.insert((program.session, program.pid), program.started);
            }
            Entry::Exit(exit) => {
                self.running.remove(&(exit.session, exit.pid));
            }
            Entry::Lost { until, .. } => self.saw(until),
            Entry::File { .. } | Entry::Program(_) | Entry::Removed { .. } | Entry::Head { .. } => {
            }
        }
    }

    fn saw(&mut self, at: Timestamp) {
        self.last = self.last.max(Some(at));
    }
}
