//! The record read by somebody without root, through the API server, by the right to `get` `nodes/trace`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use waybill_testkit::{
    kubectl::Running,
    stack::{Setup, Stack},
};

use super::{BINARY, POD, eventually, lines, run_pod};

const CANARY: &str = "hunter2-canary";

/// The kubeconfig of a service account that has this role, if any.
fn person(stack: &Stack, name: &str, role: Option<&str>) -> PathBuf {
    let kubectl = stack.kubectl();
    kubectl.line(&format!("create serviceaccount {name}")).succeeds();
    if let Some(role) = role {
        let line = format!(
            "create clusterrolebinding {name} --clusterrole={role} --serviceaccount=default:{name}"
        );
        kubectl.line(&line).succeeds();
    }
    let token = kubectl.line(&format!("create token {name}"));
    let mut config = kubectl.line("config view --raw -o json").json();
    for user in config["users"].as_array_mut().unwrap() {
        user["user"] = json!({"token": token.succeeds().stdout.trim()});
    }
    let path = stack.dir().join(format!("{name}.json"));
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// `waybill trace` as somebody who has nothing but a kubeconfig.
fn trace(kubeconfig: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.env_clear().arg("trace").args(flags).arg("--kubeconfig").arg(kubeconfig);
    command
}

fn told(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_investigator_reads_the_record_through_the_api_server_and_nobody_else_does() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    run_pod(&stack);
    let irene = person(&stack, "irene", Some("waybill:investigator"));
    let bob = person(&stack, "bob", Some("view"));
    let node = stack.kubectl().line("get nodes -o jsonpath={.items[0].metadata.name}");
    let node = node.succeeds().stdout.trim().to_owned();

    // A session with a value that nobody may read afterwards, as variable and as argument.
    let variable = format!("TOKEN_VALUE={CANARY}");
    let argument = format!("--password={CANARY}");
    let script = "/bin/busybox true mark-1 \"$@\"; /bin/busybox false mark-2; sleep 7777";
    let mut exec = stack.waybill();
    exec.args(["exec", POD, "--env", &variable, "--", "sh", "-c", script, "sh", &argument]);
    exec.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let session = Running::of(exec.spawn().unwrap());

    let export = || lines(trace(&irene, &["export"]));
    let of_programs = |events: &[Value], mark: &str| {
        let args = events.iter().filter_map(|it| it["process"]["args"].as_array());
        args.filter(|args| args.get(2).is_some_and(|it| it == mark)).count()
    };
    let events = eventually(export, |events| of_programs(events, "mark-2") == 1);
    assert_eq!(of_programs(&events, "mark-1"), 1);

    let list: Value = serde_json::from_str(&told(trace(&irene, &["-o", "json"]))).unwrap();
    let with_script = |it: &&Value| it["command"].to_string().contains("mark-1");
    let found = list.as_array().unwrap().iter().find(with_script).unwrap().clone();
    assert!(found["user"].is_string() && found["eventSource"] == "ebpf", "{found}");
    assert!(found["variables"].to_string().contains("TOKEN_VALUE"), "{found}");
    let id = found["id"].as_str().unwrap();

    // Every form that there is on the machine.
    let tree = told(trace(&irene, &["--session", id]));
    assert!(tree.contains("from the kernel (eBPF)") && tree.contains("true mark-1"), "{tree}");
    let tree = told(trace(&irene, &["--tree", "--command", "mark-2", "--node", &node]));
    assert!(tree.contains("false mark-2 [exit 1]"), "{tree}");
    let wide = told(trace(&irene, &["-o", "wide", "--pod", POD]));
    assert!(wide.contains(id), "{wide}");
    let csv = told(trace(&irene, &["-o", "csv", "--variable", "TOKEN_VALUE"]));
    assert_eq!(csv.lines().count(), 2, "{csv}");
    assert_eq!(told(trace(&irene, &["--user", "nobody", "-o", "json"])).trim(), "[]");
    for text in [events.iter().map(Value::to_string).collect(), tree, wide, csv, list.to_string()] {
        assert!(!text.contains(CANARY), "{text}");
    }

    // As it happens.
    let mut follow = trace(&irene, &["-f", "--command", "mark-9"]);
    follow.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let follow = Running::of(follow.spawn().unwrap());
    stack.kubectl().line(&format!("exec {POD} -- /bin/busybox true mark-9")).succeeds();
    follow.wait_for("mark-9");
    drop(follow);

    check_refusals(&stack, &node, &bob);

    // Who read it is on record.
    let audit = fs::read_to_string(stack.state().join("audit/audit.log")).unwrap();
    let read = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).any(|it| {
        it["objectRef"]["subresource"] == "trace"
            && it["objectRef"]["name"] == node.as_str()
            && it["user"]["username"] == "system:serviceaccount:default:irene"
            && it["responseStatus"]["code"] == 200
    });
    assert!(read, "no line about irene");
    drop(session);
    stack.kubectl().line(&format!("delete pod {POD}")).succeeds();
    stack.stop();
}

fn check_refusals(stack: &Stack, node: &str, bob: &Path) {
    // No right, no record; and the way to it is named.
    let fault = refused(trace(bob, &["--node", node]));
    for part in ["nodes/trace", "waybill:investigator", "system:serviceaccount:default:bob"] {
        assert!(fault.contains(part), "{fault}");
    }
    // A node reads no record, neither another's nor its own.
    let own = stack.state().join("node/pki/kubeconfig");
    let own = own.to_str().unwrap();
    for name in [node, "another"] {
        let path = format!("/api/v1/nodes/{name}/trace");
        let ran = stack.kubectl().run(&["--kubeconfig", own, "get", "--raw", &path]);
        assert!(!ran.succeeded() && ran.stderr.contains("orbidden"), "{ran:?}");
    }
    // `nodes/proxy` is another right, and leads elsewhere.
    for path in ["waybill/v1/trace", "waybill/v1/%74race"] {
        let path = format!("/api/v1/nodes/{node}/proxy/{path}");
        let ran = stack.kubectl().run(&["get", "--raw", &path]);
        assert!(!ran.succeeded() && ran.stderr.contains("API server alone"), "{ran:?}");
    }
    // What is not known is refused, not passed over.
    let path = format!("/api/v1/nodes/{node}/trace?colour=red");
    let ran = stack.kubectl().run(&["get", "--raw", &path]);
    assert!(!ran.succeeded() && ran.stderr.contains("no such parameter"), "{ran:?}");
}
