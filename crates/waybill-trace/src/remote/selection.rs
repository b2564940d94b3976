//! Which sessions of a record are wanted, found out line by line. Pure.

use std::collections::{HashMap, HashSet};

use crate::{
    join::Trace,
    journal::{ProgramEntry, SessionEntry},
    record::{RecordedSession, SessionQuery},
};

/// What is known so far.
#[derive(Debug)]
pub(super) struct Selection {
    query: SessionQuery,
    known: HashMap<String, Candidate>,
}

#[derive(Debug, Default)]
struct Candidate {
    /// As far as everything goes but what ran.
    fits: bool,
    has_command: bool,
    has_process: bool,
    container: Option<String>,
}

impl Selection {
    pub(super) fn new(query: SessionQuery) -> Self {
        Self { query, known: HashMap::new() }
    }

    /// Whether programs have to be looked at to know which sessions are wanted.
    pub(super) fn needs_programs(&self) -> bool {
        self.query.command.is_some() || self.query.pid.is_some()
    }

    /// What is said last of a session counts.
    pub(super) fn hear_session(&mut self, entry: &SessionEntry) {
        self.hear(&entry.id, &entry.trace);
    }

    /// What the runtime tells of a session now.
    pub(super) fn hear_live(&mut self, trace: &Trace) {
        let id = RecordedSession::id_of(trace);
        self.hear(&id, trace);
        if let (Some(pid), Some(known)) = (self.query.pid, self.known.get_mut(&id)) {
            known.has_process |= trace.processes.iter().any(|process| process.pid == pid);
        }
    }

    fn hear(&mut self, id: &str, trace: &Trace) {
        let session = RecordedSession {
            id: id.to_owned(),
            trace: trace.clone(),
            event_source: None,
            programs: 0,
            lost: 0,
            complete: false,
        };
        let (command, pid) = (self.query.command.take(), self.query.pid.take());
        let fits = self.query.takes(&session, &[]);
        (self.query.command, self.query.pid) = (command, pid);
        let has_command = match &self.query.command {
            Some(text) => trace.command.join(" ").contains(text.as_str()),
            None => true,
        };
        let has_process = self.query.pid.is_none();
        let known = self.known.entry(id.to_owned()).or_default();
        known.fits = fits;
        known.has_command |= has_command;
        known.has_process |= has_process;
        if trace.container_id.is_some() {
            known.container.clone_from(&trace.container_id);
        }
    }

    /// A program that ran may be what is looked for.
    pub(super) fn hear_program(&mut self, entry: &ProgramEntry) {
        let has_process = self.query.pid == Some(entry.pid);
        let has_command = self.query.command.as_ref().is_some_and(|text| {
            entry.program.contains(text.as_str())
                || entry.arguments.join(" ").contains(text.as_str())
        });
        if (has_process || has_command) && !self.wants(&entry.session) {
            let known = self.known.entry(entry.session.clone()).or_default();
            known.has_process |= has_process;
            known.has_command |= has_command;
        }
    }

    pub(super) fn wants(&self, id: &str) -> bool {
        self.known.get(id).is_some_and(|it| it.fits && it.has_command && it.has_process)
    }

    /// Sessions in the containers of those that are wanted, which are not wanted themselves.
    pub(super) fn beside(&self) -> HashSet<String> {
        let wanted = self.known.iter().filter(|(id, _)| self.wants(id));
        let containers: HashSet<_> = wanted.filter_map(|(_, it)| it.container.as_ref()).collect();
        let others = self.known.iter().filter(|(id, it)| {
            !self.wants(id) && it.container.as_ref().is_some_and(|it| containers.contains(it))
        });
        others.map(|(id, _)| id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        Caller, Container, EventSource, TraceKind,
        join::{End, empty},
    };

    fn trace(id: &str, user: &str, container: &str) -> Trace {
        let caller = Caller {
            user: user.to_owned(),
            uid: String::new(),
            impersonator: None,
            groups: Vec::new(),
            source: Vec::new(),
        };
        Trace {
            session: Some(id.to_owned()),
            audit_id: Some(format!("audit-{id}")),
            caller: Some(caller),
            container_id: Some(container.to_owned()),
            command: vec!["sh".to_owned(), "-c".to_owned(), format!("script-{id}")],
            end: End::Running,
            ..empty(TraceKind::Exec, Timestamp::from_second(10).unwrap(), Container::default())
        }
    }

    fn session(id: &str, user: &str, container: &str) -> SessionEntry {
        SessionEntry {
            id: id.to_owned(),
            trace: trace(id, user, container),
            hidden_at: Vec::new(),
            event_source: Some(EventSource::Ebpf),
            programs: 0,
            not_kept: 0,
        }
    }

    fn program(session: &str, pid: u32, words: &str) -> ProgramEntry {
        ProgramEntry {
            session: session.to_owned(),
            pid,
            parent: 1,
            parent_program: None,
            uid: 0,
            program: "/bin/x".to_owned(),
            arguments: words.split(' ').map(str::to_owned).collect(),
            cut: false,
            hidden_at: Vec::new(),
            started: Timestamp::from_second(11).unwrap(),
            moved: None,
            source: EventSource::Ebpf,
        }
    }

    fn selection(query: SessionQuery) -> Selection {
        let mut selection = Selection::new(query);
        selection.hear_session(&session("a", "anna", "c1"));
        selection.hear_session(&session("b", "ben", "c1"));
        selection.hear_session(&session("c", "ben", "c2"));
        selection.hear_program(&program("b", 7, "curl example"));
        selection.hear_program(&program("c", 8, "ls"));
        selection
    }

    #[track_caller]
    fn check(query: SessionQuery, expected: &[&str]) {
        let selection = selection(query);
        let wanted: Vec<_> = ["a", "b", "c"].into_iter().filter(|id| selection.wants(id)).collect();
        assert_eq!(wanted, expected);
    }

    #[test]
    fn sessions_are_chosen_by_who_asked_and_by_what_ran() {
        let none = SessionQuery::default;
        let text = |text: &str| Some(text.to_owned());
        check(none(), &["a", "b", "c"]);
        check(SessionQuery { user: text("ben"), ..none() }, &["b", "c"]);
        check(SessionQuery { command: text("curl ex"), ..none() }, &["b"]);
        check(SessionQuery { command: text("script-a"), ..none() }, &["a"]);
        check(SessionQuery { pid: Some(8), ..none() }, &["c"]);
        check(SessionQuery { pid: Some(8), user: text("anna"), ..none() }, &[]);
        check(SessionQuery { command: text("curl"), pid: Some(8), ..none() }, &[]);
        check(SessionQuery { session: text("audit-c"), ..none() }, &["c"]);
    }

    #[test]
    fn what_is_said_last_of_a_session_counts() {
        let since = Timestamp::from_second(50).ok();
        let mut selection = selection(SessionQuery { since, ..SessionQuery::default() });
        assert!(selection.wants("a"), "it runs");
        let mut over = session("a", "anna", "c1");
        over.trace.end = End::Over { at: Timestamp::from_second(40).unwrap() };
        selection.hear_session(&over);
        assert!(!selection.wants("a"));
    }

    #[test]
    fn who_was_in_the_same_container_is_beside() {
        let named =
            |name: &str| SessionQuery { session: Some(name.to_owned()), ..SessionQuery::default() };
        assert_eq!(selection(named("a")).beside(), HashSet::from(["b".to_owned()]));
        assert_eq!(selection(named("c")).beside(), HashSet::new());
    }
}
