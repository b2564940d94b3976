//! Attach and debug containers: whoever types into a container, or adds one, is known as whoever uses exec.

use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use waybill_testkit::{
    kubectl::{PATIENCE, Running},
    stack::IMAGE,
};

use super::{Lab, POD, process};
use crate::people::Person;

/// A pod whose own process does what is typed.
const SHELL: &str = "shell";

/// A time to sleep that no other process of this machine sleeps.
fn nap(number: u32) -> String {
    (1_000_000 + std::process::id() * 10 + number).to_string()
}

fn start_shell(lab: &Lab) {
    let manifest = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {SHELL}}}, spec: {{
        terminationGracePeriodSeconds: 1,
        containers: [{{name: main, image: '{IMAGE}', command: [sh], stdin: true}}]}}}}"
    );
    lab.stack.kubectl().apply(&manifest).succeeds();
    lab.stack.kubectl().wait_until_ready(SHELL);
}

fn attach(person: &Person) -> Running {
    person.kubectl.follow(&["attach", "-i", SHELL])
}

/// Types a line and waits for a word that it prints.
fn types(session: &mut Running, line: &str, word: &str) {
    session.input().write_all(line.as_bytes()).unwrap();
    session.wait_for(word);
}

/// The one session of this kind and user, once it is so.
#[track_caller]
fn session(lab: &Lab, kind: &str, user: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let traces = lab.traces(&["--user", user]);
        let found: Vec<_> = traces.iter().filter(|trace| trace["kind"] == kind).collect();
        if let [one] = found.as_slice()
            && holds(one)
        {
            return (*one).clone();
        }
        assert!(start.elapsed() < PATIENCE, "{kind} of {user}: {traces:#?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// The answer about a process, and the users who may have started it, each with whether they were attached then.
fn about(lab: &Lab, pid: u32) -> (Value, Vec<(String, bool)>) {
    let mut traces = lab.traces(&["--pid", &pid.to_string()]);
    assert_eq!(traces.len(), 1, "{traces:#?}");
    let trace = traces.remove(0);
    let starters = trace["process"]["mayHaveBeenStartedBy"].as_array().unwrap();
    let told = |starter: &Value| {
        let open = starter["openWhenItStarted"].as_bool().unwrap();
        (starter["user"].as_str().unwrap_or_default().to_owned(), open)
    };
    let starters = starters.iter().map(told).collect();
    (trace, starters)
}

/// What is typed into an attached shell belonged to no session, and nothing told who had been attached.
#[test]
fn who_types_into_a_container_is_recorded_and_named_as_a_possibility() {
    let Some(lab) = Lab::start() else { return };
    start_shell(&lab);
    let mut anna = attach(&lab.anna);
    let nap = nap(0);
    let typed = ["sleep", &nap];
    types(&mut anna, &format!("sleep {nap} & echo one\n"), "one");
    let seen = session(&lab, "attach", &lab.anna.name, |_| true);
    assert_eq!((&seen["pod"], &seen["container"]), (&SHELL.into(), &"main".into()), "{seen:#}");
    assert_eq!((&seen["stdin"], &seen["end"]["state"]), (&true.into(), &"running".into()));
    let record = lab.record(seen["auditID"].as_str().unwrap());
    assert_eq!(record["objectRef"]["subresource"], "attach", "{record:#}");

    // Reading is no typing.
    let boris = lab.boris.kubectl.follow(&["attach", SHELL]);
    let seen = session(&lab, "attach", &lab.boris.name, |_| true);
    assert_eq!(seen["stdin"], false, "{seen:#}");
    drop(boris);
    session(&lab, "attach", &lab.boris.name, |seen| seen["end"]["state"] == "over");

    let (trace, starters) = about(&lab, process(&typed));
    assert_eq!((&trace["kind"], &trace["user"]), (&"container".into(), &Value::Null), "{trace:#}");
    assert_eq!((&trace["pod"], &trace["container"]), (&SHELL.into(), &"main".into()));
    assert_eq!(starters, [(lab.anna.name.clone(), true)]);

    drop(anna);
    session(&lab, "attach", &lab.anna.name, |seen| seen["end"]["state"] == "over");
    drop(lab.boris.kubectl.follow(&["attach", SHELL]));
    let (_, starters) = about(&lab, process(&typed));
    assert_eq!(starters, [(lab.anna.name.clone(), true)], "later it is told as before");

    check_table(&lab, process(&typed));
    lab.stop();
}

/// As people read it.
fn check_table(lab: &Lab, pid: u32) {
    let state = lab.stack.state();
    let mut command = lab.stack.waybill();
    command.arg("trace").arg("--state-dir").arg(&state).args(["--pid", &pid.to_string()]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let told = format!("It may have been started by what was typed by:\n  {}", lab.anna.name);
    assert!(text.contains("(the container)") && text.contains(&told), "{text}");
}

/// Nobody was named for the processes of a container that `kubectl debug` had added.
#[test]
fn who_adds_a_debug_container_is_behind_its_processes() {
    let Some(lab) = Lab::start() else { return };
    let admin = lab.stack.kubectl();
    let role =
        "create clusterrole debug --verb=patch,update,get --resource=pods/ephemeralcontainers";
    admin.line(role).succeeds();
    for name in ["anna", "boris"] {
        let bind = format!(
            "create rolebinding debug-{name} --clusterrole=debug --serviceaccount=default:{name}"
        );
        admin.line(&bind).succeeds();
    }
    let image = format!("--image={IMAGE}");
    let naps = [1, 2, 3, 4].map(nap);
    let sleep = ["debug", POD, &image, "--container=of-anna", "--", "sleep", &naps[0]];
    lab.anna.kubectl.run(&sleep).succeeds();
    let script = format!("sleep {} & read line; sleep {} & echo typed; wait", naps[1], naps[2]);
    let interactive =
        ["debug", POD, &image, "--container=of-boris", "-i", "--", "sh", "-c", &script];
    let mut boris = lab.boris.kubectl.follow(&interactive);
    types(&mut boris, "go\n", "typed");

    let all = [(&lab.anna, "of-anna"), (&lab.boris, "of-boris"), (&lab.boris, "of-boris")];
    for ((person, container), nap) in all.into_iter().zip(&naps) {
        let pid = process(&["sleep", nap]);
        assert_eq!(lab.user_of(pid), person.name, "{container}");
        let (trace, _) = about(&lab, pid);
        assert_eq!((&trace["kind"], &trace["container"]), (&"debug".into(), &container.into()));
        let seen = session(&lab, "debug", &person.name, |seen| seen["end"]["state"] == "running");
        let pids: Vec<_> =
            seen["processes"].as_array().unwrap().iter().map(|it| &it["pid"]).collect();
        assert!(pids.contains(&&Value::from(pid)), "{seen:#}");
        let record = lab.record(seen["auditID"].as_str().unwrap());
        let annotation = "pods.waybill.dev/added-ephemeral-containers";
        assert_eq!(record["annotations"][annotation], container, "{record:#}");
        assert_eq!(record["level"], "Metadata");
    }
    // With -i one is attached as well, and that is a session of its own.
    session(&lab, "attach", &lab.boris.name, |seen| seen["container"] == "of-boris");
    drop(boris);
    check_own_process(&lab, &naps[3]);
    lab.stop();
}

/// A process of a pod's own container is nobody's.
fn check_own_process(lab: &Lab, nap: &str) {
    let manifest = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: own}}, spec: {{
        terminationGracePeriodSeconds: 1,
        containers: [{{name: main, image: '{IMAGE}', command: [sleep, '{nap}']}}]}}}}"
    );
    lab.stack.kubectl().apply(&manifest).succeeds();
    lab.stack.kubectl().wait_until_ready("own");
    let (trace, starters) = about(lab, process(&["sleep", nap]));
    assert_eq!((&trace["kind"], starters.len()), (&"container".into(), 0), "{trace:#}");
}
