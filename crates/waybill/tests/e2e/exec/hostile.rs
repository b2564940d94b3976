//! What a caller may try: each is refused with a clear word, or changes nothing about who is named.

use super::{Lab, POD, audit_id, process};
use crate::raw::{PLAIN, Raw, SPDY, Said, WEBSOCKET};

/// EXEC-18, EXEC-27..EXEC-34, OP-11: requests that are wrong reach no container.
#[test]
fn requests_that_are_wrong_start_nothing() {
    let Some(lab) = Lab::start() else { return };
    let raw = lab.raw(&lab.anna);
    // Reserved in every case, since some systems do not tell cases apart (OP-7).
    for name in ["KUBERNETES_EXEC_AUDIT_ID", "kubernetes_exec_audit_id", "Kubernetes_Exec_Audit_Id"]
    {
        check(&raw, &format!("env={name}=fake"), 422, "is reserved by the API server");
    }
    check(&raw, "env=A=1&env=KUBERNETES%5FEXEC%5FAUDIT%5FID=fake", 422, "is reserved");
    for (query, text) in [
        ("env=A", "query parameter env[0] must have the form NAME=VALUE"),
        ("env=A=b%", "env[0]"),
        ("env=A=%zz", "env[0]"),
        ("env=A=1&env=B=%e", "env[1]"),
        ("env=%ff=1", "env[0]"),
    ] {
        check(&raw, query, 400, text);
    }
    for (query, text) in [
        ("env==x", "env[0].name: Required value"),
        ("env=A=b%00", "env[0].value"),
        ("env=A%00=b", "env[0].name"),
        ("env=A=1&env=A=2", "env[1].name: Duplicate value"),
    ] {
        check(&raw, query, 422, text);
    }
    check(&raw, &numbered(257), 422, "env: Too many: 257");
    check(&raw, &format!("env=LONG={}", "x".repeat(32_768 - 3)), 422, "env: Too long");
    check(&raw, &numbered(10_000), 422, "env: Too many: 10000");
    // Longer than any request line may be.
    check(&raw, &numbered(20_000), 414, "");
    assert!(lab.traces(&["--probes"]).is_empty(), "{:#?}", lab.traces(&["--probes"]));

    // At the limits, everything arrives.
    let flags: Vec<String> = (0..256).map(|number| format!("--env=V{number}=x")).collect();
    let arguments = ["exec", POD].into_iter().chain(flags.iter().map(String::as_str));
    let arguments: Vec<_> = arguments.chain(["--", "env"]).collect();
    let printed = lab.anna.waybill(&arguments).succeeds().stdout.clone();
    assert_eq!(printed.lines().filter(|line| line.starts_with('V')).count(), 256);
    let long = format!("--env=LONG={}", "x".repeat(32_768 - 4));
    let script = "echo ${#LONG}; env | grep AUDIT";
    let ran = lab.anna.waybill(&["exec", POD, &long, "--", "sh", "-c", script]);
    assert_eq!(ran.succeeds().stdout.lines().next(), Some("32764"));
    check_user(&lab, &audit_id(&ran.stdout));
    lab.stop();
}

/// EXEC-22, OP-11: who a session belongs to is not for its caller to say.
#[test]
fn headers_of_the_caller_name_nobody() {
    let Some(lab) = Lab::start() else { return };
    let raw = lab.raw(&lab.anna);
    let forged = format!(
        "{WEBSOCKET}Audit-ID: {0}\r\nX-Remote-User: {0}\r\nX-Remote-Group: system:masters\r\n\
         Waybill-Exec-Session: {0}\r\n",
        "hunter2"
    );
    let line = format!("GET {}", target("command=env"));
    // Who may not act as others is refused, and does not act as themselves.
    for (header, text) in
        [("Impersonate-User: unix:root", "cannot impersonate"), ("Impersonate-Group: x", "")]
    {
        let said = raw.ask(&line, &format!("{WEBSOCKET}{header}\r\n"));
        assert!(matches!(said.code, 400 | 403), "{said:?}");
        assert!(said.text.contains(text), "{said:?}");
    }
    let said = raw.ask(&line, &forged);
    assert_eq!(said.code, 101, "{said:?}");
    let id = audit_id(&said.text);
    assert_eq!(id.len(), 36, "{id}");
    assert!(!said.text.contains("hunter2"), "{said:?}");
    check_user(&lab, &id);
    let log = std::fs::read_to_string(lab.stack.state().join("audit/audit.log")).unwrap();
    assert!(!log.contains("hunter2"));
    lab.stop();
}

/// D7: a process can do what it likes to its environment; the kernel knows its session.
#[test]
fn what_a_process_does_to_itself_changes_nothing_about_its_user() {
    let Some(lab) = Lab::start() else { return };
    let sleeper = |number: u32| format!("7{:05}{number}", std::process::id() % 100_000);
    let quiet = "</dev/null >/dev/null 2>&1";
    let (anna, boris) = (&lab.anna, &lab.boris);
    for (number, person, script) in [
        (0, anna, format!("exec env KUBERNETES_EXEC_AUDIT_ID=fake sleep {}", sleeper(0))),
        (1, boris, format!("exec env -i /bin/sleep {}", sleeper(1))),
        (2, anna, format!("unset KUBERNETES_EXEC_AUDIT_ID; (sleep {} {quiet} &) &", sleeper(2))),
        (3, boris, format!("((env -i setsid /bin/sleep {} {quiet} &) &) &", sleeper(3))),
    ] {
        let detached = number >= 2;
        let arguments = ["exec", POD, "--", "sh", "-c", &script, "KUBERNETES_EXEC_AUDIT_ID=fake"];
        let session = person.kubectl.follow(&arguments);
        let command = if script.contains("/bin/sleep") { "/bin/sleep" } else { "sleep" };
        let pid = process(&[command, &sleeper(number)]);
        if detached {
            // The session is over, and its descendant still belongs to it.
            assert_eq!(session.ends(), Some(0), "{script}");
        }
        assert_eq!(lab.user_of(pid), person.name, "{script}");
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let named = environment.split('\0').find(|it| it.starts_with("KUBERNETES_EXEC_AUDIT_ID="));
        assert!(matches!(named, None | Some("KUBERNETES_EXEC_AUDIT_ID=fake")), "{named:?}");
    }
    lab.stop();
}

/// EXEC-39: nor is there a way by the node.
#[test]
fn variables_sent_straight_to_the_node_start_nothing_exec_39() {
    let Some(lab) = Lab::start() else { return };
    let admin = lab.stack.kubectl();
    let role = "create clusterrolebinding anna-nodes --clusterrole=system:kubelet-api-admin \
                --serviceaccount=default:anna";
    admin.line(role).succeeds();
    let raw = lab.raw_to_node(&lab.anna);
    for env in
        ["env=KUBERNETES_EXEC_AUDIT_ID=fake", "env=A", "env==x", "env=A=%00", &numbered(9_000)]
    {
        let path = format!("/exec/default/{POD}/main?output=1&command=env&{env}");
        for (method, headers) in [("GET", PLAIN), ("GET", WEBSOCKET), ("POST", SPDY)] {
            let said = raw.ask(&format!("{method} {path}"), headers);
            assert_eq!(said.code, 403, "{said:?}");
            assert!(said.text.contains("use pods/exec"), "{said:?}");
        }
    }
    assert!(lab.traces(&["--probes"]).is_empty());
    lab.stop();
}

fn target(query: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{POD}/exec?stdout=true&{query}")
}

/// Refused in every shape, with `text` and without the value.
#[track_caller]
fn check(raw: &Raw, query: &str, code: u16, text: &str) {
    for (method, headers) in [("GET", WEBSOCKET), ("POST", SPDY), ("POST", PLAIN)] {
        let line = format!("{method} {}", target(&format!("command=env&{query}")));
        let Said { code: found, text: said } = raw.ask(&line, headers);
        let shown = query.get(..60).unwrap_or(query);
        assert_eq!(found, code, "{method} {shown}: {said}");
        assert!(said.contains(text), "{text:?} is not in the answer to {shown}: {said}");
    }
}

#[track_caller]
fn check_user(lab: &Lab, id: &str) {
    assert_eq!(lab.record(id)["user"]["username"], lab.anna.name.as_str());
    let traces = lab.traces(&["--user", &lab.anna.name]);
    assert!(traces.iter().any(|trace| trace["auditID"] == id), "{id} is not in {traces:#?}");
}

fn numbered(count: u32) -> String {
    let variables: Vec<String> = (0..count).map(|number| format!("env=V{number}=")).collect();
    variables.join("&")
}
