//! One record per request, whatever becomes of the request.

use std::{
    panic,
    sync::atomic::{AtomicI64, Ordering},
};

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::{
    audit::{
        AuditMetrics, Durability, LogOptions, Overflow, RotatingFile, Rotation, log::tests::Memory,
        mint_id,
    },
    request::ResourceTarget,
};

struct Fixture {
    sink: Memory,
    /// What strangers cause.
    strangers: Memory,
    recorder: Recorder,
    metrics: AuditMetrics,
}

/// A recorder whose clock goes on by a second with every look at it.
fn fixture(policy: &str, options: LogOptions) -> Fixture {
    let seconds = AtomicI64::new(1_700_000_000);
    let clock: Clock =
        Arc::new(move || Timestamp::from_second(seconds.fetch_add(1, Ordering::Relaxed)).unwrap());
    let sink = Memory::default();
    let metrics = AuditMetrics::default();
    // The log's own clock must not disturb the recorder's.
    let still: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    let strangers = Memory::default();
    let logs = logs(&sink, &strangers, options, &metrics, &still);
    let policy = Policy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{policy}"));
    let recorder = Recorder::new(policy.unwrap(), logs, OnFailure::Allow, clock);
    Fixture { sink, strangers, recorder, metrics }
}

fn logs(
    users: &Memory,
    strangers: &Memory,
    options: LogOptions,
    metrics: &AuditMetrics,
    clock: &Clock,
) -> Logs {
    let start = |sink: &Memory| {
        AuditLog::start(sink.clone(), options, metrics.clone(), Arc::clone(clock)).unwrap()
    };
    Logs::new(start(users), start(strangers))
}

fn level(level: &str) -> Fixture {
    fixture(&format!("rules: [{{level: {level}}}]"), LogOptions::default())
}

/// For tests about something else.
pub(crate) fn silent_recorder() -> Recorder {
    level("None").recorder
}

/// One that records everything in memory, for tests of those who record.
pub(crate) fn memory_recorder(clock: Clock) -> (Recorder, Memory) {
    let sink = Memory::default();
    let metrics = AuditMetrics::default();
    let logs = logs(&sink, &Memory::default(), LogOptions::default(), &metrics, &clock);
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
    let policy = Policy::parse(policy).unwrap();
    (Recorder::new(policy, logs, OnFailure::Allow, clock), sink)
}

fn jane() -> User {
    User {
        name: "jane".to_owned(),
        uid: "42".to_owned(),
        groups: vec!["dev".to_owned(), "system:authenticated".to_owned()],
        extra: BTreeMap::from([("scope".to_owned(), vec!["all".to_owned()])]),
    }
}

fn action(verb: &str, resource: &str, subresource: &str) -> Action {
    let [verb, version, resource, subresource, namespace, name] =
        [verb, "v1", resource, subresource, "default", "web"].map(str::to_owned);
    let group = String::new();
    let target = ResourceTarget { group, version, resource, subresource, namespace, name };
    Action { verb, target: Target::Resource(target) }
}

const URI: &str = "/api/v1/namespaces/default/pods/web/exec?command=sh&env=TOKEN=kanarie";

async fn begin(fixture: &Fixture, action: &Action, lifetime: Lifetime) -> RequestAudit {
    let facts = RequestFacts {
        id: AuditId::parse("11111111-2222-4333-8444-555555555555").unwrap(),
        user: &jane(),
        impersonated: None,
        action,
        decision: None,
        uri: URI,
        source_ips: &["10.0.0.9".parse().unwrap(), "::1".parse().unwrap()],
        user_agent: "kubectl/v1.37",
        lifetime,
    };
    fixture.recorder.begin(facts).await.unwrap()
}

async fn exec(fixture: &Fixture) -> RequestAudit {
    begin(fixture, &action("create", "pods", "exec"), Lifetime::LongRunning).await
}

/// The text written once the recorder has ended.
fn finish(fixture: Fixture) -> String {
    drop(fixture.recorder);
    fixture.sink.text()
}

/// The stage and code of every event.
fn outline(fixture: Fixture) -> Vec<(Stage, Option<u16>)> {
    let sink = fixture.sink.clone();
    finish(fixture);
    let code = |event: &Event| event.response_status.as_ref().map(|status| status.code);
    sink.events().iter().map(|event| (event.stage, code(event))).collect()
}

#[tokio::test]
async fn a_session_is_recorded_at_every_stage() {
    let fixture = level("Metadata");
    let mut audit = exec(&fixture).await;
    assert!(audit.annotate("authorization.k8s.io/decision", "allow"));
    audit.response_started(101).await;
    audit.complete(ResponseStatus::code(101)).await.unwrap();
    assert_eq!(finish(fixture), include_str!("session.jsonl"));
}

#[tokio::test]
async fn a_panic_is_recorded_once_and_without_its_message() {
    let fixture = level("Metadata");
    let audit = exec(&fixture).await;
    let outcome = panic::catch_unwind(panic::AssertUnwindSafe(move || {
        let _audit = audit;
        panic::resume_unwind(Box::new("kanarie"));
    }));
    assert!(outcome.is_err());
    assert_eq!(finish(fixture), include_str!("panic.jsonl"));

    let fixture = level("Metadata");
    exec(&fixture).await.panicked();
    assert_eq!(finish(fixture), include_str!("panic.jsonl"));
}

#[tokio::test]
async fn a_request_that_is_abandoned_is_recorded_once() {
    let fixture = level("Metadata");
    drop(exec(&fixture).await);
    assert_eq!(
        outline(fixture),
        [(Stage::RequestReceived, None), (Stage::ResponseComplete, Some(499))]
    );

    let fixture = level("Metadata");
    let mut watch = begin(&fixture, &action("watch", "pods", ""), Lifetime::LongRunning).await;
    watch.response_started(200).await;
    drop(watch);
    assert_eq!(
        outline(fixture),
        [
            (Stage::RequestReceived, None),
            (Stage::ResponseStarted, Some(200)),
            (Stage::ResponseComplete, Some(200)),
        ]
    );
}

#[tokio::test]
async fn a_session_is_on_record_before_it_opens() {
    let fixture = level("Metadata");
    let websocket = action("get", "pods", "exec");
    let mut audit = begin(&fixture, &websocket, Lifetime::LongRunning).await;
    audit.response_started(101).await;
    audit.response_started(101).await;
    let stages: Vec<_> = fixture.sink.events().iter().map(|event| event.stage).collect();
    assert_eq!(stages, [Stage::RequestReceived, Stage::ResponseStarted]);
}

#[tokio::test]
async fn an_acknowledged_change_is_written_before_its_answer() {
    let fixture = level("Metadata");
    let audit = begin(&fixture, &action("create", "pods", ""), Lifetime::Short).await;
    audit.complete(ResponseStatus::code(201)).await.unwrap();
    // Nothing waits for the writer here but `complete` itself.
    let stages: Vec<_> = fixture.sink.events().iter().map(|event| event.stage).collect();
    assert_eq!(stages, [Stage::RequestReceived, Stage::ResponseComplete]);
}

#[tokio::test]
async fn many_requests_at_once_share_a_file_that_rotates() {
    let directory = tempfile::TempDir::new().unwrap();
    let rotation = Rotation { max_bytes: 4096, max_backups: None, ..Rotation::default() };
    let path = directory.path().join("audit.log");
    let file = RotatingFile::open(&path, rotation, Timestamp::UNIX_EPOCH).unwrap();
    let still: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    // However slow the disk is: who waits too long goes on unrecorded.
    let patience = std::time::Duration::from_secs(60);
    let options = LogOptions {
        places: 8,
        overflow: Overflow::Wait(patience),
        durability: Durability::Disk,
        write_wait: patience,
    };
    let log = AuditLog::start(file, options, AuditMetrics::default(), Arc::clone(&still)).unwrap();
    let metrics = AuditMetrics::default();
    let strangers =
        AuditLog::start(Memory::default(), options, metrics, Arc::clone(&still)).unwrap();
    let logs = Logs::new(log, strangers);
    let recorder = Recorder::new(Policy::built_in(), logs, OnFailure::Allow, still);
    let (user, action) = (jane(), action("create", "pods", ""));
    let request = |_| async {
        let id = mint_id();
        let facts = RequestFacts {
            id: id.clone(),
            user: &user,
            impersonated: None,
            action: &action,
            decision: None,
            uri: "/",
            source_ips: &[],
            user_agent: "",
            lifetime: Lifetime::Short,
        };
        recorder.begin(facts).await.unwrap().complete(ResponseStatus::code(201)).await.unwrap();
        id.to_string()
    };
    let mut sent = futures_util::future::join_all((0..100).map(request)).await;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        found
            .extend(text.lines().map(|line| serde_json::from_str::<Event>(line).unwrap().audit_id));
    }
    sent.sort();
    found.sort();
    assert_eq!(found, sent);
}

#[tokio::test]
async fn levels_decide_what_is_kept() {
    for (name, resource, objects, masked) in [
        ("Metadata", "pods", (false, false), true),
        ("Request", "pods", (true, false), false),
        ("RequestResponse", "pods", (true, true), false),
        ("RequestResponse", "secrets", (false, false), true),
    ] {
        let fixture = level(name);
        let mut audit = begin(&fixture, &action("create", resource, ""), Lifetime::Short).await;
        audit.request_object(|| json!({"data": "a"}));
        audit.response_object(|| json!({"data": "b"}));
        audit.complete(ResponseStatus::code(201)).await.unwrap();
        let events = fixture.sink.events();
        assert_eq!(
            (events[0].request_object.as_ref(), events[0].response_object.as_ref()),
            (None, None)
        );
        let kept = (events[1].request_object.is_some(), events[1].response_object.is_some());
        assert_eq!(kept, objects, "{name} {resource}");
        assert_eq!(!fixture.sink.text().contains("kanarie"), masked, "{name} {resource}");
    }
}

#[tokio::test]
async fn level_none_records_nothing_and_runs_no_closure() {
    let fixture = level("None");
    let mut audit = exec(&fixture).await;
    audit.request_object(|| panic!("not asked for"));
    audit.response_started(101).await;
    assert_eq!(audit.id().as_str(), "11111111-2222-4333-8444-555555555555");
    audit.complete(ResponseStatus::code(101)).await.unwrap();
    assert!(finish(fixture).is_empty());
}

#[tokio::test]
async fn managed_fields_and_stages_are_left_out_on_demand() {
    let policy = "omitStages: [RequestReceived]\nomitManagedFields: true\n\
        rules: [{level: RequestResponse}]";
    let fixture = fixture(policy, LogOptions::default());
    let mut audit = begin(&fixture, &action("list", "pods", ""), Lifetime::Short).await;
    let pod = json!({"metadata": {"name": "a", "managedFields": [1]}});
    audit.request_object(|| pod.clone());
    audit.response_object(|| json!({"items": [pod]}));
    audit.complete(ResponseStatus::code(200)).await.unwrap();
    let sink = fixture.sink.clone();
    assert_eq!(finish(fixture).lines().count(), 1);
    let event = sink.events().remove(0);
    let trimmed = json!({"metadata": {"name": "a"}});
    assert_eq!(event.request_object, Some(trimmed.clone()));
    assert_eq!(event.response_object, Some(json!({"items": [trimmed]})));
}

#[tokio::test]
async fn what_is_learnt_late_is_recorded() {
    let fixture = level("Metadata");
    let mut create = action("create", "pods", "");
    if let Target::Resource(target) = &mut create.target {
        target.name.clear();
    }
    let mut audit = begin(&fixture, &create, Lifetime::Short).await;
    audit.identify("web-x7", "u1", "17");
    assert!(audit.annotate("a", "1") && audit.annotate("a", "1") && !audit.annotate("a", "2"));
    audit.complete(ResponseStatus::code(201)).await.unwrap();
    let event = fixture.sink.events().remove(1);
    let reference = event.object_ref.unwrap();
    assert_eq!(
        (reference.name, reference.uid, reference.resource_version),
        ("web-x7".into(), "u1".into(), "17".into())
    );
    assert_eq!(event.annotations["a"], "1");
}

#[tokio::test]
async fn a_log_without_room_refuses_requests_if_told_so() {
    let overflow = Overflow::Reject(std::time::Duration::ZERO);
    let options = LogOptions { places: 3, overflow, ..LogOptions::default() };
    let fixture = fixture("rules: [{level: Metadata}]", options);
    let held = exec(&fixture).await;
    let (user, action) = (jane(), action("get", "pods", ""));
    let facts = RequestFacts {
        id: mint_id(),
        user: &user,
        impersonated: Some(&user),
        action: &action,
        decision: None,
        uri: "/",
        source_ips: &[],
        user_agent: "",
        lifetime: Lifetime::Short,
    };
    let refusal = fixture.recorder.begin(facts).await.err().unwrap();
    assert!(refusal.to_string().ends_with("the audit log has no room"), "{refusal}");
    assert_eq!(fixture.metrics.rejected.get(), 1);
    drop(held);
}

/// A recorder whose disk takes nothing at first, with the policy that most people use.
fn on_a_full_disk(on_failure: OnFailure) -> Fixture {
    let sink = Memory::default();
    sink.full.store(true, Ordering::Relaxed);
    let metrics = AuditMetrics::default();
    let still: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    let strangers = Memory::default();
    let logs = logs(&sink, &strangers, LogOptions::default(), &metrics, &still);
    let recorder = Recorder::new(Policy::built_in(), logs, on_failure, still);
    Fixture { sink, strangers, recorder, metrics }
}

/// Begins a request that is allowed.
async fn try_to_begin(
    fixture: &Fixture,
    action: &Action,
) -> Result<RequestAudit, AuditUnavailable> {
    begin_allowed(fixture, &jane(), action).await
}

async fn begin_as(
    fixture: &Fixture,
    user: &User,
    action: &Action,
) -> Result<RequestAudit, AuditUnavailable> {
    begin_judged(fixture, user, action, None).await
}

async fn begin_allowed(
    fixture: &Fixture,
    user: &User,
    action: &Action,
) -> Result<RequestAudit, AuditUnavailable> {
    let allowed = authz::Decision::Allow { reason: authz::Reason::None };
    let mut audit = begin_judged(fixture, user, action, Some(&allowed)).await?;
    match audit.allowed().await {
        Ok(()) => Ok(audit),
        Err(error) => {
            let _ = audit.complete(ResponseStatus::code(503)).await;
            Err(error)
        }
    }
}

async fn begin_judged(
    fixture: &Fixture,
    user: &User,
    action: &Action,
    decision: Option<&authz::Decision>,
) -> Result<RequestAudit, AuditUnavailable> {
    let facts = RequestFacts {
        id: mint_id(),
        user,
        impersonated: None,
        action,
        decision,
        uri: URI,
        source_ips: &[],
        user_agent: "",
        lifetime: Lifetime::Short,
    };
    fixture.recorder.begin(facts).await
}

fn anonymous() -> User {
    User {
        name: "system:anonymous".to_owned(),
        groups: vec![UNAUTHENTICATED_GROUP.to_owned()],
        ..User::default()
    }
}

/// A recorder whose clock stands still, with the policy that most people use.
fn standing_still() -> Fixture {
    let fixture = on_a_full_disk(OnFailure::Allow);
    fixture.sink.full.store(false, Ordering::Relaxed);
    fixture
}

/// The hole: strangers pushed the records of users out of the log.
#[tokio::test]
async fn what_strangers_cause_goes_to_a_log_of_its_own_and_has_a_limit() {
    let fixture = standing_still();
    let get = action("get", "pods", "");
    for _ in 0..2_000 {
        for user in [User::default(), anonymous()] {
            let audit = begin_as(&fixture, &user, &get).await.unwrap();
            audit.complete(ResponseStatus::code(401)).await.unwrap();
        }
    }
    begin(&fixture, &get, Lifetime::Short).await.complete(ResponseStatus::code(200)).await.unwrap();
    let (users, strangers) = (fixture.sink.clone(), fixture.strangers.clone());
    let left_out = fixture.metrics.left_out.get();
    drop(fixture);
    assert!(users.events().iter().all(|event| event.user.username == "jane"));
    assert!(left_out > 0);
    let told = |events: &[Event]| -> u64 {
        let key = "audit.waybill.dev/events";
        events.iter().filter_map(|event| event.annotations.get(key)?.parse::<u64>().ok()).sum()
    };
    let strangers = strangers.events();
    assert_eq!(told(&strangers), left_out);
    let ends = strangers
        .iter()
        .filter(|event| event.stage == Stage::ResponseComplete && event.verb == "get");
    assert_eq!(ends.count() as u64 + left_out, 4_000);
}

/// What may have an effect is never left out: it is refused.
#[tokio::test]
async fn a_stranger_beyond_the_limit_may_change_nothing() {
    let fixture = standing_still();
    let (get, exec) = (action("get", "pods", ""), action("get", "pods", "exec"));
    for _ in 0..1_000 {
        begin_as(&fixture, &anonymous(), &get).await.unwrap();
    }
    assert!(begin_as(&fixture, &anonymous(), &get).await.is_ok());
    assert!(begin_as(&fixture, &anonymous(), &exec).await.is_err());
    assert!(begin_as(&fixture, &User::default(), &exec).await.is_ok(), "it is refused anyway");
    assert!(begin_as(&fixture, &jane(), &exec).await.is_ok());
}

/// A user without rights can flood, too: what is refused has a limit for each user.
#[tokio::test]
async fn refusals_of_one_user_have_a_limit_and_sessions_of_others_are_recorded() {
    let fixture = standing_still();
    let mallory = User { name: "mallory".to_owned(), ..User::default() };
    let exec = action("get", "pods", "exec");
    for _ in 0..3_000 {
        let audit = begin_as(&fixture, &mallory, &exec).await.unwrap();
        audit.complete(ResponseStatus::code(403)).await.unwrap();
    }
    let mut audit = begin_as(&fixture, &jane(), &exec).await.unwrap();
    audit.allowed().await.unwrap();
    audit.complete(ResponseStatus::code(101)).await.unwrap();
    let (sink, left_out) = (fixture.sink.clone(), fixture.metrics.left_out.get());
    drop(fixture);
    assert!(left_out > 0, "the limit is never reached");
    let events = sink.events();
    let of = |name: &str| events.iter().filter(|event| event.user.username == name).count();
    assert_eq!((of("mallory") as u64 + left_out, of("jane")), (3_000, 2));
    let notice = events.iter().find(|event| event.verb == "notice").unwrap();
    assert_eq!(notice.annotations["audit.waybill.dev/user"], "mallory");
}

/// Hole: everybody may ask what they may do, and be told that a header is wrong, with 16 KiB of address
/// each time; a minute of it pushed out what others did.
#[tokio::test]
async fn what_everybody_may_ask_has_the_limit_of_refusals() {
    let review = action("create", "selfsubjectreviews", "");
    let get = action("get", "pods", "");
    for (asked, code) in [(&review, 201), (&review, 422), (&get, 400)] {
        let fixture = standing_still();
        for _ in 0..3_000 {
            let audit = begin_as(&fixture, &jane(), asked).await.unwrap();
            audit.complete(ResponseStatus::code(code)).await.unwrap();
        }
        let (sink, left_out) = (fixture.sink.clone(), fixture.metrics.left_out.get());
        drop(fixture);
        assert!(left_out > 0, "{} {code}: the limit is never reached", asked.verb);
        let events = sink.events();
        let told = events.iter().filter(|event| event.user.username == "jane").count();
        assert_eq!(told as u64 + left_out, 3_000);
    }
}

/// The hole: a policy that records the first stage, too, switched the limit off.
#[tokio::test]
async fn refusals_have_their_limit_whatever_stages_are_recorded() {
    let review = action("create", "selfsubjectreviews", "");
    let get = action("get", "pods", "");
    for (asked, code) in [(&get, 403), (&get, 400), (&review, 201)] {
        let fixture = standing_still();
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
        fixture.recorder.set_policy(Policy::parse(policy).unwrap());
        for _ in 0..3_000 {
            let mut audit = begin_as(&fixture, &jane(), asked).await.unwrap();
            if code == 201 {
                audit.allowed().await.unwrap();
            }
            audit.annotate("authorization.k8s.io/decision", "any");
            audit.complete(ResponseStatus::code(code)).await.unwrap();
        }
        let (sink, left_out) = (fixture.sink.clone(), fixture.metrics.left_out.get());
        drop(fixture);
        assert!(left_out > 0, "{} {code}: the limit is never reached", asked.verb);
        let events = sink.events();
        let of = |stage| events.iter().filter(move |it| it.stage == stage && it.verb != "notice");
        // Each that is told is told whole, and its first event as it was at first.
        assert_eq!(of(Stage::RequestReceived).count() as u64 + left_out, 3_000);
        assert_eq!(of(Stage::ResponseComplete).count() as u64 + left_out, 3_000);
        assert!(of(Stage::RequestReceived).all(|first| {
            first.annotations.is_empty()
                && first.response_status.is_none()
                && first.stage_timestamp == first.request_received_timestamp
        }));
    }
}

/// What is allowed is told when that is known, not only when it has ended.
#[tokio::test]
async fn a_request_is_on_record_while_it_is_carried_out() {
    let fixture = level("Metadata");
    let mut audit = begin(&fixture, &action("create", "pods", ""), Lifetime::Short).await;
    audit.allowed().await.unwrap();
    let first = async {
        while fixture.sink.events().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), first).await.unwrap();
    audit.complete(ResponseStatus::code(201)).await.unwrap();
    assert_eq!(
        outline(fixture),
        [(Stage::RequestReceived, None), (Stage::ResponseComplete, Some(201))]
    );
}

/// The rate of refusals and reads is of little use if each may be long. What a session runs is kept.
#[tokio::test]
async fn the_record_is_short_unless_it_holds_a_command() {
    let fixture = standing_still();
    let (user, uri) = (jane(), "/?x=".repeat(4_000));
    for (subresource, code) in [("", 403), ("", 200), ("exec", 101)] {
        let facts = RequestFacts {
            id: mint_id(),
            user: &user,
            impersonated: None,
            action: &action("get", "pods", subresource),
            decision: None,
            uri: &uri,
            source_ips: &[],
            user_agent: "",
            lifetime: Lifetime::Short,
        };
        let audit = fixture.recorder.begin(facts).await.unwrap();
        audit.complete(ResponseStatus::code(code)).await.unwrap();
    }
    let sink = fixture.sink.clone();
    drop(fixture);
    let lengths: Vec<_> = sink.events().iter().map(|event| event.request_uri.len()).collect();
    let mark = "...TRUNCATED".len();
    assert_eq!(lengths, [1024 + mark, 2048 + mark, uri.len()]);
}

/// Hole: whoever could read pods of one namespace pushed all records of others out of the log within minutes.
#[tokio::test]
async fn reads_of_one_user_have_a_limit_and_nothing_else_is_left_out() {
    let fixture = standing_still();
    let mallory = User { name: "mallory".to_owned(), ..User::default() };
    let ask = async |user: &User, verb: &str, resource: &str| {
        let action = action(verb, resource, "");
        let audit = begin_allowed(&fixture, user, &action).await.unwrap();
        audit.complete(ResponseStatus::code(200)).await.unwrap();
    };
    for _ in 0..12_000 {
        ask(&mallory, "get", "pods").await;
    }
    ask(&mallory, "delete", "pods").await;
    ask(&mallory, "get", "secrets").await;
    ask(&jane(), "get", "pods").await;
    let (sink, left_out) = (fixture.sink.clone(), fixture.metrics.left_out.get());
    drop(fixture);
    let events = sink.events();
    let of = |name: &str, verb: &str, resource: &str| {
        let is = |event: &&Event| {
            let found = event.object_ref.as_ref().map(|object| object.resource.as_str());
            event.user.username == name && event.verb == verb && found == Some(resource)
        };
        events.iter().filter(is).count()
    };
    assert!(left_out > 0, "the limit is never reached");
    assert_eq!(of("mallory", "get", "pods") as u64 + left_out, 12_000);
    assert_eq!((of("mallory", "delete", "pods"), of("mallory", "get", "secrets")), (1, 1));
    assert_eq!(of("jane", "get", "pods"), 1);
    let notice = events.iter().find(|event| event.verb == "notice").unwrap();
    assert_eq!(notice.annotations["audit.waybill.dev/user"], "mallory");
}

/// Hole: reads of one's own Secret used up what the log has for those of others.
#[tokio::test]
async fn a_secret_that_is_new_to_a_user_is_on_record_and_so_is_how_many_are_not() {
    let fixture = standing_still();
    let mallory = User { name: "mallory".to_owned(), ..User::default() };
    let get = action("get", "secrets", "");
    let read = async |given: &[ObjectKey], code: u16| {
        let mut audit = begin_allowed(&fixture, &mallory, &get).await.unwrap();
        if !given.is_empty() {
            audit.gives(given.iter());
        }
        audit.complete(ResponseStatus::code(code)).await.unwrap();
    };
    let key = |name: &str| [ObjectKey::new("default", name)];
    for _ in 0..12_000 {
        read(&key("own"), 200).await;
        // What is not there is nothing new, whatever its name.
        read(&[], 404).await;
    }
    let written = || fixture.metrics.events.get();
    let before = written();
    read(&key("own"), 200).await;
    assert_eq!(written(), before, "its budget is used up");
    read(&key("other"), 200).await;
    read(&[key("own"), key("third")].concat(), 200).await;
    assert_eq!(written(), before + 2);
    for number in 0..12_000 {
        read(&key(&format!("many-{number}")), 200).await;
    }
    let sink = fixture.sink.clone();
    drop(fixture);
    let events = sink.events();
    let told = |sentence: &str| -> u64 {
        let notices = events.iter().filter_map(|event| {
            let said = &event.annotations;
            let is = said.get("audit.waybill.dev/notice").is_some_and(|it| it.contains(sentence));
            is.then(|| said["audit.waybill.dev/events"].parse::<u64>().unwrap())
        });
        notices.sum()
    };
    let recorded = events.iter().filter(|event| event.verb == "get").count() as u64;
    assert!(told("had not read before") > 0 && told("changed nothing") > 0);
    assert_eq!(recorded + told("left out"), 36_003);
}

/// The hole: with a full disk sessions went on, unrecorded.
#[tokio::test]
async fn a_session_that_cannot_be_recorded_is_refused_and_the_refusal_is_recorded_later() {
    let fixture = on_a_full_disk(OnFailure::Allow);
    for part in ["exec", "attach", "portforward", "proxy"] {
        let refusal = try_to_begin(&fixture, &action("get", "pods", part)).await.err().unwrap();
        assert!(refusal.to_string().contains("cannot be recorded"), "{refusal}");
    }
    assert!(fixture.recorder.trouble().is_some());
    assert_eq!(fixture.metrics.rejected.get(), 4);
    // Other requests go on, and their events come later.
    let get = try_to_begin(&fixture, &action("create", "pods", "")).await.unwrap();
    get.complete(ResponseStatus::code(201)).await.unwrap();
    fixture.sink.full.store(false, Ordering::Relaxed);
    let codes: Vec<_> = outline(fixture).into_iter().filter_map(|(_, code)| code).collect();
    assert_eq!(codes, [503, 503, 503, 503, 201]);
}

#[tokio::test]
async fn everything_is_refused_that_cannot_be_recorded_if_told_so() {
    let fixture = on_a_full_disk(OnFailure::Refuse);
    // The first one finds out.
    let create = action("create", "pods", "");
    let first = try_to_begin(&fixture, &create).await.unwrap();
    assert!(first.complete(ResponseStatus::code(201)).await.is_err());
    for verb in ["get", "create", "delete"] {
        assert!(try_to_begin(&fixture, &action(verb, "pods", "")).await.is_err(), "{verb}");
    }
    let path = Action { verb: "get".to_owned(), target: Target::Path("/metrics".to_owned()) };
    assert!(try_to_begin(&fixture, &path).await.is_ok());
}

/// Its process starts before the answer does, so the record must not wait for the answer.
#[tokio::test]
async fn a_session_is_on_record_when_it_begins_whatever_the_policy_leaves_out() {
    let policy = "omitStages: [RequestReceived]\nrules: [{level: Metadata}]";
    let fixture = fixture(policy, LogOptions::default());
    let mut audit = begin(&fixture, &action("get", "pods", "exec"), Lifetime::LongRunning).await;
    assert!(fixture.sink.events().is_empty());
    audit.allowed().await.unwrap();
    let stages: Vec<_> = fixture.sink.events().iter().map(|event| event.stage).collect();
    assert_eq!(stages, [Stage::RequestReceived]);
}

/// Whoever gets a token gets a record with it, or neither.
#[tokio::test]
async fn a_login_that_cannot_be_recorded_fails_if_failures_are_refused() {
    let (sink, strangers, metrics) =
        (Memory::default(), Memory::default(), AuditMetrics::default());
    let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    let logs = logs(&sink, &strangers, LogOptions::default(), &metrics, &clock);
    let policy =
        Policy::parse("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]");
    let recorder = Recorder::new(policy.unwrap(), logs, OnFailure::Refuse, clock);
    let login = Action { verb: "login".to_owned(), target: Target::Path("/login".to_owned()) };
    assert!(recorder.is_required(&login));
    let health = Action { verb: "get".to_owned(), target: Target::Path("/readyz".to_owned()) };
    assert!(!recorder.is_required(&health));
}

/// Hole: a client that asked a thousand times who it is, or was refused as often, got no new token, and so the demo failed where it was fast.
#[tokio::test]
async fn a_login_is_recorded_however_often_its_user_was_refused_or_asked_who_they_are() {
    let fixture = standing_still();
    let complete = async |action: &Action, code| {
        let audit = begin_allowed(&fixture, &jane(), action).await.unwrap();
        audit.complete(ResponseStatus::code(code)).await
    };
    for _ in 0..1_500 {
        complete(&action("create", "selfsubjectreviews", ""), 201).await.unwrap();
        complete(&action("create", "pods", ""), 403).await.unwrap();
    }
    assert!(fixture.metrics.left_out.get() > 0, "the limit is never reached");
    let login = Action { verb: "login".to_owned(), target: Target::Path("/login".to_owned()) };
    complete(&login, 200).await.unwrap();
    let mut refused = 0;
    for _ in 0..1_500 {
        refused += usize::from(complete(&login, 200).await.is_err());
    }
    assert!((400..1_500).contains(&refused), "logins have a limit of their own: {refused}");
}

/// Hole: a deletion of many objects of which the last was refused counted as a refusal, and those beyond a budget are left out.
#[tokio::test]
async fn what_has_changed_something_is_on_record_whatever_it_is_answered() {
    let fixture = standing_still();
    for _ in 0..3_000 {
        let audit = begin_as(&fixture, &jane(), &action("get", "pods", "")).await.unwrap();
        audit.complete(ResponseStatus::code(403)).await.unwrap();
    }
    let delete = action("deletecollection", "pods", "");
    for has_changed in [false, true] {
        let mut audit = begin_allowed(&fixture, &jane(), &delete).await.unwrap();
        if has_changed {
            audit.changed();
        }
        audit.complete(ResponseStatus::code(403)).await.unwrap();
    }
    let sink = fixture.sink.clone();
    drop(fixture);
    let told = sink.events().iter().filter(|event| event.verb == "deletecollection").count();
    assert_eq!(told, 1);
}
