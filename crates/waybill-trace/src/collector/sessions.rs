//! Sessions as they are recorded: each when it is first known, again when more is known, and when it ends. Pure.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};

use crate::{
    audit::Request,
    hide::hide_secrets,
    join::{End, Trace},
    journal::{SessionEntry, json_length},
    record::{EventSource, RecordedSession},
};

/// What ended is remembered so long: processes that it left behind may start programs.
const LINGER: SignedDuration = SignedDuration::from_mins(5);

/// A request that was answered so long ago, and that the runtime never told of, is recorded by itself.
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// So much of what was asked for is kept, in bytes of its line.
const COMMAND: usize = 4 << 10;

/// All sessions that are of interest now.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    known: HashMap<String, Known>,
    /// Requests whose sessions are recorded.
    recorded: HashMap<String, Timestamp>,
}

#[derive(Debug)]
struct Known {
    entry: SessionEntry,
    /// As it was written last.
    written: Option<SessionEntry>,
    ended: Option<Timestamp>,
    /// Whether somebody else than an earlier collector knows it.
    is_confirmed: bool,
}

impl Sessions {
    /// What is known of a session now.
    pub(crate) fn learn(&mut self, trace: Trace, source: EventSource, now: Timestamp) {
        let id = RecordedSession::id_of(&trace);
        if let Some(audit_id) = &trace.audit_id {
            self.recorded.insert(audit_id.clone(), now);
        }
        let is_over = trace.end != End::Running;
        let (trace, hidden_at) = without_secrets(trace);
        let known = self.known.entry(id.clone()).or_insert_with(|| Known {
            entry: SessionEntry {
                id,
                trace: trace.clone(),
                hidden_at: Vec::new(),
                event_source: Some(source),
                programs: 0,
                not_kept: 0,
            },
            written: None,
            ended: None,
            is_confirmed: true,
        });
        known.is_confirmed = true;
        // Who asked is not unlearned when the audit log forgets.
        let before = std::mem::replace(&mut known.entry.trace, trace);
        if known.entry.trace.caller.is_none() && before.caller.is_some() {
            known.entry.trace.caller = before.caller;
            known.entry.trace.command = before.command;
        } else {
            known.entry.hidden_at = hidden_at;
        }
        if is_over && known.ended.is_none() {
            known.ended = Some(now);
        }
    }

    /// A session that an earlier collector wrote down.
    pub(crate) fn resume(&mut self, entry: SessionEntry) {
        let written = Some(entry.clone());
        self.known
            .insert(entry.id.clone(), Known { entry, written, ended: None, is_confirmed: false });
    }

    /// A request whose session an earlier collector wrote down.
    pub(crate) fn resume_request(&mut self, audit_id: &str, now: Timestamp) {
        self.recorded.insert(audit_id.to_owned(), now);
    }

    /// Counts a program; whether it is kept is not decided here.
    pub(crate) fn count(&mut self, session: &str, is_kept: bool) {
        if let Some(known) = self.known.get_mut(session) {
            known.entry.programs += 1;
            known.entry.not_kept += u64::from(!is_kept);
        }
    }

    pub(crate) fn get(&self, session: &str) -> Option<&SessionEntry> {
        self.known.get(session).map(|known| &known.entry)
    }

    /// Whether one of them is not over.
    pub(crate) fn has_open(&self) -> bool {
        self.known.values().any(|known| known.ended.is_none())
    }

    /// Those that only an earlier collector knew.
    pub(crate) fn unconfirmed(&self) -> Vec<Trace> {
        let unconfirmed = self.known.values().filter(|known| !known.is_confirmed);
        unconfirmed.map(|known| known.entry.trace.clone()).collect()
    }

    /// Sessions that only the audit log knows: they began and ended while nobody looked.
    pub(crate) fn unseen(
        &self,
        requests: &BTreeMap<String, Request>,
        now: Timestamp,
    ) -> Vec<Trace> {
        let is_past = |at: Timestamp| now.duration_since(at) > PATIENCE;
        let unseen = requests.values().filter(|request| {
            let is_over = request.ended.is_some_and(is_past);
            request.began && is_over && !self.recorded.contains_key(&request.audit_id)
        });
        unseen.filter_map(crate::join::forgotten).collect()
    }

    /// What has to be written: new, better known, ended, or with programs that are only counted.
    pub(crate) fn take_changed(&mut self) -> Vec<SessionEntry> {
        let mut entries = Vec::new();
        for known in self.known.values_mut().filter(|known| known.is_changed()) {
            known.written = Some(known.entry.clone());
            entries.push(known.entry.clone());
        }
        entries.sort_by(|one, other| {
            (one.trace.started, &one.id).cmp(&(other.trace.started, &other.id))
        });
        entries
    }

    /// What was to be written of a session found no room, and is tried again.
    pub(crate) fn not_written(&mut self, session: &str) {
        if let Some(known) = self.known.get_mut(session) {
            known.written = None;
        }
    }

    /// Forgets what ended a while ago, unless a process of it `lives`.
    pub(crate) fn forget_old(&mut self, now: Timestamp, lives: impl Fn(&str) -> bool) {
        let is_old = |at: Timestamp| now.duration_since(at) > LINGER;
        self.known.retain(|id, known| !known.ended.is_some_and(is_old) || lives(id));
    }

    /// Forgets requests that are not in the audit log any more.
    pub(crate) fn forget_requests(&mut self, requests: &BTreeMap<String, Request>, now: Timestamp) {
        let is_old = |at: Timestamp| now.duration_since(at) > LINGER;
        self.recorded.retain(|id, at| requests.contains_key(id) || !is_old(*at));
    }
}

impl Known {
    fn is_changed(&self) -> bool {
        let Some(written) = &self.written else { return true };
        let is_over = self.entry.trace.end != End::Running;
        // Programs are counted by their own lines; the count is for when those are gone. One that grows on and on is told when it has
        // doubled and at the end: a line each second for each of many sessions would push out those of others.
        written.trace != self.entry.trace
            || self.entry.not_kept > written.not_kept.saturating_mul(2)
            || (is_over && written.not_kept != self.entry.not_kept)
            || (is_over && written.programs != self.entry.programs)
    }
}

/// As it is kept: without the processes of a moment, and without words of the command that look like secrets.
fn without_secrets(mut trace: Trace) -> (Trace, Vec<u32>) {
    trace.processes.clear();
    trace.moved.clear();
    trace.process = None;
    let program = trace.command.first().cloned().unwrap_or_default();
    let (command, hidden_at) = hide_secrets(&program, &trace.command);
    trace.command = shortened(command);
    (trace, hidden_at)
}

/// The audit log has the rest. Lines of sessions are for all users, and none of them may be so long that few push out many.
fn shortened(mut command: Vec<String>) -> Vec<String> {
    let mut left = COMMAND;
    for (at, word) in command.iter_mut().enumerate() {
        let length = json_length(word);
        if length <= left {
            left -= length;
            continue;
        }
        // A character takes six bytes at most.
        word.truncate(word.floor_char_boundary(left / 6));
        word.push('…');
        command.truncate(at + 1);
        break;
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{audit::Caller, join::TraceKind};

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn trace(id: &str, user: Option<&str>, end: End) -> Trace {
        let caller = user.map(|user| Caller {
            user: user.to_owned(),
            uid: String::new(),
            impersonator: None,
            groups: Vec::new(),
            source: Vec::new(),
        });
        Trace {
            caller,
            session: Some(id.to_owned()),
            audit_id: Some(format!("audit-{id}")),
            command: vec!["login".to_owned(), "--password=x".to_owned()],
            end,
            ..crate::join::empty(TraceKind::Exec, time(1), crate::Container::default())
        }
    }

    fn learn(sessions: &mut Sessions, trace: Trace) {
        sessions.learn(trace, EventSource::Ebpf, time(10));
    }

    #[test]
    fn a_session_is_written_when_it_is_new_and_when_something_changed() {
        let mut sessions = Sessions::default();
        learn(&mut sessions, trace("a", None, End::Running));
        assert_eq!(sessions.take_changed().len(), 1);
        learn(&mut sessions, trace("a", None, End::Running));
        assert!(sessions.take_changed().is_empty());
        learn(&mut sessions, trace("a", Some("anna"), End::Running));
        assert_eq!(sessions.take_changed().len(), 1, "who asked is known now");
        sessions.count("a", true);
        assert!(sessions.take_changed().is_empty(), "its line tells");
        sessions.count("a", false);
        assert_eq!(sessions.take_changed()[0].not_kept, 1);
        sessions.not_written("a");
        assert_eq!(sessions.take_changed().len(), 1, "there was no room for it");
        learn(&mut sessions, trace("a", Some("anna"), End::Over { at: time(9) }));
        assert_eq!(sessions.take_changed()[0].programs, 2);
        assert!(sessions.take_changed().is_empty());
    }

    #[test]
    fn who_asked_is_not_unlearned() {
        let mut sessions = Sessions::default();
        learn(&mut sessions, trace("a", Some("anna"), End::Running));
        learn(&mut sessions, trace("a", None, End::Over { at: time(9) }));
        let entry = &sessions.take_changed()[0];
        assert_eq!(entry.trace.user(), Some("anna"));
        assert_eq!(entry.trace.end, End::Over { at: time(9) });
    }

    /// Hole: a session that ran more than its user may fill was written again each second, and pushed out all others.
    #[test]
    fn a_count_that_grows_on_is_written_a_few_times_only() {
        let mut sessions = Sessions::default();
        learn(&mut sessions, trace("a", Some("mallory"), End::Running));
        let mut lines = 0;
        for _ in 0..10_000 {
            sessions.count("a", false);
            lines += sessions.take_changed().len();
        }
        assert!((2..20).contains(&lines), "{lines}");
        learn(&mut sessions, trace("a", Some("mallory"), End::Over { at: time(9) }));
        assert_eq!(sessions.take_changed()[0].not_kept, 10_000);
    }

    /// Hole: of a command of control characters a line of 32 KB was written, of which 4,000 are the whole log.
    #[test]
    fn a_long_command_is_cut() {
        for (words, expected) in [
            (vec!["sh".to_owned(), "\u{1}".repeat(5_000), "more".to_owned()], 2),
            (vec!["é".repeat(3_000)], 1),
        ] {
            let command = shortened(words);
            assert_eq!(command.len(), expected);
            assert!(command.last().is_some_and(|word| word.ends_with('…')));
            assert!(serde_json::to_string(&command).unwrap().len() <= COMMAND + 32);
        }
        let short = vec!["sh".to_owned(), "-c".to_owned(), "x".repeat(4_000)];
        assert_eq!(shortened(short.clone()), short);
    }

    #[test]
    fn a_command_is_kept_without_its_secrets() {
        let mut sessions = Sessions::default();
        learn(&mut sessions, trace("a", None, End::Running));
        let entry = &sessions.take_changed()[0];
        assert_eq!(entry.trace.command, ["login", "--password=[hidden]"]);
        assert_eq!(entry.hidden_at, [1]);
    }

    #[test]
    fn what_ended_is_forgotten_later_unless_it_left_processes_behind() {
        let mut sessions = Sessions::default();
        for id in ["a", "b"] {
            learn(&mut sessions, trace(id, None, End::Over { at: time(9) }));
        }
        learn(&mut sessions, trace("c", None, End::Running));
        sessions.forget_old(time(11), |_| false);
        assert_eq!(sessions.known.len(), 3);
        sessions.forget_old(time(10_000), |id| id == "b");
        let mut left: Vec<_> = sessions.known.keys().map(String::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["b", "c"]);
    }
}
