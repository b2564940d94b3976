//! The rules of the plan, as tables. What a runtime has and what a plan says are written in short:
//!
//! ```text
//!   box 0          a sandbox that is ready         make 1        a new sandbox, the second one
//!   dead 0         one that is not                 keep          the one that there is
//!   a#1 exit 2@5   the second instance of a,       finish        nothing will run any more
//!                  ended with 2 at second 5        start a#2     its third instance starts
//!   … in 0         in that sandbox; else the       wait a R @9   not before second 9, because of R
//!                  newest one                      kill a C      because of C
//!   … old          made from another spec
//! ```

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::*;
use crate::{
    pod::testing::{pod, pod_with},
    worker::memory::Health,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn observed(pod: &Pod, text: &str) -> Observed {
    let mut found = Observed::default();
    for word in text.split("; ").filter(|word| !word.is_empty()) {
        let words: Vec<_> = word.split(' ').collect();
        if let ["box" | "dead", attempt] = words[..] {
            let sandbox = ObservedSandbox {
                id: format!("box-{attempt}"),
                ready: words[0] == "box",
                attempt: attempt.parse().unwrap(),
                created: at(0),
                ips: Vec::new(),
            };
            found.sandboxes.insert(0, sandbox);
        } else {
            let container = container(pod, &found, &words);
            found.containers.insert(0, container);
        }
    }
    found
}

fn container(pod: &Pod, found: &Observed, words: &[&str]) -> ObservedContainer {
    let (name, attempt) = words[0].split_once('#').unwrap();
    let place = words.iter().position(|word| *word == "in");
    let place = place.map(|at| format!("box-{}", words[at + 1]));
    let spec = pod.container(name).unwrap();
    let state = match words[1] {
        "created" => ContainerState::Created,
        "lost" => ContainerState::Unknown,
        "running" => ContainerState::Running { started: at(0) },
        "exit" => {
            let (code, finished) = words[2].split_once('@').unwrap();
            ContainerState::Exited {
                started: Some(at(0)),
                finished: at(finished.parse().unwrap()),
                code: code.parse().unwrap(),
                signal: None,
                reason: String::new(),
                message: String::new(),
            }
        }
        other => panic!("{other}"),
    };
    ObservedContainer {
        id: words[0].to_owned(),
        sandbox: place.unwrap_or_else(|| found.sandboxes[0].id.clone()),
        name: name.to_owned(),
        attempt: attempt.parse().unwrap(),
        spec_hash: Some(if words.contains(&"old") { "old".into() } else { spec.spec_hash() }),
        image: spec.image().to_owned(),
        image_id: String::new(),
        log_path: String::new(),
        created: at(0),
        state,
        limits: None,
    }
}

fn shown(plan: &Plan) -> String {
    let mut text = String::new();
    for kill in &plan.kills {
        let _ = write!(text, "kill {} {:?}; ", kill.name, kill.cause);
    }
    for id in &plan.removals {
        let _ = write!(text, "remove {id}; ");
    }
    text.push_str(&match &plan.sandbox {
        SandboxPlan::Keep { .. } => "keep".to_owned(),
        SandboxPlan::Make { attempt } => format!("make {attempt}"),
        SandboxPlan::Finish { failed: None } => "finish".to_owned(),
        SandboxPlan::Finish { failed: Some(failed) } => format!("finish {}", failed.reason),
    });
    for start in &plan.starts {
        let _ = write!(text, "; start {}#{}", start.name, start.attempt);
    }
    for (name, waiting) in &plan.waiting {
        let _ = write!(text, "; wait {name} {}", waiting.reason);
    }
    if let Some(time) = plan.wake_at {
        let _ = write!(text, " @{}", time.as_second());
    }
    text
}

#[track_caller]
fn check_at(pod: &Pod, memory: &Memory, now: i64, has: &str, expected: &str) {
    assert_eq!(shown(&plan(pod, &observed(pod, has), memory, at(now))), expected, "{has}");
}

/// All running containers have started and none has failed.
fn healthy() -> Memory {
    let mut memory = Memory::default();
    let health = Health { started: true, startup_failed: false, liveness_failed: false };
    let names = ["a", "b", "i", "j", "s", "t"].iter();
    let ids = names.flat_map(|name| (0..3).map(move |attempt| format!("{name}#{attempt}")));
    memory.set_health(ids.map(|id| (id, health)).collect());
    memory
}

#[track_caller]
fn check(spec: Value, cases: &[(&str, &str)]) {
    let pod = pod(spec);
    for (has, expected) in cases {
        check_at(&pod, &healthy(), 100, has, expected);
    }
}

fn containers(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "name": name, "image": "i" })).collect()
}

/// `s` and `t` are sidecars.
fn init(names: &[&str]) -> Value {
    let one = |name: &&str| match *name {
        "s" | "t" => json!({ "name": name, "image": "i", "restartPolicy": "Always" }),
        _ => json!({ "name": name, "image": "i" }),
    };
    names.iter().map(one).collect()
}

#[test]
fn a_new_pod_gets_a_sandbox_and_all_its_containers() {
    check(
        json!({ "containers": containers(&["a", "b"]) }),
        &[
            ("", "make 0; start a#0; start b#0"),
            ("box 0", "keep; start a#0; start b#0"),
            ("box 0; a#0 running", "keep; start b#0"),
            ("box 0; a#0 running; b#0 running", "keep"),
        ],
    );
}

#[test]
fn the_restart_policy_decides_about_containers_that_ended() {
    let spec = |policy| json!({ "restartPolicy": policy, "containers": containers(&["a"]) });
    check(
        spec("Always"),
        &[
            ("box 0; a#0 exit 0@5", "keep; start a#1"),
            ("box 0; a#0 exit 1@5", "keep; start a#1"),
            ("box 0; a#3 exit 1@5", "keep; start a#4"),
        ],
    );
    check(
        spec("OnFailure"),
        &[("box 0; a#0 exit 0@5", "finish"), ("box 0; a#0 exit 1@5", "keep; start a#1")],
    );
    check(spec("Never"), &[("box 0; a#0 exit 0@5", "finish"), ("box 0; a#0 exit 1@5", "finish")]);
}

#[test]
fn a_pod_ends_when_its_last_container_does() {
    check(
        json!({ "restartPolicy": "Never", "containers": containers(&["a", "b"]) }),
        &[
            ("box 0; a#0 exit 1@5; b#0 running", "keep"),
            ("box 0; a#0 exit 1@5; b#0 exit 0@6", "finish"),
            ("dead 0; a#0 exit 1@5; b#0 exit 0@6", "finish"),
        ],
    );
}

#[test]
fn a_container_may_have_a_policy_of_its_own() {
    let own = json!([
        { "name": "a", "image": "i", "restartPolicy": "OnFailure" },
        { "name": "b", "image": "i" },
    ]);
    check(
        json!({ "restartPolicy": "Never", "containers": own }),
        &[("box 0; a#0 exit 1@5; b#0 running", "keep; start a#1")],
    );
}

#[test]
fn a_dead_sandbox_is_followed_by_a_new_one() {
    check(
        json!({ "containers": containers(&["a"]) }),
        &[
            ("dead 0", "make 1; start a#0"),
            ("dead 0; a#0 exit 137@5", "make 1; start a#1"),
            ("dead 0; a#0 running", "make 1; start a#1"),
            ("dead 0; a#0 exit 137@5; box 1", "keep; start a#1"),
        ],
    );
    check(
        json!({ "restartPolicy": "Never", "containers": containers(&["a", "b"]) }),
        &[
            ("dead 0", "make 1; start a#0; start b#0"),
            ("dead 0; a#0 exit 0@5", "make 1; start b#0"),
            ("dead 0; a#0 exit 0@5; b#0 running", "finish"),
        ],
    );
    check(
        json!({ "restartPolicy": "OnFailure", "containers": containers(&["a", "b"]) }),
        &[("dead 0; a#0 exit 0@5; b#0 exit 137@5", "make 1; start b#1")],
    );
}

#[test]
fn init_containers_run_one_after_the_other() {
    check(
        json!({ "containers": containers(&["a"]), "initContainers": init(&["i", "j"]) }),
        &[
            ("", "make 0; start i#0"),
            ("box 0", "keep; start i#0"),
            ("box 0; i#0 running", "keep"),
            ("box 0; i#0 exit 0@5", "keep; start j#0"),
            ("box 0; i#0 exit 1@5", "keep; start i#1"),
            ("box 0; i#0 exit 0@5; j#0 running", "keep"),
            ("box 0; i#0 exit 0@5; j#0 exit 0@5", "keep; start a#0"),
            ("box 0; i#0 exit 0@5; j#0 exit 0@5; a#0 running", "keep"),
            // The runtime forgot them.
            ("box 0; j#0 exit 0@5", "keep; start a#0"),
            ("box 0; a#0 running", "keep"),
        ],
    );
}

#[test]
fn a_new_sandbox_begins_with_the_first_init_container() {
    let ended = "dead 0; i#0 exit 0@5; j#0 exit 0@5; a#0 exit 137@5";
    check(
        json!({ "containers": containers(&["a"]), "initContainers": init(&["i", "j"]) }),
        &[
            (ended, "make 1; start i#1"),
            (&format!("{ended}; box 1"), "keep; start i#1"),
            (&format!("{ended}; box 1; i#1 exit 0@6"), "keep; start j#1"),
            (&format!("{ended}; box 1; i#1 exit 0@6; j#1 exit 0@7"), "keep; start a#1"),
        ],
    );
}

#[test]
fn an_init_container_that_fails_for_good_ends_the_pod() {
    check(
        json!({
            "restartPolicy": "Never",
            "containers": containers(&["a"]),
            "initContainers": init(&["i", "s"]),
        }),
        &[
            ("box 0; i#0 exit 1@5", "finish"),
            ("dead 0; i#0 exit 1@5", "finish"),
            ("box 0; i#0 exit 0@5", "keep; start s#0"),
        ],
    );
}

#[test]
fn sidecars_start_in_their_order_and_the_rest_after_them() {
    let spec = json!({
        "restartPolicy": "Never",
        "containers": containers(&["a"]),
        "initContainers": init(&["s", "i", "t"]),
    });
    check(
        spec.clone(),
        &[
            ("", "make 0; start s#0"),
            ("box 0; s#0 running", "keep; start i#0"),
            ("box 0; s#0 running; i#0 exit 0@5", "keep; start t#0"),
            ("box 0; s#0 running; i#0 exit 0@5; t#0 running", "keep; start a#0"),
            // Whatever the pod's policy and their code, sidecars come back.
            ("box 0; s#0 exit 0@5; i#0 exit 0@5; t#0 running; a#0 running", "keep; start s#1"),
            ("box 0; s#0 exit 1@5; i#0 running", "keep; start s#1"),
            // They do not keep a pod alive.
            ("box 0; s#0 running; i#0 exit 0@5; t#0 running; a#0 exit 0@9", "finish"),
        ],
    );
    // The next one waits until the startup probe has passed.
    check_at(&pod(spec), &Memory::default(), 9, "box 0; s#0 running", "keep");
}

#[test]
fn ephemeral_containers_run_once() {
    check(
        json!({ "containers": containers(&["a"]), "ephemeralContainers": containers(&["b"]) }),
        &[
            ("box 0; a#0 running", "keep; start b#0"),
            ("box 0; a#0 running; b#0 running", "keep"),
            ("box 0; a#0 running; b#0 exit 1@5", "keep"),
        ],
    );
}

/// After a drain, or on a machine that was started again, the runtime has nothing: finished ephemeral
/// containers used to run again, and restart counts to begin at zero.
#[test]
fn what_the_runtime_forgot_is_taken_from_the_status() {
    let running = json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } });
    let ended = |code: i32| json!({ "terminated": { "exitCode": code } });
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    let status = |name: &str, count: i32, state: &Value| {
        json!({ "name": name, "restartCount": count, "state": state, "image": "i", "imageID": "i",
            "ready": false, "containerID": "waybill://1" })
    };
    let not_named = |count: i32| {
        json!({ "name": "a", "restartCount": count, "state": waiting, "image": "i", "imageID": "i",
            "ready": false, "lastState": ended(1) })
    };
    let debug = |state: &Value| {
        (
            json!({ "containers": containers(&["a"]), "ephemeralContainers": containers(&["b"]) }),
            json!({ "ephemeralContainerStatuses": [status("b", 0, state)] }),
        )
    };
    let regular = |policy: &str, of_a: Value| {
        (
            json!({ "containers": containers(&["a"]), "restartPolicy": policy }),
            json!({ "containerStatuses": [of_a] }),
        )
    };
    let cases = [
        // Ephemeral containers run once, however they ended.
        (debug(&ended(0)), "box 0; a#0 running", "keep"),
        (debug(&ended(1)), "box 0; a#0 running", "keep"),
        (debug(&running), "box 0; a#0 running", "keep"),
        (debug(&ended(0)), "", "make 0; start a#0"),
        (debug(&waiting), "box 0; a#0 running", "keep; start b#0"),
        // Counts go on.
        (regular("Always", status("a", 4, &running)), "", "make 0; start a#5"),
        (regular("Always", status("a", 4, &ended(1))), "", "make 0; start a#5"),
        (regular("Always", not_named(4)), "", "make 0; start a#4"),
        (regular("Always", status("a", i32::MAX, &running)), "", "make 0; start a#2147483648"),
        (regular("Always", status("a", -1, &running)), "", "make 0; start a#1"),
        // The runtime may have an old one only.
        (regular("Always", status("a", 4, &running)), "box 0; a#1 exit 1@0", "keep; start a#4"),
        (regular("Always", status("a", 0, &running)), "box 0; a#1 exit 1@0", "keep; start a#2"),
        // What has done its work does not do it twice; what a drain cut short is begun again.
        (regular("Never", status("a", 0, &ended(0))), "", "finish"),
        (regular("OnFailure", status("a", 0, &ended(0))), "", "finish"),
        (regular("OnFailure", status("a", 2, &ended(1))), "", "make 0; start a#3"),
        (regular("Never", status("a", 0, &running)), "", "finish"),
        (regular("OnFailure", status("a", 0, &running)), "", "make 0; start a#1"),
    ];
    for ((spec, status), has, expected) in cases {
        check_at(&pod_with(spec, status), &healthy(), 100, has, expected);
    }
}

#[test]
fn a_container_that_keeps_ending_waits_longer_each_time() {
    let pod = pod(json!({ "containers": containers(&["a"]) }));
    let mut memory = healthy();
    let has = "box 0; a#0 exit 1@100";
    check_at(&pod, &memory, 100, has, "keep; start a#1");
    let first = plan(&pod, &observed(&pod, has), &memory, at(100));
    memory.set_back_off("a", first.starts[0].back_off);
    let has = "box 0; a#1 exit 1@101";
    check_at(&pod, &memory, 101, has, "keep; wait a CrashLoopBackOff @111");
    let waits = plan(&pod, &observed(&pod, has), &memory, at(101));
    assert_eq!(
        waits.waiting["a"].message,
        "back-off 10s restarting failed container=a pod=p_ns(uid-1)"
    );
    check_at(&pod, &memory, 111, has, "keep; start a#2");
    check_at(&pod, &memory, 702, "box 0; a#1 exit 1@702", "keep; start a#2");
}

#[test]
fn a_failed_step_is_not_tried_again_at_once() {
    let pod = pod(json!({ "containers": containers(&["a", "b"]) }));
    let mut memory = healthy();
    let waiting = Waiting { reason: "CreateContainerError", message: String::new() };
    memory.failed("a", waiting, at(100));
    check_at(&pod, &memory, 100, "box 0", "keep; start b#0; wait a CreateContainerError @101");
    // While it is tried again, it is shown what was wrong.
    let again = "keep; start a#0; start b#0; wait a CreateContainerError";
    check_at(&pod, &memory, 101, "box 0", again);
    memory.succeeded("a");
    check_at(&pod, &memory, 101, "box 0", "keep; start a#0; start b#0");
}

/// CSI-28: a driver may take seconds to fail again, and whoever looks meanwhile must see why.
#[test]
fn why_the_last_try_failed_is_shown_until_one_succeeds_csi_28() {
    let pod = pod(json!({ "containers": containers(&["a"]) }));
    let mut memory = healthy();
    let message = "failed to fetch CSI environment variables".to_owned();
    memory.failed(
        "a",
        Waiting { reason: "CreateContainerConfigError", message: message.clone() },
        at(100),
    );
    let again = plan(&pod, &observed(&pod, "box 0"), &memory, at(101));
    assert_eq!((again.starts.len(), &again.waiting["a"].message), (1, &message));
    memory.pull_failed("a", Waiting { reason: "ErrImagePull", message }, "x:1", at(101));
    let again = plan(&pod, &observed(&pod, "box 0"), &memory, at(1000));
    assert_eq!((again.starts.len(), again.waiting["a"].reason), (1, "ImagePullBackOff"));
}

#[test]
fn what_was_made_and_never_started_is_made_again() {
    check(
        json!({ "containers": containers(&["a"]), "initContainers": init(&["i"]) }),
        &[
            ("box 0; i#0 created", "remove i#0; keep; start i#0"),
            ("box 0; i#0 exit 0@5; a#0 created", "remove a#0; keep; start a#0"),
        ],
    );
}

/// As kubelets do. A runtime that left it running because it does not understand it refuses, and then nothing is started.
#[test]
fn what_the_runtime_cannot_tell_of_is_stopped_before_another_starts() {
    check(
        json!({ "containers": containers(&["a"]), "initContainers": init(&["i"]) }),
        &[
            ("box 0; i#0 lost", "kill i Unknown; keep; wait i ContainerStatusUnknown"),
            (
                "box 0; i#0 exit 0@5; a#0 lost",
                "kill a Unknown; keep; wait a ContainerStatusUnknown",
            ),
            ("dead 0; box 1; a#0 lost in 0", "keep; start i#0"),
        ],
    );
}

#[test]
fn another_image_replaces_a_container() {
    let pod = pod(json!({ "restartPolicy": "Never", "containers": containers(&["a", "b"]) }));
    let mut memory = healthy();
    let has = "box 0; a#0 running old; b#0 running";
    check_at(&pod, &memory, 9, has, "kill a SpecChanged; keep");
    memory.replace("a");
    check_at(&pod, &memory, 9, "box 0; a#0 exit 137@9 old; b#0 running", "keep; start a#1");
    memory.succeeded("a");
    check_at(&pod, &memory, 9, "box 0; a#0 exit 0@9 old; b#0 running", "keep");
}

#[test]
fn a_container_whose_probe_fails_is_killed() {
    let pod = pod(json!({ "containers": containers(&["a"]), "initContainers": init(&["s"]) }));
    let mut memory = healthy();
    let well = Health { started: true, startup_failed: false, liveness_failed: false };
    let has = "box 0; s#0 running; a#0 running";
    let ill = |id: &str, health| BTreeMap::from([(id.to_owned(), health)]);
    memory.set_health(ill("a#0", Health { liveness_failed: true, ..well }));
    check_at(&pod, &memory, 9, has, "kill a LivenessFailed; keep");
    memory.set_health(ill("s#0", Health { startup_failed: true, ..well }));
    check_at(&pod, &memory, 9, has, "kill s StartupFailed; keep");
}

#[test]
fn a_container_on_old_values_is_replaced_unless_it_never_restarts() {
    for (policy, expected, after) in [
        ("Always", "kill a Rotated; keep", "keep; start a#1"),
        ("OnFailure", "kill a Rotated; keep", "keep; start a#1"),
        ("Never", "keep", "keep"),
    ] {
        let pod = pod(json!({ "restartPolicy": policy, "containers": containers(&["a", "b"]) }));
        let mut memory = healthy();
        memory.stale.insert("a".to_owned());
        check_at(&pod, &memory, 9, "box 0; a#0 running; b#0 running", expected);
        if policy != "Never" {
            memory.replace("a");
        }
        check_at(&pod, &memory, 9, "box 0; a#0 exit 0@9; b#0 running", after);
    }
}

#[test]
fn a_pod_is_active_for_as_long_as_its_deadline_says() {
    let spec = json!({ "activeDeadlineSeconds": 30, "containers": containers(&["a"]) });
    let started = pod_with(spec.clone(), json!({ "startTime": "1970-01-01T00:01:00Z" }));
    check_at(&started, &healthy(), 70, "box 0; a#0 running", "keep @90");
    check_at(&started, &healthy(), 90, "box 0; a#0 running", "finish DeadlineExceeded");
    let mut memory = healthy();
    memory.started = Some(at(100));
    check_at(&pod(spec), &memory, 100, "", "make 0; start a#0 @130");
}

/// KEP-5307: rules of a container come before its policy, and that before the pod's.
#[test]
fn rules_restart_what_ended_with_the_codes_that_they_name() {
    let rule = |operator: &str, codes: &[i32]| json!({ "action": "Restart", "exitCodes": { "operator": operator, "values": codes } });
    let with = |list: &str, policy: &str, rules: &[Value]| {
        let mut container = containers(&["a"])[0].clone();
        container["restartPolicy"] = policy.into();
        container["restartPolicyRules"] = rules.into();
        let mut spec = json!({ "restartPolicy": "Never", "containers": containers(&["a"]) });
        if list == "initContainers" {
            container["name"] = "i".into();
        }
        spec[list] = json!([container]);
        pod(spec)
    };
    let regular = with("containers", "Never", &[rule("In", &[42, 43])]);
    check_at(&regular, &healthy(), 70, "box 0; a#0 exit 42@5", "keep; start a#1");
    check_at(&regular, &healthy(), 70, "box 0; a#0 exit 1@5", "finish");
    check_at(&regular, &healthy(), 70, "box 0; a#0 exit 0@5", "finish");
    let others = with("containers", "Never", &[rule("NotIn", &[1])]);
    check_at(&others, &healthy(), 70, "box 0; a#0 exit 0@5", "keep; start a#1");
    check_at(&others, &healthy(), 70, "box 0; a#0 exit 1@5", "finish");
    let own = with("containers", "OnFailure", &[]);
    check_at(&own, &healthy(), 70, "box 0; a#0 exit 1@5", "keep; start a#1");
    check_at(&own, &healthy(), 70, "box 0; a#0 exit 0@5", "finish");
    let init = with("initContainers", "Never", &[rule("In", &[0, 42])]);
    check_at(&init, &healthy(), 70, "box 0; i#0 exit 42@5", "keep; start i#1");
    check_at(&init, &healthy(), 70, "box 0; i#0 exit 1@5", "finish");
    check_at(&init, &healthy(), 70, "box 0; i#0 exit 0@5", "keep; start a#0");
}

#[test]
fn what_the_api_server_remembers_as_ended_never_runs_again() {
    for phase in ["Succeeded", "Failed"] {
        let spec = json!({ "containers": containers(&["a"]) });
        let pod = pod_with(spec, json!({ "phase": phase }));
        check_at(&pod, &healthy(), 1, "", "finish");
        check_at(&pod, &healthy(), 1, "box 0; a#0 running", "finish");
    }
}

#[test]
fn a_pod_that_the_node_does_not_take_never_starts() {
    let pod = pod(json!({ "containers": containers(&["a"]) }));
    let mut memory = healthy();
    memory.refused = Some(("SysctlForbidden", "no".into()));
    check_at(&pod, &memory, 70, "", "finish SysctlForbidden");
}

#[test]
fn an_evicted_pod_does_not_go_on() {
    let pod = pod(json!({ "containers": containers(&["a"]) }));
    let mut memory = healthy();
    memory.evicted = Some("too large".into());
    check_at(&pod, &memory, 70, "box 0; a#0 running", "finish Evicted");
    check_at(&pod, &memory, 70, "", "finish Evicted");
}
