//! What the agent holds, and what it says to whoever asks. Pure: time is an argument.

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use waybill_core::secret::SecretBytes;

use super::{
    asker::Asker,
    key::Key,
    wire::{Ask, Failure, HeldCredential, Holder},
};
use crate::{ApiVersion, Credential, PluginError};

/// The most credentials that are held; the one goes for which nobody has asked for the longest time.
const COUNT: usize = 64;

/// The most that all of them may take.
const BYTES: usize = 8 << 20;

/// The most processes that are remembered for one credential. Then all are forgotten, and those of them who were refused get it again.
const ASKERS: usize = 4096;

/// So young a credential is hardly refused, if an asker may have other reasons to come back. It bounds how often the plugin runs
/// for them, and for how long they get what a server refuses.
const UNDOUBTED: SignedDuration = SignedDuration::from_mins(1);

/// For those who waited to learn how it failed.
const FAILURE_KEPT: Duration = Duration::from_mins(1);

/// Everything that the agent knows.
#[derive(Default)]
pub(crate) struct Store {
    entries: HashMap<Key, Entry>,
    /// Numbers leases.
    last_lease: u64,
}

/// One plugin in one configuration.
#[derive(Default)]
struct Entry {
    held: Option<Held>,
    lease: Option<Lease>,
    failure: Option<(u64, Holder, Failure)>,
    asked: Timestamp,
}

struct Held {
    answer: Arc<SecretBytes>,
    plugin: String,
    server: Option<String>,
    obtained: Timestamp,
    expires: Option<Timestamp>,
    due: Option<Timestamp>,
    /// When it must go.
    until: Timestamp,
    idle: Duration,
    /// The run that gave it.
    lease: u64,
    /// Who has it, and how often they got it.
    handed: HashMap<Asker, u32>,
    uses: u64,
    /// Somebody has tried to get the next one before the end.
    renewed_early: bool,
}

struct Lease {
    id: u64,
    holder: Holder,
    /// What it gives is not kept.
    forgotten: bool,
}

/// What to say to a client.
pub(crate) enum Decision {
    Have(Arc<SecretBytes>),
    /// It runs the plugin, under this lease.
    Run(u64),
    /// It runs the plugin, and has this one if that fails.
    Renew(u64, Arc<SecretBytes>),
    /// For the end of this lease.
    Wait(u64, Holder),
    Failed(Failure),
}

impl Store {
    /// What the client with this process number gets. `waited` is the lease for whose end it waited.
    pub(crate) fn decide(
        &mut self,
        ask: &Ask,
        pid: i32,
        waited: Option<u64>,
        now: Timestamp,
    ) -> Decision {
        let entry = self.entries.entry(ask.key).or_default();
        entry.asked = now;
        if let Some(held) = entry.held.as_mut().filter(|held| held.serves(ask, waited, now)) {
            let early = waited.is_none() && held.is_due(now) && !held.renewed_early;
            // A plugin that might ask a person something is not run before it must.
            if !early || ask.interactive || entry.lease.is_some() {
                return Decision::Have(held.hand_to(ask.asker));
            }
            held.renewed_early = true;
            let answer = held.hand_to(ask.asker);
            return Decision::Renew(self.lease(ask, pid), answer);
        }
        if let Some((lease, holder, failure)) = &entry.failure
            && waited == Some(*lease)
            && (holder.interactive || !ask.interactive)
        {
            return Decision::Failed(failure.clone());
        }
        // What was forgotten on its way is for those who waited for it before.
        let awaited = |lease: &&Lease| !lease.forgotten || waited == Some(lease.id);
        if let Some(lease) = entry.lease.as_ref().filter(awaited) {
            return Decision::Wait(lease.id, lease.holder);
        }
        Decision::Run(self.lease(ask, pid))
    }

    fn lease(&mut self, ask: &Ask, pid: i32) -> u64 {
        self.last_lease += 1;
        let holder = Holder { pid, interactive: ask.interactive };
        let lease = Lease { id: self.last_lease, holder, forgotten: false };
        self.entries.entry(ask.key).or_default().lease = Some(lease);
        self.last_lease
    }

    /// A client ran the plugin, which printed this.
    pub(crate) fn printed(&mut self, ask: &Ask, lease: u64, answer: SecretBytes, now: Timestamp) {
        let checked = ApiVersion::parse(&ask.api_version)
            .map_err(|error| error.to_string())
            .and_then(|version| check(&answer, version, now).map_err(|error| error.to_string()));
        let credential = match checked {
            Ok(credential) => credential,
            Err(message) => return self.failed(ask, lease, Failure { code: 1, message }),
        };
        let Some(ended) = self.end(ask, lease) else { return };
        let until = if ended.forgotten { now } else { until(&credential, ask.max_age, now) };
        let mut held = Held {
            answer: Arc::new(answer),
            plugin: ask.plugin.clone(),
            server: ask.server.clone(),
            obtained: now,
            expires: credential.expires(),
            due: credential.due(),
            until,
            idle: ask.idle,
            lease,
            handed: HashMap::new(),
            uses: 0,
            renewed_early: false,
        };
        held.hand_to(ask.asker);
        self.make_room(held.answer.len());
        let entry = self.entries.entry(ask.key).or_default();
        entry.failure = None;
        entry.held = Some(held);
    }

    /// A client ran the plugin, which failed. What was held stays: the server may have been wrong to refuse it.
    pub(crate) fn failed(&mut self, ask: &Ask, lease: u64, failure: Failure) {
        let Some(ended) = self.end(ask, lease) else { return };
        if let Some(entry) = self.entries.get_mut(&ask.key) {
            entry.failure = Some((lease, ended.holder, failure));
        }
    }

    /// A client is gone without a word. Those who wait are asked to try.
    pub(crate) fn abandoned(&mut self, ask: &Ask, lease: u64) {
        self.end(ask, lease);
    }

    fn end(&mut self, ask: &Ask, lease: u64) -> Option<Lease> {
        let entry = self.entries.get_mut(&ask.key)?;
        entry.lease.take_if(|held| held.id == lease)
    }

    /// Drops what this plugin gave, or everything. Says how many credentials that were.
    pub(crate) fn forget(&mut self, plugin: Option<&str>) -> usize {
        let mut count = 0;
        for entry in self.entries.values_mut() {
            let meant = |held: &mut Held| plugin.is_none_or(|plugin| held.plugin == plugin);
            count += usize::from(entry.held.take_if(meant).is_some());
            if let Some(lease) = &mut entry.lease {
                lease.forgotten = true;
            }
        }
        count
    }

    /// Drops what has come to its end.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        self.entries.retain(|_, entry| {
            let age = Duration::try_from(now.duration_since(entry.asked)).unwrap_or_default();
            entry.held.take_if(|held| now >= held.until || age >= held.idle);
            entry.failure.take_if(|_| age >= FAILURE_KEPT);
            entry.held.is_some() || entry.lease.is_some() || entry.failure.is_some()
        });
    }

    /// Whether nothing would be lost with the agent.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.values().all(|entry| entry.held.is_none() && entry.lease.is_none())
    }

    /// What is held, without the credentials.
    pub(crate) fn list(&self) -> Vec<HeldCredential> {
        let held = self.entries.values().filter_map(|entry| entry.held.as_ref());
        // What was forgotten on its way ended when it came.
        let held = held.filter(|held| held.until > held.obtained);
        let mut list: Vec<_> = held
            .map(|held| HeldCredential {
                plugin: held.plugin.clone(),
                server: held.server.clone(),
                obtained: held.obtained.as_second(),
                expires: held.expires.map(Timestamp::as_second),
                uses: held.uses,
            })
            .collect();
        list.sort_by(|a, b| (a.obtained, &a.plugin).cmp(&(b.obtained, &b.plugin)));
        list
    }

    fn make_room(&mut self, bytes: usize) {
        loop {
            let held = self.entries.iter().filter_map(|(key, entry)| {
                entry.held.as_ref().map(|held| (entry.asked, *key, held.answer.len()))
            });
            let held: Vec<_> = held.collect();
            let used: usize = held.iter().map(|(_, _, length)| length).sum();
            if held.len() < COUNT && used + bytes <= BYTES {
                return;
            }
            let Some((_, oldest, _)) = held.into_iter().min_by_key(|(asked, _, _)| *asked) else {
                return;
            };
            if let Some(entry) = self.entries.get_mut(&oldest) {
                entry.held = None;
            }
        }
    }
}

impl Held {
    /// Whether a client gets it. Whoever waited for it does, even if it has expired since, as client-go has it. A process that
    /// has it and comes back more often than it must got it refused.
    fn serves(&self, ask: &Ask, waited: Option<u64>, now: Timestamp) -> bool {
        let refused = ask.asker.is_some_and(|asker| self.is_refused_by(asker, now));
        waited == Some(self.lease) || (now < self.until && !refused)
    }

    fn is_refused_by(&self, asker: Asker, now: Timestamp) -> bool {
        match self.handed.get(&asker) {
            None => false,
            Some(1) if asker.reads_stdin() => now.duration_since(self.obtained) >= UNDOUBTED,
            Some(_) => true,
        }
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.due.is_some_and(|due| now >= due)
    }

    fn hand_to(&mut self, asker: Option<Asker>) -> Arc<SecretBytes> {
        if self.handed.len() >= ASKERS {
            self.handed.clear();
        }
        if let Some(asker) = asker {
            *self.handed.entry(asker).or_default() += 1;
        }
        self.uses += 1;
        Arc::clone(&self.answer)
    }
}

/// Only its times are kept: the answer goes to clients as the plugin gave it.
fn check(
    answer: &SecretBytes,
    version: ApiVersion,
    now: Timestamp,
) -> Result<Credential, PluginError> {
    Credential::from_answer(answer, version, now)
}

/// The end that the plugin told, or the longest time that we keep what has none. A certificate is of no use after its own end, which no
/// server answers with a 401.
fn until(credential: &Credential, max_age: Duration, now: Timestamp) -> Timestamp {
    let aged = || now.checked_add(max_age).unwrap_or(Timestamp::MAX);
    let told = credential.expires().unwrap_or_else(aged);
    credential.certificate().map_or(told, |certificate| told.min(certificate.not_after()))
}

#[cfg(test)]
mod tests;
