//! From the facts of a request to its events.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    iter, mem,
    net::IpAddr,
    sync::Arc,
    thread,
};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use serde_json::Value;
use waybill_core::id::AuditId;

use crate::{
    audit::{
        Logs, bound,
        event::{
            Event, EventKind, EventVersion, Level, MicroTime, ObjectReference, ResponseStatus,
            Stage, UserInfo,
        },
        log::{AuditLog, Full, Places, Unwritten, Urgency, Written},
        mask::mask_request_uri,
        policy::{Decision, Policy},
    },
    authz::{self, bootstrap::UNAUTHENTICATED_GROUP},
    cache::ObjectKey,
    clock::Clock,
    request::{Action, Target, User},
};

/// Records requests under a policy, which may be exchanged at any time.
pub(crate) struct Recorder {
    policy: ArcSwap<Policy>,
    logs: Arc<Logs>,
    on_failure: OnFailure,
    clock: Clock,
}

/// Upstream's annotations about what somebody may do.
const DECISION: &str = "authorization.k8s.io/decision";
const DECISION_REASON: &str = "authorization.k8s.io/reason";

/// Why a login is not recorded.
const TOO_MANY_LOGINS: &str = "its user logs in too often";

/// What is left out is told before the logs end.
impl Drop for Recorder {
    fn drop(&mut self) {
        self.logs.tell_the_rest((self.clock)());
    }
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
    /// Records what `policy` asks for in `logs`.
    pub(crate) fn new(policy: Policy, logs: Logs, on_failure: OnFailure, clock: Clock) -> Self {
        Self { policy: ArcSwap::from_pointee(policy), logs: Arc::new(logs), on_failure, clock }
    }

    /// Opens the files of the logs again, after somebody moved them away.
    pub(crate) fn reopen(&self) {
        self.logs.reopen();
    }

    /// Why requests cannot be recorded at the moment.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.logs.trouble()
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
        let decision = self.policy.load().decide(facts.user, facts.action);
        if decision.level == Level::None {
            return Ok(RequestAudit { id: facts.id, record: None });
        }
        let (now, stranger) = ((self.clock)(), is_stranger(facts.user));
        self.logs.tell(now);
        if !stranger && !self.may_tell_of_read(&facts, decision, now) {
            return Ok(RequestAudit { id: facts.id, record: None });
        }
        if stranger && !self.logs.take_for_stranger(now) {
            // What may have an effect is refused rather than left out.
            if may_change(facts.action) && !facts.user.name.is_empty() {
                let why = "too many requests come without credentials";
                return Err(AuditUnavailable(why.to_owned()));
            }
            return Ok(RequestAudit { id: facts.id, record: None });
        }
        let events = count_events(decision, facts.lifetime, is_session(facts.action));
        let record = match self.logs.of(stranger).reserve(events).await {
            Ok(places) => Some(Box::new(self.open_record(&facts, decision, places, now))),
            Err(Full::Unrecorded) if !self.is_required(facts.action) => None,
            Err(full) => {
                if full == Full::Unrecorded {
                    self.logs.of(false).count_rejected();
                }
                return Err(AuditUnavailable("the audit log has no room".to_owned()));
            }
        };
        Ok(RequestAudit { id: facts.id, record })
    }

    /// What is read changes nothing, so too many reads of one user that are allowed are left out. Of Secrets it depends on what
    /// they are given, see [`RequestAudit::gives`].
    fn may_tell_of_read(
        &self,
        facts: &RequestFacts<'_>,
        decision: Decision,
        now: Timestamp,
    ) -> bool {
        if !self.may_be_left_out(facts) || is_about_secrets(facts.action) {
            return true;
        }
        let bytes = about_bytes(facts, decision);
        self.logs.take_for_read(&facts.user.name, bytes, now)
    }

    /// Whether it is a read that may be missing in the log. None is where requests that cannot be recorded are refused: there all must be.
    fn may_be_left_out(&self, facts: &RequestFacts<'_>) -> bool {
        let is_allowed = facts.decision.is_some_and(authz::Decision::is_allowed);
        is_allowed && !may_change(facts.action) && !self.is_required(facts.action)
    }

    /// Whether a request must not go on while nothing can be recorded. Health and metrics always may.
    fn is_required(&self, action: &Action) -> bool {
        let refuses = self.on_failure == OnFailure::Refuse;
        let acts = matches!(action.target, Target::Resource(_)) || is_login(action);
        is_session(action) || refuses && acts
    }

    fn open_record(
        &self,
        facts: &RequestFacts<'_>,
        decision: Decision,
        places: Places,
        now: Timestamp,
    ) -> Record {
        let (now, stranger) = (MicroTime(now), is_stranger(facts.user));
        let limit = match (stranger, is_session(facts.action)) {
            (true, _) => bound::STRANGERS_URI,
            (false, true) => bound::SESSIONS_URI,
            (false, false) => bound::URI,
        };
        let request_uri = match decision.level {
            Level::None | Level::Metadata => bound::cut(&mask_request_uri(facts.uri), limit),
            Level::Request | Level::RequestResponse => bound::cut(facts.uri, limit),
        };
        let mut event = Event {
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
            user_agent: bound::cut(facts.user_agent, bound::USER_AGENT),
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
        bound::names(&mut event);
        if let Some(decision) = facts.decision {
            judge(&mut event.annotations, decision);
        }
        let is_undecided =
            !stranger && is_about_secrets(facts.action) && self.may_be_left_out(facts);
        Record {
            event,
            decision,
            places,
            logs: Arc::clone(&self.logs),
            stranger,
            clock: Arc::clone(&self.clock),
            is_held_back: decision.records(Stage::RequestReceived),
            undecided: is_undecided.then(|| about_bytes(facts, decision)),
            session: is_session(facts.action),
            required: self.is_required(facts.action),
            changes: may_change(facts.action),
            has_changed: false,
            login: is_login(facts.action),
            is_open_to_all: is_self_review(facts.action) || is_login(facts.action),
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
    /// Whether they may; nothing if the request is refused whatever it is about.
    pub(crate) decision: Option<&'a authz::Decision>,
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
    /// The request is allowed and about to be carried out. It must not be if this fails: it cannot be
    /// recorded. That a session begins is written when this returns, whatever the policy says about
    /// stages: its process starts before the answer does. That anything else was received is told now, too,
    /// unless no right was needed for it.
    pub(crate) async fn allowed(&mut self) -> Result<(), AuditUnavailable> {
        let Some(record) = &mut self.record else { return Ok(()) };
        record.begin().await.map_err(|Unwritten(why)| {
            record.log().count_rejected();
            AuditUnavailable(why)
        })
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

    /// How authorization judged something else that the request needs. Of two judgements a refusal stands.
    pub(crate) fn judged(&mut self, decision: &authz::Decision) {
        if let Some(record) = &mut self.record {
            judge(&mut record.event.annotations, decision);
        }
    }

    /// The request has changed something, whatever it is answered; it is not left out then.
    pub(crate) fn changed(&mut self) {
        if let Some(record) = &mut self.record {
            record.has_changed = true;
        }
    }

    /// The client is given these objects; to be told before the answer begins. Reads of Secrets that gave the user nothing new
    /// are left out if there are too many of them.
    pub(crate) fn gives<'a>(&mut self, objects: impl Iterator<Item = &'a ObjectKey>) {
        if self.record.as_mut().is_some_and(|record| !record.may_tell_of_secrets(objects)) {
            self.record = None;
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
    /// event is tried again. It also fails for one login too many, of which nothing is told.
    pub(crate) async fn complete(mut self, mut status: ResponseStatus) -> Result<(), Unwritten> {
        let Some(mut record) = self.record.take() else {
            return Ok(());
        };
        bound::cut_in_place(&mut status.message, bound::SENTENCE);
        let is_refused = matches!(status.code, 400 | 403 | 429) && !record.has_changed;
        let without_rights = record.is_open_to_all || is_refused;
        record.event.response_status = Some(status);
        if without_rights {
            bound::cut_in_place(&mut record.event.request_uri, bound::STRANGERS_URI);
            if !record.may_tell_of_refusal() {
                // Others changed nothing, and may have been answered unrecorded.
                return if record.login {
                    Err(Unwritten(TOO_MANY_LOGINS.to_owned()))
                } else {
                    Ok(())
                };
            }
        } else if !record.may_tell_of_secrets(iter::empty()) {
            return Ok(());
        }
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
        if !record.may_tell_of_secrets(iter::empty()) {
            return;
        }
        record.emit(Stage::ResponseComplete);
    }
}

struct Record {
    event: Event,
    decision: Decision,
    places: Places,
    logs: Arc<Logs>,
    /// Who asks did not say who they are.
    stranger: bool,
    clock: Clock,
    /// Of the request nothing is told yet, though the policy asks for its first event: a refusal may be left out whole.
    is_held_back: bool,
    /// What the record of a read takes of which it is not known yet whether it may be left out, in bytes.
    undecided: Option<u64>,
    /// Whether something in a container is reached.
    session: bool,
    /// Whether the request must not be carried out unrecorded.
    required: bool,
    /// Whether it may change something.
    changes: bool,
    /// Whether it did.
    has_changed: bool,
    /// Whether somebody gets a token of their own.
    login: bool,
    /// Whether no right is needed for it, and it changes nothing.
    is_open_to_all: bool,
    lifetime: Lifetime,
}

impl Record {
    fn log(&self) -> &AuditLog {
        self.logs.of(self.stranger)
    }

    async fn begin(&mut self) -> Result<(), Unwritten> {
        if self.required
            && let Some(why) = self.log().trouble()
        {
            return Err(Unwritten(why));
        }
        if self.session {
            self.decision.require(Stage::RequestReceived);
            self.is_held_back = true;
        }
        let waits = self.is_open_to_all || self.undecided.is_some();
        let received = if waits { None } else { self.tell_received() };
        match received.filter(|_| self.session) {
            Some(received) => self.log().wait(received).await,
            None => Ok(()),
        }
    }

    /// What somebody without rights can ask changed nothing, so too many of one user are left out. One of
    /// which something is on record is told to its end.
    fn may_tell_of_refusal(&self) -> bool {
        let told = self.decision.records(Stage::RequestReceived) && !self.is_held_back;
        if told || self.stranger {
            return true;
        }
        let lines = if self.is_held_back { 2 } else { 1 };
        let bytes = bound::line(&self.event).len() as u64 * lines;
        let (user, now) = (&self.event.user.username, (self.clock)());
        if self.login {
            self.logs.take_for_login(user, bytes, now)
        } else {
            self.logs.take_for_refusal(user, bytes, now)
        }
    }

    /// Whether a read that gives these objects is told. What was decided once stays.
    fn may_tell_of_secrets<'a>(&mut self, given: impl Iterator<Item = &'a ObjectKey>) -> bool {
        self.undecided.take().is_none_or(|bytes| {
            let user = &self.event.user.username;
            self.logs.take_for_secrets(user, given, bytes, (self.clock)())
        })
    }

    /// Queues the first event if it was held back, as it would have been without what is known by now.
    fn tell_received(&mut self) -> Option<Written> {
        if !mem::take(&mut self.is_held_back) {
            return None;
        }
        let first = Event {
            stage: Stage::RequestReceived,
            stage_timestamp: self.event.request_received_timestamp,
            response_status: None,
            request_object: None,
            response_object: None,
            annotations: BTreeMap::new(),
            ..self.event.clone()
        };
        Some(self.places.put(&first, self.urgency()))
    }

    /// Queues the event of a stage after the first, if it is wanted.
    fn emit(&mut self, stage: Stage) -> Option<Written> {
        self.tell_received();
        if !self.decision.records(stage) {
            return None;
        }
        self.event.stage = stage;
        self.event.stage_timestamp = MicroTime((self.clock)());
        Some(self.places.put(&self.event, self.urgency()))
    }

    fn urgency(&self) -> Urgency {
        if self.changes { Urgency::Awaited } else { Urgency::Unawaited }
    }

    /// Waits until an event is written, if the request is of those that must not outrun theirs.
    async fn settle(&self, written: Option<Written>) -> Result<(), Unwritten> {
        match written.filter(|_| self.changes) {
            Some(written) => self.log().wait(written).await,
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

/// Says how authorization judged, unless it has refused before.
fn judge(annotations: &mut BTreeMap<String, String>, decision: &authz::Decision) {
    if decision.is_allowed() && annotations.contains_key(DECISION) {
        return;
    }
    let word = if decision.is_allowed() { "allow" } else { "forbid" };
    let reason = bound::cut(&decision.reason().to_string(), bound::SENTENCE);
    annotations.insert(DECISION.to_owned(), word.to_owned());
    annotations.insert(DECISION_REASON.to_owned(), reason);
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

/// Whether somebody asks who they are or what they may do: `selfsubjectaccessreviews` and the like.
fn is_self_review(action: &Action) -> bool {
    matches!(&action.target, Target::Resource(target) if target.resource.starts_with("selfsubject"))
}

/// Whether somebody gets a token of their own.
fn is_login(action: &Action) -> bool {
    action.verb == "login" && matches!(action.target, Target::Path(_))
}

/// Whether the request may change something; a session may, even if it is opened by GET.
fn may_change(action: &Action) -> bool {
    let reads = matches!(action.verb.as_str(), "get" | "head" | "list" | "options" | "watch");
    is_session(action) || !reads
}

fn is_about_secrets(action: &Action) -> bool {
    matches!(&action.target, Target::Resource(target) if target.resource == "secrets")
}

/// About how long all lines of a request are.
fn about_bytes(facts: &RequestFacts<'_>, decision: Decision) -> u64 {
    bound::about(facts) * u64::from(count_events(decision, facts.lifetime, false))
}

/// Whether nobody knows who asks. A name or a group alone may be somebody's who wants to be overlooked.
pub(crate) fn is_stranger(user: &User) -> bool {
    let marked = || user.groups.iter().any(|group| group == UNAUTHENTICATED_GROUP);
    user.name.is_empty() || user.name == "system:anonymous" && marked()
}

/// How many events a request can have: of its end there is only one, complete or by panic.
fn count_events(decision: Decision, lifetime: Lifetime, session: bool) -> u32 {
    let received = session || decision.records(Stage::RequestReceived);
    let started = lifetime == Lifetime::LongRunning && decision.records(Stage::ResponseStarted);
    1 + u32::from(received) + u32::from(started)
}

#[cfg(test)]
pub(super) mod tests;
