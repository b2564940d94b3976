//! The two logs: that of users, and that of strangers with a size and a rate of its own.
//!
//! What is left out for want of a budget is counted at once and told in the log from time to time.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, Ordering},
};

use jiff::Timestamp;

use super::{
    budget::{self, Allowance, Budget, Budgets, LeftOut},
    given::Given,
    log::AuditLog,
    notice::{Missing, Notice},
};
use crate::cache::ObjectKey;

/// Where records go, and how many of them those may cause who have no rights.
pub(crate) struct Logs {
    users: AuditLog,
    /// Of those who did not say who they are.
    strangers: AuditLog,
    strangers_budget: Mutex<Budget>,
    refusals: Mutex<Budgets>,
    /// Of logins alone: who was refused often, or asked often who they are, still gets a token.
    logins: Mutex<Budgets>,
    /// Of what users read; that of Secrets apart, so that nobody hides it behind other reads, and what is new to them apart
    /// from that, so that nobody hides it behind reads of what is theirs.
    reads: Mutex<Budgets>,
    secrets_again: Mutex<Budgets>,
    new_secrets: Mutex<Budgets>,
    given: Given,
    /// When what was left out is told next, in milliseconds; never if nothing was.
    tell_at: AtomicI64,
}

/// Nothing is to be told.
const NEVER: i64 = i64::MAX;

impl Logs {
    pub(crate) fn new(users: AuditLog, strangers: AuditLog) -> Self {
        Self {
            users,
            strangers,
            strangers_budget: Mutex::default(),
            refusals: Mutex::new(Budgets::new(Allowance::REFUSALS)),
            logins: Mutex::new(Budgets::new(Allowance::LOGINS)),
            reads: Mutex::new(Budgets::new(Allowance::READS)),
            secrets_again: Mutex::new(Budgets::new(Allowance::SECRETS_AGAIN)),
            new_secrets: Mutex::new(Budgets::new(Allowance::NEW_SECRETS)),
            given: Given::default(),
            tell_at: AtomicI64::new(NEVER),
        }
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
        self.take(&self.refusals, user, bytes, now)
    }

    /// Whether a login of `user` may be recorded, in so many bytes.
    pub(super) fn take_for_login(&self, user: &str, bytes: u64, now: Timestamp) -> bool {
        self.take(&self.logins, user, bytes, now)
    }

    /// Whether a read of `user` that is allowed may be recorded, in so many bytes.
    pub(super) fn take_for_read(&self, user: &str, bytes: u64, now: Timestamp) -> bool {
        self.take(&self.reads, user, bytes, now)
    }

    /// The same for a read that gives `user` these Secrets; none if it found nothing.
    pub(super) fn take_for_secrets<'a>(
        &self,
        user: &str,
        secrets: impl Iterator<Item = &'a ObjectKey>,
        bytes: u64,
        now: Timestamp,
    ) -> bool {
        let gift = self.given.gift(user, secrets);
        if !self.given.is_new(&gift, now) {
            return self.take(&self.secrets_again, user, bytes, now);
        }
        let taken = self.take(&self.new_secrets, user, bytes, now);
        if taken {
            self.given.note(gift);
        }
        taken
    }

    fn take(&self, budgets: &Mutex<Budgets>, user: &str, bytes: u64, now: Timestamp) -> bool {
        let taken = lock(budgets).take(user, bytes, now);
        if !taken {
            self.left_out(&self.users, now);
        }
        taken
    }

    /// All budgets of users, with what is left out for want of them.
    fn of_users(&self) -> [(&Mutex<Budgets>, Missing); 5] {
        [
            (&self.refusals, Missing::OfNoEffect),
            (&self.logins, Missing::OfNoEffect),
            (&self.reads, Missing::OfNoEffect),
            (&self.secrets_again, Missing::OfNoEffect),
            (&self.new_secrets, Missing::NewSecrets),
        ]
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
        let users = self.of_users().map(|(budgets, what)| (what, lock(budgets).take_due(now)));
        let next = match (&strangers, users.iter().all(|(_, left_out)| left_out.is_empty())) {
            (None, true) => NEVER,
            _ => now.as_millisecond().saturating_add(budget::QUIET.as_secs().saturating_mul(1000)),
        };
        self.tell_at.store(next, Ordering::Relaxed);
        self.put_notices(strangers, &users, now);
    }

    /// The same, whether it is time or not: the logs end.
    pub(super) fn tell_the_rest(&self, now: Timestamp) {
        let strangers = lock(&self.strangers_budget).last_word();
        let users = self.of_users().map(|(budgets, what)| (what, lock(budgets).last_words()));
        self.put_notices(strangers, &users, now);
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
        users: &[(Missing, Vec<(String, LeftOut)>)],
        now: Timestamp,
    ) {
        let notice = |what, who, LeftOut { events, from, to }| {
            Notice::LeftOut { what, who, events, from, to }.event(now)
        };
        if let Some(left_out) = strangers {
            let told = notice(Missing::OfNoEffect, "system:anonymous", left_out);
            self.strangers.put(&told);
        }
        for (what, users) in users {
            for (user, left_out) in users {
                self.users.put(&notice(*what, user, *left_out));
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
