//! From the facts of a request to its events.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::IpAddr,
    sync::Arc,
    thread,
};

use arc_swap::ArcSwap;
use serde_json::Value;
use waybill_core::id::AuditId;

use crate::{
    audit::{
        Clock,
        event::{
            Event, EventKind, EventVersion, Level, MicroTime, ObjectReference, ResponseStatus,
            Stage, UserInfo,
        },
        log::{AuditLog, Full, Places, Unwritten, Urgency, Written},
        mask::mask_request_uri,
        policy::{Decision, Policy},
    },
    request::{Action, Target, User},
};

/// Upstream cuts longer ones, too; the header can be as long as all headers may be.
const USER_AGENT_LIMIT: usize = 1024;

/// Records requests under a policy, which may be exchanged at any time.
pub(crate) struct Recorder {
    policy: ArcSwap<Policy>,
    log: Arc<AuditLog>,
    on_failure: OnFailure,
    clock: Clock,
}

/// What becomes of requests that cannot be recorded. Sessions are refused in any case: nobody could say
/// afterwards who ran what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// They go on; their events are kept in memory until they can be written.
    #[default]
    Allow,
    /// They are refused.
    Refuse,
}

impl Recorder {
    /// Records what `policy` asks for in `log`.
    pub(crate) fn new(
        policy: Policy,
        log: Arc<AuditLog>,
        on_failure: OnFailure,
        clock: Clock,
    ) -> Self {
        Self { policy: ArcSwap::from_pointee(policy), log, on_failure, clock }
    }

    /// Opens the file of the log again, after somebody moved it away.
    pub(crate) fn reopen(&self) {
        self.log.reopen();
    }

    /// Why requests cannot be recorded at the moment.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.log.trouble()
    }

    /// From now on new requests are judged by `policy`.
    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
    }

    /// Begins the record of a request: after authentication, before anything else is done.
    pub(crate) async fn begin(
        &self,
        facts: RequestFacts<'_>,
    ) -> Result<RequestAudit, AuditUnavailable> {
        let mut decision = self.policy.load().decide(facts.user, facts.action);
        if decision.level == Level::None {
            return Ok(RequestAudit { id: facts.id, record: None });
        }
        let session = is_session(facts.action);
        if session {
            // Its process starts before the answer does, so a record of the answer comes too late.
            decision.require(Stage::RequestReceived);
        }
        let record = match self.log.reserve(count_events(decision, facts.lifetime)).await {
            Ok(places) => Some(Box::new(self.open_record(&facts, decision, places))),
            Err(Full::Unrecorded) if !session => None,
            Err(_) => return Err(AuditUnavailable("the audit log has no room".to_owned())),
        };
        let mut audit = RequestAudit { id: facts.id, record };
        match audit.received(session, self.is_required(facts.action)).await {
            Ok(()) => Ok(audit),
            Err(Unwritten(why)) => {
                self.log.count_rejected();
                audit.refused();
                Err(AuditUnavailable(why))
            }
        }
    }

    /// Whether a request must not go on while nothing can be recorded. Health and metrics always may.
    fn is_required(&self, action: &Action) -> bool {
        let refuses = self.on_failure == OnFailure::Refuse;
        is_session(action) || refuses && matches!(action.target, Target::Resource(_))
    }

    fn open_record(&self, facts: &RequestFacts<'_>, decision: Decision, places: Places) -> Record {
        let now = MicroTime((self.clock)());
        let request_uri = match decision.level {
            Level::None | Level::Metadata => mask_request_uri(facts.uri).into_owned(),
            Level::Request | Level::RequestResponse => facts.uri.to_owned(),
        };
        let event = Event {
            kind: EventKind::Event,
            api_version: EventVersion::V1,
            level: decision.level,
            audit_id: facts.id.to_string(),
            stage: Stage::RequestReceived,
            request_uri,
            verb: facts.action.verb.clone(),
            user: facts.user.into(),
            impersonated_user: facts.impersonated.map(UserInfo::from),
            source_ips: facts.source_ips.to_vec(),
            user_agent: shorten(facts.user_agent),
            object_ref: match &facts.action.target {
                Target::Resource(target) => Some(target.into()),
                Target::Path(_) => None,
            },
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: now,
            stage_timestamp: now,
            annotations: BTreeMap::new(),
        };
        Record {
            event,
            decision,
            places,
            log: Arc::clone(&self.log),
            clock: Arc::clone(&self.clock),
            required: self.is_required(facts.action),
            changes: may_change(facts.action),
            lifetime: facts.lifetime,
        }
    }
}

/// What is known about a request when it begins.
pub(crate) struct RequestFacts<'a> {
    pub(crate) id: AuditId,
    /// Who was authenticated; empty if authentication failed.
    pub(crate) user: &'a User,
    /// As whom they act, if not as themselves.
    pub(crate) impersonated: Option<&'a User>,
    pub(crate) action: &'a Action,
    /// Path and query as they were sent.
    pub(crate) uri: &'a str,
    /// The peer of the connection stands last.
    pub(crate) source_ips: &'a [IpAddr],
    pub(crate) user_agent: &'a str,
    pub(crate) lifetime: Lifetime,
}

/// How long the answer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    Short,
    /// A watch, a log that is followed, or a session; its start is recorded too.
    LongRunning,
}

/// The request cannot be recorded and must be refused; why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request is refused, because it cannot be recorded: {0}")]
pub(crate) struct AuditUnavailable(pub(crate) String);

/// The record of one request while it runs.
///
/// One that is dropped without [`complete`](Self::complete) is recorded as what it is: a panic, a
/// stream that ended, or a client that went away.
pub(crate) struct RequestAudit {
    id: AuditId,
    /// Absent if there is nothing to record, and after the last event.
    record: Option<Box<Record>>,
}

impl RequestAudit {
    /// The request begins: its first event is queued, and for a session it is written when this returns.
    async fn received(&mut self, session: bool, required: bool) -> Result<(), Unwritten> {
        let Some(record) = &mut self.record else { return Ok(()) };
        if required && let Some(why) = record.log.trouble() {
            return Err(Unwritten(why));
        }
        match record.emit(Stage::RequestReceived) {
            Some(written) if session => record.log.wait(written).await,
            _ => Ok(()),
        }
    }

    /// The request was refused because it cannot be recorded. The log tells when it can be written again.
    fn refused(&mut self) {
        if let Some(mut record) = self.record.take() {
            let message = "the request could not be recorded";
            let status = ResponseStatus::failure(503, "ServiceUnavailable", message);
            record.event.response_status = Some(status);
            record.emit(Stage::ResponseComplete);
        }
    }

    /// Adds an annotation. The first value of a key stands, as upstream has it; returns whether
    /// that is now `value`.
    pub(crate) fn annotate(&mut self, key: &str, value: &str) -> bool {
        let Some(record) = &mut self.record else {
            return true;
        };
        match record.event.annotations.entry(key.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(value.to_owned());
                true
            }
            Entry::Occupied(entry) => entry.get() == value,
        }
    }

    /// What the client sent. The closure runs only if the level asks for it.
    pub(crate) fn request_object(&mut self, object: impl FnOnce() -> Value) {
        if let Some(record) = self.record.as_mut().filter(|record| record.keeps(Level::Request)) {
            record.event.request_object = Some(record.trim(object()));
        }
    }

    /// What the client is answered. The closure runs only if the level asks for it.
    pub(crate) fn response_object(&mut self, object: impl FnOnce() -> Value) {
        let asked = |record: &&mut Box<Record>| record.keeps(Level::RequestResponse);
        if let Some(record) = self.record.as_mut().filter(asked) {
            record.event.response_object = Some(record.trim(object()));
        }
    }

    /// Which object it turned out to be: a create learns its name and all learn the rest late.
    pub(crate) fn identify(&mut self, name: &str, uid: &str, resource_version: &str) {
        let reference = self.record.as_mut().and_then(|record| record.event.object_ref.as_mut());
        if let Some(ObjectReference { name: known, uid: id, resource_version: version, .. }) =
            reference
        {
            if known.is_empty() {
                name.clone_into(known);
            }
            uid.clone_into(id);
            resource_version.clone_into(version);
        }
    }

    /// The headers of a long-running answer are about to be sent; to be awaited before they are.
    /// For a session this returns when the event is written, so none is open that is not on record.
    pub(crate) async fn response_started(&mut self, code: u16) {
        let Some(record) = &mut self.record else {
            return;
        };
        record.event.response_status = Some(ResponseStatus::code(code));
        if record.lifetime == Lifetime::LongRunning && record.event.stage < Stage::ResponseStarted {
            let written = record.emit(Stage::ResponseStarted);
            // That the session was asked for is on record; this event is tried again.
            let _ = record.settle(written).await;
        }
    }

    /// The request is answered with `status`; to be awaited before the answer is sent. After a
    /// change this returns when the event is written. It fails if that must be and is not so; the
    /// event is tried again.
    pub(crate) async fn complete(mut self, status: ResponseStatus) -> Result<(), Unwritten> {
        let Some(mut record) = self.record.take() else {
            return Ok(());
        };
        record.event.response_status = Some(status);
        let written = record.emit(Stage::ResponseComplete);
        let settled = record.settle(written).await;
        if record.required { settled } else { Ok(()) }
    }

    /// The handler panicked and the panic was caught before it came here.
    pub(crate) fn panicked(mut self) {
        if let Some(record) = self.record.take() {
            record.close_by_panic();
        }
    }

    /// The name of the request.
    pub(crate) fn id(&self) -> &AuditId {
        &self.id
    }
}

impl Drop for RequestAudit {
    fn drop(&mut self) {
        let Some(mut record) = self.record.take() else {
            return;
        };
        if thread::panicking() {
            record.close_by_panic();
            return;
        }
        // A stream that had begun just ends. 499 is what proxies log for a client that went away.
        let status = &mut record.event.response_status;
        status.get_or_insert_with(|| {
            ResponseStatus::failure(499, "ClientClosedRequest", "the client went away")
        });
        record.emit(Stage::ResponseComplete);
    }
}

struct Record {
    event: Event,
    decision: Decision,
    places: Places,
    log: Arc<AuditLog>,
    clock: Clock,
    /// Whether the request must not be carried out unrecorded.
    required: bool,
    /// Whether it may change something.
    changes: bool,
    lifetime: Lifetime,
}

impl Record {
    /// Queues the event of `stage`, if it is wanted.
    fn emit(&mut self, stage: Stage) -> Option<Written> {
        if !self.decision.records(stage) {
            return None;
        }
        self.event.stage = stage;
        if stage != Stage::RequestReceived {
            self.event.stage_timestamp = MicroTime((self.clock)());
        }
        let urgency = if self.changes { Urgency::Awaited } else { Urgency::Unawaited };
        Some(self.places.put(&self.event, urgency))
    }

    /// Waits until an event is written, if the request is of those that must not outrun theirs.
    async fn settle(&self, written: Option<Written>) -> Result<(), Unwritten> {
        match written.filter(|_| self.changes) {
            Some(written) => self.log.wait(written).await,
            None => Ok(()),
        }
    }

    fn close_by_panic(mut self: Box<Self>) {
        // The panic's message may hold anything, so it is not recorded.
        let status = ResponseStatus::failure(500, "InternalError", "APIServer panic'd");
        self.event.response_status = Some(status);
        self.emit(Stage::Panic);
    }

    fn keeps(&self, level: Level) -> bool {
        self.event.level >= level
    }

    /// Leaves out `managedFields` of an object or of the items of a list, if the policy says so.
    fn trim(&self, mut object: Value) -> Value {
        if self.decision.omit_managed_fields {
            remove_managed_fields(&mut object);
            if let Some(Value::Array(items)) = object.get_mut("items") {
                items.iter_mut().for_each(remove_managed_fields);
            }
        }
        object
    }
}

fn remove_managed_fields(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
}

/// Whether the request starts something in a container, or reaches into one.
fn is_session(action: &Action) -> bool {
    match &action.target {
        Target::Path(_) => false,
        Target::Resource(target) => {
            matches!(target.subresource.as_str(), "attach" | "exec" | "portforward" | "proxy")
        }
    }
}

/// Whether the request may change something; a session may, even if it is opened by GET.
fn may_change(action: &Action) -> bool {
    let reads = matches!(action.verb.as_str(), "get" | "head" | "list" | "options" | "watch");
    is_session(action) || !reads
}

/// How many events a request can have: of its end there is only one, complete or by panic.
fn count_events(decision: Decision, lifetime: Lifetime) -> u32 {
    let received = decision.records(Stage::RequestReceived);
    let started = lifetime == Lifetime::LongRunning && decision.records(Stage::ResponseStarted);
    1 + u32::from(received) + u32::from(started)
}

fn shorten(user_agent: &str) -> String {
    if user_agent.len() <= USER_AGENT_LIMIT {
        return user_agent.to_owned();
    }
    let end = user_agent.floor_char_boundary(USER_AGENT_LIMIT);
    format!("{}...TRUNCATED", user_agent.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests;
