//! Sessions as they are recorded: each when it is first known, again when more is known, and when it ends. Pure.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::{
    bounds::bounded,
    budget::{Budget, Share},
};
use crate::{
    audit::Request,
    hide::hide_secrets,
    join::{End, Trace},
    journal::SessionEntry,
    record::{EventSource, RecordedSession, Whose},
};

/// What ended is remembered so long: processes that it left behind may start programs.
const LINGER: SignedDuration = SignedDuration::from_mins(5);

/// A request that was answered so long ago, and that the runtime never told of, is recorded by itself.
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// So many lines of a session are paid for with the first one: that it began, who asked, and how it ended.
const PAID: u64 = 3;

/// A session has no more lines than this, but for its end.
const MOST_LINES: u64 = 16;

/// All sessions that are of interest now.
#[derive(Debug)]
pub(crate) struct Sessions {
    known: HashMap<String, Known>,
    /// Requests whose sessions are recorded.
    recorded: HashMap<String, Timestamp>,
    budget: Budget,
    /// Sessions for which nothing was left of somebody's share, since these were told last.
    not_kept: BTreeMap<Whose, NotKept>,
}

/// How many sessions were counted and not kept, and when the first and the last of them began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotKept {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    pub(crate) sessions: u64,
}

#[derive(Debug)]
struct Known {
    entry: SessionEntry,
    /// Something other than counts is not as it was written.
    is_dirty: bool,
    written: Option<Written>,
    standing: Standing,
    ended: Option<Timestamp>,
    /// It is forgotten as soon as its counts are written.
    is_leaving: bool,
    /// Whether somebody else than an earlier collector knows it.
    is_confirmed: bool,
}

/// What was written last.
#[derive(Clone, Copy, Debug)]
struct Written {
    programs: u64,
    not_kept: u64,
    is_over: bool,
}

/// Whether a session is in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    New,
    Kept {
        lines: u64,
    },
    /// Nothing was left for it.
    Counted,
}

impl Sessions {
    /// Nobody's lines fill more than `share`.
    pub(crate) fn new(share: Share) -> Self {
        Self {
            known: HashMap::new(),
            recorded: HashMap::new(),
            budget: Budget::new(share),
            not_kept: BTreeMap::new(),
        }
    }

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
            is_dirty: true,
            written: None,
            standing: Standing::New,
            ended: None,
            is_leaving: false,
            is_confirmed: true,
        });
        known.learn(trace, hidden_at);
        if is_over && known.ended.is_none() {
            known.ended = Some(now);
        }
    }

    /// A session that an earlier collector wrote down.
    pub(crate) fn resume(&mut self, entry: SessionEntry) {
        let known = Known {
            is_dirty: false,
            written: Some(Written::of(&entry)),
            standing: Standing::Kept { lines: 1 },
            ended: None,
            is_leaving: false,
            is_confirmed: false,
            entry,
        };
        self.known.insert(known.entry.id.clone(), known);
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

    /// What has to be written: new, better known, ended, or with programs that are only counted. It is so many seconds after some moment.
    pub(crate) fn take_changed(&mut self, second: u64) -> Vec<SessionEntry> {
        let mut entries = Vec::new();
        for known in self.known.values_mut().filter(|known| known.is_changed()) {
            if known.is_taken(&mut self.budget, second) {
                entries.push(known.entry.clone());
            } else {
                let (whose, at) = (Whose::of(&known.entry.trace), known.entry.trace.started);
                let told = self.not_kept.entry(whose);
                let told = told.or_insert(NotKept { from: at, until: at, sessions: 0 });
                (told.from, told.until) = (told.from.min(at), told.until.max(at));
                told.sessions += 1;
            }
        }
        entries.sort_by(|one, other| {
            (one.trace.started, &one.id).cmp(&(other.trace.started, &other.id))
        });
        entries
    }

    /// How many sessions found nothing left of whose share, since this was asked last.
    pub(crate) fn take_not_kept(&mut self) -> BTreeMap<Whose, NotKept> {
        std::mem::take(&mut self.not_kept)
    }

    /// The next lines are the last ones.
    pub(crate) fn close(&mut self) {
        self.known.values_mut().for_each(|known| known.is_leaving = true);
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
        let is_too_old = |at: Timestamp| now.duration_since(at) > LINGER * 2;
        self.known.retain(|id, known| {
            if !known.ended.is_some_and(is_old) || lives(id) {
                return true;
            }
            known.is_leaving = true;
            // Its counts are written first, if that can be done.
            known.is_changed() && !known.ended.is_some_and(is_too_old)
        });
    }

    /// Forgets requests that are not in the audit log any more.
    pub(crate) fn forget_requests(&mut self, requests: &BTreeMap<String, Request>, now: Timestamp) {
        let is_old = |at: Timestamp| now.duration_since(at) > LINGER;
        self.recorded.retain(|id, at| requests.contains_key(id) || !is_old(*at));
    }
}

impl Known {
    fn learn(&mut self, trace: Trace, hidden_at: Vec<u32>) {
        self.is_confirmed = true;
        if self.standing == Standing::Counted {
            self.entry.trace.end = trace.end;
            return;
        }
        let before = std::mem::replace(&mut self.entry.trace, trace);
        if self.entry.trace.caller.is_none() && before.caller.is_some() {
            // Who asked is not unlearned when the audit log forgets.
            self.entry.trace.caller.clone_from(&before.caller);
            self.entry.trace.command.clone_from(&before.command);
        } else {
            self.entry.hidden_at = hidden_at;
        }
        self.is_dirty |= self.entry.trace != before;
    }

    fn is_changed(&self) -> bool {
        let lines = match self.standing {
            Standing::New => return true,
            Standing::Counted => return false,
            Standing::Kept { lines } => lines,
        };
        let Some(written) = &self.written else { return true };
        let now = Written::of(&self.entry);
        if now.is_over && !written.is_over {
            return true;
        }
        if self.is_leaving {
            return self.is_dirty
                || (now.programs, now.not_kept) != (written.programs, written.not_kept);
        }
        // Programs are counted by their own lines; the count is for when those are gone. One that grows on and on is told when it has
        // doubled and at the end: a line each second for each of many sessions would push out those of others.
        let has_doubled = now.not_kept > written.not_kept.saturating_mul(2);
        lines < MOST_LINES && (self.is_dirty || has_doubled)
    }

    /// Whether it is written; then it is as it was written.
    fn is_taken(&mut self, budget: &mut Budget, second: u64) -> bool {
        let lines = match self.standing {
            Standing::New => 0,
            Standing::Counted => return false,
            Standing::Kept { lines } => lines,
        };
        let whose = Whose::of(&self.entry.trace);
        let length = line_length(&self.entry);
        if self.standing == Standing::New && !budget.takes(&whose, length * PAID, second) {
            self.standing = Standing::Counted;
            // Who asked is still of interest: their programs are counted too.
            self.entry.trace.command.clear();
            self.entry.trace.variables.clear();
            return false;
        }
        if lines >= PAID {
            budget.charge(&whose, length, second);
        }
        self.standing = Standing::Kept { lines: lines + 1 };
        self.written = Some(Written::of(&self.entry));
        self.is_dirty = false;
        true
    }
}

impl Written {
    fn of(entry: &SessionEntry) -> Self {
        Self {
            programs: entry.programs,
            not_kept: entry.not_kept,
            is_over: entry.trace.end != End::Running,
        }
    }
}

/// With its number and hash.
fn line_length(entry: &SessionEntry) -> u64 {
    let object = serde_json::to_string(entry).map_or(0, |object| object.len());
    object as u64 + 120
}

/// As it is kept: without the processes of a moment, and without words of the command that look like secrets.
fn without_secrets(mut trace: Trace) -> (Trace, Vec<u32>) {
    trace.processes.clear();
    trace.moved.clear();
    trace.process = None;
    let program = trace.command.first().cloned().unwrap_or_default();
    let (command, mut hidden_at) = hide_secrets(&program, &trace.command);
    let trace = bounded(Trace { command, ..trace });
    hidden_at.retain(|at| (*at as usize) < trace.command.len());
    (trace, hidden_at)
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

    fn sessions() -> Sessions {
        Sessions::new(Share { at_once: 1 << 20, each_second: 0 })
    }

    fn learn(sessions: &mut Sessions, trace: Trace) {
        sessions.learn(trace, EventSource::Ebpf, time(10));
    }

    #[test]
    fn a_session_is_written_when_it_is_new_and_when_something_changed() {
        let mut sessions = sessions();
        learn(&mut sessions, trace("a", None, End::Running));
        assert_eq!(sessions.take_changed(0).len(), 1);
        learn(&mut sessions, trace("a", None, End::Running));
        assert!(sessions.take_changed(0).is_empty());
        learn(&mut sessions, trace("a", Some("anna"), End::Running));
        assert_eq!(sessions.take_changed(0).len(), 1, "who asked is known now");
        sessions.count("a", true);
        assert!(sessions.take_changed(0).is_empty(), "its line tells");
        sessions.count("a", false);
        assert_eq!(sessions.take_changed(0)[0].not_kept, 1);
        sessions.not_written("a");
        assert_eq!(sessions.take_changed(0).len(), 1, "there was no room for it");
        learn(&mut sessions, trace("a", Some("anna"), End::Over { at: time(9) }));
        assert_eq!(sessions.take_changed(0)[0].programs, 2);
        assert!(sessions.take_changed(0).is_empty());
    }

    #[test]
    fn who_asked_is_not_unlearned() {
        let mut sessions = sessions();
        learn(&mut sessions, trace("a", Some("anna"), End::Running));
        learn(&mut sessions, trace("a", None, End::Over { at: time(9) }));
        let entry = &sessions.take_changed(0)[0];
        assert_eq!(entry.trace.user(), Some("anna"));
        assert_eq!(entry.trace.end, End::Over { at: time(9) });
    }

    /// Hole: a session that ran more than its user may fill was written again each second, and pushed out all others.
    #[test]
    fn a_count_that_grows_on_is_written_a_few_times_only() {
        let mut sessions = sessions();
        learn(&mut sessions, trace("a", Some("mallory"), End::Running));
        let mut lines = 0;
        for _ in 0..10_000 {
            sessions.count("a", false);
            lines += sessions.take_changed(0).len();
        }
        assert!((2..20).contains(&lines), "{lines}");
        learn(&mut sessions, trace("a", Some("mallory"), End::Over { at: time(9) }));
        assert_eq!(sessions.take_changed(0)[0].not_kept, 10_000);
    }

    /// Hole: a process that a session left behind ran program after program, and each of them wrote the line of its session again.
    #[test]
    fn what_a_session_does_after_its_end_is_told_when_it_is_forgotten() {
        let mut sessions = sessions();
        learn(&mut sessions, trace("a", Some("mallory"), End::Over { at: time(9) }));
        assert_eq!(sessions.take_changed(0).len(), 1);
        let mut lines = 0;
        for at in 0..1_000 {
            sessions.count("a", at % 2 == 0);
            lines += sessions.take_changed(0).len();
        }
        assert!(lines < 16, "{lines}");
        sessions.forget_old(time(400), |_| false);
        let told = sessions.take_changed(0);
        assert_eq!((told[0].programs, told[0].not_kept), (1_000, 500));
        sessions.forget_old(time(400), |_| false);
        assert!(sessions.known.is_empty());
    }

    /// Hole: sessions had no budget, so that one user pushed out those of all others.
    #[test]
    fn who_fills_their_share_takes_nothing_from_others_and_is_counted() {
        let mut sessions = Sessions::new(Share { at_once: 10_000, each_second: 10 });
        for at in 0..100 {
            let started = Trace { started: time(at), ..trace("", Some("mallory"), End::Running) };
            learn(&mut sessions, Trace { session: Some(format!("m{at}")), ..started });
        }
        let kept = sessions.take_changed(0);
        let length: u64 = kept.iter().map(line_length).sum();
        assert!(kept.len() > 2 && length * PAID <= 10_000, "{}", kept.len());
        for (at, user) in [("b", Some("anna")), ("c", None)] {
            learn(&mut sessions, trace(at, user, End::Running));
            assert_eq!(sessions.take_changed(0).len(), 1, "{user:?}");
        }
        let told = sessions.take_not_kept();
        let mallory = told.get(&Whose::User("mallory".to_owned())).unwrap();
        assert_eq!((told.len(), mallory.sessions), (1, 100 - kept.len() as u64));
        assert!(mallory.from >= time(0) && mallory.until <= time(99));
        assert!(sessions.take_not_kept().is_empty(), "once");
        // The end of what is kept is kept; what is not stays so.
        for at in 0..100 {
            let over = trace("", Some("mallory"), End::Over { at: time(200) });
            learn(&mut sessions, Trace { session: Some(format!("m{at}")), ..over });
        }
        assert_eq!(sessions.take_changed(0).len(), kept.len());
        assert!(sessions.take_not_kept().is_empty(), "each is counted once");
        learn(&mut sessions, trace("late", Some("mallory"), End::Running));
        assert_eq!(sessions.take_changed(1_000).len(), 1, "it comes back with time");
    }

    #[test]
    fn a_command_is_kept_without_its_secrets() {
        let mut sessions = sessions();
        learn(&mut sessions, trace("a", None, End::Running));
        let entry = &sessions.take_changed(0)[0];
        assert_eq!(entry.trace.command, ["login", "--password=[hidden]"]);
        assert_eq!(entry.hidden_at, [1]);
    }

    #[test]
    fn what_ended_is_forgotten_later_unless_it_left_processes_behind() {
        let mut sessions = sessions();
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
