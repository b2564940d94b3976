//! The two logs: that of users, and that of strangers with a size and a rate of its own.
//!
//! What is left out for want of a budget is counted at once and told in the log from time to time.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, Ordering},
};

use jiff::Timestamp;

use super::{
    budget::{self, Budget, Budgets, LeftOut},
    log::AuditLog,
    notice::Notice,
};

/// Where records go, and how many of them those may cause who have no rights.
pub(crate) struct Logs {
    users: AuditLog,
    /// Of those who did not say who they are.
    strangers: AuditLog,
    strangers_budget: Mutex<Budget>,
    refusals: Mutex<Budgets>,
    /// When what was left out is told next, in milliseconds; never if nothing was.
    tell_at: AtomicI64,
}

/// Nothing is to be told.
const NEVER: i64 = i64::MAX;

impl Logs {
    pub(crate) fn new(users: AuditLog, strangers: AuditLog) -> Self {
        let (strangers_budget, refusals) = (Mutex::default(), Mutex::default());
        Self { users, strangers, strangers_budget, refusals, tell_at: AtomicI64::new(NEVER) }
    }

    /// The log for what strangers cause, or for what users do.
    pub(super) fn of(&self, stranger: bool) -> &AuditLog {
        if stranger { &self.strangers } else { &self.users }
    }

    /// Whether a request of a stranger may be recorded.
    pub(super) fn take_for_stranger(&self, now: Timestamp) -> bool {
        let taken = lock(&self.strangers_budget).take(now);
        if !taken {
            self.left_out(&self.strangers, now);
        }
        taken
    }

    /// Whether a request of `user` that was refused may be recorded, in so many bytes.
    pub(super) fn take_for_refusal(&self, user: &str, bytes: u64, now: Timestamp) -> bool {
        let taken = lock(&self.refusals).take(user, bytes, now);
        if !taken {
            self.left_out(&self.users, now);
        }
        taken
    }

    fn left_out(&self, log: &AuditLog, now: Timestamp) {
        log.count_left_out();
        let now = now.as_millisecond();
        // If it is set already, what is to be told then includes this.
        let _ = self.tell_at.compare_exchange(NEVER, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Says in the logs what is left out of them, if it is time to.
    pub(super) fn tell(&self, now: Timestamp) {
        if now.as_millisecond() < self.tell_at.load(Ordering::Relaxed) {
            return;
        }
        let strangers = lock(&self.strangers_budget).take_due(now);
        let refusals = lock(&self.refusals).take_due(now);
        let next = match (&strangers, refusals.is_empty()) {
            (None, true) => NEVER,
            _ => now.as_millisecond().saturating_add(budget::QUIET.as_secs().saturating_mul(1000)),
        };
        self.tell_at.store(next, Ordering::Relaxed);
        self.put_notices(strangers, &refusals, now);
    }

    /// The same, whether it is time or not: the logs end.
    pub(super) fn tell_the_rest(&self, now: Timestamp) {
        let strangers = lock(&self.strangers_budget).last_word();
        let refusals = lock(&self.refusals).last_words();
        self.put_notices(strangers, &refusals, now);
    }

    /// Continues in new files where others moved the old ones away.
    pub(super) fn reopen(&self) {
        self.users.reopen();
        self.strangers.reopen();
    }

    /// Why events cannot be written now, if so.
    pub(super) fn trouble(&self) -> Option<String> {
        self.users.trouble().or_else(|| self.strangers.trouble())
    }

    fn put_notices(
        &self,
        strangers: Option<LeftOut>,
        refusals: &[(String, LeftOut)],
        now: Timestamp,
    ) {
        let notice = |who, LeftOut { events, from, to }| {
            Notice::LeftOut { who, events, from, to }.event(now)
        };
        if let Some(left_out) = strangers {
            self.strangers.put(&notice("system:anonymous", left_out));
        }
        for (user, left_out) in refusals {
            self.users.put(&notice(user, *left_out));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
