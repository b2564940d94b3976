//! What a collector does from time to time: asks the runtime and the audit log, and looks after what it knows.

use std::collections::HashMap;

use jiff::SignedDuration;
use tokio::time::Instant;
use tracing::{debug, warn};
use waybill_core::chain::Chain;

use super::{
    Collector, CollectorError, TELL, TURN,
    attribution::{Happened, RunningProgram},
    clock::{BootClock, after_boot, wall},
    lookup::{LookedUp, look_up, namespace_of},
    past::Past,
    places::{ContainerKind, ContainerPlace, Place, SessionPlace},
};
use crate::{
    debug::{is_debug_container, join_debug},
    join::{End, Processes, Trace, sort, traced},
    journal::{Entry, LogName, ProgramEntry},
    kernel::{ExecEvent, KernelEvent},
    process::CgroupIds,
    record::EventSource,
    runtime::{ContainerCgroups, RuntimeError, Session},
};

/// What the runtime recorded while it was asked the last time is asked for again.
const OVERLAP: SignedDuration = SignedDuration::from_secs(2);

/// How often the runtime is asked while nothing happens.
const QUIET: std::time::Duration = std::time::Duration::from_secs(10);

/// How often the runtime is asked for everything.
const FULLY: std::time::Duration = std::time::Duration::from_secs(60);

/// How often it is asked for everything because something is unknown.
const SEARCH: std::time::Duration = std::time::Duration::from_secs(1);

impl Collector {
    /// Once a second.
    pub(super) async fn turn(&mut self) {
        if !self.is_quiet() {
            self.ask().await;
        }
        self.note_lost();
        if self.told_not_kept.elapsed() >= TELL {
            self.note_not_kept();
        }
        self.forget_old();
        self.output.touch();
        self.output.write();
    }

    /// Whether there is nothing to ask about. The kernel tells when something begins; who attaches begins nothing, and is found a little later.
    fn is_quiet(&self) -> bool {
        self.source.is() == EventSource::Ebpf
            && self.asked.is_answered
            && self.asked.at.elapsed() < QUIET
            && !self.attribution.has_waiting()
            && !self.sessions.has_open()
    }

    /// Asks whose cgroups there are, and records what waited for that.
    pub(super) async fn ask(&mut self) {
        let answered = self.learn().await;
        match (&answered, self.asked.is_answered) {
            (Err(error), true) => {
                warn!(error = %Chain(error), "whose programs these are is not known for now");
            }
            (Ok(()), false) => debug!("sessions are known again"),
            _ => {}
        }
        self.asked.is_answered = answered.is_ok();
        if answered.is_ok() {
            let happened = self.attribution.hear_waiting(BootClock::now(), after_boot());
            self.record(happened);
        }
        for entry in self.sessions.take_changed(after_boot() / 1_000_000_000) {
            let id = entry.id.clone();
            if !self.output.append(LogName::Sessions, &Entry::Session(Box::new(entry))) {
                self.sessions.not_written(&id);
            }
        }
    }

    async fn learn(&mut self) -> Result<(), CollectorError> {
        let (now, time) = (Instant::now(), wall());
        let since_full = now.duration_since(self.asked.fully);
        let is_search = self.attribution.has_waiting()
            && now.duration_since(self.asked.at) < TURN
            && since_full >= SEARCH;
        let is_full = since_full >= FULLY || is_search;
        let since = (!is_full).then(|| self.asked.time.saturating_sub(OVERLAP).unwrap_or_default());
        self.asked.at = now;
        let (sessions, cgroups) = self.runtime.sessions_since(since).await?;
        self.asked.time = time;
        if is_full {
            self.asked.fully = now;
        }
        self.know_containers(&sessions, &cgroups).await?;
        // After the sessions: a request is recorded before its session begins.
        self.refresh_audit();
        self.know_sessions(&sessions);
        self.classify(&cgroups, now);
        self.know_debug_containers().await?;
        Ok(())
    }

    /// Sessions are recorded also while nobody can say who asked for them.
    fn refresh_audit(&mut self) {
        let Some(audit) = &mut self.audit else { return };
        let read = audit.refresh();
        if let Err(error) = &read
            && self.is_audit_read
        {
            warn!(error = %Chain(error), "who asks for sessions is not known for now");
        }
        self.is_audit_read = read.is_ok();
    }

    /// Looks up containers that are new.
    async fn know_containers(
        &mut self,
        sessions: &[Session],
        cgroups: &[ContainerCgroups],
    ) -> Result<(), RuntimeError> {
        let named = sessions.iter().map(|session| &session.container);
        let mut all = named.chain(cgroups.iter().map(|it| &it.container));
        if all.any(|id| !self.containers.contains_key(id)) {
            self.containers = self.runtime.containers().await?;
            // Those that the runtime has forgotten are asked for once; one that is just being made is not forgotten.
            for session in sessions {
                if !cgroups.iter().any(|it| it.container == session.container) {
                    self.containers.entry(session.container.clone()).or_default();
                }
            }
        }
        Ok(())
    }

    fn know_sessions(&mut self, sessions: &[Session]) {
        let now = wall();
        let none = Processes::default();
        for session in sessions {
            if session.attached.is_none() {
                let place = SessionPlace {
                    id: session.id.clone(),
                    container: session.container.clone(),
                    made_at: session.made_at,
                };
                self.attribution.places.insert(session.cgroup_id, Place::Session(place));
            }
            let requests = self.audit.as_ref().map(|audit| audit.requests());
            let request = session.audit_id.as_ref().and_then(|id| requests?.get(id));
            let container = self.containers.get(&session.container).cloned().unwrap_or_default();
            let trace = traced(session, request, container, &none);
            self.sessions.learn(trace, self.source.is(), now);
        }
    }

    /// Which containers somebody added, as soon as that can be known, and of which nobody wants to know.
    fn classify(&mut self, cgroups: &[ContainerCgroups], now: Instant) {
        let requests = self.audit.as_ref().map(|audit| audit.requests());
        let namespaces = cgroups.iter().map(|it| (namespace_of(it.pid), it.container.clone()));
        self.attribution.places.set_namespaces(namespaces);
        let mut seen = HashMap::new();
        for it in cgroups.iter().filter(|it| it.processes_id != 0) {
            let first = self.first_seen.get(&it.processes_id).copied().unwrap_or(now);
            seen.insert(it.processes_id, first);
            let known = self.attribution.places.get(it.processes_id);
            let is_known = known.is_some_and(|place| {
                matches!(place, Place::Container(place) if place.kind != ContainerKind::New)
            });
            if is_known {
                continue;
            }
            let place = self.containers.get(&it.container).cloned().unwrap_or_default();
            let kind = match requests {
                Some(requests) if is_debug_container(requests, &place) => ContainerKind::Debug,
                // The request that added it is recorded when it is answered, and a node may be quicker.
                Some(_) if now.duration_since(first) < TURN => ContainerKind::New,
                _ => ContainerKind::Ordinary,
            };
            if kind == ContainerKind::Ordinary {
                self.source.ignore(it.processes_id);
            }
            let container = it.container.clone();
            let place = Place::Container(ContainerPlace { container, kind });
            self.attribution.places.insert(it.processes_id, place);
        }
        for gone in self.first_seen.keys().filter(|id| !seen.contains_key(id)) {
            self.source.forget(*gone);
        }
        self.first_seen = seen;
    }

    /// Debug containers are sessions too, by their lives.
    async fn know_debug_containers(&mut self) -> Result<(), RuntimeError> {
        let Some(requests) = self.audit.as_ref().map(|audit| audit.requests()) else {
            return Ok(());
        };
        if !self.containers.values().any(|place| is_debug_container(requests, place)) {
            return Ok(());
        }
        let lives = self.runtime.lives(|place| is_debug_container(requests, place)).await?;
        let mut traces = join_debug(requests, &lives, |_| Vec::new());
        traces.retain(|trace| trace.session.is_some());
        sort(&mut traces);
        for trace in traces {
            self.sessions.learn(trace, self.source.is(), wall());
        }
        Ok(())
    }

    fn forget_old(&mut self) {
        let now = wall();
        if let Some(audit) = &self.audit {
            for trace in self.sessions.unseen(audit.requests(), now) {
                self.sessions.learn(trace, self.source.is(), now);
            }
            self.sessions.forget_requests(audit.requests(), now);
        }
        let running = self.attribution.running();
        let lives = |id: &str| running.values().any(|program| program.session == id);
        self.sessions.forget_old(now, lives);
        let (sessions, seen) = (&self.sessions, &self.first_seen);
        self.attribution.places.retain(|id, place| match place {
            Place::Session(session) => sessions.get(&session.id).is_some(),
            Place::Container(_) => seen.contains_key(&id),
        });
    }

    /// Takes over what an earlier collector knew: sessions and programs that still run, and those that ended meanwhile.
    pub(super) async fn resume(&mut self, past: Past) -> Result<(), CollectorError> {
        let now = wall();
        for audit_id in &past.recorded {
            self.sessions.resume_request(audit_id, now);
        }
        for entry in past.open.into_values() {
            self.sessions.resume(entry);
        }
        self.ask().await;
        self.close_lost_sessions();
        let mut found = self.scan();
        for ((session, pid), started) in past.running {
            let program = RunningProgram { session, started, began: 0, is_moved: false };
            let is_same = found.get(&pid).is_some_and(|it| it.0 == program.session);
            self.attribution.resume(pid, program);
            if is_same {
                // It is known already, and only its end is of interest.
                found.remove(&pid);
            } else {
                let exit = self.attribution.vanished(pid);
                let entry = exit.map(Entry::Exit);
                if let Some(entry) = &entry {
                    self.output.append(LogName::Programs, entry);
                }
            }
        }
        let clock = BootClock::now();
        for (_, event) in found.into_values() {
            let happened = self.attribution.hear(KernelEvent::Exec(event), clock);
            self.record(happened.map(as_scanned));
        }
        Ok(())
    }

    /// Sessions that were running for an earlier collector, and that the runtime does not know: nobody can say how they ended.
    fn close_lost_sessions(&mut self) {
        if self.asked.is_answered {
            for trace in self.sessions.unconfirmed() {
                let trace = Trace { end: End::Unknown, ..trace };
                self.sessions.learn(trace, self.source.is(), wall());
            }
        }
    }

    /// Processes of sessions that run now, each with its session.
    fn scan(&mut self) -> HashMap<u32, (String, Box<ExecEvent>)> {
        let mut found = HashMap::new();
        let Ok(mut cgroups) = CgroupIds::find() else { return found };
        let Ok(entries) = std::fs::read_dir("/proc") else { return found };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        for pid in names.filter_map(|name| name.parse::<u32>().ok()) {
            let LookedUp::Found(event) = look_up(pid, after_boot(), &mut cgroups) else { continue };
            let session = match self.attribution.places.of(&event) {
                Some(Place::Session(session)) => session.id.clone(),
                Some(Place::Container(it)) if it.kind == ContainerKind::Debug => {
                    it.container.clone()
                }
                _ => continue,
            };
            self.source.track(pid, event.began);
            found.insert(pid, (session, event));
        }
        found
    }
}

/// It is known from a look at what runs, not from the kernel's word.
fn as_scanned(happened: Happened) -> Happened {
    match happened {
        Happened::Program(program) => {
            Happened::Program(Box::new(ProgramEntry { source: EventSource::Scan, ..*program }))
        }
        Happened::Exit(exit) => Happened::Exit(exit),
    }
}
