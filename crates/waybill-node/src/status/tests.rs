//! Statuses, as users see them in `kubectl get pods`.

mod column;

use serde_json::{Value, json};

use self::column::row;
use super::*;
use crate::{
    observed::{ContainerState, ObservedContainer, ObservedSandbox},
    pod::PodOrigin,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A pod with one container `a` for each of `fields`, which are put over the plain one.
fn pod(fields: &[(&str, Value)]) -> Pod {
    let mut object = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 3},
        "spec": {"containers": [{"name": "a", "image": "img"}]},
    });
    for (pointer, value) in fields {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    Pod::from_value(object, PodOrigin::ApiServer).unwrap()
}

/// A drained node has removed its containers, and nobody told how they ended.
#[test]
fn a_count_never_falls_and_an_ephemeral_container_does_not_come_back() {
    let known = |name: &str, count: i32| {
        json!({"name": name, "restartCount": count, "image": "i", "imageID": "i", "ready": true,
            "containerID": "waybill://old", "state": {"running": {}}})
    };
    let old = json!({
        "containerStatuses": [known("a", 4)],
        "ephemeralContainerStatuses": [known("x", 0)],
    });
    let pod = pod(&[("/spec/ephemeralContainers", json!([{"name": "x"}])), ("/status", old)]);
    let runs = ContainerState::Running { started: at(2) };
    let status = compute(&pod, &observed(&[container("a", 0, runs)]), &facts(), at(9));
    assert_eq!(status.container_statuses.unwrap()[0].restart_count, 4);
    let ephemeral = &status.ephemeral_container_statuses.unwrap()[0];
    assert_eq!(ephemeral.restart_count, 0);
    let end = ephemeral.state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((end.exit_code, end.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
}

fn facts() -> Facts {
    Facts {
        host_ip: "192.0.2.1".to_owned(),
        runtime_name: "waybill".to_owned(),
        ..Facts::default()
    }
}

fn waiting(name: &str, reason: &'static str) -> Facts {
    let waiting = Waiting { reason, message: "why".to_owned() };
    Facts { waiting: BTreeMap::from([(name.to_owned(), waiting)]), ..facts() }
}

fn terminating() -> Facts {
    Facts { terminating: true, ..facts() }
}

/// A ready sandbox with these containers, the newest first.
fn observed(containers: &[ObservedContainer]) -> Observed {
    let sandbox = ObservedSandbox {
        id: "s".to_owned(),
        ready: true,
        attempt: 0,
        created: at(1),
        ips: Vec::new(),
    };
    Observed { sandboxes: vec![sandbox], containers: containers.to_vec() }
}

fn container(name: &str, attempt: u32, state: ContainerState) -> ObservedContainer {
    ObservedContainer {
        id: format!("{name}{attempt}"),
        sandbox: "s".to_owned(),
        name: name.to_owned(),
        attempt,
        spec_hash: None,
        image: "img".to_owned(),
        image_id: "img@sha256:1".to_owned(),
        log_path: String::new(),
        created: at(1),
        state,
        limits: None,
    }
}

fn running(name: &str, attempt: u32) -> ObservedContainer {
    container(name, attempt, ContainerState::Running { started: at(5) })
}

fn exited(name: &str, attempt: u32, code: i32) -> ObservedContainer {
    let state = ContainerState::Exited {
        started: Some(at(5)),
        finished: at(6),
        code,
        signal: None,
        reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
        message: String::new(),
    };
    container(name, attempt, state)
}

const NEVER: &str = "Never";
const SIDECAR: &str = "Always";

fn policy(policy: &str) -> (&'static str, Value) {
    ("/spec/restartPolicy", policy.into())
}

fn deleted() -> (&'static str, Value) {
    ("/metadata/deletionTimestamp", "2026-01-01T00:00:00Z".into())
}

/// Containers `a` and `b`.
fn two() -> (&'static str, Value) {
    ("/spec/containers", json!([{"name": "a", "image": "img"}, {"name": "b", "image": "img"}]))
}

/// Init containers `i` and `j`.
fn init() -> (&'static str, Value) {
    ("/spec/initContainers", json!([{"name": "i", "image": "img"}, {"name": "j", "image": "img"}]))
}

/// A sidecar `s`.
fn sidecar() -> (&'static str, Value) {
    let sidecar = json!({"name": "s", "image": "img", "restartPolicy": SIDECAR});
    ("/spec/initContainers", json!([sidecar]))
}

/// The row is `READY STATUS RESTARTS`, and the phase behind a slash.
#[track_caller]
fn check(fields: &[(&str, Value)], observed: &Observed, facts: &Facts, expected: &str) {
    let pod = pod(fields);
    let status = compute(&pod, observed, facts, at(100));
    let phase = status.phase.clone().unwrap();
    assert_eq!(format!("{} / {phase}", row(&pod, &status)), expected, "{status:#?}");
}

#[test]
fn a_simple_pod_from_its_beginning_to_its_end() {
    let none = Observed::default();
    check(&[], &none, &facts(), "0/1 ContainerCreating 0 / Pending");
    check(&[], &observed(&[]), &facts(), "0/1 ContainerCreating 0 / Pending");
    let created = container("a", 0, ContainerState::Created);
    check(&[], &observed(&[created]), &facts(), "0/1 ContainerCreating 0 / Pending");
    check(&[], &observed(&[running("a", 0)]), &facts(), "1/1 Running 0 / Running");
    let ended = |code| observed(&[exited("a", 0, code)]);
    check(&[policy(NEVER)], &ended(0), &facts(), "0/1 Completed 0 / Succeeded");
    check(&[policy(NEVER)], &ended(1), &facts(), "0/1 Error 0 / Failed");
    check(&[policy("OnFailure")], &ended(0), &facts(), "0/1 Completed 0 / Succeeded");
    check(&[policy("OnFailure")], &ended(1), &facts(), "0/1 Error 0 / Running");
    check(&[], &ended(0), &facts(), "0/1 Completed 0 / Running");
    check(&[], &ended(1), &facts(), "0/1 Error 0 / Running");
}

#[test]
fn what_keeps_a_container_from_starting_is_shown() {
    for reason in ["ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"] {
        let expected = format!("0/1 {reason} 0 / Pending");
        check(&[], &observed(&[]), &waiting("a", reason), &expected);
    }
    let ended = observed(&[exited("a", 2, 1), exited("a", 1, 1)]);
    let back_off = waiting("a", "CrashLoopBackOff");
    check(&[], &ended, &back_off, "0/1 CrashLoopBackOff 2 / Running");
    // A reason from before its start says nothing about what runs.
    check(&[], &observed(&[running("a", 3)]), &back_off, "1/1 Running 3 / Running");
}

#[test]
fn a_container_that_waits_shows_how_it_ended() {
    let ended = observed(&[exited("a", 2, 7)]);
    let status = compute(&pod(&[]), &ended, &waiting("a", "CrashLoopBackOff"), at(9));
    let status = &status.container_statuses.unwrap()[0];
    let waiting = status.state.as_ref().unwrap().waiting.as_ref().unwrap();
    assert_eq!(waiting.message.as_deref(), Some("why"));
    let last = status.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (7, Some("Error")));
    assert_eq!(last.container_id.as_deref(), Some("waybill://a2"));
}

#[test]
fn init_containers_are_counted() {
    let fields = [init()];
    check(&fields, &observed(&[]), &facts(), "0/1 Init:0/2 0 / Pending");
    check(&fields, &observed(&[running("i", 0)]), &facts(), "0/1 Init:0/2 0 / Pending");
    check(&fields, &observed(&[exited("i", 0, 0)]), &facts(), "0/1 Init:1/2 0 / Pending");
    let done = [exited("j", 0, 0), exited("i", 0, 0)];
    check(&fields, &observed(&done), &facts(), "0/1 PodInitializing 0 / Pending");
    let runs = [running("a", 0), exited("j", 0, 0), exited("i", 0, 0)];
    check(&fields, &observed(&runs), &facts(), "1/1 Running 0 / Running");
}

#[test]
fn init_containers_that_fail_are_shown() {
    let failed = observed(&[exited("i", 0, 1)]);
    check(&[init()], &failed, &facts(), "0/1 Init:Error 0 / Pending");
    check(&[init(), policy(NEVER)], &failed, &facts(), "0/1 Init:Error 0 / Failed");
    let back_off = waiting("i", "CrashLoopBackOff");
    check(&[init()], &failed, &back_off, "0/1 Init:CrashLoopBackOff 0 / Pending");
    let pull = waiting("i", "ImagePullBackOff");
    check(&[init()], &observed(&[]), &pull, "0/1 Init:ImagePullBackOff 0 / Pending");
}

#[test]
fn sidecars_count_as_containers() {
    let fields = [sidecar()];
    check(&fields, &observed(&[]), &facts(), "0/2 Init:0/1 0 / Pending");
    check(&fields, &observed(&[running("s", 0)]), &facts(), "1/2 PodInitializing 0 / Pending");
    let both = [running("a", 0), running("s", 0)];
    check(&fields, &observed(&both), &facts(), "2/2 Running 0 / Running");
    let again = [running("a", 0), exited("s", 1, 1)];
    let back_off = waiting("s", "CrashLoopBackOff");
    check(&fields, &observed(&again), &back_off, "1/2 Init:CrashLoopBackOff 1 / Running");
    let fields = [sidecar(), policy(NEVER)];
    // As long as the sidecar runs, the pod does.
    let main_done = [exited("a", 0, 0), running("s", 0)];
    check(&fields, &observed(&main_done), &facts(), "1/2 Completed 0 / Running");
    let all_done = [exited("a", 0, 0), exited("s", 0, 137)];
    check(&fields, &observed(&all_done), &facts(), "0/2 Completed 0 / Succeeded");
}

#[test]
fn a_sidecar_that_has_not_started_holds_the_others_back() {
    let probe = json!({"exec": {"command": ["true"]}});
    let sidecar = json!(
        [{"name": "s", "image": "img", "restartPolicy": SIDECAR, "startupProbe": probe}]
    );
    let fields = [("/spec/initContainers", sidecar)];
    check(&fields, &observed(&[running("s", 0)]), &facts(), "0/2 Init:0/1 0 / Pending");
}

#[test]
fn several_containers_are_summed_up() {
    let fields = [two()];
    check(&fields, &observed(&[running("a", 0)]), &facts(), "1/2 ContainerCreating 0 / Pending");
    let both = |a, b| observed(&[a, b]);
    let one = both(running("a", 0), exited("b", 0, 0));
    check(&[two(), policy(NEVER)], &one, &facts(), "1/2 NotReady 0 / Running");
    let failed = both(exited("a", 0, 0), exited("b", 0, 3));
    check(&[two(), policy(NEVER)], &failed, &facts(), "0/2 Completed 0 / Failed");
    let looping = both(running("a", 1), exited("b", 4, 1));
    let back_off = waiting("b", "CrashLoopBackOff");
    check(&fields, &looping, &back_off, "1/2 CrashLoopBackOff 5 / Running");
}

#[test]
fn a_deleted_pod_ends() {
    let runs = observed(&[running("a", 0)]);
    check(&[deleted()], &runs, &terminating(), "1/1 Terminating 0 / Running");
    let stopped = |code| observed(&[exited("a", 0, code)]);
    check(&[deleted()], &stopped(0), &terminating(), "0/1 Completed 0 / Succeeded");
    check(&[deleted()], &stopped(137), &terminating(), "0/1 Error 0 / Failed");
    // Nothing ever ran.
    let none = Observed::default();
    check(&[deleted()], &none, &terminating(), "0/1 ContainerCreating 0 / Failed");
    check(&[deleted(), init()], &none, &terminating(), "0/1 Init:0/2 0 / Failed");
}

#[test]
fn a_pod_that_failed_as_a_whole_says_why() {
    let failed = Failed {
        reason: "DeadlineExceeded".to_owned(),
        message: "Pod was active on the node longer than the specified deadline".to_owned(),
    };
    let facts = Facts { failed: Some(failed), ..facts() };
    // First its containers stop.
    check(&[], &observed(&[running("a", 0)]), &facts, "1/1 Running 0 / Running");
    check(&[], &observed(&[exited("a", 0, 137)]), &facts, "0/1 Error 0 / Failed");
    check(&[], &Observed::default(), &facts, "0/1 DeadlineExceeded 0 / Failed");
    let status = compute(&pod(&[]), &Observed::default(), &facts, at(1));
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert!(status.message.unwrap().starts_with("Pod was active"));
}

#[test]
fn an_evicted_pod_is_the_target_of_a_disruption() {
    let disrupted = |reason: &str| {
        let failed = Failed { reason: reason.to_owned(), message: "too large".to_owned() };
        let facts = Facts { failed: Some(failed), ..facts() };
        let status = compute(&pod(&[]), &Observed::default(), &facts, at(1));
        let mut conditions = status.conditions.unwrap().into_iter();
        conditions.find(|condition| condition.type_ == "DisruptionTarget")
    };
    assert_eq!(disrupted("DeadlineExceeded"), None);
    let found = disrupted("Evicted").unwrap();
    assert_eq!((found.status.as_str(), found.message.as_deref()), ("True", Some("too large")));
    assert_eq!(found.reason.as_deref(), Some("TerminationByKubelet"));
}

#[test]
fn what_has_ended_stays_as_it_ended() {
    let old = json!({"phase": "Failed", "reason": "Evicted", "message": "m"});
    let status = compute(&pod(&[("/status", old)]), &observed(&[running("a", 0)]), &facts(), at(1));
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    assert_eq!(status.message.as_deref(), Some("m"));
}

/// The status of `a` when the API object has `old`, and the runtime has `containers`.
fn status_of_a(
    fields: &[(&str, Value)],
    old: &Value,
    containers: &[ObservedContainer],
    facts: &Facts,
) -> Value {
    let mut fields = fields.to_vec();
    fields.push(("/status", json!({"containerStatuses": [old]})));
    let status = compute(&pod(&fields), &observed(containers), facts, at(100));
    serde_json::to_value(&status.container_statuses.unwrap()[0]).unwrap()
}

fn old(state: &Value, restarts: i32) -> Value {
    json!({
        "name": "a", "image": "img", "imageID": "", "ready": true, "restartCount": restarts,
        "state": state, "containerID": "waybill://a0",
    })
}

#[test]
fn a_container_that_the_runtime_lost_has_ended_somehow() {
    let old = old(&json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}), 4);
    let status = status_of_a(&[], &old, &[], &facts());
    assert_eq!(status["state"]["waiting"]["reason"], "ContainerCreating");
    assert_eq!(status["lastState"]["terminated"]["reason"], "ContainerStatusUnknown");
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 137);
    assert_eq!(status["restartCount"], 5);
    // It comes again, so the pod is not pending.
    check(
        &[("/status", json!({"containerStatuses": [old]}))],
        &observed(&[]),
        &facts(),
        "0/1 ContainerCreating 5 / Running",
    );
    let status = status_of_a(&[deleted()], &old, &[], &terminating());
    assert_eq!(status["state"]["terminated"]["reason"], "ContainerStatusUnknown");
    assert_eq!(status["state"]["terminated"]["exitCode"], 137);
    assert_eq!(status["restartCount"], 4);
    let unknown = container("a", 0, ContainerState::Unknown);
    let status = status_of_a(&[], &old, &[unknown], &facts());
    assert_eq!(status["state"]["terminated"]["reason"], "ContainerStatusUnknown");
}

#[test]
fn ends_that_the_runtime_has_forgotten_are_kept() {
    let end = json!({"terminated": {"exitCode": 3, "reason": "Error"}});
    let kept = status_of_a(&[policy(NEVER)], &old(&end, 2), &[], &facts());
    assert_eq!(kept["state"]["terminated"]["exitCode"], 3);
    assert_eq!(kept["restartCount"], 2);
    assert_eq!(kept["containerID"], "waybill://a0");
    // The next one runs: the end is its past.
    let next = status_of_a(&[], &old(&end, 0), &[running("a", 1)], &facts());
    assert_eq!(next["lastState"]["terminated"]["exitCode"], 3);
    // And stays so when the object says it already.
    let mut known = old(&json!({"running": {}}), 1);
    known["containerID"] = "waybill://a1".into();
    known["lastState"] = end;
    let later = status_of_a(&[], &known, &[running("a", 1)], &facts());
    assert_eq!(later["lastState"]["terminated"]["exitCode"], 3);
}

#[test]
fn a_container_is_described() {
    let containers = [running("a", 1), exited("a", 0, 2)];
    let status = compute(&pod(&[]), &observed(&containers), &facts(), at(100));
    assert_eq!(
        serde_json::to_value(&status.container_statuses.unwrap()[0]).unwrap(),
        json!({
            "name": "a", "image": "img", "imageID": "img@sha256:1", "ready": true,
            "started": true, "restartCount": 1, "containerID": "waybill://a1", "resources": {},
            "state": {"running": {"startedAt": "1970-01-01T00:00:05Z"}},
            "lastState": {"terminated": {
                "containerID": "waybill://a0", "exitCode": 2, "reason": "Error",
                "startedAt": "1970-01-01T00:00:05Z", "finishedAt": "1970-01-01T00:00:06Z",
            }},
        })
    );
}

#[test]
fn a_container_that_never_started_has_no_end_without_a_start() {
    let mut ended = exited("a", 0, 128);
    let ContainerState::Exited { started, .. } = &mut ended.state else { panic!("it runs") };
    *started = None;
    let status = compute(&pod(&[policy(NEVER)]), &observed(&[ended]), &facts(), at(100));
    let state = serde_json::to_value(&status.container_statuses.unwrap()[0].state).unwrap();
    assert_eq!(state["terminated"]["startedAt"], "1970-01-01T00:00:06Z");
    assert_eq!(state["terminated"]["finishedAt"], "1970-01-01T00:00:06Z");
}

#[test]
fn statuses_are_in_order() {
    let fields = [
        ("/spec/containers", json!([{"name": "z"}, {"name": "a"}])),
        ("/spec/initContainers", json!([{"name": "j"}, {"name": "i"}])),
        ("/spec/ephemeralContainers", json!([{"name": "y"}, {"name": "x"}])),
    ];
    let status = compute(&pod(&fields), &observed(&[running("x", 0)]), &facts(), at(1));
    let names = |list: &Option<Vec<k8s_openapi::api::core::v1::ContainerStatus>>| {
        list.iter().flatten().map(|status| status.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&status.container_statuses), ["a", "z"]);
    assert_eq!(names(&status.init_container_statuses), ["j", "i"]);
    assert_eq!(names(&status.ephemeral_container_statuses), ["x", "y"]);
    let ephemeral = &status.ephemeral_container_statuses.unwrap()[0];
    assert!(ephemeral.state.as_ref().unwrap().running.is_some());
    // Nobody waits for an ephemeral container.
    assert!(!ephemeral.ready);
    assert_eq!(ephemeral.started, None);
}

#[test]
fn runtimes_without_reasons_leave_it_to_the_exit_code() {
    for (code, expected) in [(0, "Completed"), (4, "Error")] {
        let mut ended = exited("a", 0, code);
        let ContainerState::Exited { reason, .. } = &mut ended.state else { panic!("it runs") };
        reason.clear();
        let status = compute(&pod(&[policy(NEVER)]), &observed(&[ended]), &facts(), at(1));
        let state = status.container_statuses.unwrap().remove(0).state.unwrap();
        assert_eq!(state.terminated.unwrap().reason.as_deref(), Some(expected));
    }
}

#[test]
fn probes_decide_about_started_and_ready() {
    let probe = json!({"exec": {"command": ["true"]}});
    let with = |names: &[&str]| {
        let mut container = json!({"name": "a", "image": "img"});
        for name in names {
            container[*name] = probe.clone();
        }
        [("/spec/containers", json!([container]))]
    };
    let both = with(&["startupProbe", "readinessProbe"]);
    let runs = observed(&[running("a", 0)]);
    let passed = |started, ready| Facts {
        probes: probe::Results::for_test("a0", started, ready),
        ..facts()
    };
    #[track_caller]
    fn check(fields: &[(&str, Value)], runs: &Observed, facts: &Facts, expected: (bool, bool)) {
        let status = compute(&pod(fields), runs, facts, at(1)).container_statuses.unwrap();
        assert_eq!((status[0].started.unwrap(), status[0].ready), expected);
    }
    check(&both, &runs, &facts(), (false, false));
    check(&both, &runs, &passed(Some(true), None), (true, false));
    check(&both, &runs, &passed(Some(true), Some(true)), (true, true));
    check(&both, &runs, &passed(None, Some(true)), (false, false));
    check(&with(&["readinessProbe"]), &runs, &facts(), (true, false));
    check(&with(&["livenessProbe"]), &runs, &facts(), (true, true));
    // Results are about one container, not about its name.
    let next = observed(&[running("a", 1)]);
    check(&both, &next, &passed(Some(true), Some(true)), (false, false));
}

/// The condition as `status reason message`.
fn condition(status: &PodStatus, kind: &str) -> String {
    let found = status.conditions.iter().flatten().find(|condition| condition.type_ == kind);
    let found = found.unwrap();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let shown = format!("{} {} {}", found.status, text(&found.reason), text(&found.message));
    shown.trim_end().to_owned()
}

#[track_caller]
fn check_conditions(
    fields: &[(&str, Value)],
    observed: &Observed,
    facts: &Facts,
    [sandbox, initialized, containers, ready]: [&str; 4],
) {
    let status = compute(&pod(fields), observed, facts, at(1));
    assert_eq!(condition(&status, "PodReadyToStartContainers"), sandbox);
    assert_eq!(condition(&status, "Initialized"), initialized);
    assert_eq!(condition(&status, "ContainersReady"), containers);
    assert_eq!(condition(&status, "Ready"), ready);
    assert_eq!(condition(&status, "PodScheduled"), "True");
}

#[test]
fn conditions_follow_the_containers() {
    let unready = "False ContainersNotReady containers with unready status: [a]";
    check_conditions(&[], &Observed::default(), &facts(), ["False", "True", unready, unready]);
    check_conditions(&[], &observed(&[]), &facts(), ["True", "True", unready, unready]);
    let runs = observed(&[running("a", 0)]);
    check_conditions(&[], &runs, &facts(), ["True", "True", "True", "True"]);
    let init = [init()];
    let incomplete = "False ContainersNotInitialized containers with incomplete status: [i j]";
    check_conditions(&init, &observed(&[]), &facts(), ["True", incomplete, unready, unready]);
    let incomplete = "False ContainersNotInitialized containers with incomplete status: [j]";
    let one = observed(&[exited("i", 0, 0)]);
    check_conditions(&init, &one, &facts(), ["True", incomplete, unready, unready]);
    let done = observed(&[exited("a", 0, 0)]);
    let completed = ["True", "True PodCompleted", "False PodCompleted", "False PodCompleted"];
    check_conditions(&[policy(NEVER)], &done, &facts(), completed);
    let failed = observed(&[exited("a", 0, 1)]);
    let expected = ["True", "True", "False PodFailed", "False PodFailed"];
    check_conditions(&[policy(NEVER)], &failed, &facts(), expected);
}

#[test]
fn readiness_gates_are_waited_for() {
    let gate = ("/spec/readinessGates", json!([{"conditionType": "example.com/g"}]));
    let runs = observed(&[running("a", 0)]);
    let missing = "False ReadinessGatesNotReady corresponding condition of pod readiness gate \
                   \"example.com/g\" does not exist.";
    check_conditions(
        std::slice::from_ref(&gate),
        &runs,
        &facts(),
        ["True", "True", "True", missing],
    );
    let with = |status: &str| {
        let condition = json!({"type": "example.com/g", "status": status});
        ("/status", json!({"conditions": [condition]}))
    };
    let not = "False ReadinessGatesNotReady the status of pod readiness gate \"example.com/g\" is \
               not \"True\", but False";
    let fields = [gate.clone(), with("False")];
    check_conditions(&fields, &runs, &facts(), ["True", "True", "True", not]);
    let fields = [gate, with("True")];
    check_conditions(&fields, &runs, &facts(), ["True", "True", "True", "True"]);
    // It is kept.
    let status = compute(&pod(&fields), &runs, &facts(), at(1));
    assert_eq!(condition(&status, "example.com/g"), "True");
}

#[test]
fn conditions_keep_the_moment_of_their_last_change() {
    let runs = observed(&[running("a", 0)]);
    let first = compute(&pod(&[]), &runs, &facts(), at(10));
    let fields = [("/status", serde_json::to_value(&first).unwrap())];
    let second = compute(&pod(&fields), &runs, &facts(), at(20));
    assert_eq!(second, first);
    let third = compute(&pod(&fields), &observed(&[exited("a", 0, 1)]), &facts(), at(30));
    let since = |kind: &str| {
        let mut conditions = third.conditions.iter().flatten();
        let found = conditions.find(|condition| condition.type_ == kind).unwrap();
        found.last_transition_time.clone().unwrap().0
    };
    assert_eq!(since("Ready"), at(30));
    assert_eq!(since("Initialized"), at(10));
    assert_eq!(since("PodScheduled"), at(10));
}

#[test]
fn the_scheduler_keeps_its_words() {
    let scheduled = json!({
        "type": "PodScheduled", "status": "True", "reason": "r",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let fields = [("/status", json!({"conditions": [scheduled]}))];
    let status = compute(&pod(&fields), &observed(&[]), &facts(), at(1));
    assert_eq!(condition(&status, "PodScheduled"), "True r");
}

#[test]
fn generations_are_observed() {
    let status = compute(&pod(&[]), &observed(&[]), &facts(), at(1));
    assert_eq!(status.observed_generation, Some(3));
    let ready = status.conditions.iter().flatten().find(|found| found.type_ == "Ready").unwrap();
    assert_eq!(ready.observed_generation, Some(3));
    let scheduled = json!({
        "type": "PodScheduled", "status": "True", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let fields = [("/status", json!({"conditions": [scheduled]}))];
    let status = compute(&pod(&fields), &observed(&[]), &facts(), at(1));
    for condition in status.conditions.iter().flatten() {
        assert_eq!(condition.observed_generation, Some(3), "{}", condition.type_);
    }
}

#[test]
fn fractions_of_a_second_make_no_difference() {
    let time = Timestamp::new(10, 999).unwrap();
    let status = compute(&pod(&[]), &observed(&[]), &facts(), time);
    assert_eq!(status.start_time.clone().unwrap().0, at(10));
    let there_and_back: PodStatus =
        serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap();
    assert_eq!(there_and_back, status);
}

#[test]
fn addresses() {
    let ips = |status: &PodStatus| {
        let all: Vec<_> = status.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).collect();
        assert_eq!(status.pod_ip, all.first().cloned());
        all
    };
    let runs = observed(&[running("a", 0)]);
    let status = compute(&pod(&[]), &runs, &facts(), at(1));
    assert!(ips(&status).is_empty());
    assert_eq!(status.host_ip.as_deref(), Some("192.0.2.1"));
    assert_eq!(status.host_ips.unwrap()[0].ip, "192.0.2.1");
    let on_host = pod(&[("/spec/hostNetwork", true.into())]);
    assert_eq!(ips(&compute(&on_host, &runs, &facts(), at(1))), ["192.0.2.1"]);
    let given = Facts { pod_ips: vec!["10.0.0.2".to_owned(), "fd::2".to_owned()], ..facts() };
    assert_eq!(ips(&compute(&pod(&[]), &runs, &given, at(1))), ["10.0.0.2", "fd::2"]);
    let mut with_network = runs.clone();
    with_network.sandboxes[0].ips = vec!["10.0.0.3".to_owned()];
    let status = compute(&pod(&[]), &with_network, &facts(), at(1));
    assert_eq!(ips(&status), ["10.0.0.3"]);
    // After the end they are still known.
    let ended = pod(&[("/status", serde_json::to_value(&status).unwrap())]);
    assert_eq!(ips(&compute(&ended, &Observed::default(), &facts(), at(1))), ["10.0.0.3"]);
}

#[test]
fn the_class_is_that_of_the_api_server_or_of_the_spec() {
    let status = compute(&pod(&[]), &observed(&[]), &facts(), at(1));
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    let told = pod(&[("/status", json!({"qosClass": "Burstable"}))]);
    let status = compute(&told, &observed(&[]), &facts(), at(1));
    assert_eq!(status.qos_class.as_deref(), Some("Burstable"));
}

#[test]
fn a_static_pod_does_not_end_with_its_containers() {
    let object = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "a"}]},
    });
    let pod = Pod::from_value(object, PodOrigin::File).unwrap();
    let status = compute(&pod, &observed(&[exited("a", 0, 1)]), &terminating(), at(1));
    assert_eq!(status.phase.as_deref(), Some("Running"));
}

/// KEP-5307: a pod goes on as long as one of its containers will start again.
#[test]
fn a_pod_runs_while_a_rule_restarts_its_container() {
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    let pod = pod(&[
        ("/spec/restartPolicy", json!("Never")),
        ("/spec/containers/0/restartPolicy", json!("Never")),
        ("/spec/containers/0/restartPolicyRules", rules),
    ]);
    let phase = |code| {
        let ended = observed(&[exited("a", 0, code)]);
        compute(&pod, &ended, &facts(), at(9)).phase.unwrap()
    };
    assert_eq!([42, 1, 0].map(phase), ["Running", "Failed", "Succeeded"]);
    let paused = waiting("a", "CrashLoopBackOff");
    let ended = observed(&[exited("a", 0, 42)]);
    assert_eq!(compute(&pod, &ended, &paused, at(9)).phase.unwrap(), "Running");
}
