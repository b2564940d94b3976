//! What was noted before: repeats are counted, and objects that repeat themselves too much are muted.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;

use super::{Kind, Note};

/// As many events as an object may have at once.
const BURST: u32 = 25;

/// Afterwards it may have one in this time.
const REFILL: SignedDuration = SignedDuration::from_mins(5);

/// What was not repeated for this long is forgotten.
const REMEMBERED: SignedDuration = SignedDuration::from_mins(10);

/// Remembered at most; more than that are forgotten at once.
const MOST: usize = 4096;

/// What is remembered of the events that were written.
#[derive(Debug, Default)]
pub(super) struct History {
    events: HashMap<Key, Written>,
    budgets: HashMap<Object, Budget>,
}

/// Notes with equal keys are one event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    object: Object,
    field_path: Option<String>,
    kind: Kind,
    reason: String,
    message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Object {
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

/// An event that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) name: String,
    pub(super) count: i32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

#[derive(Debug)]
struct Budget {
    left: u32,
    counted_at: Timestamp,
}

/// What to do about a note.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A new event.
    Create(Written),
    /// An event that exists gets a higher count.
    Raise(Written),
    /// The object had its share.
    Mute,
}

impl History {
    /// Decides about `note`, and remembers it.
    pub(super) fn step(&mut self, note: &Note) -> Step {
        self.forget_old(note.at);
        if !self.pay(&object(&note.about), note.at) {
            return Step::Mute;
        }
        let written = self.events.entry(key(note));
        let mut is_new = false;
        let written = written.or_insert_with(|| {
            is_new = true;
            Written { name: event_name(note), count: 0, first: note.at, last: note.at }
        });
        written.count = written.count.saturating_add(1);
        written.last = note.at;
        if is_new { Step::Create(written.clone()) } else { Step::Raise(written.clone()) }
    }

    /// The event is not there: a repeat of `note` makes a new one.
    pub(super) fn forget(&mut self, note: &Note) {
        self.events.remove(&key(note));
    }

    fn pay(&mut self, object: &Object, now: Timestamp) -> bool {
        let full = || Budget { left: BURST, counted_at: now };
        let budget = self.budgets.entry(object.clone()).or_insert_with(full);
        let passed = now.duration_since(budget.counted_at).as_secs() / REFILL.as_secs();
        if let Ok(earned @ 1..) = u32::try_from(passed) {
            budget.left = budget.left.saturating_add(earned).min(BURST);
            budget.counted_at = now;
        }
        let paid = budget.left.checked_sub(1);
        budget.left = paid.unwrap_or(0);
        paid.is_some()
    }

    fn forget_old(&mut self, now: Timestamp) {
        if self.events.len() < MOST && self.budgets.len() < MOST {
            return;
        }
        let is_recent = |at: Timestamp| now.duration_since(at) < REMEMBERED;
        self.events.retain(|_, written| is_recent(written.last));
        self.budgets.retain(|_, budget| is_recent(budget.counted_at));
        if self.events.len() >= MOST || self.budgets.len() >= MOST {
            self.events.clear();
            self.budgets.clear();
        }
    }
}

fn key(note: &Note) -> Key {
    Key {
        object: object(&note.about),
        field_path: note.about.field_path.clone(),
        kind: note.kind,
        reason: note.reason.clone(),
        message: note.message.clone(),
    }
}

fn object(about: &ObjectReference) -> Object {
    Object {
        kind: about.kind.clone(),
        namespace: about.namespace.clone(),
        name: about.name.clone(),
        uid: about.uid.clone(),
    }
}

/// Unique for each object and moment, as names of events are.
fn event_name(note: &Note) -> String {
    let object = note.about.name.as_deref().unwrap_or_default();
    format!("{object}.{:x}", note.at.as_nanosecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(message: &str, second: i64) -> Note {
        Note {
            about: ObjectReference { name: Some("p".to_owned()), ..ObjectReference::default() },
            kind: Kind::Normal,
            reason: "Pulled".to_owned(),
            message: message.to_owned(),
            at: Timestamp::from_second(second).unwrap(),
        }
    }

    #[test]
    fn a_repeat_raises_the_count_of_the_first() {
        let mut history = History::default();
        let Step::Create(first) = history.step(&note("a", 1)) else { panic!("no new event") };
        let raised = Written { count: 2, last: note("a", 9).at, ..first };
        assert_eq!(history.step(&note("a", 9)), Step::Raise(raised));
        assert!(matches!(history.step(&note("b", 9)), Step::Create(_)));
    }

    #[test]
    fn a_lost_event_is_made_anew() {
        let mut history = History::default();
        history.step(&note("a", 1));
        history.forget(&note("a", 1));
        assert!(matches!(history.step(&note("a", 2)), Step::Create(_)));
    }

    #[test]
    fn an_object_is_muted_after_its_share_and_heard_again_later() {
        let mut history = History::default();
        for at in 0..25 {
            assert_ne!(history.step(&note(&at.to_string(), 1)), Step::Mute);
        }
        assert_eq!(history.step(&note("more", 2)), Step::Mute);
        assert!(matches!(history.step(&note("later", 302)), Step::Create(_)));
        assert_eq!(history.step(&note("again", 303)), Step::Mute);
    }

    #[test]
    fn the_history_stays_small() {
        let mut history = History::default();
        for at in 0..10_000 {
            let mut note = note("a", 1);
            note.about.name = Some(at.to_string());
            history.step(&note);
        }
        assert!(history.events.len() <= MOST && history.budgets.len() <= MOST);
    }
}
