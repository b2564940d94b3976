//! A whole stack whose roles are killed one after the other while pods come and go.
//!
//! In the end every pod is as its user left it, one that was there all the time has not noticed anything, and
//! when all are deleted nothing is left.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use waybill_testkit::{
    kubectl::Kubectl,
    stack::{IMAGE, Setup, Stack},
};

const ROLES: [&str; 3] = ["node", "runtime", "apiserver"];
const WITNESS: &str = "witness";

#[test]
fn pods_are_as_specified_after_any_role_was_killed_under_load() {
    let Some(stack) = Setup::new(env!("CARGO_BIN_EXE_waybill")).start() else { return };
    let kubectl = stack.kubectl();
    kubectl.apply(&pod(WITNESS)).succeeds();
    wait_for(kubectl, WITNESS);
    let before = container(kubectl, WITNESS);

    let over = AtomicBool::new(false);
    let wanted = thread::scope(|scope| {
        let load = scope.spawn(|| load(kubectl, &over));
        {
            // Also if a role does not come back: the scope waits for the load.
            let _end = End(&over);
            kill_roles(&stack);
        }
        load.join().expect("the load does not panic")
    });
    for name in &wanted {
        wait_for(kubectl, name);
    }
    assert_eq!(container(kubectl, WITNESS), before, "the pod that was there all the time");
    let names = "get pods -l for=load -o jsonpath={.items[*].metadata.name}";
    let expected: Vec<_> = wanted.iter().map(String::as_str).collect();
    kubectl.eventually(names, &expected.join(" "));
    println!("{} pods in the end", wanted.len());
    kubectl.line("delete pods --all --timeout=120s").succeeds();
    stack.stop();
}

/// Ends the load when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn kill_roles(stack: &Stack) {
    for round in 0..super::rounds() {
        for role in ROLES {
            stack.kill_role(role);
        }
        println!("round {round}");
    }
}

/// Creates pods and deletes every third one, until it is over; returns the names of those that must be there.
///
/// A command that fails while the API server is down may have been heard or not, so it is given again.
fn load(kubectl: &Kubectl, over: &AtomicBool) -> BTreeSet<String> {
    let mut wanted = BTreeSet::new();
    for number in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("load-{number:03}");
        insist(|| kubectl.with_input(&["apply", "-f", "-"], &pod(&name)).succeeded());
        if number % 3 == 2 {
            let line = format!("delete pod {name} --wait=false --ignore-not-found");
            insist(|| kubectl.line(&line).succeeded());
        } else {
            wanted.insert(name);
        }
    }
    wanted
}

fn insist(command: impl Fn() -> bool) {
    while !command() {
        thread::yield_now();
    }
}

fn pod(name: &str) -> String {
    let kind = if name == WITNESS { WITNESS } else { "load" };
    format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{for: {kind}}}}}, spec: {{
            terminationGracePeriodSeconds: 1,
            containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600']}}]}}}}"
    )
}

fn wait_for(kubectl: &Kubectl, name: &str) {
    kubectl.line(&format!("wait --for=condition=Ready pod/{name} --timeout=120s")).succeeds();
}

fn container(kubectl: &Kubectl, name: &str) -> String {
    let line = format!("get pod {name} -o jsonpath={{.status.containerStatuses[0].containerID}}");
    kubectl.line(&line).succeeds().stdout.clone()
}
